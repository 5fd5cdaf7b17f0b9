//! The push conversation: snapshots, session state machines without sockets, and the gRPC binding.
//!
//! `fleet` is what should be; `server_session` and `agent_session` bring an agent there; `grpc` puts them on a socket.

pub mod agent_session;
pub mod authority;
pub mod authority_folder;
pub mod fleet;
pub mod grpc;
pub mod identity;
pub mod join;
pub mod limits;
mod prefix;
mod secret;
pub mod server_session;
#[cfg(all(feature = "skew", debug_assertions))]
pub mod skew;
mod version;
mod wire;

pub use prefix::Prefix;
pub use secret::Secret;
pub use version::Version;
