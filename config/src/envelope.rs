//! The envelope around every body: what always loads, so that a broken body still keeps its claims.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{Body, Domain, Kind, ListenerName, Match, Resource, ResourceId};

/// The object that a resource came from; refusals are reported on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectRef {
    /// The kind as in its manifest, such as `Ingress`.
    pub kind: String,
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind, self.namespace, self.name)
    }
}

/// The frozen part of a fragment: where it is served and which requests it claims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The listeners it is served on, sorted.
    pub listeners: Vec<ListenerName>,
    /// The domain.
    pub host: Domain,
    /// Every match, in the order in which the body's actions stand.
    pub matches: Vec<Match>,
}

/// Why a resource travels without its body: its claims stay and answer 503.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Withheld {
    /// A stable word for programs, such as `AnnotationRefused` or `Condemned`.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

/// What the bytes of every resource hold: one compact JSON object. Fields at their default are not written.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    /// The lowest schema version that can express this body; 1 is not written.
    #[serde(default = "version_one", skip_serializing_if = "is_version_one")]
    pub v: u32,
    /// The objects this resource came from, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origin: Vec<ObjectRef>,
    /// Only on fragments, and there always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<Claims>,
    /// Set instead of `body`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<Withheld>,
    /// The body, unread. See [`Body`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub body: Option<Box<RawValue>>,
}

fn version_one() -> u32 {
    1
}

fn is_version_one(v: &u32) -> bool {
    *v == 1
}

/// An envelope that does not decode: a controller's bug, never a tenant's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{id}: {why}")]
pub struct EnvelopeError {
    /// The resource.
    pub id: ResourceId,
    /// What is wrong.
    pub why: String,
}

impl Envelope {
    /// Reads the envelope of a resource. The body is not looked at.
    ///
    /// # Errors
    /// When the bytes are not an envelope, a fragment has no claims, or neither or both of body and reason are there.
    pub fn decode(id: &ResourceId, bytes: &[u8]) -> Result<Envelope, EnvelopeError> {
        let fail = |why: String| EnvelopeError { id: id.clone(), why };
        let envelope: Envelope = serde_json::from_slice(bytes).map_err(|e| fail(e.to_string()))?;
        if envelope.claims.is_some() != (id.kind == Kind::Fragment) {
            return Err(fail("exactly the fragments carry claims".to_owned()));
        }
        if envelope.body.is_some() == envelope.withheld.is_some() {
            return Err(fail("exactly one of body and withheld must be there".to_owned()));
        }
        Ok(envelope)
    }

    /// The same resource without its body: claims stay, and requests they match answer 503.
    ///
    /// # Errors
    /// When the bytes are not an envelope.
    pub fn withhold(resource: &Resource, reason: Withheld) -> Result<Resource, EnvelopeError> {
        let mut envelope = Envelope::decode(&resource.id, &resource.bytes)?;
        envelope.body = None;
        envelope.withheld = Some(reason);
        Ok(envelope.encode(resource.id.clone(), Vec::new()))
    }

    /// A resource with this body.
    pub fn with_body(id: ResourceId, origin: Vec<ObjectRef>, claims: Option<Claims>, body: &Body) -> Resource {
        let raw = RawValue::from_string(body.to_json()).expect("a body that was just written is JSON");
        let envelope = Envelope { v: body.version(), origin, claims, withheld: None, body: Some(raw) };
        envelope.encode(id, body.secrets())
    }

    /// A resource that is withheld.
    pub fn without_body(id: ResourceId, origin: Vec<ObjectRef>, claims: Option<Claims>, reason: Withheld) -> Resource {
        Envelope { v: 1, origin, claims, withheld: Some(reason), body: None }.encode(id, Vec::new())
    }

    fn encode(&self, id: ResourceId, secrets: Vec<crate::SecretDigest>) -> Resource {
        let bytes = serde_json::to_vec(self).expect("an envelope has only string keys");
        // Kept for as long as the resource is there: as long as it must be.
        let bytes = bytes.into_boxed_slice().into();
        Resource { id, bytes, secrets }
    }
}
