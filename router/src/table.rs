//! The merged routes of one domain on one listener.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{HostName, compared};
use http::HeaderMap;

use crate::fragment::{Fragment, PathRule, Rule};
use crate::pattern::Captures;
use crate::readings::readings;
use crate::request::Request;
use crate::shared_map::{Hasher, SharedMap};

/// One domain on one listener: all matches of all fragments that claim it, in their order.
#[derive(Debug)]
pub struct HostTable<F, H> {
    name: HostName,
    host: Option<Arc<H>>,
    /// Shared with other listeners that serve the domain with the same routes.
    index: Arc<Index<F>>,
}

/// The matches of a table, by how they are found.
#[derive(Debug)]
pub(crate) struct Index<F> {
    fragments: usize,
    /// By the text in which paths are compared; each list in order.
    exact: SharedMap<List<F>>,
    prefix: SharedMap<List<F>>,
    /// Those that no path finds, in order.
    unindexed: Option<List<F>>,
}

/// Matches in order, never none. Mostly there is one.
#[derive(Debug)]
enum List<F> {
    One(Entry<F>),
    Many(Arc<[Entry<F>]>),
}

/// One match of one fragment.
#[derive(Debug)]
struct Entry<F> {
    fragment: Arc<Fragment<F>>,
    claim: u32,
}

/// The match that won a request.
#[derive(Debug)]
pub struct Found<'t, F> {
    /// The fragment that it belongs to.
    pub fragment: &'t Arc<Fragment<F>>,
    /// Its number in the claims of that fragment, and in the actions of its body.
    pub claim: usize,
    /// False if the match could not be built and only stands in for itself: the answer is 503.
    pub built: bool,
    /// How many bytes of the normal form a prefix match covered; 0 for the prefix `/` and for other forms of match. It is
    /// what a new prefix stands for.
    pub covered: usize,
    /// The groups of the regular expression, if the match is one.
    pub captures: Option<Captures>,
}

/// A path that a lenient backend would read as one that an earlier route claims. The answer is 400.
///
/// The spellings are `%2F`, `%5C`, `//`, `;` and `%3B`; readings are compared with claims as these are written. Without
/// this, `/x%2Fadmin` would reach the handler behind `/x/admin` on the terms of `/x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path can be read as one that another route claims")]
pub struct Ambiguous;

impl<F> Clone for Entry<F> {
    fn clone(&self) -> Entry<F> {
        Entry { fragment: Arc::clone(&self.fragment), claim: self.claim }
    }
}

impl<F> Clone for List<F> {
    fn clone(&self) -> List<F> {
        match self {
            List::One(entry) => List::One(entry.clone()),
            List::Many(entries) => List::Many(Arc::clone(entries)),
        }
    }
}

impl<F> List<F> {
    fn of(entries: Vec<Entry<F>>) -> Option<List<F>> {
        match <[Entry<F>; 1]>::try_from(entries) {
            Ok([one]) => Some(List::One(one)),
            Err(many) if many.is_empty() => None,
            Err(many) => Some(List::Many(many.into())),
        }
    }

    fn iter(&self) -> std::slice::Iter<'_, Entry<F>> {
        match self {
            List::One(entry) => std::slice::from_ref(entry).iter(),
            List::Many(entries) => entries.iter(),
        }
    }
}

impl<F> Entry<F> {
    fn rule(&self) -> &Rule {
        &self.fragment.rules()[self.claim()]
    }

    fn claim(&self) -> usize {
        self.claim as usize
    }

    /// Keys are unique in a host; should they not be, the names decide, so that every proxy decides alike.
    fn order(&self, other: &Entry<F>) -> Ordering {
        let keys = self.fragment.key(self.claim()).cmp(&other.fragment.key(other.claim()));
        keys.then_with(|| match Arc::ptr_eq(&self.fragment, &other.fragment) {
            true => Ordering::Equal,
            false => self.fragment.parts_of_name().cmp(&other.fragment.parts_of_name()),
        })
        .then(self.claim.cmp(&other.claim))
    }
}

impl<F, H> Clone for HostTable<F, H> {
    fn clone(&self) -> HostTable<F, H> {
        HostTable { name: self.name.clone(), host: self.host.clone(), index: Arc::clone(&self.index) }
    }
}

impl<F, H> HostTable<F, H> {
    pub(crate) fn new(name: HostName) -> HostTable<F, H> {
        HostTable {
            name,
            host: None,
            index: Arc::new(Index {
                fragments: 0,
                exact: SharedMap::default(),
                prefix: SharedMap::default(),
                unindexed: None,
            }),
        }
    }

    /// The listener and the domain.
    pub fn name(&self) -> &HostName {
        &self.name
    }

    /// What the caller keeps for the host; nothing if only fragments name it.
    pub fn host(&self) -> Option<&Arc<H>> {
        self.host.as_ref()
    }

    /// How many fragments claim it.
    pub fn fragments(&self) -> usize {
        self.index.fragments
    }

    /// The first match in the order of keys that fits the request. The path must be a result of [`crate::normalise`].
    ///
    /// # Errors
    /// When the path is spelled so that a backend may take it for one that an earlier match claims.
    pub fn route(
        &self,
        method: &str,
        path: &str,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<Option<Found<'_, F>>, Ambiguous> {
        let compared = compared(path);
        let request = Request::new(method, path, &compared, headers, query);
        let Some(winner) = self.index.first(&request) else { return Ok(None) };
        for reading in readings(path, &compared) {
            let other = self.index.first(&request.with_reading(&reading));
            if other.is_some_and(|other| other.order(winner) == Ordering::Less) {
                return Err(Ambiguous);
            }
        }
        let rule = winner.rule();
        let captures = match &rule.path {
            PathRule::Regex(expression) => Some(expression.0.captures(path)),
            _ => None,
        };
        let covered = match &rule.path {
            PathRule::Prefix(prefix) if **prefix != *"/" => elements_end(path, prefix),
            _ => 0,
        };
        Ok(Some(Found { fragment: &winner.fragment, claim: winner.claim(), built: rule.built, covered, captures }))
    }

