//! What of an answer is compared: everything but what two servers cannot have in common.

use serde_json::{Map, Value, json};

use crate::request::Response;

/// Versions and uids that were seen, in the order in which they came: the same object has the same label on both servers.
#[derive(Debug, Default)]
pub(super) struct Labels {
    versions: Vec<String>,
    uids: Vec<String>,
}

/// The label of a value: where it stands in the list of those that were seen.
fn label(seen: &mut Vec<String>, what: &str, value: &str) -> Value {
    let place = seen.iter().position(|one| one == value).unwrap_or_else(|| {
        seen.push(value.to_owned());
        seen.len() - 1
    });
    format!("{what} {}", place + 1).into()
}

impl Labels {
    /// An answer as it is compared.
    pub(super) fn response(&mut self, response: &Response, brief: bool) -> Value {
        let object = response.object();
        if !object.is_object() {
            let text = String::from_utf8_lossy(&response.body);
            return json!({"code": response.code, "text": text.trim()});
        }
        if brief {
            return json!({"code": response.code, "kind": object["kind"], "reason": object["reason"]});
        }
        json!({"code": response.code, "answer": self.object(object)})
    }

    /// An event as it is compared. None for bookmarks that come when the server likes.
    pub(super) fn event(&mut self, event: Value) -> Option<Value> {
        let object = &event["object"];
        if event["type"] != "BOOKMARK" {
            return Some(json!({"type": event["type"], "object": self.object(object.clone())}));
        }
        let annotations = object["metadata"].get("annotations")?;
        // A typed server sends the whole object with nothing in it.
        let metadata = json!({"annotations": annotations, "resourceVersion": "VERSION"});
        Some(json!({"type": "BOOKMARK", "object": {
            "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": metadata,
        }}))
    }

    fn object(&mut self, mut object: Value) -> Value {
        let is_list = object["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        let is_status = object["kind"] == "Status";
        let Value::Object(fields) = &mut object else { return object };
        if is_status {
            fields.remove("message");
            if let Some(details) = fields.get_mut("details") {
                self.details(details);
            }
        }
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            self.metadata(metadata, is_list || is_status);
        }
        if let Some(Value::Array(items)) = fields.get_mut("items") {
            for item in items {
                *item = self.object(item.take());
            }
        }
        object
    }

    fn metadata(&mut self, metadata: &mut Map<String, Value>, of_many: bool) {
        metadata.remove("managedFields");
        for field in ["creationTimestamp", "deletionTimestamp"] {
            match metadata.get_mut(field) {
                Some(Value::Null) => drop(metadata.remove(field)),
                Some(time) => *time = "TIME".into(),
                None => {}
            }
        }
        // Lists of custom resources without another page say so with an empty token.
        if let Some(token) = metadata.get_mut("continue").filter(|token| *token != "") {
            *token = "TOKEN".into();
        }
        if let Some(uid) = metadata.get_mut("uid") {
            *uid = label(&mut self.uids, "uid", uid.as_str().unwrap_or_default());
        }
        if let Some(version) = metadata.get_mut("resourceVersion") {
            // Other writers raise the version of a list on a real server.
            *version = match version.as_str() {
                Some(version) if !of_many => label(&mut self.versions, "version", version),
                _ => "VERSION".into(),
            };
        }
    }

    fn details(&mut self, details: &mut Value) {
        if let Some(uid) = details.get_mut("uid") {
            *uid = label(&mut self.uids, "uid", uid.as_str().unwrap_or_default());
        }
        for cause in details.get_mut("causes").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Value::Object(cause) = cause {
                cause.remove("message");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Labels;

    #[test]
    fn only_what_servers_cannot_have_in_common_is_replaced() {
        let mut labels = Labels::default();
        let mut event = |version: &str, uid: &str| {
            let metadata = json!({"name": "a", "resourceVersion": version, "uid": uid, "managedFields": [1],
                                  "creationTimestamp": "2026-01-01T00:00:00Z"});
            let seen = labels.event(json!({"type": "ADDED", "object": {"kind": "X", "metadata": metadata, "x": 1}}));
            seen.unwrap()["object"].clone()
        };
        let metadata =
            json!({"name": "a", "resourceVersion": "version 1", "uid": "uid 1", "creationTimestamp": "TIME"});
        assert_eq!(event("812", "u"), json!({"kind": "X", "metadata": metadata, "x": 1}));
        assert_eq!(event("900", "u")["metadata"]["resourceVersion"], "version 2");
        assert_eq!(
            event("812", "v")["metadata"]["resourceVersion"],
            "version 1",
            "the same version has the same label"
        );
        assert_eq!(event("812", "v")["metadata"]["uid"], "uid 2");
    }

    #[test]
    fn bookmarks_count_only_when_they_say_something() {
        let mut labels = Labels::default();
        let mut bookmark = |metadata| labels.event(json!({"type": "BOOKMARK", "object": {"metadata": metadata}}));
        assert_eq!(bookmark(json!({"resourceVersion": "1"})), None);
        assert!(bookmark(json!({"annotations": {"k8s.io/initial-events-end": "true"}})).is_some());
    }
}
