//! A fragment made ready for matching: its paths as they are compared, its expressions built once.

use std::sync::Arc;

use config::{
    Claims, Domain, FragmentName, HeaderMatch, ListenerName, Match, Name, OrderParts, PathMatch, QueryMatch,
    ValueMatch, compared,
};
use http::HeaderName;

use crate::pattern::{Pattern, literal_prefix};
use crate::request::Request;

/// The most memory of all expressions of one fragment, in bytes: one object cannot take all memory.
const FRAGMENT_PATTERN_BYTES_MAX: usize = 16 << 20;

/// The routes of one source object for one domain, with what the caller keeps beside them.
///
/// There are as many of them as there are objects, so what they keep is packed: each text once.
#[derive(Debug)]
pub struct Fragment<F> {
    name: Name,
    listeners: Box<[ListenerName]>,
    domain: Domain,
    /// What the keys of the matches have in common, each once: mostly there is one.
    sources: Box<[Source]>,
    /// The ranks of all matches, one behind the other.
    ranks: Box<[u32]>,
    rules: Box<[Rule]>,
    unbuilt: Box<[Unbuilt]>,
    payload: F,
}

/// The part of an order key that says which object a match is from.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    created: i64,
    namespace: Box<str>,
    name: Box<str>,
}

/// A match that could not be built. It is claimed more widely, with the same key, and must answer 503.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unbuilt {
    /// The number of the match in the claims.
    pub claim: usize,
    /// What is wrong, for the owner of the object.
    pub why: String,
}

/// One match, built.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) path: PathRule,
    conditions: Option<Box<Conditions>>,
    /// Where its rank ends among the ranks; it begins where the one before ends.
    rank_end: u32,
    /// Its place among the sources.
    source: u32,
    /// The number in the tie of its key.
    number: u32,
    pub(crate) built: bool,
}

/// What a match asks for beside its path.
#[derive(Debug, Default)]
struct Conditions {
    method: Option<String>,
    headers: Vec<(HeaderName, ValueRule)>,
    query: Vec<(Vec<u8>, ValueRule)>,
}

/// A path, as the text that is compared.
#[derive(Debug)]
pub(crate) enum PathRule {
    Exact(Arc<str>),
    Prefix(Arc<str>),
    /// An expression, and a text that whatever it matches begins with.
    Regex(Box<(Pattern, String)>),
    /// Stands in for an expression that cannot be built: a prefix by bytes, not by element.
    Literal(Arc<str>),
}

#[derive(Debug)]
enum ValueRule {
    Exact(Vec<u8>),
    Regex(Pattern),
    Present,
}

impl<F> Fragment<F> {
    /// Builds the matches. What cannot be built is listed in [`Fragment::unbuilt`] and claimed more widely.
    ///
    /// The name is that of a [`FragmentName`].
    pub fn new(name: impl Into<Name>, claims: Claims, payload: F) -> Fragment<F> {
        let mut builder = Builder { budget: FRAGMENT_PATTERN_BYTES_MAX, unbuilt: Vec::new() };
        let Claims { listeners, host, matches } = claims;
        let (mut sources, mut ranks): (Vec<Source>, Vec<u32>) = (Vec::with_capacity(1), Vec::new());
        let mut rules = Vec::with_capacity(matches.len());
        for (claim, one) in matches.into_iter().enumerate() {
            let (path, conditions, built) = builder.rule(claim, &one);
            ranks.extend(&one.key.rank);
            let (namespace, name, number) = one.key.tie;
            let source = Source { created: one.key.created, namespace: namespace.into(), name: name.into() };
            let at = sources.iter().position(|known| *known == source).unwrap_or(sources.len());
            if at == sources.len() {
                sources.push(source);
            }
            // Bounded far below 2^32 by the largest resource.
            let index = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            rules.push(Rule { path, conditions, rank_end: index(ranks.len()), source: index(at), number, built });
        }
        Fragment {
            name: name.into(),
            listeners: listeners.into(),
            domain: host,
            sources: sources.into(),
            ranks: ranks.into(),
            rules: rules.into(),
            unbuilt: builder.unbuilt.into(),
            payload,
        }
    }

    /// Its encoded name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The listeners it is served on.
    pub fn listeners(&self) -> &[ListenerName] {
        &self.listeners
    }

    /// The domain that it claims paths of.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// What the caller keeps beside it.
    pub fn payload(&self) -> &F {
        &self.payload
    }

    /// The matches that could not be built, in order; at most one entry each.
    pub fn unbuilt(&self) -> &[Unbuilt] {
        &self.unbuilt
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The key of a match.
    pub(crate) fn key(&self, claim: usize) -> OrderParts<'_> {
        let rule = &self.rules[claim];
        let from = claim.checked_sub(1).map_or(0, |before| self.rules[before].rank_end);
        let source = &self.sources[rule.source as usize];
        OrderParts {
            rank: &self.ranks[from as usize..rule.rank_end as usize],
            created: source.created,
            tie: (&source.namespace, &source.name, rule.number),
        }
    }

