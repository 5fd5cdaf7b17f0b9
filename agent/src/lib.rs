//! The agent beside each proxy: takes pushes, applies them to scalwsd and says whether they took.
//!
//! [`core`] decides, without sockets, files or a clock; [`driver`] does what it says; [`link`] keeps a stream to a
//! controller.

pub mod admin;
pub mod backoff;
pub mod bootstrap;
pub mod candidates;
pub mod check;
pub mod cli;
pub mod core;
pub mod driver;
pub mod faults;
pub mod hardening;
pub mod link;
pub mod replicas;
pub mod status;
pub mod volume;
