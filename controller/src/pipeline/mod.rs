//! From changes to publications: the engine, and the one thread that feeds it.

pub mod condemned;
pub mod convert;
mod translator;
mod worker;

pub use translator::{Outcome, Translator, subject};
pub use worker::{Command, Debug, Scan, Stopped, Target, Worker, WorkerHandle};
