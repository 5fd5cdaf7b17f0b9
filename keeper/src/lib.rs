//! The socket keeper: listening sockets that outlive the processes which accept on them.
//!
//! One socket per port, shared by all who ask: a connection waits in its queue until some worker accepts it, so a worker
//! that dies loses none of them. The protocol is one JSON line each way over a unix stream socket; the descriptor
//! travels beside the answer (`SCM_RIGHTS`, unix(7)).

pub mod client;
mod protocol;
pub mod server;
pub mod socket;

pub use protocol::{KeeperError, Transport, codes};
