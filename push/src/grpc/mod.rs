//! The sessions on sockets: gRPC over TLS 1.3, agents by their certificates.

pub mod accept;
pub mod client;
pub mod enrol;
mod identity_layer;
mod live;
mod pace;
pub mod server;
mod shared;
mod signal;
pub mod tls;

pub use identity_layer::Method;
pub use shared::SharedFleet;

use std::time::Duration;

use crate::limits;

/// How often an HTTP/2 ping goes out on a quiet connection; the other side permits that rate.
const PING: Duration = Duration::from_secs(10);
/// How long the answer to a ping may take. Not less than three heartbeats: on a slow link it waits behind a transfer.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Flow control of a stream: two chunks. More would queue member messages behind configuration inside the connection.
const STREAM_WINDOW: u32 = limits::UNDER_WAY as u32;
/// Flow control of a connection: at least the sum of its streams.
const CONNECTION_WINDOW: u32 = 2 * 1024 * 1024;
/// The longest header list, in bytes.
const HEADERS: u32 = 8 * 1024;
/// Streams of one connection at a time. An agent needs one.
const STREAMS: u32 = 2;
