//! Who the controller is, which fleets are declared, and how it learns who an agent is: from the supervisor, over pipes, or by the
//! token of its pod, from the API server.

pub mod bound_token;
pub mod declared;
pub mod descriptor;
mod lines;
mod membership;
pub(crate) mod pod_redeemer;
pub(crate) mod pod_watch;
pub mod presence;

pub use membership::Membership;

/// The name that agents expect in the controller's certificate.
pub const SERVER_NAME: &str = "controller.scalws.internal";
