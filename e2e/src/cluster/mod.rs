//! A real Kubernetes of a test's own, in namespaces that nothing else is in; `cargo xtask cluster build` builds its programs.

mod connection;
mod control_plane;
mod here;
mod pod;

pub use connection::Connector;
pub use control_plane::{Component, ControlPlane, Settings};
pub use here::helm;
pub use pod::Pod;
