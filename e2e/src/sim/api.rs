//! The objects at the API server: a revision, a version and a uid for each of them, and what was seen to happen.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::ObjectRef;
use controller::watch::cluster::{Event, Item, Trace, Uid, Version};
use translate::Object;

use super::manifests::Objects;

/// The kinds that there are objects of.
pub(crate) const KINDS: [&str; 5] = ["Ingress", "IngressClass", "Service", "EndpointSlice", "Secret"];

#[derive(Debug)]
struct Stored {
    object: Arc<Object>,
    uid: u64,
    version: u64,
}

/// The API server.
#[derive(Debug, Default)]
pub(crate) struct Api {
    /// Counts every write.
    pub(crate) revision: u64,
    uids: u64,
    held: BTreeMap<ObjectRef, Stored>,
    log: BTreeMap<&'static str, Vec<(u64, Event)>>,
}

/// What the answer to a list shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// Everything that is there.
    Whole,
    /// A few objects, less than half of any guarded kind. The number says which.
    Part(usize),
    /// Nothing.
    Empty,
}

impl Api {
    /// Takes in what was edited.
    pub(crate) fn follow(&mut self, objects: &Objects) {
        let gone = |reference: &&ObjectRef| !objects.contains_key(*reference);
        let gone: Vec<ObjectRef> = self.held.keys().filter(gone).cloned().collect();
        for reference in gone {
            self.revision += 1;
            if let Some(Stored { object, uid, .. }) = self.held.remove(&reference) {
                let trace = trace(&object, uid, self.revision);
                self.happens(&reference.kind, Event::Gone(trace));
            }
        }
        for (reference, object) in objects {
            let known = self.held.get(reference);
            if known.is_some_and(|known| Arc::ptr_eq(&known.object, object) || known.object == *object) {
                continue;
            }
            self.revision += 1;
            let uid = known.map(|known| known.uid).unwrap_or_else(|| {
                self.uids += 1;
                self.uids
            });
            let stored = Stored { object: Arc::clone(object), uid, version: self.revision };
            self.happens(&reference.kind, Event::Put(item(&stored)));
            self.held.insert(reference.clone(), stored);
        }
    }

    fn happens(&mut self, kind: &str, event: Event) {
        let kind = KINDS.into_iter().find(|known| *known == kind).expect("a kind of the simulation");
        self.log.entry(kind).or_default().push((self.revision, event));
    }

    fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Stored> {
        self.held.iter().filter(move |(reference, _)| reference.kind == kind).map(|(_, stored)| stored)
    }

    /// A list of a kind.
    pub(crate) fn list(&self, kind: &str, list: List) -> Vec<Item> {
        let all: Vec<Item> = self.of(kind).map(item).collect();
        match list {
            List::Whole => all,
            List::Empty => Vec::new(),
            List::Part(which) => {
                let count = all.len().max(1);
                (0..3.min(count)).filter_map(|n| all.get((which + n) % count).cloned()).collect()
            }
        }
    }

    /// The uids and versions of a kind.
    pub(crate) fn traces(&self, kind: &str) -> Vec<Trace> {
        self.of(kind).map(|stored| trace(&stored.object, stored.uid, stored.version)).collect()
    }

    /// What happened to a kind.
    pub(crate) fn log(&self, kind: &str) -> &[(u64, Event)] {
        self.log.get(kind).map_or(&[], Vec::as_slice)
    }
}

fn item(stored: &Stored) -> Item {
    let Trace { key, uid, version } = trace(&stored.object, stored.uid, stored.version);
    Item { key, uid, version, object: Ok(Arc::clone(&stored.object)) }
}

fn trace(object: &Object, uid: u64, version: u64) -> Trace {
    Trace { key: object.key().clone(), uid: Uid::Usual(uid.into()), version: Version::Number(version) }
}
