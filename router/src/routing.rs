//! All tables of a proxy, and how a few changes make the next ones.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use config::{FragmentName, HostName, ListenerName};

use crate::fragment::Fragment;
use crate::hosts::Hosts;
use crate::shared_map::SharedMap;
use crate::table::HostTable;

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
        let mut fragments: BTreeMap<FragmentName, Option<Arc<Fragment<F>>>> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Host(name, host) => edits.entry(name).or_default().host = Some(Some(Arc::new(host))),
                Change::NoHost(name) => edits.entry(name).or_default().host = Some(None),
                Change::Fragment(fragment) => {
                    fragments.insert(fragment.name().clone(), Some(Arc::new(fragment)));
                }
                Change::NoFragment(name) => {
                    fragments.insert(name, None);
                }
            }
        }
        for (name, new) in fragments {
            let encoded = name.to_name();
            let old = next.fragments.get(encoded.as_str()).cloned();
            for host in old.iter().flat_map(|old| hosts_of(old)) {
                edits.entry(host).or_default().removed.extend(old.clone());
            }
            for host in new.iter().flat_map(|new| hosts_of(new)) {
                edits.entry(host).or_default().added.extend(new.clone());
            }
            match new {
                Some(new) => next.fragments.insert(encoded.as_str(), new),
                None => next.fragments.remove(encoded.as_str()),
            }
        }
        for (name, edit) in edits {
            next.edit(&name, edit);
        }
        next
    }

    fn edit(&mut self, name: &HostName, edit: Edit<F, H>) {
        let hosts = self.listeners.entry(name.listener).or_default();
        let old = hosts.get(&name.domain);
        let mut table = old.map_or_else(|| HostTable::new(name.clone()), |table| HostTable::clone(table));
        if let Some(host) = edit.host {
            table.set_host(host);
        }
        table.apply(&edit.removed, &edit.added);
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
    let claims = fragment.claims();
    let mut listeners = claims.listeners.clone();
    listeners.sort_unstable();
    listeners.dedup();
    let domain = claims.host.clone();
    listeners.into_iter().map(move |listener| HostName { listener, domain: domain.clone() })
}
