//! The reference of the configuration, generated from the types, so that it cannot differ from what is read.

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::limits;
use crate::schema::{document, sorted};

const INTRODUCTION: &str = "\
# Configuration

<!-- Generated from the types of the crate `config`. Change those, then run `UPDATE_DOCS=1 cargo test -p config docs`. -->

A proxy runs from resources. Each has a kind, a name, and one [Envelope](#envelope): one line of compact JSON. The envelope always
loads. Its `body` has the form of the kind; a body that cannot be used makes that one resource *not live*, and nothing else.
Unknown fields are errors, fields at their default are not written.

The same as a JSON Schema: [configuration.schema.json](configuration.schema.json).

| kind | its body | when it is not live |
|---|---|---|
| `listener` | [ListenerBody](#listenerbody) | its port is closed |
| `host` | [HostBody](#hostbody) | its handshakes are refused, plain HTTP answers 503 |
| `fragment` | [FragmentBody](#fragmentbody) | what it claims answers 503 |
| `pool` | [PoolBody](#poolbody) | every share that names it answers 503 |
| `certificate` | [CertificateBody](#certificatebody) | the host's fallback is served |
| `policy` | [PolicyBody](#policybody) | every route that names it answers 503 |

Without an agent, `scalwsd --config scalws.yaml` reads a [StandaloneFile](#standalonefile) instead.

";

/// `docs/reference/configuration.schema.json`.
pub fn schema_json() -> String {
    format!("{:#}\n", sorted(&document()))
}

/// `docs/reference/configuration.md`.
pub fn reference_markdown() -> String {
    let document = sorted(&document());
    let mut out = INTRODUCTION.to_owned();
    write_bounds(&mut out);
    out.push_str("## Types\n");
    for (name, schema) in document["$defs"].as_object().into_iter().flatten() {
        let _ = write!(out, "\n### {name}\n\n");
        write_type(&mut out, schema);
    }
    out.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn write_bounds(out: &mut String) {
    let rows = [
        ("bytes of a resource", limits::RESOURCE_BYTES_MAX as u64),
        ("bytes of a body", limits::BODY_BYTES_MAX as u64),
        ("bytes of a name", limits::NAME_BYTES_MAX as u64),
        ("matches of a fragment", limits::MATCHES_MAX as u64),
        ("bytes of a path, pattern or value in a match", limits::MATCH_TEXT_BYTES_MAX as u64),
        ("header conditions, and parameter conditions, of a match", limits::CONDITIONS_MAX as u64),
        ("bytes of a header value", limits::HEADER_VALUE_BYTES_MAX as u64),
        ("entries in a list of header changes", limits::HEADER_CHANGES_MAX as u64),
        ("shares of a route", limits::SHARES_MAX as u64),
        ("weight of a share", u64::from(limits::WEIGHT_MAX)),
        ("certificates of a host", limits::CERTIFICATES_MAX as u64),
        ("retries", u64::from(limits::RETRIES_MAX)),
        ("milliseconds of a timeout", limits::TIMEOUT_MS_MAX),
    ];
    out.push_str("## Bounds\n\n| at most | |\n|---|---|\n");
    for (what, bound) in rows {
        let _ = writeln!(out, "| {what} | {bound} |");
    }
    out.push('\n');
}

fn write_type(out: &mut String, schema: &Value) {
    if let Some(text) = schema["description"].as_str() {
        let _ = write!(out, "{}\n\n", plain(text));
    }
    if let Some(forms) = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array()) {
        out.push_str("One of:\n\n");
        forms.iter().for_each(|form| write_form(out, form));
    } else if let Some(properties) = schema["properties"].as_object() {
        write_fields(out, properties, &schema["required"]);
    } else {
        let _ = writeln!(out, "{}.", type_text(schema));
        if let Some(pattern) = schema["pattern"].as_str() {
            let _ = writeln!(out, "\nPattern: `{pattern}`");
        }
    }
}

fn write_fields(out: &mut String, properties: &Map<String, Value>, required: &Value) {
    let is_required = |name: &str| required.as_array().is_some_and(|names| names.iter().any(|one| one == name));
    out.push_str("| field | type | needed | meaning |\n|---|---|---|---|\n");
    for (name, field) in properties {
        let needed = if is_required(name) { "yes" } else { "" };
        let _ = writeln!(out, "| `{name}` | {} | {needed} | {} |", type_text(field), sentence(field));
    }
}

fn write_form(out: &mut String, form: &Value) {
    let Some(properties) = form["properties"].as_object() else {
        // Words without a sentence of their own come as one list.
        let _ = writeln!(out, "- {} {}", type_text(form), sentence(form));
        return;
    };
    for (name, field) in properties {
        let meaning = if form["description"].is_null() { sentence(field) } else { sentence(form) };
        match field["properties"].as_object() {
            None => {
                let _ = writeln!(out, "- `{name}`: {}. {meaning}", type_text(field));
            }
            Some(inner) => {
                let _ = writeln!(out, "- `{name}`: {meaning}");
                let required = &field["required"];
                for (inner_name, inner_field) in inner {
                    let needed = required.as_array().is_some_and(|names| names.iter().any(|one| one == inner_name));
                    let needed = if needed { ", needed" } else { "" };
                    let _ = writeln!(
                        out,
                        "  - `{inner_name}`: {}{needed}. {}",
                        type_text(inner_field),
                        sentence(inner_field)
                    );
                }
            }
        }
    }
}

/// The description on one line, safe in a table.
fn sentence(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or("");
    plain(&text.split_whitespace().collect::<Vec<_>>().join(" ")).replace('|', "\\|")
}

/// Links into the code say nothing here.
fn plain(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`")
}

fn type_text(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or(reference);
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(word) = schema.get("const") {
        return format!("`{word}`");
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    if let Some(forms) = schema["anyOf"].as_array() {
        let forms = forms.iter().filter(|form| form["type"] != "null");
        return forms.map(type_text).collect::<Vec<_>>().join(" or ");
    }
    if let Some(parts) = schema["prefixItems"].as_array() {
        return format!("[{}]", parts.iter().map(type_text).collect::<Vec<_>>().join(", "));
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect(),
        _ => return "any value".to_owned(),
    };
    match kinds.as_slice() {
        ["array"] => format!("list of {}", type_text(&schema["items"])),
        ["object"] if schema["additionalProperties"].is_object() => {
            format!("map of {}", type_text(&schema["additionalProperties"]))
        }
        kinds => kinds.join(" or "),
    }
}