    pub(crate) fn set_host(&mut self, host: Option<Arc<H>>) {
        self.host = host;
    }

    /// True if nothing is left of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.host.is_none() && self.index.fragments == 0
    }

    pub(crate) fn index(&self) -> &Arc<Index<F>> {
        &self.index
    }

    pub(crate) fn set_index(&mut self, index: Arc<Index<F>>) {
        self.index = index;
    }
}

impl<F> Index<F> {
    fn first(&self, request: &Request<'_>) -> Option<&Entry<F>> {
        let mut best: Option<&Entry<F>> = None;
        let mut hasher = Hasher::new();
        let path = request.compared;
        let bytes = path.as_bytes();
        for (at, byte) in bytes.iter().enumerate() {
            // Every `/` but the first ends an element, and with it a prefix.
            if *byte == b'/' && at > 0 {
                best = first_of(self.prefix.get_hashed(hasher.hash(), &path[..at]), request, best);
            }
            hasher.push(*byte);
            if at == 0 && bytes.len() > 1 {
                best = first_of(self.prefix.get_hashed(hasher.hash(), &path[..1]), request, best);
            }
        }
        best = first_of(self.prefix.get_hashed(hasher.hash(), path), request, best);
        best = first_of(self.exact.get_hashed(hasher.hash(), path), request, best);
        for entry in self.unindexed.iter().flat_map(List::iter) {
            if best.is_some_and(|best| best.order(entry) == Ordering::Less) {
                break;
            }
            let rule = entry.rule();
            if rule.fits_unindexed_path(request.path) && rule.fits_beside_path(request) {
                return Some(entry);
            }
        }
        best
    }

    /// The index without some fragments and with others. Each list that changes is written once.
    pub(crate) fn after(&self, removed: &[Arc<Fragment<F>>], added: &[Arc<Fragment<F>>]) -> Index<F> {
        let mut index = Index {
            fragments: self.fragments + added.len() - removed.len(),
            exact: self.exact.clone(),
            prefix: self.prefix.clone(),
            unindexed: self.unindexed.clone(),
        };
        let gone: BTreeSet<*const Fragment<F>> = removed.iter().map(Arc::as_ptr).collect();
        let mut touched: BTreeMap<Place<'_>, Vec<Entry<F>>> = BTreeMap::new();
        for fragment in removed {
            for rule in fragment.rules() {
                touched.entry(Place::of(rule)).or_default();
            }
        }
        for fragment in added {
            for (claim, rule) in (0..).zip(fragment.rules()) {
                touched.entry(Place::of(rule)).or_default().push(Entry { fragment: Arc::clone(fragment), claim });
            }
        }
        for (place, news) in touched {
            let merge = |old: Option<&List<F>>| {
                let kept = old.into_iter().flat_map(List::iter);
                let kept = kept.filter(|entry| !gone.contains(&Arc::as_ptr(&entry.fragment)));
                let mut list: Vec<Entry<F>> = kept.cloned().chain(news).collect();
                // Mostly two sorted runs, which a stable sort merges in one pass.
                list.sort_by(Entry::order);
                List::of(list)
            };
            match place {
                Place::Exact(path) => put(&mut index.exact, path, merge),
                Place::Prefix(path) => put(&mut index.prefix, path, merge),
                Place::Unindexed => index.unindexed = merge(index.unindexed.as_ref()),
            }
        }
        index
    }
}

/// The list that a match stands in.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Place<'a> {
    Exact(&'a Arc<str>),
    Prefix(&'a Arc<str>),
    Unindexed,
}

impl<'a> Place<'a> {
    fn of(rule: &'a Rule) -> Place<'a> {
        match &rule.path {
            PathRule::Exact(path) => Place::Exact(path),
            PathRule::Prefix(path) => Place::Prefix(path),
            PathRule::Regex(..) | PathRule::Literal(_) => Place::Unindexed,
        }
    }
}

/// Where the elements of a path end that stand for those of a prefix, whatever their spelling: no spelling adds a slash.
fn elements_end(path: &str, prefix: &str) -> usize {
    let elements = prefix.bytes().filter(|byte| *byte == b'/').count();
    path.match_indices('/').nth(elements).map_or(path.len(), |(at, _)| at)
}

fn put<F>(map: &mut SharedMap<List<F>>, path: &Arc<str>, merge: impl FnOnce(Option<&List<F>>) -> Option<List<F>>) {
    match merge(map.get(path)) {
        Some(list) => map.insert(Arc::clone(path), list),
        None => map.remove(path),
    }
}

/// The earlier of `best` and the first in a list that fits beside its path.
fn first_of<'t, F>(
    list: Option<&'t List<F>>,
    request: &Request<'_>,
    best: Option<&'t Entry<F>>,
) -> Option<&'t Entry<F>> {
    for entry in list.into_iter().flat_map(List::iter) {
        if best.is_some_and(|best| best.order(entry) == Ordering::Less) {
            break;
        }
        if entry.rule().fits_beside_path(request) {
            return Some(entry);
        }
    }
    best
}
