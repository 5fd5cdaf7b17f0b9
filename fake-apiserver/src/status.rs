//! What a refused request is answered with: the `Status` objects of the real one.

use serde_json::{Map, Value, json};

use crate::kinds::Kind;
use crate::request::Response;

/// A refusal, with what its `Status` object says.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The HTTP status code.
    pub code: u16,
    /// `NotFound`, `Conflict` and so on; empty where the real one has none.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Which object, and what of it is wrong. Null where there are none.
    pub details: Value,
    /// Where an expired list could go on, inconsistently.
    pub continues: Option<String>,
    /// Seconds after which to try again.
    pub retry_after: Option<u32>,
}

impl Failure {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Failure {
        let message = message.into();
        Failure { code, reason, message, details: Value::Null, continues: None, retry_after: None }
    }

    fn about(mut self, kind: &Kind, name: &str) -> Failure {
        self.details = details(&kind.group, &kind.plural, name);
        self
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Failure {
        Failure::new(404, "NotFound", format!("{} \"{name}\" not found", kind.resource())).about(kind, name)
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Failure {
        Failure::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.resource())).about(kind, name)
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Failure {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.resource());
        Failure::new(409, "Conflict", message).about(kind, name)
    }

    /// The object is not what the precondition of a deletion says. The real one names the kind here, not the resource.
    pub(crate) fn precondition(kind: &Kind, name: &str, why: &str) -> Failure {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.kind);
        let details = details(&kind.group, &kind.kind, name);
        Failure { details, ..Failure::new(409, "Conflict", message) }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(400, "BadRequest", message)
    }

    /// One field of an object, or of the query (`kind` is `ListOptions` then), is wrong.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, field: &str, cause: &str, why: &str) -> Failure {
        let dot = if group.is_empty() { "" } else { "." };
        let message = format!("{kind}{dot}{group} \"{name}\" is invalid: {field}: {why}");
        let mut failure = Failure::new(422, "Invalid", message);
        failure.details = details(group, kind, name);
        failure.details["causes"] = json!([{"reason": cause, "message": why, "field": field}]);
        failure
    }

    /// The history does not go back that far.
    pub(crate) fn expired(message: impl Into<String>) -> Failure {
        Failure::new(410, "Expired", message)
    }

    /// A version was asked for that is not there yet.
    pub(crate) fn too_large(asked: u64, current: u64) -> Failure {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut failure = Failure::new(504, "Timeout", message);
        failure.details = json!({
            "retryAfterSeconds": 1,
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        });
        failure.retry_after = Some(1);
        failure
    }

    /// A method that a resource does not have.
    pub(crate) fn method(message: impl Into<String>) -> Failure {
        Failure { details: json!({}), ..Failure::new(405, "MethodNotAllowed", message) }
    }

    /// There is no such resource.
    pub(crate) fn no_resource() -> Failure {
        let message = "the server could not find the requested resource";
        Failure { details: json!({}), ..Failure::new(404, "NotFound", message) }
    }

    /// What a fault answers with.
    pub(crate) fn injected(code: u16, retry_after: Option<u32>, resource: &str) -> Failure {
        let (reason, message) = match code {
            401 => ("Unauthorized", "Unauthorized".to_owned()),
            403 => ("Forbidden", format!("{resource} is forbidden: a fault says so")),
            404 => ("NotFound", format!("{resource} not found: a fault says so")),
            409 => ("Conflict", format!("Operation cannot be fulfilled on {resource}: a fault says so")),
            410 => ("Expired", "too old resource version: a fault says so".to_owned()),
            429 => ("TooManyRequests", "Too many requests, please try again later.".to_owned()),
            503 => ("ServiceUnavailable", "a fault says so".to_owned()),
            504 => ("Timeout", "Timeout: a fault says so".to_owned()),
            _ => ("InternalError", "Internal error occurred: a fault says so".to_owned()),
        };
        let mut failure = Failure::new(code, reason, message);
        if let Some(seconds) = retry_after {
            failure.details = json!({"retryAfterSeconds": seconds});
        }
        failure.retry_after = retry_after;
        failure
    }

    /// The `Status` object.
    pub fn object(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continues {
            metadata.insert("continue".to_owned(), token.as_str().into());
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }

    /// The whole answer.
    pub fn response(&self) -> Response {
        Response { retry_after: self.retry_after, ..Response::json(self.code, &self.object()) }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for Failure {}

/// Which object: empty fields are left out, as the real one does.
fn details(group: &str, kind: &str, name: &str) -> Value {
    let fields = [("name", name), ("group", group), ("kind", kind)];
    let fields = fields.into_iter().filter(|(_, text)| !text.is_empty());
    Value::Object(fields.map(|(field, text)| (field.to_owned(), text.into())).collect())
}

/// What a deletion answers with.
pub(crate) fn deleted(kind: &Kind, name: &str, uid: &str) -> Value {
    let mut details = details(&kind.group, &kind.plural, name);
    details["uid"] = uid.into();
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
