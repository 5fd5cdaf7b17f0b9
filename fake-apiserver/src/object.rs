//! What a write makes of an object: system fields, generation, status, and merge patches.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::calendar::rfc3339;
use crate::kinds::{Generation, Kind};

/// A text of the metadata; empty when it is not there.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Whether something still has to happen before it may go.
pub(crate) fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}

/// Whether it is on its way out.
pub(crate) fn is_ending(object: &Value) -> bool {
    !meta(object, "deletionTimestamp").is_empty()
}

/// A field as an object, which it is made if it is something else.
pub(crate) fn within<'a>(object: &'a mut Value, field: &str) -> &'a mut Value {
    if !object.is_object() {
        *object = json!({});
    }
    let inner = &mut object[field];
    if !inner.is_object() {
        *inner = json!({});
    }
    inner
}

/// Takes the metadata out, to be put back when it is as it shall be. What is empty in it is not kept.
fn take_metadata(object: &mut Value) -> Map<String, Value> {
    let mut metadata = match within(object, "metadata").take() {
        Value::Object(metadata) => metadata,
        _ => Map::new(),
    };
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = |value: &Value| match value {
            Value::Object(fields) => fields.is_empty(),
            Value::Array(items) => items.is_empty(),
            other => other.is_null(),
        };
        if metadata.get(field).is_some_and(empty) {
            metadata.remove(field);
        }
    }
    metadata
}

/// A new object as it is stored.
pub(crate) fn born(kind: &Kind, mut object: Value, uid: &str, now: u64) -> Value {
    let mut metadata = take_metadata(&mut object);
    for field in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "generation"] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), uid.into());
    metadata.insert("creationTimestamp".to_owned(), rfc3339(now).into());
    if kind.generation != Generation::None {
        metadata.insert("generation".to_owned(), 1.into());
    }
    object["metadata"] = Value::Object(metadata);
    if kind.status {
        set(&mut object, "status", kind.blank_status());
    }
    fill(kind, &mut object);
    object
}

/// The few defaults that readers rely on.
fn fill(kind: &Kind, object: &mut Value) {
    match kind.resource().as_str() {
        "namespaces" => {
            let name = meta(object, "name").to_owned();
            within(within(object, "metadata"), "labels")["kubernetes.io/metadata.name"] = name.into();
            object["spec"] = json!({"finalizers": ["kubernetes"]});
        }
        "secrets" => {
            if object["type"].as_str().unwrap_or_default().is_empty() {
                object["type"] = "Opaque".into();
            }
            // What is written as text is kept as bytes.
            if let Some(Value::Object(texts)) = object.as_object_mut().and_then(|all| all.remove("stringData")) {
                for (field, text) in texts {
                    let bytes = text.as_str().unwrap_or_default();
                    within(object, "data")[field] = STANDARD.encode(bytes).into();
                }
            }
        }
        "customresourcedefinitions.apiextensions.k8s.io" => {
            let status = crate::custom::established(object);
            object["status"] = status;
        }
        _ => {}
    }
}

/// An object that replaces another one, as it is stored: what clients cannot change is taken from the old one.
pub(crate) fn succeeds(kind: &Kind, old: &Value, mut new: Value, status_only: bool) -> Value {
    if status_only {
        let mut object = old.clone();
        // Custom resources take nothing but the status here, others also labels, annotations and the like.
        if !kind.custom && new["metadata"].is_object() {
            object["metadata"] = new["metadata"].take();
        }
        set(&mut object, "status", new.get_mut("status").map(Value::take));
        new = object;
    } else if kind.status {
        set(&mut new, "status", old.get("status").cloned());
    }
    let mut metadata = take_metadata(&mut new);
    metadata.remove("selfLink");
    let kept = ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"];
    for field in kept.into_iter().chain(["name", "namespace", "resourceVersion"]) {
        match old["metadata"].get(field) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }
    new["metadata"] = Value::Object(metadata);
    // Whatever version it was written in, it is kept in one.
    new["apiVersion"] = old["apiVersion"].clone();
    if !status_only && grows(kind, old, &new) {
        let generation = old["metadata"]["generation"].as_u64().unwrap_or(0) + 1;
        new["metadata"]["generation"] = generation.into();
    }
    new
}

/// Whether a change raises the generation.
fn grows(kind: &Kind, old: &Value, new: &Value) -> bool {
    let differs = |skip: &[&str]| {
        let fields = |object: &Value| {
            let all = object.as_object().cloned().unwrap_or_default();
            all.into_iter().filter(|(name, _)| !skip.contains(&name.as_str())).collect::<Vec<_>>()
        };
        fields(old) != fields(new)
    };
    match kind.generation {
        Generation::None => false,
        Generation::Spec => old.get("spec") != new.get("spec"),
        Generation::Content => differs(&["metadata"]) || old["metadata"]["labels"] != new["metadata"]["labels"],
        Generation::Custom if kind.status => differs(&["metadata", "status"]),
        Generation::Custom => differs(&["metadata"]),
    }
}

/// Sets or removes a field.
fn set(object: &mut Value, field: &str, value: Option<Value>) {
    if let Value::Object(fields) = object {
        match value {
            Some(value) => fields.insert(field.to_owned(), value),
            None => fields.remove(field),
        };
    }
}

/// A JSON merge patch (RFC 7396): null removes, objects are merged, all else is replaced.
pub(crate) fn merge(object: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *object = patch;
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    let Value::Object(fields) = object else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(&name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{merge, succeeds};
    use crate::kinds::{Kind, Kinds};

    #[test]
    fn patches_merge_as_the_rfc_says() {
        for (before, patch, after) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a"]), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}})),
            (json!({"a": "foo"}), json!(null), json!(null)),
        ] {
            let mut object = before.clone();
            merge(&mut object, patch.clone());
            assert_eq!(object, after, "{before} with {patch}");
        }
    }

    #[test]
    fn only_what_the_kind_says_raises_the_generation() {
        let old = json!({"apiVersion": "v1", "metadata": {"name": "a", "generation": 3, "labels": {"x": "1"}}, "spec": {"y": 1}, "status": 1});
        let kinds = Kinds::built_in();
        let custom = Kind::custom("example.com", &["v1"], "Thing", "things", true);
        let whole = Kind { status: false, ..custom.clone() };
        let slices = kinds.by_resource("endpointslices.discovery.k8s.io").unwrap();
        let ingresses = kinds.by_resource("ingresses.networking.k8s.io").unwrap();
        let generation = |kind: &Kind, patch: serde_json::Value, status: bool| {
            let mut new = old.clone();
            merge(&mut new, patch);
            succeeds(kind, &old, new, status)["metadata"]["generation"].as_u64()
        };
        for kind in [&custom, &whole, slices, ingresses] {
            assert_eq!(generation(kind, json!({"spec": {"y": 2}}), false), Some(4), "{}: spec", kind.kind);
            let sets = json!({"metadata": {"generation": 9, "annotations": {"a": "b"}}});
            assert_eq!(generation(kind, sets, false), Some(3), "{}: annotations", kind.kind);
        }
        let labels = json!({"metadata": {"labels": {"x": "2"}}});
        assert_eq!(generation(&custom, labels.clone(), false), Some(3));
        assert_eq!(generation(slices, labels, false), Some(4));
        assert_eq!(generation(&whole, json!({"status": 2}), false), Some(4));
        assert_eq!(generation(&custom, json!({"status": 2, "spec": 5}), true), Some(3));
    }
}
