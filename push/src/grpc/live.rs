//! Which sessions there are: one of each agent, and what their readers are told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::server::Hub;
use super::signal::Signal;
use crate::identity::AgentIdentity;
use crate::server_session::Role;

/// How often it is asked who may stay. A stream whose reason is gone has ended within this and the time that its last message may take,
/// which together with the lag of what is asked is to be less than 10 s.
const REVIEW: Duration = Duration::from_secs(2);

/// The one live session of each agent.
#[derive(Default)]
pub(super) struct Sessions {
    live: Mutex<Live>,
}

/// Sessions are numbered; the reader of each can be told something.
#[derive(Default)]
struct Live {
    newest: u64,
    sessions: HashMap<AgentIdentity, (u64, Arc<Signal>)>,
}

/// What a session's reader is told: it has to work out its deadline anew, ...
pub(super) const DEADLINE: u8 = 1;
/// ... a newer session of the same agent took over, ...
pub(super) const SUPERSEDED: u8 = 2;
/// ... the controller's role changed, ...
pub(super) const ROLE: u8 = 4;
/// ... the writer is done, or the stream was dropped, ...
pub(super) const WRITTEN: u8 = 8;
/// ... the agent may not stay.
pub(super) const REVOKED: u8 = 16;

impl Sessions {
    /// Registers a new session and tells an older one of the same agent that it is superseded.
    pub(super) fn begin(self: &Arc<Self>, agent: &AgentIdentity) -> Registered {
        let reader = Arc::new(Signal::default());
        let mut live = self.lock();
        live.newest += 1;
        let number = live.newest;
        if let Some((_, older)) = live.sessions.insert(agent.clone(), (number, Arc::clone(&reader))) {
            older.tell(SUPERSEDED);
        }
        Registered { sessions: Arc::clone(self), agent: agent.clone(), number, reader }
    }

    /// Tells every session when the role changes.
    pub(super) async fn follow(self: Arc<Self>, mut role: watch::Receiver<Role>) -> std::convert::Infallible {
        while role.changed().await.is_ok() {
            self.lock().sessions.values().for_each(|(_, reader)| reader.tell(ROLE));
        }
        std::future::pending().await
    }

    /// Asks again and again who may stay.
    pub(super) async fn review<H: Hub>(self: Arc<Self>, hub: Arc<H>) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(REVIEW).await;
            // Asked without the lock: new sessions do not wait for the answers.
            let live: Vec<(AgentIdentity, Arc<Signal>)> =
                self.lock().sessions.iter().map(|(agent, (_, reader))| (agent.clone(), Arc::clone(reader))).collect();
            live.iter().filter(|(agent, _)| !hub.may_stay(agent)).for_each(|(_, reader)| reader.tell(REVOKED));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registered session; taken out when dropped, unless a newer one has its place.
pub(super) struct Registered {
    sessions: Arc<Sessions>,
    agent: AgentIdentity,
    pub(super) number: u64,
    pub(super) reader: Arc<Signal>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut live = self.sessions.lock();
        if live.sessions.get(&self.agent).is_some_and(|(number, _)| *number == self.number) {
            live.sessions.remove(&self.agent);
        }
    }
}
