//! Label and field selectors: what a list or a watch is about.

use serde_json::Value;

use crate::kinds::Kind;
use crate::status::Failure;

/// What an object must be like. The default takes every object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<(String, Test)>,
    /// By the path of the field.
    fields: Vec<(String, Test)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    /// One of these.
    In(Vec<String>),
    /// None of these; an absent key passes.
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

impl Test {
    fn passes(&self, value: Option<&str>) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        match self {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Test::NotIn(values) => !value.is_some_and(|value| values.iter().any(|one| one == value)),
            Test::Above(limit) => value.and_then(number).is_some_and(|value| value > *limit),
            Test::Below(limit) => value.and_then(number).is_some_and(|value| value < *limit),
        }
    }
}

impl Selector {
    /// Whether it takes every object.
    pub(crate) fn is_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let label = |key: &String| object["metadata"]["labels"].get(key).and_then(Value::as_str);
        // A field that is not there is empty, as the real one has it.
        let field = |path: &String| path.split('.').fold(object, |at, part| &at[part]).as_str().unwrap_or_default();
        self.labels.iter().all(|(key, test)| test.passes(label(key)))
            && self.fields.iter().all(|(path, test)| test.passes(Some(field(path))))
    }

    /// Reads `a=b,c!=d,e in (x,y),f notin (z),g,!h,i>1`.
    pub(crate) fn read_labels(&mut self, text: &str) -> Result<(), Failure> {
        let wrong = |part: &str| Failure::bad_request(format!("unable to parse requirement: {part:?} in {text:?}"));
        for part in split(text).ok_or_else(|| wrong(text))? {
            let (key, test) = requirement(part).ok_or_else(|| wrong(part))?;
            self.labels.push((key.to_owned(), test));
        }
        Ok(())
    }

    /// Reads `metadata.name=x,metadata.namespace!=y` and what else the kind knows.
    pub(crate) fn read_fields(&mut self, text: &str, kind: &Kind) -> Result<(), Failure> {
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (path, unequal, value) = equality(part).ok_or_else(|| {
                Failure::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'"))
            })?;
            let of_all = path == "metadata.name" || (path == "metadata.namespace" && kind.namespaced);
            if !of_all && !kind.fields.contains(&path) {
                return Err(Failure::bad_request(format!("field label not supported: {path}")));
            }
            let values = vec![value.to_owned()];
            self.fields.push((path.to_owned(), if unequal { Test::NotIn(values) } else { Test::In(values) }));
        }
        Ok(())
    }
}

/// The requirements of a selector: its commas, but for those in brackets. None if the brackets are wrong.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b')' if inside == (byte == b'(') => return None,
            b'(' | b')' => inside = !inside,
            b',' if !inside => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (!inside).then(|| if text.trim().is_empty() { Vec::new() } else { parts })
}

fn requirement(part: &str) -> Option<(&str, Test)> {
    let part = part.trim();
    if let Some((left, values)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let (key, word) = left.trim().split_once(char::is_whitespace)?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        if !values.iter().all(|value| is_value(value)) {
            return None;
        }
        let test = match word.trim() {
            "in" => Test::In(values),
            "notin" => Test::NotIn(values),
            _ => return None,
        };
        return is_key(key).then_some((key, test));
    }
    let (key, test) = if let Some(key) = part.strip_prefix('!') {
        (key.trim(), Test::Absent)
    } else if let Some((key, limit)) = part.split_once('>') {
        (key.trim(), Test::Above(limit.trim().parse().ok()?))
    } else if let Some((key, limit)) = part.split_once('<') {
        (key.trim(), Test::Below(limit.trim().parse().ok()?))
    } else if let Some((key, unequal, value)) = equality(part) {
        if !is_value(value) {
            return None;
        }
        let values = vec![value.to_owned()];
        (key, if unequal { Test::NotIn(values) } else { Test::In(values) })
    } else {
        (part, Test::Exists)
    };
    is_key(key).then_some((key, test))
}

/// Key, whether unequal, value.
fn equality(part: &str) -> Option<(&str, bool, &str)> {
    let (operator, unequal) = if part.contains("!=") {
        ("!=", true)
    } else if part.contains("==") {
        ("==", false)
    } else {
        ("=", false)
    };
    let (key, value) = part.split_once(operator)?;
    Some((key.trim(), unequal, value.trim()))
}

/// A label's name, with or without a prefix.
fn is_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').unwrap_or(("x", key));
    !prefix.is_empty() && !name.is_empty() && is_value(name) && is_value(prefix)
}

/// A label's value, which may be empty.
fn is_value(text: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 253 && bytes.iter().all(|byte| fine(*byte)) && edge(bytes.first()) && edge(bytes.last())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Selector;
    use crate::kinds::Kind;

    fn labels(text: &str) -> Option<Selector> {
        let mut selector = Selector::default();
        selector.read_labels(text).ok().map(|()| selector)
    }

    #[test]
    fn each_operator_takes_what_it_says() {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "", "n": "5", "example.com/x": "y"}}});
        for (text, matches) in [
            ("", true),
            ("app=web", true),
            ("app==web", true),
            ("app!=web", false),
            ("app!=api", true),
            ("absent!=x", true),
            ("absent=x", false),
            ("app in (api, web)", true),
            ("app in (api)", false),
            ("app notin (api,web)", false),
            ("absent notin (a)", true),
            ("app", true),
            ("!app", false),
            ("!absent", true),
            ("tier=", true),
            ("n>4,n<6", true),
            ("n>5", false),
            ("example.com/x=y,app in (web),!absent", true),
            ("example.com/x=y,app in (web),absent", false),
        ] {
            assert_eq!(labels(text).map(|selector| selector.matches(&object)), Some(matches), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for text in ["a=b=c", "a in b", "a in (b", "a in b)", "in (a)", "a among (b)", "=b", ",", "a=b,", "a b", "-a=b"]
        {
            assert!(labels(text).is_none(), "{text}");
        }
    }

    #[test]
    fn fields_are_those_that_the_kind_knows() {
        let kind = Kind::custom("example.com", &["v1"], "Thing", "things", true);
        let object = json!({"metadata": {"name": "a", "namespace": "n"}});
        for (text, matches) in [
            ("metadata.name=a", Some(true)),
            ("metadata.name!=a", Some(false)),
            ("metadata.name=a,metadata.namespace=m", Some(false)),
            ("spec.x=a", None),
            ("metadata.name", None),
        ] {
            let mut selector = Selector::default();
            let read = selector.read_fields(text, &kind).ok();
            assert_eq!(read.map(|()| selector.matches(&object)), matches, "{text}");
        }
    }
}
