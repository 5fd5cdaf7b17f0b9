//! From changes to publications: the engine, and the one thread that feeds it.

pub mod condemned;
pub mod convert;
mod worker;

pub use worker::{Command, Debug, Scan, Stopped, Target, Worker, WorkerHandle};
