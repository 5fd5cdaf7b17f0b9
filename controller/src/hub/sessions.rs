//! The hub as the sessions see it: who is admitted, and what they tell.

use std::sync::Arc;
use std::time::Instant;

use push::grpc::server::{Hub as SessionHub, Lane, Welcome};
use push::identity::AgentIdentity;
use push::server_session::{Close, Event, Role};
use push::{Version, limits};
use tokio::sync::watch;
use translate::FleetName;

use super::Hub;
use super::names::Names;
use crate::epoch::Epochs;
use crate::identity::Membership;
use crate::leadership::Lead;
use crate::pipeline::convert;
use crate::report::{AgentNews, Refusal};

/// What the sessions of all fleets share.
#[derive(Debug)]
pub struct Sessions {
    hub: Arc<Hub>,
    names: Arc<Names>,
    lead: Lead,
    membership: Option<Membership>,
}

impl Sessions {
    /// Sessions of a controller. Without a membership to ask, whoever is proven is a proxy as long as its certificate says so.
    pub fn new(hub: Arc<Hub>, names: Arc<Names>, lead: Lead, membership: Option<Membership>) -> Sessions {
        Sessions { hub, names, lead, membership }
    }

    /// Before the first world nobody knows what is declared, and nothing is given to anybody.
    fn is_member(&self, agent: &AgentIdentity) -> bool {
        let holds = |membership: &Membership| membership.holds(agent, Instant::now()) || !self.hub.is_published();
        self.membership.as_ref().is_none_or(holds)
    }

    /// Raises the epoch above one that an agent has seen: the counter first, then every fleet. Whoever asked stays parked
    /// meanwhile.
    fn raise_epoch(&self, reported: u64) {
        match &self.lead.epochs {
            // A leader that cannot write the Lease is one no more; the fleets follow the election.
            Epochs::Lease(highest) => {
                highest.send_if_modified(|highest| {
                    let higher = reported > *highest;
                    *highest = reported.max(*highest);
                    higher
                });
            }
            Epochs::Counter(counter) => {
                let (hub, counter) = (Arc::clone(&self.hub), counter.clone());
                // The counter goes to the disk. Sessions must not wait for that.
                tokio::task::spawn_blocking(move || {
                    if hub.epoch() > reported {
                        return;
                    }
                    match counter.raise(reported) {
                        Ok(epoch) => {
                            tracing::warn!(reported, epoch, "an agent has seen a later epoch; raised ours");
                            hub.raise_epoch(epoch);
                        }
                        Err(error) => {
                            tracing::error!(%error, "the epoch cannot be raised; agents with a later one are not served")
                        }
                    }
                });
            }
        }
    }
}

/// Where the report has an agent.
#[derive(Debug)]
pub struct Place {
    fleet: FleetName,
    agent: String,
}

impl SessionHub for Sessions {
    type Place = Place;

    fn admit(&self, agent: &AgentIdentity) -> Option<Welcome<Place>> {
        if !self.is_member(agent) {
            return None;
        }
        let name = convert::fleet_name(&agent.fleet);
        let fleet = self.hub.fleet_to_serve(&name)?;
        let agent = self.names.of(&agent.uid);
        Some(Welcome { fleet, name: agent.clone(), place: Place { fleet: name, agent } })
    }

    fn may_stay(&self, agent: &AgentIdentity) -> bool {
        self.is_member(agent)
    }

    fn role(&self) -> watch::Receiver<Role> {
        self.lead.role.subscribe()
    }

    fn still_leads(&self) -> bool {
        self.lead.term.holds()
    }

    fn event(&self, agent: &AgentIdentity, place: &Place, session: u64, event: Event) {
        let Place { fleet, agent: name } = place;
        let tell = |news: AgentNews| self.hub.news(fleet, name, news);
        match event {
            Event::Hello(facts) => {
                tell(AgentNews::Hello {
                    session,
                    uid: agent.uid.clone(),
                    scalwsd_version: facts.scalwsd_version.clone(),
                });
            }
            Event::EpochReported(epoch) => self.raise_epoch(epoch),
            Event::EpochAlarm(epoch) => {
                tracing::error!(agent = name, fleet = %fleet, epoch, "an agent reports an epoch that is not to be believed");
            }
            Event::Welcomed => tell(AgentNews::Welcomed { session }),
            Event::Condemned { leaves, .. } => {
                self.hub.condemn(fleet, name, &leaves);
            }
            Event::Applied { version, root, not_live, .. } => {
                tell(AgentNews::Applied { version, root, not_live });
            }
            Event::Refused { version, code, message, transient, .. } => {
                tell(AgentNews::Refused(Refusal { version, code, message, transient }));
            }
            Event::Overdue { version } => overdue(fleet, name, version),
            Event::MembersCurrent { member_version } => tell(AgentNews::Members { member_version }),
            Event::MembersRefused { set, message, .. } => tell(AgentNews::MembersRefused { set, message }),
            Event::Closed(close) => {
                tell(AgentNews::Gone { session, why: reason(&close), silent: close == Close::Silent });
            }
        }
    }

    fn heartbeat_ms(&self) -> u64 {
        self.lead.heartbeat_ms.unwrap_or(limits::HEARTBEAT_MS)
    }

    fn sent(&self, lane: Lane, bytes: usize) {
        self.hub.metrics().sent(lane, bytes);
    }
}

fn overdue(fleet: &FleetName, name: &str, version: Version) {
    tracing::warn!(agent = name, fleet = %fleet, %version, "no verdict came in time; starting a resync");
}

fn reason(close: &Close) -> String {
    match close {
        Close::Farewell(word) => format!("told it {word}"),
        Close::Revoked => "its pod is gone, or its fleet is not declared or served by a class any more".to_owned(),
        Close::NoHello => "no Hello came in time".to_owned(),
        Close::Silent => "it did not answer three heartbeats".to_owned(),
        Close::Protocol(what) => format!("it broke the protocol: {what}"),
        other => format!("{other:?}").to_lowercase(),
    }
}
