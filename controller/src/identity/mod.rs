//! Who the controller is, which fleets are declared, and how it learns who an agent is: from the supervisor, over pipes.

pub mod declared;
pub mod descriptor;
mod lines;

/// The name that agents expect in the controller's certificate.
pub const SERVER_NAME: &str = "controller.scalws.internal";
