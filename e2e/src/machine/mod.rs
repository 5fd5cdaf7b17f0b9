//! What a test changes of the machine that its programs see: their network, the link between them, their clock.

pub mod clock;
pub mod descriptors;
pub mod link;
pub mod native;
pub mod network;
pub mod not_run;
pub mod programs;
