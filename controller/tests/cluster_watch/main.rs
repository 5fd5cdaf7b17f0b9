//! The source of a cluster over HTTP against an API server in memory: each fault of it, and what stays in force meanwhile.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod controller;
mod faults;
mod lost;
