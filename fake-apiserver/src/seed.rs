//! What a test does to the world directly, beside all requests and faults.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::custom;
use crate::kinds::Kind;
use crate::object::{born, meta, succeeds};
use crate::server::Server;
use crate::status::Failure;
use crate::store::Change;
use crate::target::Resource;

impl Server {
    /// Creates an object or replaces it as a whole, status too; its namespace is made when it is missing. A given uid or
    /// creationTimestamp is kept when it is new. `now` is in milliseconds since 1970.
    ///
    /// # Errors
    /// When nothing serves its kind, or it has no name.
    pub fn apply(&mut self, now: u64, object: Value) -> Result<(), Failure> {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let name = object["kind"].as_str().unwrap_or_default();
        let kind = self.kinds.of_object(api_version, name).cloned();
        let kind = kind.ok_or_else(|| Failure::bad_request(format!("no kind {name} in {api_version}")))?;
        let version = api_version.rsplit('/').next().unwrap_or_default().to_owned();
        if meta(&object, "name").is_empty() {
            return Err(Failure::bad_request(format!("a {name} without a name")));
        }
        let name = meta(&object, "name").to_owned();
        let namespace = match meta(&object, "namespace") {
            _ if !kind.namespaced => String::new(),
            "" => "default".to_owned(),
            namespace => namespace.to_owned(),
        };
        if kind.namespaced {
            self.make_namespace(now, &namespace);
        }
        let at = Resource { kind, version, namespace, name, status: false };
        let status = object.get("status").cloned();
        let old = self.store.get(&at.kind.resource(), &at.key()).cloned();
        let mut new = match &old {
            Some(old) => succeeds(&at.kind, old, object, false),
            None => {
                let given = object["metadata"].clone();
                let uid = self.fresh_uid();
                let mut new = born(&at.kind, object, &uid, now);
                for field in ["uid", "creationTimestamp"] {
                    if let Some(value) = given.get(field).filter(|value| !value.is_null()) {
                        new["metadata"][field] = value.clone();
                    }
                }
                new
            }
        };
        if at.kind.namespaced {
            new["metadata"]["namespace"] = at.namespace.as_str().into();
        }
        if let Some(status) = status {
            new["status"] = status;
        }
        if old.as_deref() != Some(&new) {
            self.settle(&at, Some(new));
        }
        Ok(())
    }

    /// Removes an object at once, whatever its finalizers; says whether it was there. The namespace is empty for kinds without.
    pub fn remove(&mut self, resource: &str, namespace: &str, name: &str) -> bool {
        let Some(kind) = self.kinds.by_resource(resource).cloned() else { return false };
        let version = kind.versions.first().cloned().unwrap_or_default();
        let at = Resource { kind, version, namespace: namespace.to_owned(), name: name.to_owned(), status: false };
        let there = self.store.get(resource, &at.key()).is_some();
        if there {
            self.settle(&at, None);
        }
        there
    }

    /// An object as it is.
    pub fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<&Value> {
        let key = self.kinds.by_resource(resource)?.key(namespace, name);
        self.store.get(resource, &key).map(AsRef::as_ref)
    }

    /// All objects of a resource as they are, in the order of namespaces and names.
    pub fn objects(&self, resource: &str) -> impl Iterator<Item = &Value> {
        self.store.objects(resource).into_iter().flatten().map(|(_, object)| object.as_ref())
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.store.version()
    }

    /// Raises the version as writes of other kinds do, so that versions have gaps.
    pub fn pass_versions(&mut self, versions: u64) {
        self.store.pass(versions);
    }

    /// Adds a kind without a definition, or changes how one behaves.
    pub fn define(&mut self, kind: Kind) {
        self.kinds.add(kind);
    }

    /// Removes a kind with all its objects and watches; says whether it was there.
    pub fn undefine(&mut self, resource: &str) -> bool {
        let objects: Vec<_> = self.store.objects(resource).into_iter().flatten().map(|(_, one)| one.clone()).collect();
        for object in objects {
            self.remove(resource, meta(&object, "namespace"), meta(&object, "name"));
        }
        self.watches.end(resource);
        self.kinds.remove(resource).is_some()
    }

    /// A definition of custom resources came, changed or went.
    pub(crate) fn follow_definition(&mut self, change: &Change) {
        let kind = |object: &Option<Arc<Value>>| object.as_deref().and_then(custom::kind_of);
        match (kind(&change.before), kind(&change.after)) {
            (_, Some(kind)) => self.define(kind),
            (Some(kind), None) => {
                self.undefine(&kind.resource());
            }
            (None, None) => {}
        }
    }

    pub(crate) fn make_first_namespaces(&mut self) {
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            self.make_namespace(0, name);
        }
    }

    fn make_namespace(&mut self, now: u64, name: &str) {
        if self.object("namespaces", "", name).is_some() {
            return;
        }
        let Some(kind) = self.kinds.by_resource("namespaces").cloned() else { return };
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let uid = self.fresh_uid();
        let object = born(&kind, object, &uid, now);
        let (namespace, version) = (String::new(), "v1".to_owned());
        self.settle(&Resource { kind, version, namespace, name: name.to_owned(), status: false }, Some(object));
    }
}
