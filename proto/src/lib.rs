//! The wire format of the push protocol and its generated code; by hand only what keeps secrets out of `Debug`.

pub mod codec;
mod redacted;

/// Version 1 of the push protocol.
// Generated code has no comments of its own where the `.proto` file gives none.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
pub mod v1 {
    tonic::include_proto!("scalws.push.v1");
}

/// The encoded `FileDescriptorSet` of the protocol: every service, method, message and field.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
