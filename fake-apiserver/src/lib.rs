//! A Kubernetes API server in memory, with faults: for tests and simulation, held against the real one by a script of requests.
//!
//! [`Server`] is the whole of it without I/O, clock or randomness: requests and the time as a number go in, answers and frames
//! of watches come out, so the simulation can drive it under one seed. [`http`] puts it on a port of the loopback interface.
//! [`script`] is the list of requests that is sent to it and to the real one, whose answers are kept beside it; [`changes`] are
//! random changes that both are given.
//!
//! What it leaves out: validation and defaults of most kinds, server-side apply, JSON patch and strategic merge, tables,
//! `deletecollection`, dry runs, authentication, and controllers (nobody makes EndpointSlices or schedules pods).

mod accept;
mod calendar;
pub mod changes;
mod counts;
mod custom;
mod discovery;
mod faults;
pub mod http;
mod kinds;
mod object;
mod query;
mod read;
mod request;
pub mod script;
mod seed;
mod selector;
mod server;
mod status;
mod store;
mod target;
mod watch;
mod write;

pub use counts::Counts;
pub use faults::{Fault, FaultId, Faults, What};
pub use kinds::{Generation, Kind};
pub use request::{Method, Request, Response, Verb};
pub use server::{Admission, Call, Reply, Server, Settings};
pub use status::Failure;
pub use watch::{Next, WatchId};
