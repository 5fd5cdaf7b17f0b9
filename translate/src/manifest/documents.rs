//! The bytes of one manifest file in, one outcome per object out. Pure.
//!
//! The file is cut at its `---` lines first, so that a document that does not parse hides only itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use config::ObjectRef;
use serde_json::Value;

use super::{MAX_FILE_BYTES, MAX_FILE_OBJECTS, ManifestError, yaml};
use crate::objects::{DecodeError, Object};

/// One object of a file, or one document that holds none.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its number in the file, counted from 1. Objects of one list share it.
    pub number: usize,
    /// The line on which it begins, counted from 1.
    pub line: usize,
    /// What it holds.
    pub outcome: Outcome,
}

/// What a document holds.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// An object that an API server would admit.
    Object(Arc<Object>),
    /// An object of a kind that is not read.
    Ignored {
        /// Its kind.
        kind: String,
        /// The object, when it is of a kind that people expect to be served: it is not.
        expected: Option<Box<ObjectRef>>,
    },
    /// What an API server would refuse.
    Refused {
        /// The object, when so much could be read.
        object: Option<Box<ObjectRef>>,
        /// Why, and the way out. Nothing of the values of a Secret is in it.
        message: String,
    },
}

/// What is said of a document on which reading panics: nothing that anybody writes should be able to do that.
pub const FAULT: &str = "a fault of this program: it cannot read this document; please report it";

/// The documents of a file. A panic costs the document that it happens on: the file stays where it is, and whoever died
/// on it would die again, for all that is in the other files.
pub fn documents(bytes: &[u8]) -> Vec<Document> {
    let whole = |error: ManifestError| {
        let outcome = Outcome::Refused { object: None, message: error.to_string() };
        vec![Document { number: 1, line: 1, outcome }]
    };
    if bytes.len() > MAX_FILE_BYTES {
        return whole(ManifestError::TooLong { bytes: bytes.len() as u64 });
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return whole(ManifestError::NotUtf8 { offset: error.valid_up_to() }),
    };
    let chunks: Vec<(usize, &str)> = chunks(text).into_iter().filter(|(_, chunk)| !is_blank(chunk)).collect();
    let too_many = |objects| whole(ManifestError::TooManyObjects { objects });
    if chunks.len() > MAX_FILE_OBJECTS {
        return too_many(chunks.len());
    }
    let mut documents = Vec::new();
    for (index, (line, chunk)) in chunks.into_iter().enumerate() {
        let number = index + 1;
        // Nothing is shared with what may panic.
        let outcomes = catch_unwind(AssertUnwindSafe(|| outcomes(chunk, line)))
            .unwrap_or_else(|_| vec![Outcome::Refused { object: None, message: FAULT.to_owned() }]);
        documents.extend(outcomes.into_iter().map(|outcome| Document { number, line, outcome }));
        if documents.len() > MAX_FILE_OBJECTS {
            return too_many(documents.len());
        }
    }
    documents
}

/// What one document holds.
fn outcomes(chunk: &str, line: usize) -> Vec<Outcome> {
    #[cfg(test)]
    assert!(!chunk.contains(tests::PANICS), "as the test wants");
    match yaml::values(chunk) {
        Ok(values) => values.into_iter().map(decode).collect(),
        Err(error) => {
            vec![Outcome::Refused { object: None, message: place_in_file(error, line).to_string() }]
        }
    }
}

/// The texts of the documents of a file, each with the line on which it begins (YAML 1.2, section 9.1.4). A marker at
/// the beginning of a line is one wherever it stands: the texts of scalars may not have it there (section 9.1.2).
fn chunks(text: &str) -> Vec<(usize, &str)> {
    let mut out = Vec::new();
    let (mut start, mut start_line, mut offset) = (0, 1, 0);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let marker = without_mark(line)
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        if marker && offset > start {
            out.push((start_line, without_mark(&text[start..offset])));
            (start, start_line) = (offset, index + 1);
        }
        offset += line.len();
    }
    out.push((start_line, without_mark(&text[start..])));
    out
}

/// Without a byte order mark. Files that were joined have one before each of their documents (YAML 1.2, section 5.2).
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Whether a document holds nothing but comments, directives and markers.
fn is_blank(chunk: &str) -> bool {
    chunk.lines().all(|line| {
        let line = line.trim();
        line.is_empty() || line == "---" || line == "..." || line.starts_with('#') || line.starts_with('%')
    })
}

fn place_in_file(error: ManifestError, first_line: usize) -> ManifestError {
    match error {
        ManifestError::Syntax { line, column, why } if line > 0 => {
            ManifestError::Syntax { line: line + first_line as u64 - 1, column, why }
        }
        other => other,
    }
}

fn decode(value: Value) -> Outcome {
    let object = reference(&value).map(Box::new);
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    match Object::from_value(value) {
        Ok(object) => Outcome::Object(Arc::new(object)),
        Err(DecodeError::UnknownKind { api_version, .. }) if !kind.is_empty() => {
            let expected = object.filter(|_| api_version.starts_with(GATEWAY_API) && kind != "ReferenceGrant");
            Outcome::Ignored { kind, expected }
        }
        Err(error) => Outcome::Refused { object, message: error.to_string() },
    }
}

/// The group of kinds that are not read yet although they belong to a gateway.
const GATEWAY_API: &str = "gateway.networking.k8s.io/";

/// Kinds without a namespace.
const CLUSTER_SCOPED: [&str; 3] = ["IngressClass", "GatewayClass", "Namespace"];

/// Who an object says it is, as far as that can be read from something that may be broken.
fn reference(value: &Value) -> Option<ObjectRef> {
    let kind = value.get("kind")?.as_str()?;
    let metadata = value.get("metadata")?;
    let name = metadata.get("name")?.as_str()?;
    let namespace = match metadata.get("namespace") {
        _ if CLUSTER_SCOPED.contains(&kind) => "",
        None | Some(Value::Null) => "default",
        // What is no text may have been meant as any namespace.
        Some(given) => match given.as_str()? {
            "" => "default",
            given => given,
        },
    };
    let plain = |text: &str| text.len() <= 253 && !text.chars().any(|c| c.is_control() || c == '/');
    (plain(kind) && plain(name) && plain(namespace)).then(|| ObjectRef {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document with this in it makes reading panic.
    pub(super) const PANICS: &str = "panics-in-a-test";

    #[test]
    fn a_document_on_which_reading_panics_hides_only_itself() {
        let map = |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
        let text = [map("a"), map(PANICS), map("c")].join("---\n");
        let read: Vec<(usize, String)> = documents(text.as_bytes())
            .into_iter()
            .map(|document| match document.outcome {
                Outcome::Object(object) => (document.line, object.reference().to_string()),
                Outcome::Refused { object: None, message } => (document.line, message),
                other => panic!("{other:?}"),
            })
            .collect();
        let wanted = [(1, "ConfigMap/default/a"), (4, FAULT), (8, "ConfigMap/default/c")];
        assert_eq!(read, wanted.map(|(line, said)| (line, said.to_owned())));
    }
}
