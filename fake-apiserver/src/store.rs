//! Objects by resource and key under one growing version, with the changes that led there: enough to look back and to follow.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

/// The objects of one resource, by key, in the order of the keys.
pub(crate) type Objects = BTreeMap<String, Arc<Value>>;

/// One change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The version that it led to.
    pub(crate) version: u64,
    pub(crate) resource: Arc<str>,
    pub(crate) key: String,
    pub(crate) before: Option<Arc<Value>>,
    pub(crate) after: Option<Arc<Value>>,
}

/// All objects and what is still known of how they came to be so.
#[derive(Debug)]
pub(crate) struct Store {
    version: u64,
    /// Changes up to this version are forgotten.
    forgotten: u64,
    resources: BTreeMap<Arc<str>, Objects>,
    history: VecDeque<Change>,
    /// How many changes are kept.
    limit: usize,
}

impl Store {
    pub(crate) fn new(limit: usize) -> Store {
        // A real one has begun to count long before the first client comes.
        Store { version: 100, forgotten: 1, resources: BTreeMap::new(), history: VecDeque::new(), limit }
    }

    /// The version of the last change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The oldest version from which changes can be followed.
    pub(crate) fn oldest(&self) -> u64 {
        self.forgotten
    }

    pub(crate) fn objects(&self, resource: &str) -> Option<&Objects> {
        self.resources.get(resource)
    }

    pub(crate) fn get(&self, resource: &str, key: &str) -> Option<&Arc<Value>> {
        self.resources.get(resource)?.get(key)
    }

    /// Writes an object, or removes it, under the next version, which goes into the object's metadata.
    pub(crate) fn write(&mut self, resource: &str, key: &str, after: Option<Value>) -> Change {
        self.version += 1;
        let resource: Arc<str> = resource.into();
        let objects = self.resources.entry(Arc::clone(&resource)).or_default();
        let after = after.map(|mut object| {
            object["metadata"]["resourceVersion"] = self.version.to_string().into();
            Arc::new(object)
        });
        let before = match &after {
            Some(object) => objects.insert(key.to_owned(), Arc::clone(object)),
            None => objects.remove(key),
        };
        let change = Change { version: self.version, resource, key: key.to_owned(), before, after };
        self.history.push_back(change.clone());
        while self.history.len() > self.limit {
            if let Some(forgotten) = self.history.pop_front() {
                self.forgotten = forgotten.version;
            }
        }
        change
    }

    /// Raises the version without a change, as writes of kinds that nobody looks at do.
    pub(crate) fn pass(&mut self, versions: u64) {
        self.version += versions;
    }

    /// Forgets how things came to be as they are.
    pub(crate) fn forget(&mut self) {
        self.history.clear();
        self.forgotten = self.version;
    }

    /// The changes after a version, the oldest first. None if some of them are forgotten.
    pub(crate) fn since(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        let start = self.history.partition_point(|change| change.version <= version);
        (version >= self.forgotten).then(|| self.history.range(start..))
    }

    /// The objects as they were at a version. None if that is forgotten.
    pub(crate) fn at(&self, resource: &str, version: u64) -> Option<Objects> {
        let mut objects = self.resources.get(resource).cloned().unwrap_or_default();
        let changes: Vec<&Change> = self.since(version)?.filter(|change| *change.resource == *resource).collect();
        for change in changes.into_iter().rev() {
            match &change.before {
                Some(object) => objects.insert(change.key.clone(), Arc::clone(object)),
                None => objects.remove(&change.key),
            };
        }
        Some(objects)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Store;

    fn names(store: &Store, version: u64) -> Option<Vec<String>> {
        let objects = store.at("things", version)?;
        Some(objects.values().map(|object| format!("{}{}", object["name"], object["x"])).collect())
    }

    #[test]
    fn every_version_that_is_known_can_be_looked_at_again() {
        let mut store = Store::new(4);
        let start = store.version();
        store.write("things", "a", Some(json!({"metadata": {}, "name": "a", "x": 1})));
        store.write("others", "a", Some(json!({"metadata": {}})));
        store.write("things", "b", Some(json!({"metadata": {}, "name": "b", "x": 1})));
        store.write("things", "a", Some(json!({"metadata": {}, "name": "a", "x": 2})));
        let seen: Vec<_> = (start..=store.version()).map(|version| names(&store, version).unwrap()).collect();
        let want: [&[&str]; 5] = [&[], &["\"a\"1"], &["\"a\"1"], &["\"a\"1", "\"b\"1"], &["\"a\"2", "\"b\"1"]];
        assert_eq!(seen, want);
        // The fifth change pushes the first one out.
        store.write("things", "b", None);
        assert_eq!(names(&store, start), None, "the oldest change is forgotten");
        assert_eq!(names(&store, start + 1).unwrap(), ["\"a\"1"]);
        assert_eq!(names(&store, start + 5).unwrap(), ["\"a\"2"]);
        store.forget();
        assert_eq!(names(&store, start + 4), None);
        assert_eq!(names(&store, start + 5).unwrap(), ["\"a\"2"], "what there is stays");
    }

    #[test]
    fn an_object_carries_the_version_of_its_last_change() {
        let mut store = Store::new(10);
        store.write("things", "a", Some(json!({"metadata": {}})));
        store.pass(10);
        let change = store.write("things", "a", Some(json!({"metadata": {}})));
        assert_eq!(store.get("things", "a").unwrap()["metadata"]["resourceVersion"], change.version.to_string());
        assert_eq!(change.version, 112);
    }
}
