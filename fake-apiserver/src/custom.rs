//! Definitions of custom resources: the kinds that they bring.

use serde_json::{Value, json};

use crate::kinds::Kind;

/// The resource of the definitions themselves.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// The kind that a definition brings. None while it lacks a name or serves no version.
pub(crate) fn kind_of(definition: &Value) -> Option<Kind> {
    let spec = &definition["spec"];
    let (group, names) = (spec["group"].as_str()?, &spec["names"]);
    let versions = spec["versions"].as_array()?;
    let is = |version: &&Value, field: &str| version[field] == true;
    // The stored version first: it is the one to prefer in the definitions that we meet.
    let mut served: Vec<&Value> = versions.iter().filter(|version| is(version, "served")).collect();
    served.sort_by_key(|version| !is(version, "storage"));
    let served_names: Vec<&str> = served.iter().filter_map(|version| version["name"].as_str()).collect();
    let namespaced = spec["scope"] == "Namespaced";
    let mut kind = Kind::custom(group, &served_names, names["kind"].as_str()?, names["plural"].as_str()?, namespaced);
    kind.status = served.iter().any(|version| version["subresources"].get("status").is_some());
    (!served_names.is_empty()).then_some(kind)
}

/// The status of a definition that was accepted, which here is at once.
pub(crate) fn established(definition: &Value) -> Value {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let stored: Vec<_> = versions.filter(|version| version["storage"] == true).map(|v| v["name"].clone()).collect();
    json!({
        "acceptedNames": definition["spec"]["names"],
        "storedVersions": stored,
        "conditions": [
            {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"},
            {"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
             "message": "the initial names have been accepted"},
        ],
    })
}
