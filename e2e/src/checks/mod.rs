//! Checks that a test runs as they are, and that the test of planted bugs runs to see them fail.

pub mod conversation;
pub mod edges;
pub mod identity;
