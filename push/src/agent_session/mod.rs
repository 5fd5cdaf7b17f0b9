//! The agent's side of the conversation, without sockets, clock or tokio.

mod types;

pub use types::*;

/// One stream as the agent sees it. Time is milliseconds of any clock that never goes back.
#[derive(Debug)]
pub struct AgentSession {
    staging_limit: u64,
}

impl AgentSession {
    /// A session that stages at most so many bytes of one transfer (see [`crate::limits::STAGING`]).
    pub fn new(staging_limit: u64) -> AgentSession {
        AgentSession { staging_limit }
    }

    /// One step: what happened, what is held, what to do.
    pub fn step(&mut self, now: u64, input: Input, holdings: &dyn Holdings) -> Vec<Effect> {
        let _ = (now, input, holdings, self.staging_limit);
        Vec::new()
    }

    /// When [`Input::Tick`] is due at the latest.
    pub fn deadline(&self) -> Option<u64> {
        None
    }
}
