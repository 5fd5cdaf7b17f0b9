//! Cluster objects in; configuration, findings and drafted status out; pure and incremental.
//!
//! [`translate`] is the definition: a [`World`] to a [`Translation`]. The work is cut into units (one Ingress, one Service,
//! one Secret, one host) that run in fixed stages. Each declares what it may read, absences included, so the incremental
//! engine knows which units a change concerns.
//!
//! No I/O, no clock, no randomness, and no map that shows an order other than that of its keys.

mod address;
mod annotations;
mod backend;
mod certificate;
mod claims;
mod class;
mod emit;
mod engine;
pub mod few;
mod fleet;
mod gateway;
mod host;
mod ledger;
pub mod manifest;
mod needs;
pub mod objects;
mod outcome;
mod output;
mod parse;
mod pem;
mod plain;
mod stages;
mod table;
mod tls;
mod view;
mod world;

pub use engine::Engine;
pub use objects::{DecodeError, NamespacedName, Object, ObjectId, SecretBytes};
pub use outcome::{
    BackendRef, Condition, Delta, Draft, Finding, FleetConfig, FleetDelta, Members, Served, Severity, Translation,
    reasons,
};
pub use plain::translate;
pub use world::{BUILTIN_CLASS, Change, FleetName, FleetSettings, INGRESS_CONTROLLER, Settings, World};
