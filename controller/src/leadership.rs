//! From what the election says to what the sessions may do: a new epoch, then the promotion barrier, then the lead.
//!
//! A follower watches and translates like a leader, into fleets that nobody is served from. Before it serves them its view is
//! compared with the API server's, so that nothing goes back to what the leader before it had already moved on from
//! (protocol, rule 11).

use std::sync::Arc;
use std::time::Duration;

use journal::mutants::{self, Mutant};
use push::server_session::Role;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::election::{Standing, Term};
use crate::epoch::Epochs;
use crate::hub::Hub;
use crate::pipeline::{Stopped, WorkerHandle};

/// How long an agent waits that is sent to the leader, in milliseconds: the leader is there already.
const RETRY_MS: u32 = 50;

/// What a standing means for the sessions. No clock and no I/O, so that the simulation runs the same rules.
#[derive(Debug, Default)]
pub struct Office {
    /// The epoch for which our view was proven.
    proven: Option<u64>,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duty {
    /// What the sessions are told.
    pub role: Role,
    /// Every fleet enters this epoch.
    pub epoch: Option<u64>,
    /// Our view has to be proven, for [`Office::proven`].
    pub prove: bool,
}

impl Office {
    /// The election says what we are.
    pub fn stands(&mut self, standing: &Standing) -> Duty {
        let (epoch, role, prove) = match standing {
            Standing::Following { leader: Some(address) } => {
                (None, Role::NotLeader { leader_address: Some(address.clone()), retry_ms: RETRY_MS }, false)
            }
            Standing::Following { leader: None } => (None, Role::Standby, false),
            Standing::Unsure => (None, Role::Unsure, false),
            Standing::Leading { epoch } => {
                // The same epoch again after we were unsure: nobody else published meanwhile to whoever still takes it from us.
                // A higher one in the same lead is different: we were told of an epoch that was not ours.
                let in_office = self.proven == Some(*epoch) || mutants::active(Mutant::StaleFollowerPublishes);
                // What was said before this point is about an older lead.
                (Some(*epoch), if in_office { Role::Leading } else { Role::Standby }, !in_office)
            }
        };
        Duty { role, epoch, prove }
    }

    /// Everything that the source had when we were asked to prove our view in this epoch is published into our fleets.
    pub fn proven(&mut self, epoch: u64) -> Role {
        self.proven = Some(epoch);
        Role::Leading
    }
}

/// What the sessions know of our lead.
#[derive(Debug)]
pub struct Lead {
    /// What we are.
    pub role: watch::Sender<Role>,
    /// Until when we are it, if we lead.
    pub term: Arc<Term>,
    /// Where a higher epoch comes from.
    pub epochs: Epochs,
    /// How often agents hear from us, in milliseconds; none: as the protocol has it.
    pub heartbeat_ms: Option<u64>,
}

/// Turns standings into roles until the election ends or the pipeline does.
pub async fn follow(
    mut standing: watch::Receiver<Standing>,
    role: watch::Sender<Role>,
    hub: Arc<Hub>,
    worker: WorkerHandle,
) {
    let mut office = Office::default();
    loop {
        let duty = office.stands(&standing.borrow_and_update().clone());
        // The role first: with a higher epoch in office nobody is to be served before our view is proven again.
        set(&hub, &role, duty.role);
        if let Some(epoch) = duty.epoch
            && hub.epoch() < epoch
        {
            hub.raise_epoch(epoch);
        }
        if let Some(epoch) = duty.epoch.filter(|_| duty.prove) {
            tokio::select! {
                caught_up = worker.rescan() => match caught_up {
                    Ok(_) => tracing::info!(epoch, "the view is as new as the source; serving"),
                    Err(Stopped) => return,
                },
                changed = standing.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            }
            set(&hub, &role, office.proven(epoch));
        }
        if standing.changed().await.is_err() {
            return;
        }
    }
}

fn set(hub: &Hub, role: &watch::Sender<Role>, new: Role) {
    hub.metrics().leading(new == Role::Leading);
    role.send_if_modified(|old| {
        let changed = *old != new;
        *old = new;
        changed
    });
}

/// Tells when a leader lost all its agents: others may reach them. At once when the last of them stopped answering, as behind a
/// cut network; when it ended its stream itself, it has `patience` to come back, as after a restart. For ever.
pub async fn watch_over_agents(
    mut role: watch::Receiver<Role>,
    hub: Arc<Hub>,
    patience: Duration,
    step_down: Arc<Notify>,
) {
    let mut news = hub.subscribe();
    let mut had_agents = false;
    // While there is none: until when one may come back.
    let mut until: Option<Instant> = None;
    loop {
        let leads = *role.borrow_and_update() == Role::Leading;
        let (connected, cut_off) = hub.read(|report| (report.is_anyone_connected(), report.is_cut_off()));
        had_agents = leads && (connected || had_agents);
        let patience = if cut_off { Duration::ZERO } else { patience };
        until = (had_agents && !connected).then(|| until.unwrap_or_else(|| Instant::now() + patience));
        tokio::select! {
            () = async { tokio::time::sleep_until(until.unwrap_or_else(Instant::now)).await }, if until.is_some() => {
                had_agents = false;
                tracing::warn!("every agent is gone; another replica may reach them");
                step_down.notify_one();
            }
            // An error is a process that ends.
            changed = role.changed() => if changed.is_err() { return },
            changed = news.changed() => if changed.is_err() { return },
        }
    }
}
