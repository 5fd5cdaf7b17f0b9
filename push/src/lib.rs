//! The push conversation: snapshots, session state machines without sockets, and the gRPC binding.
//!
//! `fleet` is what should be; `server_session` and `agent_session` bring an agent there; `grpc` puts them on a socket.

pub mod agent_session;
pub mod fleet;
pub mod limits;
mod secret;
mod version;

pub use secret::Secret;
pub use version::Version;
