//! All tables of a proxy, and how a few changes make the next ones.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{Domain, FragmentName, HostName, ListenerName, Name};

use crate::fragment::Fragment;
use crate::hosts::Hosts;
use crate::shared_map::SharedMap;
use crate::table::{HostTable, Index};

/// Every listener's tables. `F` is what the caller keeps beside a fragment, `H` beside a host.
///
/// A router never changes; [`Router::update`] makes another, which shares all tables that no change touched.
#[derive(Debug)]
pub struct Router<F, H> {
    listeners: BTreeMap<ListenerName, Hosts<F, H>>,
    fragments: SharedMap<Arc<Fragment<F>>>,
}

/// One change of a router.
#[derive(Debug)]
pub enum Change<F, H> {
    /// A host is there from now on, with or without fragments.
    Host(HostName, H),
    /// A host is gone. Fragments that claim it keep their table.
    NoHost(HostName),
    /// A fragment is there from now on, in place of one of the same name.
    Fragment(Fragment<F>),
    /// A fragment is gone.
    NoFragment(FragmentName),
}

/// What happens to one table.
struct Edit<F, H> {
    host: Option<Option<Arc<H>>>,
    removed: Vec<Arc<Fragment<F>>>,
    added: Vec<Arc<Fragment<F>>>,
}

/// What one index became in an update.
struct Indexed<F> {
    old: Option<Arc<Index<F>>>,
    removed: Vec<Arc<Fragment<F>>>,
    added: Vec<Arc<Fragment<F>>>,
    new: Arc<Index<F>>,
}

impl<F> Indexed<F> {
    /// Whether it is what these changes make of that index.
    fn is(&self, old: &Option<Arc<Index<F>>>, removed: &[Arc<Fragment<F>>], added: &[Arc<Fragment<F>>]) -> bool {
        let same = |a: &[Arc<Fragment<F>>], b: &[Arc<Fragment<F>>]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        let base = match (&self.old, old) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        base && same(&self.removed, removed) && same(&self.added, added)
    }
}

/// The one copy of a domain.
fn shared(domains: &mut BTreeSet<Domain>, domain: &Domain) -> Domain {
    match domains.get(domain) {
        Some(known) => known.clone(),
        None => {
            domains.insert(domain.clone());
            domain.clone()
        }
    }
}

impl<F, H> Default for Router<F, H> {
    fn default() -> Router<F, H> {
        Router { listeners: BTreeMap::new(), fragments: SharedMap::default() }
    }
}

impl<F, H> Clone for Router<F, H> {
    fn clone(&self) -> Router<F, H> {
        Router { listeners: self.listeners.clone(), fragments: self.fragments.clone() }
    }
}

impl<F, H> Default for Edit<F, H> {
    fn default() -> Edit<F, H> {
        Edit { host: None, removed: Vec::new(), added: Vec::new() }
    }
}

impl<F, H> Router<F, H> {
    /// The router after these changes, in their order. The cost is that of the changes and of the lists they stand in,
    /// not of all that is there.
    pub fn update(&self, changes: impl IntoIterator<Item = Change<F, H>>) -> Router<F, H> {
        let mut next = self.clone();
        let mut edits: BTreeMap<HostName, Edit<F, H>> = BTreeMap::new();
        let mut fragments: BTreeMap<Name, Option<Fragment<F>>> = BTreeMap::new();
        // Each domain once, whatever names it.
        let mut domains: BTreeSet<Domain> = BTreeSet::new();
        for change in changes {
            match change {
                Change::Host(name, host) => {
                    let domain = shared(&mut domains, &name.domain);
                    edits.entry(HostName { domain, ..name }).or_default().host = Some(Some(Arc::new(host)));
                }
                Change::NoHost(name) => edits.entry(name).or_default().host = Some(None),
                Change::Fragment(fragment) => {
                    fragments.insert(fragment.name().clone(), Some(fragment));
                }
                Change::NoFragment(name) => {
                    fragments.insert(name.to_name(), None);
                }
            }
        }
        for (name, new) in fragments {
            let old = next.fragments.get(name.as_str()).cloned();
            for host in old.iter().flat_map(|old| hosts_of(old)) {
                edits.entry(host).or_default().removed.extend(old.clone());
            }
            let new = new.map(|mut new| {
                new.share_domain(shared(&mut domains, new.domain()));
                Arc::new(new)
            });
            for host in new.iter().flat_map(|new| hosts_of(new)) {
                edits.entry(host).or_default().added.extend(new.clone());
            }
            match new {
                Some(new) => next.fragments.insert(name.shared(), new),
                None => next.fragments.remove(name.as_str()),
            }
        }
        let mut indexed = BTreeMap::new();
        for (name, edit) in edits {
            next.edit(&name, edit, &mut indexed);
        }
        next
    }

