//! Between messages and the types of this crate, with every bound checked.

use bytes::Bytes;
use journal::Digest;
use journal::admin::NotLive;
use proto::v1::{self, AgentMessage, ControllerMessage, agent_message, controller_message};

use crate::Prefix;
use crate::limits;

/// A peer broke the protocol; what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) &'static str);

/// 32 bytes.
pub(crate) fn digest(bytes: &[u8]) -> Result<Digest, Broken> {
    Digest::from_slice(bytes).ok_or(Broken("a digest is not 32 bytes long"))
}

/// At most so many digests.
pub(crate) fn digests(list: &[Bytes], most: usize) -> Result<Vec<Digest>, Broken> {
    if list.len() > most {
        return Err(Broken("too many digests"));
    }
    list.iter().map(|bytes| digest(bytes)).collect()
}

/// The digests of all 256 buckets.
pub(crate) fn buckets(bytes: &[u8]) -> Result<Vec<Digest>, Broken> {
    if bytes.len() != 256 * 32 {
        return Err(Broken("not the digests of 256 buckets"));
    }
    bytes.chunks_exact(32).map(digest).collect()
}

/// Bucket numbers, ascending, each once.
pub(crate) fn bucket_numbers(bytes: &[u8]) -> Result<&[u8], Broken> {
    if bytes.is_sorted_by(|a, b| a < b) { Ok(bytes) } else { Err(Broken("bucket numbers are not ascending")) }
}

/// A name: not empty, not too long.
pub(crate) fn name(text: &str, longest: usize) -> Result<(), Broken> {
    if text.is_empty() || text.len() > longest { Err(Broken("a name is empty or too long")) } else { Ok(()) }
}

/// The beginning of a text, cut at a character.
pub(crate) fn cut(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        let end = (0..=longest).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// A digest as it travels.
pub(crate) fn raw(digest: &Digest) -> Bytes {
    Bytes::copy_from_slice(&digest.0)
}

/// The beginning of a digest as it travels.
pub(crate) fn beginning(digest: &Digest) -> Bytes {
    Bytes::copy_from_slice(Prefix::of(digest).bytes())
}

/// Digests one after the other.
pub(crate) fn raw_all(digests: &[Digest]) -> Bytes {
    digests.iter().flat_map(|digest| digest.0).collect()
}

/// A not_live list from the wire; texts are cut.
pub(crate) fn not_live(list: Vec<v1::NotLive>) -> Result<Vec<NotLive>, Broken> {
    if list.len() > limits::NOT_LIVE {
        return Err(Broken("too many resources are not live"));
    }
    let entry = |entry: v1::NotLive| NotLive {
        resource: cut(entry.resource, 2 * limits::NAME),
        code: cut(entry.code, 64),
        message: cut(entry.message, limits::TEXT),
    };
    Ok(list.into_iter().map(entry).collect())
}

/// Wraps a message of the controller.
pub(crate) fn to_agent(message: controller_message::Message) -> ControllerMessage {
    ControllerMessage { message: Some(message) }
}

/// Wraps a message of an agent.
pub(crate) fn to_controller(message: agent_message::Message) -> AgentMessage {
    AgentMessage { message: Some(message) }
}
