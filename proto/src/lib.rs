//! The wire format of the push protocol and its generated code; nothing by hand.

// Generated code has no comments of its own where the `.proto` file gives none.
#![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]

/// Version 1 of the push protocol.
pub mod v1 {
    tonic::include_proto!("scalws.push.v1");
}
