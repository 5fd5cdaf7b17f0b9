//! The controller's side of the conversation with one agent, without sockets, clock or tokio.

mod types;

pub use types::*;

use proto::v1::ControllerMessage;

use crate::fleet::Fleet;

/// One stream as the controller sees it. Time is milliseconds of any clock that never goes back.
#[derive(Debug)]
pub struct ServerSession {
    agent: Agent,
    role: Role,
}

impl ServerSession {
    /// A session that begins now and waits for Hello.
    pub fn new(agent: Agent, role: Role, _now: u64) -> ServerSession {
        ServerSession { agent, role }
    }

    /// Who is at the other end.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// One step: what happened, and what the owner should know.
    pub fn step(&mut self, _now: u64, _input: Input, _fleet: &mut Fleet) -> Vec<Event> {
        let _ = &self.role;
        Vec::new()
    }

    /// The next message to write, built from what is desired at this moment. Ask again until there is none.
    pub fn poll(&mut self, _now: u64, _fleet: &mut Fleet) -> Option<ControllerMessage> {
        None
    }

    /// Events of polls since the last step; a step gives them too.
    pub fn take_events(&mut self) -> Vec<Event> {
        Vec::new()
    }

    /// When [`Input::Tick`] is due at the latest, and [`ServerSession::poll`] after it.
    pub fn deadline(&self) -> Option<u64> {
        None
    }

    /// Why it is over, if it is: close the stream once [`ServerSession::poll`] gives nothing more.
    pub fn closed(&self) -> Option<&Close> {
        None
    }
}
