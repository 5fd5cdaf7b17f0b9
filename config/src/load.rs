//! Loading a resource: the one validation, which the translator runs before it sends and `scalwsd` before it serves.

use crate::check_body::check_body;
use crate::check_claims::check_envelope;
use crate::limits::{BODY_BYTES_MAX, MESSAGE_CHARS_MAX, RESOURCE_BYTES_MAX, SCHEMA_VERSION};
use crate::text::tame;
use crate::{Body, Claims, Envelope, EnvelopeError, ObjectRef, ResourceId, TypedName, Withheld};

/// A resource that was read. Its claims hold whatever its state is.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// Kind and name.
    pub id: ResourceId,
    /// The name in its parts.
    pub name: TypedName,
    /// The objects it came from.
    pub origin: Vec<ObjectRef>,
    /// What it claims; on every fragment and on nothing else.
    pub claims: Option<Claims>,
    /// Whether it can be used.
    pub state: State,
}

/// Whether a resource can be used.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// The body is valid by itself. What it names may still be missing.
    Live(Body),
    /// The body cannot be used by this version; requests that it claims answer 503.
    NotLive {
        /// [`CODE_INVALID`] or [`CODE_UNSUPPORTED`].
        code: &'static str,
        /// A sentence for people, bounded and without control characters.
        message: String,
    },
    /// The translator sent claims only; requests that they win answer 503.
    Withheld(Withheld),
}

/// The body is against a rule.
pub const CODE_INVALID: &str = "invalid";
/// The body holds a schema version, field or word that this version does not know.
pub const CODE_UNSUPPORTED: &str = "unsupported";

/// Reads and checks one resource as it travelled.
///
/// # Errors
/// When the name or the envelope breaks the frozen grammar: a controller's bug. Faults of the body are no errors but make
/// the resource not live.
pub fn load(id: ResourceId, bytes: &[u8]) -> Result<Loaded, EnvelopeError> {
    let (name, envelope) = match read_envelope(&id, bytes) {
        Ok(read) => read,
        Err(why) => return Err(EnvelopeError { why: tame(&why, MESSAGE_CHARS_MAX), id }),
    };
    let Envelope { v, origin, claims, withheld, body } = envelope;
    let state = match (withheld, body) {
        (Some(withheld), _) => State::Withheld(withheld),
        (None, Some(body)) => read_body(&name, claims.as_ref(), v, body.get()),
        // `Envelope::decode` lets exactly one of the two through.
        (None, None) => not_live(CODE_INVALID, "the body is missing"),
    };
    Ok(Loaded { id, name, origin, claims, state })
}

fn read_envelope(id: &ResourceId, bytes: &[u8]) -> Result<(TypedName, Envelope), String> {
    let name = TypedName::of(id).map_err(|e| e.to_string())?;
    if bytes.len() > RESOURCE_BYTES_MAX {
        return Err(format!("{} bytes are more than {RESOURCE_BYTES_MAX}", bytes.len()));
    }
    if let Some(at) = bytes.iter().position(|b| *b < 0x20) {
        return Err(format!("a control byte at offset {at}; one line of compact JSON is expected"));
    }
    // The JSON library would read a list as an object's fields in their order. There is one form only.
    if bytes.first() != Some(&b'{') {
        return Err("it is not a JSON object".to_owned());
    }
    let envelope = Envelope::decode(id, bytes).map_err(|e| e.why)?;
    check_envelope(&name, &envelope)?;
    Ok((name, envelope))
}

fn read_body(name: &TypedName, claims: Option<&Claims>, v: u32, text: &str) -> State {
    if v > SCHEMA_VERSION {
        return not_live(
            CODE_UNSUPPORTED,
            &format!("schema version {v} is newer than {SCHEMA_VERSION}, the highest known"),
        );
    }
    if text.len() > BODY_BYTES_MAX {
        return not_live(CODE_INVALID, &format!("a body of {} bytes is more than {BODY_BYTES_MAX}", text.len()));
    }
    if !text.starts_with('{') {
        return not_live(CODE_INVALID, "the body is not a JSON object");
    }
    let body = match Body::from_json(name.kind(), text) {
        Ok(body) => body,
        Err(why) => {
            // These two beginnings are serde's own, for a field or a word that the types do not have.
            let unknown = why.starts_with("unknown field") || why.starts_with("unknown variant");
            return not_live(if unknown { CODE_UNSUPPORTED } else { CODE_INVALID }, &why);
        }
    };
    match check_body(name, claims, &body) {
        Ok(()) => State::Live(body),
        Err(why) => not_live(CODE_INVALID, &why),
    }
}

fn not_live(code: &'static str, message: &str) -> State {
    State::NotLive { code, message: tame(message, MESSAGE_CHARS_MAX) }
}
