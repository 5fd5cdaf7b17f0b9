//! A fragment made ready for matching: its paths as they are compared, its expressions built once.

use config::{Claims, FragmentName, HeaderMatch, Match, OrderKey, PathMatch, QueryMatch, ValueMatch, compared};
use http::HeaderName;

use crate::pattern::{Pattern, literal_prefix};
use crate::request::Request;

/// The most memory of all expressions of one fragment, in bytes: one object cannot take all memory.
const FRAGMENT_PATTERN_BYTES_MAX: usize = 16 << 20;

/// The routes of one source object for one domain, with what the caller keeps beside them.
#[derive(Debug)]
pub struct Fragment<F> {
    name: FragmentName,
    claims: Claims,
    rules: Vec<Rule>,
    unbuilt: Vec<Unbuilt>,
    payload: F,
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
    method: Option<String>,
    headers: Vec<(HeaderName, ValueRule)>,
    query: Vec<(Vec<u8>, ValueRule)>,
    pub(crate) built: bool,
}

/// A path, as the text that is compared.
#[derive(Debug)]
pub(crate) enum PathRule {
    Exact(String),
    Prefix(String),
    /// An expression, and a text that whatever it matches begins with.
    Regex(Pattern, String),
    /// Stands in for an expression that cannot be built: a prefix by bytes, not by element.
    Literal(String),
}

#[derive(Debug)]
enum ValueRule {
    Exact(Vec<u8>),
    Regex(Pattern),
    Present,
}

impl<F> Fragment<F> {
    /// Builds the matches. What cannot be built is listed in [`Fragment::unbuilt`] and claimed more widely.
    pub fn new(name: FragmentName, claims: Claims, payload: F) -> Fragment<F> {
        let mut builder = Builder { budget: FRAGMENT_PATTERN_BYTES_MAX, unbuilt: Vec::new() };
        let rules = claims.matches.iter().enumerate().map(|(claim, one)| builder.rule(claim, one)).collect();
        Fragment { name, claims, rules, unbuilt: builder.unbuilt, payload }
    }

    /// Its name.
    pub fn name(&self) -> &FragmentName {
        &self.name
    }

    /// What it claims.
    pub fn claims(&self) -> &Claims {
        &self.claims
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

    pub(crate) fn key(&self, claim: usize) -> &OrderKey {
        &self.claims.matches[claim].key
    }
}

/// Builds rules within one budget of memory.
struct Builder {
    budget: usize,
    unbuilt: Vec<Unbuilt>,
}

impl Builder {
    fn rule(&mut self, claim: usize, one: &Match) -> Rule {
        let faults_before = self.unbuilt.len();
        let path = match &one.path {
            PathMatch::Exact(path) => PathRule::Exact(compared(path).into_owned()),
            PathMatch::Prefix(path) => PathRule::Prefix(compared(path).into_owned()),
            PathMatch::Regex(text) => match self.pattern(claim, Pattern::of_path(text)) {
                Some(pattern) => PathRule::Regex(pattern, literal_prefix(text)),
                None => PathRule::Literal(literal_prefix(text)),
            },
        };
        // A condition that cannot be built is dropped: the claim becomes wider, never narrower.
        let headers = one.headers.iter().filter_map(|header| self.header(claim, header)).collect();
        let query = one.query.iter().filter_map(|parameter| self.parameter(claim, parameter)).collect();
        let method = one.method.as_ref().map(|method| method.0.clone());
        Rule { path, method, headers, query, built: self.unbuilt.len() == faults_before }
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
        self.method.as_ref().is_none_or(|method| method == request.method)
            && self.headers.iter().all(|(name, rule)| request.header(name).is_some_and(|value| rule.fits(&value)))
            && self.query.iter().all(|(name, rule)| request.parameter(name).is_some_and(|value| rule.fits(value)))
    }

    /// Whether a path fits that no index finds.
    pub(crate) fn fits_unindexed_path(&self, path: &str) -> bool {
        match &self.path {
            PathRule::Regex(pattern, start) => path.starts_with(start.as_str()) && pattern.is_match(path.as_bytes()),
            PathRule::Literal(literal) => path.starts_with(literal.as_str()),
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
