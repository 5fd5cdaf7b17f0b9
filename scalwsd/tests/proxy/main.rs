//! The proxy over real sockets on loopback: one worker in this process, backends and clients beside it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backend;
mod client;
mod site;

mod draining;
mod edge;
mod forwarding;
mod loading;
mod members;
mod retries;
mod semantics;
mod tls;
mod websocket;
