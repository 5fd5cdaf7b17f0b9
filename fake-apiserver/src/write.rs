//! `create`, `replace`, `patch` and `delete`, each with its preconditions.

use serde_json::{Value, json};

use crate::accept::Form;
use crate::calendar::rfc3339;
use crate::object::{born, has_finalizers, is_ending, merge, meta, succeeds, within};
use crate::read::{give, versioned};
use crate::request::{Request, Response};
use crate::server::Server;
use crate::status::{Failure, deleted};
use crate::target::Resource;

/// What the real one says when the version in a write is not the present one.
const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

impl Server {
    pub(crate) fn create(&mut self, now: u64, at: &Resource, body: &[u8], form: Form) -> Result<Response, Failure> {
        if !at.name.is_empty() || (at.kind.namespaced && at.namespace.is_empty()) {
            return Err(Failure::method("the server does not allow this method on the requested resource"));
        }
        let mut object = read_object(at, body)?;
        self.check_namespace(at, &object)?;
        if !matches!(meta(&object, "resourceVersion"), "" | "0") {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Failure::new(500, "", why));
        }
        if meta(&object, "name").is_empty() {
            let prefix = meta(&object, "generateName").to_owned();
            if prefix.is_empty() {
                let (group, kind) = (&at.kind.group, &at.kind.kind);
                let why = "Required value: name or generateName is required";
                return Err(Failure::invalid(group, kind, "", "metadata.name", "FieldValueRequired", why));
            }
            self.names += 1;
            object["metadata"]["name"] = format!("{prefix}{:05}", self.names).into();
        }
        let name = meta(&object, "name").to_owned();
        let at = Resource { name, ..at.clone() };
        if self.store.get(&at.kind.resource(), &at.key()).is_some() {
            return Err(Failure::already_exists(&at.kind, &at.name));
        }
        let uid = self.fresh_uid();
        let mut object = born(&at.kind, object, &uid, now);
        if at.kind.namespaced {
            object["metadata"]["namespace"] = at.namespace.as_str().into();
        }
        self.store_and_give(&at, object, form, 201)
    }

    pub(crate) fn replace(&mut self, now: u64, at: &Resource, body: &[u8], form: Form) -> Result<Response, Failure> {
        if at.name.is_empty() {
            return Err(Failure::method("the server does not allow this method on the requested resource"));
        }
        let object = read_object(at, body)?;
        check_name(at, &object)?;
        let there = self.store.get(&at.kind.resource(), &at.key()).is_some();
        if !there && at.kind.create_on_update && !at.status {
            let collection = Resource { name: String::new(), ..at.clone() };
            let mut object = object;
            if let Some(metadata) = object["metadata"].as_object_mut() {
                if let Some(uid) = metadata.remove("uid") {
                    let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
                    return Err(Failure::conflict(&at.kind, &at.name, &why));
                }
                metadata.remove("resourceVersion");
            }
            return self.create(now, &collection, object.to_string().as_bytes(), form);
        }
        self.update(at, form, |_| Ok(object))
    }

    pub(crate) fn patch(&mut self, at: &Resource, request: &Request, form: Form) -> Result<Response, Failure> {
        if at.name.is_empty() {
            return Err(Failure::method("the server does not allow this method on the requested resource"));
        }
        let media = request.content_type.split(';').next().unwrap_or_default().trim();
        if media != "application/merge-patch+json" {
            let why = format!("{media:?}: this server takes application/merge-patch+json only");
            return Err(Failure::new(415, "UnsupportedMediaType", why));
        }
        let patch: Value = serde_json::from_slice(&request.body).map_err(unreadable)?;
        self.update(at, form, |old| {
            let mut object = versioned(at, old);
            merge(&mut object, patch);
            check_name(at, &object)?;
            Ok(object)
        })
    }

    /// Replaces an object by what `make` makes of it.
    fn update(
        &mut self,
        at: &Resource,
        form: Form,
        make: impl FnOnce(&Value) -> Result<Value, Failure>,
    ) -> Result<Response, Failure> {
        let Resource { kind, name, .. } = at;
        let old = self.store.get(&kind.resource(), &at.key()).cloned();
        let old = old.ok_or_else(|| Failure::not_found(kind, name))?;
        let new = make(&old)?;
        let (uid, old_uid) = (meta(&new, "uid"), meta(&old, "uid"));
        if !uid.is_empty() && uid != old_uid {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}");
            return Err(Failure::conflict(kind, name, &why));
        }
        match meta(&new, "resourceVersion") {
            "" | "0" if !kind.unconditional_update => {
                let why = "Invalid value: 0: must be specified for an update";
                let field = "metadata.resourceVersion";
                return Err(Failure::invalid(&kind.group, &kind.plural, name, field, "FieldValueInvalid", why));
            }
            "" | "0" => {}
            version if version != meta(&old, "resourceVersion") => {
                return Err(Failure::conflict(kind, name, MODIFIED));
            }
            _ => {}
        }
        let new = succeeds(kind, &old, new, at.status);
        if is_ending(&old) && !has_finalizers(&new) {
            self.settle(at, None);
            return give(at, &new, form, 200);
        }
        if new == *old {
            // Nothing is written, and no watch hears of it.
            return give(at, &old, form, 200);
        }
        self.store_and_give(at, new, form, 200)
    }

    pub(crate) fn delete(&mut self, now: u64, at: &Resource, body: &[u8]) -> Result<Response, Failure> {
        let Resource { kind, name, .. } = at;
        if name.is_empty() {
            return Err(Failure::method("this server does not delete collections"));
        }
        let options: Value =
            if body.is_empty() { Value::Null } else { serde_json::from_slice(body).map_err(unreadable)? };
        let old = self.store.get(&kind.resource(), &at.key()).cloned();
        let old = old.ok_or_else(|| Failure::not_found(kind, name))?;
        for (field, called) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let Some(wanted) = options["preconditions"][field].as_str() else { continue };
            let is = meta(&old, field);
            if wanted != is {
                let why =
                    format!("the {called} in the precondition ({wanted}) does not match the {called} in record ({is})");
                return Err(Failure::precondition(kind, name, &why));
            }
        }
        let mut ending = (*old).clone();
        if !is_ending(&old) {
            ending["metadata"]["deletionTimestamp"] = rfc3339(now).into();
            ending["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            if let Some(generation) = old["metadata"]["generation"].as_u64() {
                ending["metadata"]["generation"] = (generation + 1).into();
            }
        }
        if has_finalizers(&old) {
            if ending == *old {
                return give(at, &old, Form::Whole, 200);
            }
            return self.store_and_give(at, ending, Form::Whole, 200);
        }
        if kind.resource() == "namespaces" {
            self.empty_namespace(name);
            within(&mut ending, "status")["phase"] = "Terminating".into();
        } else {
            ending = (*old).clone();
        }
        self.settle(at, None);
        if kind.returns_deleted {
            return give(at, &ending, Form::Whole, 200);
        }
        Ok(Response::json(200, &deleted(kind, name, meta(&old, "uid"))))
    }

    fn store_and_give(&mut self, at: &Resource, object: Value, form: Form, code: u16) -> Result<Response, Failure> {
        self.settle(at, Some(object));
        let object = self.store.get(&at.kind.resource(), &at.key());
        give(at, object.ok_or_else(|| Failure::not_found(&at.kind, &at.name))?, form, code)
    }

    /// Removes all that is in a namespace, as its controller would.
    fn empty_namespace(&mut self, namespace: &str) {
        let resources: Vec<_> = self.kinds.all().filter(|kind| kind.namespaced).map(crate::Kind::resource).collect();
        for resource in resources {
            let inside: Vec<String> = self
                .objects(&resource)
                .filter(|object| meta(object, "namespace") == namespace)
                .map(|object| meta(object, "name").to_owned())
                .collect();
            for name in inside {
                self.remove(&resource, namespace, &name);
            }
        }
    }

    /// An object goes only into a namespace that is there, and into the one of the path.
    fn check_namespace(&self, at: &Resource, object: &Value) -> Result<(), Failure> {
        let written = meta(object, "namespace");
        if !written.is_empty() && written != at.namespace {
            let why = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Failure::bad_request(why));
        }
        if !at.kind.namespaced || self.store.get("namespaces", &at.namespace).is_some() {
            return Ok(());
        }
        match self.kinds.by_resource("namespaces") {
            Some(namespaces) => Err(Failure::not_found(namespaces, &at.namespace)),
            None => Ok(()),
        }
    }
}

