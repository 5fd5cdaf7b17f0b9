//! The definition of ProxyFleet for an API server (CustomResourceDefinition), made from the types that are read.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::proxy_fleet::{GROUP, ProxyFleetSpec, ProxyFleetStatus, VERSION};

/// What `kubectl explain proxyfleet` says first.
const DESCRIPTION: &str = "ProxyFleet declares a set of proxy pods with one configuration. It receives nothing by itself: an IngressClass or \
                           GatewayClass has to name it in its parameters.";

/// The columns of `kubectl get proxyfleets`: name, type, path.
const COLUMNS: [(&str, &str, &str); 6] = [
    ("AGENTS", "integer", ".status.agents"),
    ("CURRENT", "integer", ".status.current"),
    ("GENERATION", "integer", ".status.generation"),
    ("LAG", "number", ".status.lagSeconds"),
    ("NOTLIVE", "integer", ".status.notLive"),
    ("AGE", "date", ".metadata.creationTimestamp"),
];

/// The CustomResourceDefinition of ProxyFleet.
pub fn fleet_definition() -> Value {
    let mut generator = SchemaSettings::openapi3()
        .with(|settings| {
            // A structural schema refers to nothing (Kubernetes reference, "specifying a structural schema").
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .into_generator();
    let (spec, status) = (schema::<ProxyFleetSpec>(&mut generator), schema::<ProxyFleetStatus>(&mut generator));
    let columns = COLUMNS.map(|(name, kind, path)| json!({ "name": name, "type": kind, "jsonPath": path }));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("proxyfleets.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": "ProxyFleet",
                "listKind": "ProxyFleetList",
                "plural": "proxyfleets",
                "singular": "proxyfleet",
                "shortNames": ["pf"],
                "categories": ["scalws"],
            },
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "additionalPrinterColumns": columns,
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "description": DESCRIPTION,
                    "required": ["spec"],
                    "properties": {
                        "apiVersion": { "type": "string" },
                        "kind": { "type": "string" },
                        "metadata": { "type": "object" },
                        "spec": spec,
                        "status": status,
                    },
                } },
            }],
        },
    })
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    let mut schema = T::json_schema(generator).to_value();
    make_structural(&mut schema);
    schema
}

/// Takes out what says nothing to an API server: titles, and the values of what is left out, which would be written into objects.
fn make_structural(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    for field in ["title", "default"] {
        fields.remove(field);
    }
    if let Some(Value::String(text)) = fields.get_mut("description") {
        // A line break of a comment is none of the text.
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    if let Some(items) = fields.get_mut("items") {
        make_structural(items);
    }
    let properties = fields.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(Map::values_mut).for_each(make_structural);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that the reference forbids in a structural schema, or that a reader of ours would not understand.
    fn faults(schema: &Value, at: &str, out: &mut Vec<String>) {
        let fields = schema.as_object().unwrap();
        for field in ["$ref", "additionalProperties", "allOf", "anyOf", "oneOf", "not", "nullable", "default", "title"]
        {
            if fields.contains_key(field) {
                out.push(format!("{at}: {field}"));
            }
        }
        if !fields.get("type").is_some_and(Value::is_string) {
            out.push(format!("{at}: no type"));
        }
        if !fields.contains_key("description")
            && !["/apiVersion", "/kind", "/metadata"].contains(&at)
            && !at.ends_with("[]")
        {
            out.push(format!("{at}: no description"));
        }
        if let Some(items) = fields.get("items") {
            faults(items, &format!("{at}[]"), out);
        }
        for (name, property) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
            faults(property, &format!("{at}/{name}"), out);
        }
    }

    #[test]
    fn the_schema_is_structural_and_describes_every_field() {
        let definition = fleet_definition();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut found = Vec::new();
        faults(schema, "", &mut found);
        assert!(found.is_empty(), "{found:#?}\n{schema:#}");
        let spec = &schema["properties"]["spec"];
        assert_eq!(spec["required"], json!(["workload"]));
        assert_eq!(
            spec["properties"]["workload"]["properties"]["kind"]["enum"],
            json!(["Deployment", "DaemonSet", "StatefulSet"])
        );
        let listener = &spec["properties"]["listeners"]["items"]["properties"];
        assert_eq!(listener["protocol"]["enum"], json!(["HTTP", "HTTPS"]));
        assert_eq!(listener["port"]["format"], json!("int32"));
    }

    #[test]
    fn every_column_shows_a_field_of_the_status_with_its_type() {
        let definition = fleet_definition();
        let version = &definition["spec"]["versions"][0];
        let status = &version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
        for (name, kind, path) in COLUMNS {
            if let Some(field) = path.strip_prefix(".status.") {
                assert_eq!(status[field]["type"], json!(kind), "{name}");
            }
        }
    }
}
