//! Where two transcripts differ: the request, the field, and both values.

use serde_json::Value;

use super::steps;

/// A step or a field that one of the two lacks.
static NONE: Value = Value::Null;

/// Where two transcripts differ, in plain words; empty when they are the same.
pub fn differences(expected: &[Value], found: &[Value]) -> String {
    let requests: Vec<String> = steps().into_iter().flatten().map(|step| step.ask).collect();
    let mut out = String::new();
    for index in 0..expected.len().max(found.len()) {
        let [expected, found] = [expected, found].map(|all| all.get(index).unwrap_or(&NONE));
        if expected == found {
            continue;
        }
        let step = if found.is_null() { expected } else { found };
        let request = requests.get(index).filter(|request| !request.is_empty());
        let request = request.map(|request| format!(" ({request})")).unwrap_or_default();
        out += &format!("step {}: {}{request}\n", index + 1, step["step"].as_str().unwrap_or_default());
        fields("", expected, found, &mut out);
    }
    out
}

/// A line for each field that differs, named as in RFC 6901.
fn fields(path: &str, expected: &Value, found: &Value, out: &mut String) {
    match (expected, found) {
        (expected, found) if expected == found => {}
        (Value::Object(one), Value::Object(other)) => {
            let added = other.keys().filter(|name| !one.contains_key(*name));
            for name in one.keys().chain(added) {
                let [one, other] = [one, other].map(|fields| fields.get(name).unwrap_or(&NONE));
                fields(&format!("{path}/{name}"), one, other, out);
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            for index in 0..one.len().max(other.len()) {
                let [one, other] = [one, other].map(|items| items.get(index).unwrap_or(&NONE));
                fields(&format!("{path}/{index}"), one, other, out);
            }
        }
        _ => *out += &format!("  {path}: expected {expected}, found {found}\n"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::differences;

    #[test]
    fn a_difference_names_the_request_the_field_and_both_values() {
        let line =
            |code: u16, name: &str| json!({"step": "a list", "code": code, "answer": {"items": [{"name": name}]}});
        assert_eq!(differences(&[line(200, "a")], &[line(200, "a")]), "");
        let said = differences(&[line(200, "a")], &[line(404, "b")]);
        assert!(said.starts_with("step 1: a list (GET /api/v1/namespaces/script/configmaps)\n"), "{said}");
        assert!(said.contains("  /code: expected 200, found 404\n"), "{said}");
        assert!(said.contains("  /answer/items/0/name: expected \"a\", found \"b\"\n"), "{said}");
        assert!(differences(&[line(200, "a")], &[]).contains("found null"), "a step that is missing");
    }
}
