//! The Lease at the API server: how it is read and written (`coordination.k8s.io/v1`).
//!
//! It is handled as JSON, so that a write keeps what others put on the object.

use std::time::Duration;

use http::{Method, Request};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use super::elector::{Failed, WriteFailed};
use super::lease::{Observed, Record};

/// The counter of epochs on the Lease.
const EPOCH: &str = "scalws.io/epoch";
/// Where agents reach the holder.
const ADDRESS: &str = "scalws.io/address";

/// One Lease.
#[derive(Clone)]
pub struct Lease {
    client: Client,
    namespace: String,
    name: String,
    /// How long one request may take.
    timeout: Duration,
    /// As it was last seen, with all that others put on it.
    last: Option<Value>,
    failing: bool,
    /// What stands there instead of an epoch, and was said.
    no_epoch: Option<String>,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("namespace", &self.namespace).field("name", &self.name).finish_non_exhaustive()
    }
}

impl Lease {
    /// The Lease of this name.
    pub fn new(client: Client, namespace: &str, name: &str, timeout: Duration) -> Lease {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Lease { client, namespace, name, timeout, last: None, failing: false, no_epoch: None }
    }

    /// Reads it, with a quorum.
    pub(super) async fn read(&mut self) -> Result<Option<Observed>, Failed> {
        let answer = self.send(Method::GET, true, None).await;
        let found = match answer {
            Ok(value) => Some(value),
            Err(Some(404)) => None,
            Err(_) => return Err(Failed),
        };
        self.last = found.clone();
        self.tell_of_no_epoch();
        found.map(|value| observed(&value).ok_or(Failed)).transpose()
    }

    /// Writes it by compare-and-swap.
    pub(super) async fn write(
        &mut self,
        record: Record,
        over: Option<(String, String)>,
    ) -> Result<Observed, WriteFailed> {
        let mut lease = self.last.clone().filter(|_| over.is_some()).unwrap_or_else(|| json!({}));
        fill(&mut lease, &self.namespace, &self.name, &record, over.as_ref());
        let body = serde_json::to_vec(&lease).map_err(|_| WriteFailed::Conflict)?;
        let (method, named) = if over.is_some() { (Method::PUT, true) } else { (Method::POST, false) };
        match self.send(method, named, Some(body)).await {
            Ok(value) => {
                let written = observed(&value);
                self.last = Some(value);
                written.ok_or(WriteFailed::Unknown)
            }
            // 404: it is gone. 409: it is another version or another object than the one that was named, or it is there.
            Err(Some(404 | 409)) => Err(WriteFailed::Conflict),
            Err(_) => Err(WriteFailed::Unknown),
        }
    }

    /// Says once, not at each look, that the annotation is no number.
    fn tell_of_no_epoch(&mut self) {
        let text = self.last.as_ref().and_then(|lease| lease["metadata"]["annotations"][EPOCH].as_str());
        let text = text.filter(|text| text.parse::<u64>().is_err()).map(str::to_owned);
        if text.is_some() && text != self.no_epoch {
            tracing::error!(lease = ?self, epoch = text, "the annotation {EPOCH} of the Lease is no number; it counts as none");
        }
        self.no_epoch = text;
    }

    /// Sends a request; an error is the status of the answer, or nothing without one.
    async fn send(&mut self, method: Method, named: bool, body: Option<Vec<u8>>) -> Result<Value, Option<u16>> {
        let mut path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace);
        if named {
            path.push('/');
            path.push_str(&self.name);
        }
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.unwrap_or_default());
        let request = request.map_err(|error| {
            tracing::error!(lease = ?self, %error, "the name of the Lease makes no request");
            None
        })?;
        let answer = tokio::time::timeout(self.timeout, self.client.request::<Value>(request)).await;
        let why = match answer {
            Ok(Ok(value)) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!(lease = ?self, "the Lease can be reached again");
                }
                return Ok(value);
            }
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => return Err(Some(status.code)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {:?}", self.timeout),
        };
        // Once, not at each attempt.
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(lease = ?self, error = why, "the Lease cannot be reached");
        }
        Err(None)
    }
}

fn micros(text: &Value) -> i64 {
    text.as_str().and_then(|text| text.parse::<Timestamp>().ok()).map_or(0, Timestamp::as_microsecond)
}

