//! JSON Schema of the texts that have a form of their own, and of everything together.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use crate::{
    CertificateBody, CertificateName, Domain, Envelope, FragmentBody, FragmentName, HostBody, HostName, ListenerBody,
    ListenerName, MemberSetName, PolicyBody, PolicyName, PoolBody, PoolName, SecretDigest, StandaloneFile,
};

/// Schemas of texts: a name, a sentence, and a pattern.
macro_rules! text_schema {
    ($($name:ident: $description:literal, $pattern:literal;)+) => {$(
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "description": $description, "pattern": $pattern })
            }
        }
    )+};
}

text_schema! {
    Domain: "A host name in lower case, or a wildcard: `*.x` is one label, `**.x` one or more, `*` every name.",
        r"^(\*|(\*{1,2}\.)?[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*)$";
    SecretDigest: "The BLAKE3 digest of a secret file, 64 lower-case hexadecimal digits.", "^[0-9a-f]{64}$";
    ListenerName: "`transport/port`, such as `tcp/443`.", "^(tcp|udp)/[1-9][0-9]{0,4}$";
    HostName: "`transport/port/domain`.", "^(tcp|udp)/[1-9][0-9]{0,4}/[^/]+$";
    FragmentName: "`kind/namespace/name/domain` of the source object.", "^[^/]*/[^/]*/[^/]*/[^/]+$";
    PoolName: "`namespace/service/port/variant`; the variant may be empty.", "^[^/]*/[^/]*/[1-9][0-9]{0,4}/[^/]*$";
    CertificateName: "`namespace/name` of the Secret.", "^[^/]*/[^/]*$";
    PolicyName: "`namespace/name/variant`.", "^[^/]*/[^/]*/[^/]*$";
    MemberSetName: "`namespace/service:port/transport`.", "^[^/]*/[^/]*:[1-9][0-9]{0,4}/(tcp|udp)$";
}

/// The JSON Schema (draft 2020-12) of all types: the envelope, the body of every kind, and `scalws.yaml`.
pub(crate) fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut kinds = BTreeMap::new();
    kinds.insert("envelope", generator.subschema_for::<Envelope>());
    kinds.insert("listener", generator.subschema_for::<ListenerBody>());
    kinds.insert("host", generator.subschema_for::<HostBody>());
    kinds.insert("fragment", generator.subschema_for::<FragmentBody>());
    kinds.insert("pool", generator.subschema_for::<PoolBody>());
    kinds.insert("certificate", generator.subschema_for::<CertificateBody>());
    kinds.insert("policy", generator.subschema_for::<PolicyBody>());
    kinds.insert("file", generator.subschema_for::<StandaloneFile>());
    let defs = generator.take_definitions(true);
    serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ScalWS configuration",
        "description": "A resource is an `envelope`; its `body` has the form of its kind. A `file` is scalws.yaml.",
        "anyOf": kinds.values().collect::<Vec<_>>(),
        "x-kinds": kinds,
        "$defs": defs,
    })
}

/// The same value with sorted keys, whatever order the JSON library keeps.
pub(crate) fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let by_key: BTreeMap<&String, Value> = map.iter().map(|(key, value)| (key, sorted(value))).collect();
            by_key.into_iter().map(|(key, value)| (key.clone(), value)).collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}