    fn edit(&mut self, name: &HostName, edit: Edit<F, H>, indexed: &mut BTreeMap<Domain, Vec<Indexed<F>>>) {
        let hosts = self.listeners.entry(name.listener).or_default();
        let old = hosts.get(&name.domain);
        let mut table = old.map_or_else(|| HostTable::new(name.clone()), |table| HostTable::clone(table));
        if let Some(host) = edit.host {
            table.set_host(host);
        }
        if !edit.removed.is_empty() || !edit.added.is_empty() {
            // A domain is mostly served on several listeners with the same routes: these share one index.
            let old = old.map(|table| Arc::clone(table.index()));
            let others = indexed.entry(name.domain.clone()).or_default();
            let same = others.iter().find(|other| other.is(&old, &edit.removed, &edit.added));
            let new = match same {
                Some(other) => Arc::clone(&other.new),
                None => {
                    let new = Arc::new(table.index().after(&edit.removed, &edit.added));
                    let Edit { removed, added, .. } = edit;
                    others.push(Indexed { old, removed, added, new: Arc::clone(&new) });
                    new
                }
            };
            table.set_index(new);
        }
        hosts.set(&name.domain, (!table.is_empty()).then(|| Arc::new(table)));
        if hosts.len() == 0 {
            self.listeners.remove(&name.listener);
        }
    }

    /// The table that serves a name on a listener: that of the name itself, else of the longest wildcard that covers it
    /// (`*.x` is one label, `**.x` one or more), else of `*`. A table owns all paths of its names.
    ///
    /// The name is compared without regard to case (RFC 4343) and without its port.
    pub fn find_host(&self, listener: ListenerName, name: &str) -> Option<&Arc<HostTable<F, H>>> {
        let lower = if name.bytes().any(|b| b.is_ascii_uppercase()) {
            Cow::Owned(name.to_ascii_lowercase())
        } else {
            Cow::Borrowed(name)
        };
        self.listeners.get(&listener)?.find(&lower)
    }

    /// The table of exactly this host.
    pub fn host(&self, name: &HostName) -> Option<&Arc<HostTable<F, H>>> {
        self.listeners.get(&name.listener)?.get(&name.domain)
    }

    /// A fragment by its name.
    pub fn fragment(&self, name: &FragmentName) -> Option<&Arc<Fragment<F>>> {
        self.fragments.get(name.to_name().as_str())
    }

    /// How many fragments there are.
    pub fn fragments(&self) -> usize {
        self.fragments.len()
    }

    /// Every table, sorted by name. For views and explanations, not for requests.
    pub fn hosts(&self) -> Vec<Arc<HostTable<F, H>>> {
        let mut out = Vec::new();
        self.listeners.values().for_each(|hosts| hosts.for_each(&mut |table| out.push(Arc::clone(table))));
        out.sort_by(|a, b| a.name().cmp(b.name()));
        out
    }
}

/// The tables that a fragment stands in. A listener that is named twice counts once.
fn hosts_of<F>(fragment: &Fragment<F>) -> impl Iterator<Item = HostName> {
    let mut listeners = fragment.listeners().to_vec();
    listeners.sort_unstable();
    listeners.dedup();
    let domain = fragment.domain().clone();
    listeners.into_iter().map(move |listener| HostName { listener, domain: domain.clone() })
}

#[cfg(test)]
mod tests {
    use config::{Claims, Match, ObjectRef, OrderKey, PathMatch};

    use super::*;

    fn fragment(object: &str, listeners: &[u16], path: &str) -> Change<(), ()> {
        let domain: Domain = "shop.example".parse().unwrap();
        let key = OrderKey { rank: vec![1], created: 0, tie: ("demo".to_owned(), object.to_owned(), 0) };
        let path = PathMatch::Prefix(path.to_owned());
        let matches = vec![Match { path, method: None, headers: Vec::new(), query: Vec::new(), key }];
        let listeners = listeners.iter().map(|port| ListenerName::tcp(*port)).collect();
        let source = ObjectRef { kind: "Ingress".into(), namespace: "demo".into(), name: object.into() };
        let name = FragmentName { source, domain: domain.clone() };
        Change::Fragment(Fragment::new(name, Claims { listeners, host: domain, matches }, ()))
    }

    fn index(router: &Router<(), ()>, port: u16) -> &Arc<Index<()>> {
        router.find_host(ListenerName::tcp(port), "shop.example").unwrap().index()
    }

    #[test]
    fn listeners_that_serve_a_domain_with_the_same_routes_share_one_index() {
        let both = Router::default().update([fragment("a", &[80, 443], "/a"), fragment("b", &[80, 443], "/b")]);
        assert!(Arc::ptr_eq(index(&both, 80), index(&both, 443)));
        let changed = both.update([fragment("a", &[80, 443], "/c")]);
        assert!(Arc::ptr_eq(index(&changed, 80), index(&changed, 443)), "as long as they change together");
        let apart = changed.update([fragment("a", &[443], "/c")]);
        assert!(!Arc::ptr_eq(index(&apart, 80), index(&apart, 443)));
        let tables =
            [80, 443].map(|port| apart.find_host(ListenerName::tcp(port), "shop.example").unwrap().fragments());
        assert_eq!(tables, [1, 2]);
    }
}
