//! From changes to publications: the engine, and the one thread that feeds it.

pub mod condemned;
pub mod convert;
#[cfg(all(feature = "skew", debug_assertions))]
mod skew;
mod translator;
mod worker;

pub use translator::{Outcome, Translator, subject};
pub use worker::{Command, Debug, Scan, Stopped, Target, Worker, WorkerHandle};
