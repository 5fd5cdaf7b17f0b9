//! A real Kubernetes of a test's own, in namespaces that nothing else is in; `cargo xtask cluster build` builds its programs.

mod control_plane;
mod here;

pub use control_plane::{Component, ControlPlane, Settings};