fn unreadable(error: serde_json::Error) -> Failure {
    Failure::bad_request(format!("the body is not JSON: {error}"))
}

/// Reads an object of the kind of the path; what it does not say of itself is filled in.
fn read_object(at: &Resource, body: &[u8]) -> Result<Value, Failure> {
    let mut object: Value = serde_json::from_slice(body).map_err(unreadable)?;
    if !object.is_object() {
        return Err(Failure::bad_request("the body is not an object"));
    }
    for (field, expected) in [("apiVersion", at.api_version()), ("kind", at.kind.kind.clone())] {
        match object[field].as_str().unwrap_or_default() {
            "" => object[field] = expected.into(),
            written if written != expected => {
                let why = format!("the {field} in the data ({written}) does not match the expected one ({expected})");
                return Err(Failure::bad_request(why));
            }
            _ => {}
        }
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    Ok(object)
}

/// A write says the same name and namespace as its path.
fn check_name(at: &Resource, object: &Value) -> Result<(), Failure> {
    let (name, namespace) = (meta(object, "name"), meta(object, "namespace"));
    if name != at.name {
        let why = format!("the name of the object ({name}) does not match the name on the URL ({})", at.name);
        return Err(Failure::bad_request(why));
    }
    if !namespace.is_empty() && namespace != at.namespace {
        let of_path = &at.namespace;
        let why =
            format!("the namespace of the object ({namespace}) does not match the one on the request ({of_path})");
        return Err(Failure::bad_request(why));
    }
    Ok(())
}