fn time(us: i64) -> Value {
    Timestamp::from_microsecond(us).map_or(Value::Null, |time| format!("{time:.6}").into())
}

fn observed(lease: &Value) -> Option<Observed> {
    let (metadata, spec) = (lease.get("metadata")?, &lease["spec"]);
    let annotation = |name: &str| metadata["annotations"][name].as_str();
    let seconds = spec["leaseDurationSeconds"].as_u64().unwrap_or(0);
    let epoch = annotation(EPOCH).and_then(|text| text.parse().ok());
    Some(Observed {
        uid: metadata["uid"].as_str()?.to_owned(),
        version: metadata["resourceVersion"].as_str()?.to_owned(),
        record: Record {
            holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
            address: annotation(ADDRESS).unwrap_or_default().to_owned(),
            lease_ms: seconds.saturating_mul(1_000),
            transitions: spec["leaseTransitions"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            epoch: epoch.unwrap_or(0),
            acquired_us: micros(&spec["acquireTime"]),
            renewed_us: micros(&spec["renewTime"]),
        },
    })
}

/// Makes it say what the record says, and leaves everything else.
fn fill(lease: &mut Value, namespace: &str, name: &str, record: &Record, over: Option<&(String, String)>) {
    lease["apiVersion"] = "coordination.k8s.io/v1".into();
    lease["kind"] = "Lease".into();
    let metadata = &mut lease["metadata"];
    metadata["namespace"] = namespace.into();
    metadata["name"] = name.into();
    metadata["annotations"][EPOCH] = record.epoch.to_string().into();
    metadata["annotations"][ADDRESS] = record.address.as_str().into();
    if let Some((uid, version)) = over {
        // The UID too: without it a PUT makes a Lease that was deleted anew.
        metadata["uid"] = uid.as_str().into();
        metadata["resourceVersion"] = version.as_str().into();
    }
    let spec = &mut lease["spec"];
    spec["holderIdentity"] = if record.holder.is_empty() { Value::Null } else { record.holder.as_str().into() };
    spec["leaseDurationSeconds"] = (record.lease_ms / 1_000).into();
    // Kubernetes has 32 bits with a sign here.
    spec["leaseTransitions"] = record.transitions.min(i32::MAX.unsigned_abs()).into();
    spec["acquireTime"] = time(record.acquired_us);
    spec["renewTime"] = time(record.renewed_us);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            holder: "a_1".to_owned(),
            address: "10.0.0.1".to_owned(),
            lease_ms: 15_000,
            transitions: 3,
            epoch: 7,
            acquired_us: 1_700_000_000_000_001,
            renewed_us: 1_700_000_100_200_300,
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_what_others_put_there_stays() {
        let mut lease = json!({
            "metadata": { "annotations": { "them": "x" }, "labels": { "l": "1" }, "uid": "u", "resourceVersion": "4" },
            "spec": { "preferredHolder": "z" },
        });
        fill(&mut lease, "scalws", "controller", &record(), Some(&("u".to_owned(), "9".to_owned())));
        let seen = observed(&lease).unwrap();
        assert_eq!((seen.uid.as_str(), seen.version.as_str(), seen.record), ("u", "9", record()));
        assert_eq!(lease["metadata"]["annotations"]["them"], "x");
        assert_eq!(lease["metadata"]["labels"]["l"], "1");
        assert_eq!(lease["spec"]["preferredHolder"], "z");
        assert_eq!(lease["spec"]["renewTime"], "2023-11-14T22:15:00.200300Z");
    }

    #[test]
    fn a_lease_that_somebody_mangled_is_read_as_one_that_says_little() {
        let annotations = json!({ EPOCH: "18446744073709551616", ADDRESS: 7 });
        let lease = json!({
            "metadata": { "uid": "u", "resourceVersion": "1", "annotations": annotations },
            "spec": { "renewTime": "yesterday", "leaseDurationSeconds": -4, "leaseTransitions": 99_999_999_999_u64 },
        });
        assert_eq!(observed(&lease).unwrap().record, Record::default());
        assert!(observed(&json!({ "metadata": {} })).is_none());
    }
}
