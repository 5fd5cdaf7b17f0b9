//! Cluster objects in; configuration, findings and drafted status out; pure and incremental.

pub mod manifest;
