//! The store: what is in force, and what may come in. The one writer of the world is the pipeline's thread.

mod gate;
mod gates;
mod memory;

pub use gate::{Before, EQUAL_LIST_AFTER_MS, GUARDED_FROM, Gate};
pub use gates::Gates;
pub use memory::Memory;
