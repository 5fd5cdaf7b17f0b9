//! What is known of the objects of one kind, and what a list or an event changes in it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::ObjectRef;
use translate::{Change, NamespacedName, Object};

use super::version::{Uid, Version};

/// A state of an object, as an API server tells it.
#[derive(Clone, Debug)]
pub struct Item {
    /// Namespace and name.
    pub key: NamespacedName,
    /// Its uid.
    pub uid: Uid,
    /// Its resourceVersion.
    pub version: Version,
    /// The object; or why it is none that can be read.
    pub object: Result<Arc<Object>, String>,
}

/// The end of an object, or its state without its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Namespace and name.
    pub key: NamespacedName,
    /// Its uid.
    pub uid: Uid,
    /// Its resourceVersion; of an end, that of the end.
    pub version: Version,
}

#[derive(Clone, Debug)]
struct Held {
    uid: Uid,
    version: Version,
    /// The last good state. It is the one in the world, so it costs nothing here.
    object: Option<Arc<Object>>,
    /// Why the present state cannot be read.
    fault: Option<Box<str>>,
}

/// The objects of one kind, or of one kind in one namespace.
#[derive(Debug)]
pub struct Store {
    kind: &'static str,
    held: BTreeMap<NamespacedName, Held>,
    /// A list that is being read.
    aside: BTreeMap<NamespacedName, Held>,
    /// Ends that were seen since `floor`, and when.
    ended: BTreeMap<NamespacedName, Version>,
    /// Everything up to here is known: of an object that is not held nothing older counts.
    floor: Version,
    changes: Vec<Change>,
    findings: BTreeMap<NamespacedName, Option<String>>,
}

impl Store {
    /// Of a kind, without objects.
    pub fn new(kind: &'static str) -> Store {
        Store {
            kind,
            held: BTreeMap::new(),
            aside: BTreeMap::new(),
            ended: BTreeMap::new(),
            floor: Version::default(),
            changes: Vec::new(),
            findings: BTreeMap::new(),
        }
    }

    /// How many objects there are, readable or not.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The names of all objects that are held, in order.
    pub fn keys(&self) -> impl Iterator<Item = &NamespacedName> {
        self.held.keys()
    }

    /// What is held of a name: uid and version.
    pub fn get(&self, key: &NamespacedName) -> Option<(&Uid, &Version)> {
        self.held.get(key).map(|held| (&held.uid, &held.version))
    }

    /// When an object was seen to end, if that is not long ago.
    pub fn ended(&self, key: &NamespacedName) -> Option<&Version> {
        self.ended.get(key)
    }

    /// What events changed since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Objects that cannot be read, with the reason, and those of which that is no longer so, since the last call.
    pub fn take_findings(&mut self) -> Vec<(NamespacedName, Option<String>)> {
        std::mem::take(&mut self.findings).into_iter().collect()
    }

    /// An event: an object is so now. What is older than what is known changes nothing.
    pub fn put(&mut self, item: Item) {
        let known = match self.held.get(&item.key) {
            Some(held) => !item.version.supersedes(&held.version),
            None => {
                let covered = |by: &Version| matches!(by, Version::Number(_)) && !item.version.supersedes(by);
                covered(&self.floor) || self.ended.get(&item.key).is_some_and(covered)
            }
        };
        if known {
            return;
        }
        self.ended.remove(&item.key);
        let (key, new) = self.next(item);
        let old = self.held.remove(&key);
        self.differ(&key, old.as_ref(), Some(&new)).into_iter().for_each(|change| self.changes.push(change));
        self.held.insert(key, new);
    }

    /// An event: an object is gone.
    pub fn gone(&mut self, end: Trace) {
        if let Some(held) = self.held.get(&end.key) {
            if held.version.is_newer_than(&end.version) {
                return;
            }
            let old = self.held.remove(&end.key);
            self.differ(&end.key, old.as_ref(), None).into_iter().for_each(|change| self.changes.push(change));
        }
        let known = self.ended.get(&end.key).is_some_and(|ended| ended.is_newer_than(&end.version));
        if !known {
            self.ended.insert(end.key, end.version);
        }
    }

    /// Everything up to this version has come.
    pub fn raise_floor(&mut self, version: &Version) {
        if version.supersedes(&self.floor) {
            self.floor = version.clone();
            self.ended.retain(|_, ended| ended.is_newer_than(version));
        }
    }

    /// Begins to read a list. What is held stays until its end.
    pub fn begin_list(&mut self) {
        self.aside.clear();
    }

    /// An object of the list that is being read.
    pub fn list_put(&mut self, item: Item) {
        if self.aside.get(&item.key).is_some_and(|held| !item.version.supersedes(&held.version)) {
            return;
        }
        let (key, new) = self.next(item);
        self.aside.insert(key, new);
    }

    /// An object of the list that is being read ended meanwhile.
    pub fn list_gone(&mut self, end: &Trace) {
        if self.aside.get(&end.key).is_some_and(|held| !held.version.is_newer_than(&end.version)) {
            self.aside.remove(&end.key);
        }
    }

    /// The list is complete, and of this version: what it has is what there is. Gives what that changes.
    pub fn end_list(&mut self, version: &Version) -> Vec<Change> {
        let new = std::mem::take(&mut self.aside);
        let old = std::mem::take(&mut self.held);
        let mut changes = Vec::new();
        for (key, held) in old.iter().filter(|(key, _)| !new.contains_key(key)) {
            changes.extend(self.differ(key, Some(held), None));
        }
        for (key, held) in &new {
            changes.extend(self.differ(key, old.get(key), Some(held)));
        }
        self.held = new;
        self.floor = version.clone();
        self.ended.clear();
        changes
    }

    /// The state that an item makes of what is held.
    fn next(&self, item: Item) -> (NamespacedName, Held) {
        let Item { key, uid, version, object } = item;
        let old = self.held.get(&key);
        let (object, fault) = match object {
            // One copy for all that hold it.
            Ok(object) => match old.and_then(|held| held.object.as_ref()).filter(|known| ***known == *object) {
                Some(known) => (Some(Arc::clone(known)), None),
                None => (Some(object), None),
            },
            // Another object of the same name is not a good state of this one.
            Err(why) => {
                let last = old.filter(|held| held.uid == uid).and_then(|held| held.object.clone());
                (last, Some(why.into_boxed_str()))
            }
        };
        (key, Held { uid, version, object, fault })
    }

    /// What the world has to be told, and what people have to.
    fn differ(&mut self, key: &NamespacedName, old: Option<&Held>, new: Option<&Held>) -> Option<Change> {
        let (was, is) = (old.and_then(|held| held.fault.as_ref()), new.and_then(|held| held.fault.as_ref()));
        if was != is {
            self.findings.insert(key.clone(), is.map(|why| why.to_string()));
        }
        match (old.and_then(|held| held.object.as_ref()), new.and_then(|held| held.object.as_ref())) {
            (Some(old), Some(new)) if Arc::ptr_eq(old, new) => None,
            (_, Some(new)) => Some(Change::Put(Arc::clone(new))),
            (Some(_), None) => Some(Change::Delete(reference(self.kind, key))),
            (None, None) => None,
        }
    }
}

/// The name of an object as people and changes have it.
pub(super) fn reference(kind: &str, key: &NamespacedName) -> ObjectRef {
    ObjectRef { kind: kind.to_owned(), namespace: key.namespace.to_string(), name: key.name.to_string() }
}
