//! An API server as a source of objects: one list and one watch for each kind, and proof that nothing was missed.
//!
//! [`KindWatch`] decides what is asked and what an answer means, without I/O. [`Cluster`] asks, and feeds the pipeline.

mod args;
mod comparison;
mod failure;
mod follow;
mod held;
mod kind;
mod kinds;
mod metrics;
mod parse;
mod requests;
mod selector;
mod source;
mod state;
mod stream;
mod talk;
mod version;

pub use args::ClusterArgs;
pub use comparison::Comparison;
pub use failure::{Class, Failure};
pub use held::{Item, Store, Trace};
pub use kind::KindWatch;
pub use kinds::{Family, KINDS, Kind};
pub use metrics::WatchMetrics;
pub use selector::{NoSelector, Selector};
pub use source::{Cluster, KindWatchSettings};
pub use state::{Place, WatchState, WatchStates};
pub use talk::{Counts, Event, Moment, Out, Pace, Request, RequestId, Standing};
pub use version::{Uid, Version};
