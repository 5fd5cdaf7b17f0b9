//! The ScalWS proxy: listeners, forwarding, pools, TLS and the admin API.
//!
//! [`loader`] turns resources into a [`snapshot::Snapshot`], which [`service`] looks at for every request. Member sets live
//! beside it ([`members`]), so that they change without a reload.

pub mod access_log;
pub mod admin;
pub mod body;
pub mod build;
pub mod certificate;
pub mod check;
pub mod cli;
pub mod clock;
pub mod connection;
pub mod dns;
pub mod edge;
pub mod forward;
pub mod handshake;
pub mod head_guard;
pub mod headers;
pub mod keys;
pub mod listeners;
pub mod loader;
pub mod member;
pub mod members;
pub mod metrics;
pub mod not_live;
// Never in an optimised build: one of the whole workspace has the features of its tests.
#[cfg(all(feature = "poison", debug_assertions))]
pub mod poison;
pub mod pool;
pub mod process;
pub mod proxy;
pub mod redirect;
pub mod route;
pub mod run;
pub mod service;
pub mod snapshot;
pub mod standalone;
pub mod state;
pub mod tls;
pub mod trace;
pub mod tunnel;
pub mod watch;
pub mod worker;
