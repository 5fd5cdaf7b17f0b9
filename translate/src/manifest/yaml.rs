//! The text of YAML documents in, the objects written in them out, as plain values. JSON is read as YAML.

use serde_json::Value;

use super::{MAX_FILE_OBJECTS, ManifestError};

/// How much aliases may add to a document, as a multiple of its length. It bounds a whole file too, however many
/// documents it has.
const ALIAS_FACTOR: usize = 4;

/// The objects of a text as plain values, in its order. Empty documents are skipped, and a list (`kind: List` or
/// `IngressList` with `items`) counts as its items, as with `kubectl apply`. Each value still has to be decoded, so that
/// one wrong object does not hide the others.
///
/// # Errors
///
/// When it is not YAML, has one key twice in a mapping, or more than [`MAX_FILE_OBJECTS`] objects.
pub(super) fn values(text: &str) -> Result<Vec<Value>, ManifestError> {
    let replayed = text.len().saturating_mul(ALIAS_FACTOR);
    let options = serde_saphyr::options! {
        // The length of the text bounds the work; these stop aliases from multiplying it.
        budget: serde_saphyr::budget! {
            max_events: 4_000_000,
            max_nodes: 2_000_000,
            max_documents: MAX_FILE_OBJECTS,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_recorded_anchor_events: replayed,
            max_total_scalar_bytes: replayed,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: replayed },
        with_snippet: false,
    };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|e| syntax_error(&e))?;
    let mut out = Vec::with_capacity(documents.len());
    for document in documents {
        push_flat(document, &mut out);
    }
    if out.len() > MAX_FILE_OBJECTS {
        return Err(ManifestError::TooManyObjects { objects: out.len() });
    }
    Ok(out)
}

/// Lists are taken apart one level deep; a list within a list is no object and stays as it is.
fn push_flat(document: Value, out: &mut Vec<Value>) {
    match document {
        Value::Null => {}
        Value::Object(mut map)
            if map.get("kind").and_then(Value::as_str).is_some_and(|k| k.ends_with("List"))
                && map.get("items").is_some_and(Value::is_array) =>
        {
            if let Some(Value::Array(items)) = map.remove("items") {
                out.extend(items);
            }
        }
        other => out.push(other),
    }
}

fn syntax_error(error: &serde_saphyr::Error) -> ManifestError {
    let (line, column) = error.location().map_or((0, 0), |l| (l.line(), l.column()));
    let why = match error.without_snippet() {
        // These quote the file.
        serde_saphyr::Error::DuplicateMappingKey { .. } => "a key stands twice in one mapping; remove one".to_owned(),
        serde_saphyr::Error::UnsupportedTag { .. } => "a tag that is not of YAML's core schema".to_owned(),
        serde_saphyr::Error::NonFiniteFloat { .. } => {
            "a number that is not finite or too large; if it is meant as a text, put it in quotes".to_owned()
        }
        other => {
            // Only the first line: the rest, if any, quotes the file. The place is said by us.
            let text = other.to_string();
            let text = text.lines().next().unwrap_or("unreadable");
            let place = format!(" at line {line}, column {column}");
            text.split_once(&place).map_or(text, |(why, _)| why).to_owned()
        }
    };
    ManifestError::Syntax { line, column, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn several_documents_are_several_objects_and_empty_ones_are_none() {
        let file = "---\nkind: A\n---\n# nothing\n---\nkind: B\nn: 0x10\n...\n";
        assert_eq!(values(file).unwrap(), [json!({"kind": "A"}), json!({"kind": "B", "n": 16})]);
        assert_eq!(values("").unwrap(), Vec::<Value>::new());
        assert_eq!(values("# only a comment\n").unwrap(), Vec::<Value>::new());
    }

    #[test]
    fn json_is_read_too() {
        let file = r#"{"kind": "Secret", "data": {"a": "\u00e9\ud83d\ude00"}, "n": [1, true, null]}"#;
        assert_eq!(
            values(file).unwrap(),
            [json!({"kind": "Secret", "data": {"a": "\u{e9}\u{1f600}"}, "n": [1, true, null]})]
        );
    }

    #[test]
    fn a_list_counts_as_its_items() {
        let file = "kind: List\napiVersion: v1\nitems:\n- kind: A\n- kind: B\n";
        assert_eq!(values(file).unwrap(), [json!({"kind": "A"}), json!({"kind": "B"})]);
    }

    #[test]
    fn broken_text_says_where_and_quotes_nothing() {
        let error = values("kind: Secret\ndata: {tls.key: hunter2\nmore: [").unwrap_err();
        assert!(matches!(error, ManifestError::Syntax { line: 1.., .. }), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
        assert_eq!(error.to_string().matches("line").count(), 1, "{error}");
        for text in [
            "hunter2: a\nhunter2: b\n",
            "a: *hunter2\n",
            "a: !hunter2 b\nb: [\n",
            "a: !!int hunter2\n",
            "a: !!float hunter2\n",
            "a: 1e999 # hunter2\n",
            "a: !!binary hunter2!\n",
            "a: !h!hunter2 b\n",
            "a: |hunter2\n",
            "a: \"hunter2\\q\"\n",
            "<<: hunter2\n",
            "? [hunter2]\n: b\n",
            "hunter2\nb: c\n",
            "%hunter2\n---\na: [\n",
        ] {
            let error = values(text).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{text:?}: {error}");
            assert!(!error.to_string().contains("1e999"), "{text:?}: {error}");
        }
    }

    #[test]
    fn one_key_twice_is_refused() {
        let error = values("kind: A\nkind: B\n").unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }

    #[test]
    fn aliases_cannot_multiply_the_work() {
        let mut file = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for i in 1..12 {
            let one = format!("*a{},", i - 1);
            file.push_str(&format!("a{i}: &a{i} [{}]\n", one.repeat(10)));
        }
        assert!(values(&file).is_err());
        // A short one counts too: a file has room for many of them.
        let short = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n";
        assert!(values(short).is_err());
        // One long text, named often.
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a,".repeat(900));
        assert!(values(&long).is_err());
    }

    #[test]
    fn aliases_as_people_write_them_are_followed() {
        let file = "a: &labels {app: web, tier: front}\nb: {labels: *labels}\nc: {<<: *labels, more: x}\nd: [*labels, *labels]\n";
        let value = values(file).unwrap().remove(0);
        assert_eq!(value["d"], json!([{"app": "web", "tier": "front"}, {"app": "web", "tier": "front"}]));
        assert_eq!(value["c"]["app"], "web");
    }

    #[test]
    fn a_file_of_countless_husks_is_refused_as_a_whole() {
        let objects = MAX_FILE_OBJECTS + 1;
        let list = format!("kind: List\nitems: [{}]\n", "{},".repeat(objects));
        assert_eq!(values(&list), Err(ManifestError::TooManyObjects { objects }));
    }
}