    /// Its name in its parts, which is how names are ordered.
    pub(crate) fn parts_of_name(&self) -> Option<FragmentName> {
        FragmentName::from_name(&self.name).ok()
    }

    /// The domain is one that others keep too.
    pub(crate) fn share_domain(&mut self, domain: Domain) {
        self.domain = domain;
    }
}

/// Builds rules within one budget of memory.
struct Builder {
    budget: usize,
    unbuilt: Vec<Unbuilt>,
}

impl Builder {
    /// The path, the conditions, and whether all of it could be built.
    fn rule(&mut self, claim: usize, one: &Match) -> (PathRule, Option<Box<Conditions>>, bool) {
        let faults_before = self.unbuilt.len();
        let path = match &one.path {
            PathMatch::Exact(path) => PathRule::Exact(compared(path).into()),
            PathMatch::Prefix(path) => PathRule::Prefix(compared(path).into()),
            PathMatch::Regex(text) => match self.pattern(claim, Pattern::of_path(text)) {
                Some(pattern) => PathRule::Regex(Box::new((pattern, literal_prefix(text)))),
                None => PathRule::Literal(literal_prefix(text).into()),
            },
        };
        // A condition that cannot be built is dropped: the claim becomes wider, never narrower.
        let headers: Vec<_> = one.headers.iter().filter_map(|header| self.header(claim, header)).collect();
        let query: Vec<_> = one.query.iter().filter_map(|parameter| self.parameter(claim, parameter)).collect();
        let method = one.method.as_ref().map(|method| method.0.clone());
        let any = method.is_some() || !headers.is_empty() || !query.is_empty();
        let conditions = any.then(|| Box::new(Conditions { method, headers, query }));
        (path, conditions, self.unbuilt.len() == faults_before)
    }

    fn header(&mut self, claim: usize, header: &HeaderMatch) -> Option<(HeaderName, ValueRule)> {
        match HeaderName::from_bytes(header.name.as_bytes()) {
            Ok(name) => Some((name, self.value(claim, &header.value)?)),
            Err(_) => {
                self.fault(claim, format!("{:?} is not a header name", header.name));
                None
            }
        }
    }

    fn parameter(&mut self, claim: usize, parameter: &QueryMatch) -> Option<(Vec<u8>, ValueRule)> {
        Some((parameter.name.clone().into_bytes(), self.value(claim, &parameter.value)?))
    }

    fn value(&mut self, claim: usize, value: &ValueMatch) -> Option<ValueRule> {
        Some(match value {
            ValueMatch::Exact(text) => ValueRule::Exact(text.clone().into_bytes()),
            ValueMatch::Regex(text) => ValueRule::Regex(self.pattern(claim, Pattern::of_value(text))?),
            ValueMatch::Present => ValueRule::Present,
        })
    }

    fn pattern(&mut self, claim: usize, built: Result<Pattern, String>) -> Option<Pattern> {
        let pattern = match built {
            Ok(pattern) => pattern,
            Err(why) => {
                self.fault(claim, why);
                return None;
            }
        };
        match self.budget.checked_sub(pattern.bytes()) {
            Some(rest) => {
                self.budget = rest;
                Some(pattern)
            }
            None => {
                self.fault(claim, "all expressions of the object together are too large".to_owned());
                None
            }
        }
    }

    fn fault(&mut self, claim: usize, why: String) {
        if self.unbuilt.last().is_none_or(|last| last.claim != claim) {
            self.unbuilt.push(Unbuilt { claim, why });
        }
    }
}

impl Rule {
    /// Whether everything but an exact or prefix path fits; those two are found by their index.
    pub(crate) fn fits_beside_path(&self, request: &Request<'_>) -> bool {
        let Some(conditions) = &self.conditions else { return true };
        conditions.method.as_ref().is_none_or(|method| method == request.method)
            && conditions.headers.iter().all(|(name, rule)| request.header(name).is_some_and(|value| rule.fits(&value)))
            && conditions.query.iter().all(|(name, rule)| request.parameter(name).is_some_and(|value| rule.fits(value)))
    }

    /// Whether a path fits that no index finds.
    pub(crate) fn fits_unindexed_path(&self, path: &str) -> bool {
        match &self.path {
            PathRule::Regex(expression) => {
                let (pattern, start) = &**expression;
                path.starts_with(start.as_str()) && pattern.is_match(path.as_bytes())
            }
            PathRule::Literal(literal) => path.starts_with(&**literal),
            PathRule::Exact(_) | PathRule::Prefix(_) => false,
        }
    }
}

impl ValueRule {
    fn fits(&self, value: &[u8]) -> bool {
        match self {
            ValueRule::Exact(wanted) => wanted == value,
            ValueRule::Regex(pattern) => pattern.is_match(value),
            ValueRule::Present => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There are as many of these as a fleet has routes; a field more is a megabyte more in every proxy.
    #[test]
    fn what_there_is_for_each_route_stays_small() {
        assert!(size_of::<Rule>() <= 56, "a rule has {} bytes", size_of::<Rule>());
        assert!(size_of::<Fragment<()>>() <= 120, "a fragment has {} bytes", size_of::<Fragment<()>>());
    }
}
