//! The messages of the push protocol: whatever arrives, decoding ends, and what decodes is encoded and decoded again.

use prost::Message;
use proto::v1::{AgentMessage, Change, ControllerMessage, EnrollRequest};

fn round_trip<M: Message + Default + PartialEq>(data: &[u8]) {
    if let Ok(message) = M::decode(data) {
        let again = M::decode(message.encode_to_vec().as_slice()).expect("what was encoded decodes");
        assert!(again == message, "a message is the same after another round");
    }
}

pub(crate) fn run(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    match choice % 4 {
        0 => round_trip::<AgentMessage>(rest),
        1 => round_trip::<ControllerMessage>(rest),
        2 => round_trip::<Change>(rest),
        _ => round_trip::<EnrollRequest>(rest),
    }
}
