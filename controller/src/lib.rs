//! The central controller: watch, store, translate, push, report.
//!
//! One thread reads the source, owns the world and publishes ([`pipeline::Worker`]); sessions, enrolment and the local
//! API run on tokio around the [`hub::Hub`]. Data goes down; only verdicts come back up.

pub mod admin;
pub mod api_server;
pub mod args;
pub mod authority;
mod certificates;

pub mod election;
pub mod epoch;
mod files;
pub mod hub;
pub mod identity;
pub mod leadership;
pub mod metrics;
pub mod pipeline;
pub mod process;
mod replica;
pub mod report;
mod run;
mod service;
pub mod store;
mod supervised;
pub mod watch;

pub use run::run;
