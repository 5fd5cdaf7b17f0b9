//! One leader among the replicas: a Lease by compare-and-swap, judged by our own monotonic clock.

mod api;
mod driver;
mod elector;
mod lease;
mod settings;
mod term;

pub use api::Lease;
pub use driver::run;
pub use elector::{Effect, Elector, Failed, Input, Moment, Standing, WriteFailed};
pub use lease::{Observed, Record};
pub use settings::{Settings, SettingsError};
pub use term::Term;
