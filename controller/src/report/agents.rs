//! What is known of each agent: desired, sent and applied are three different things.

use std::collections::{BTreeMap, BTreeSet};

use journal::Digest;
use journal::admin::{NotLive, codes};
use push::Version;
use translate::FleetName;

use super::Report;

/// What an agent refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The generation.
    pub version: Version,
    /// A stable word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// It may be accepted later.
    pub transient: bool,
}

/// One agent.
#[derive(Clone, Debug, Default)]
pub struct Agent {
    /// Whether it has a stream now.
    pub connected: bool,
    /// Tells its sessions apart.
    pub session: u64,
    /// The UID of its pod.
    pub uid: String,
    /// The version of its `scalwsd`.
    pub scalwsd_version: String,
    /// What it applied last.
    pub applied: Option<Version>,
    /// The root of that.
    pub root: Option<Digest>,
    /// The member version up to which it has every set.
    pub member_version: u64,
    /// What is loaded there and not live, by `kind/name`.
    pub not_live: BTreeMap<String, NotLive>,
    /// What it refused as a whole, until it applies something later.
    pub refused: Option<Refusal>,
    /// Member sets that it refused, with the reason.
    pub refused_sets: BTreeMap<String, String>,
    /// When something last came from it, in microseconds since the controller began.
    pub last_seen_us: u64,
    /// From the publication of a generation to its verdict, for the last one, in microseconds.
    pub lag_us: Option<u64>,
}

impl Agent {
    /// Whether a listener is wanted and not open for a reason that may go away.
    pub fn closed_listener(&self) -> Option<&NotLive> {
        self.not_live
            .values()
            .find(|entry| entry.resource.starts_with("listener/") && codes::is_environment(&entry.code))
    }
}

/// Something that an agent said, or that happened to its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentNews {
    /// It said Hello.
    Hello {
        /// Tells its sessions apart.
        session: u64,
        /// The UID of its pod.
        uid: String,
        /// The version of its `scalwsd`.
        scalwsd_version: String,
    },
    /// It is served from now on.
    Welcomed {
        /// Tells its sessions apart.
        session: u64,
    },
    /// Its stream ended.
    Gone {
        /// Tells its sessions apart.
        session: u64,
        /// Why.
        why: String,
    },
    /// It runs this.
    Applied {
        /// The version.
        version: Version,
        /// Its root.
        root: Digest,
        /// What is not live.
        not_live: Vec<NotLive>,
    },
    /// It could use nothing of a generation.
    Refused(Refusal),
    /// It has every member set as of this version.
    Members {
        /// The member version.
        member_version: u64,
    },
    /// It could not use a member set.
    MembersRefused {
        /// The set.
        set: String,
        /// Why.
        message: String,
    },
}

impl Report {
    /// Takes in news of an agent. Gives the lag in microseconds when a generation landed there.
    pub fn news(&mut self, name: &FleetName, agent_name: &str, now_us: u64, news: AgentNews) -> Option<u64> {
        let fleet = self.fleet_mut(name);
        let published = |version: Version, fleet: &super::FleetReport| {
            fleet.waiting.get(&version.generation).map(|w| w.published_at_us)
        };
        let published_at = match &news {
            AgentNews::Applied { version, .. } => published(*version, fleet),
            _ => None,
        };
        let agent = fleet.agents.entry(agent_name.to_owned()).or_default();
        agent.last_seen_us = now_us;
        let mut lag = None;
        match news {
            AgentNews::Hello { session, uid, scalwsd_version } => {
                // What it has is what it says from now on: its volume may be a new one.
                *agent = Agent { session, uid, scalwsd_version, last_seen_us: now_us, ..Agent::default() };
            }
            AgentNews::Welcomed { session } => {
                let scalwsd = &agent.scalwsd_version;
                tracing::info!(agent = agent_name, fleet = %name, scalwsd, "agent connected");
                agent.session = session;
                agent.connected = true;
            }
            AgentNews::Gone { session, why } => {
                // A newer session may have taken over.
                if agent.session == session {
                    tracing::info!(agent = agent_name, fleet = %name, why, "agent disconnected");
                    agent.connected = false;
                }
            }
            AgentNews::Applied { version, root, not_live } => {
                if agent.applied.is_none_or(|old| old < version) {
                    lag = published_at.map(|at| now_us.saturating_sub(at));
                    agent.lag_us = lag.or(agent.lag_us);
                }
                agent.applied = Some(version);
                agent.root = Some(root);
                if agent.refused.as_ref().is_some_and(|refusal| refusal.version <= version) {
                    agent.refused = None;
                }
                let new: BTreeMap<String, NotLive> =
                    not_live.into_iter().map(|entry| (entry.resource.clone(), entry)).collect();
                let old = std::mem::replace(&mut agent.not_live, new);
                self.log_not_live(name, agent_name, &old);
                self.log_landed(name, now_us);
            }
            AgentNews::Refused(refusal) => {
                tracing::warn!(
                    agent = agent_name, fleet = %name, version = %refusal.version, code = %refusal.code,
                    transient = refusal.transient, "refused: {}", refusal.message
                );
                agent.refused = Some(refusal);
            }
            AgentNews::Members { member_version } => {
                agent.member_version = member_version;
                agent.refused_sets.clear();
            }
            AgentNews::MembersRefused { set, message } => {
                tracing::warn!(agent = agent_name, fleet = %name, set, "member set refused: {message}");
                agent.refused_sets.insert(set, message);
            }
        }
        lag
    }

    /// Says which resources stopped or started to be live at an agent.
    fn log_not_live(&self, name: &FleetName, agent_name: &str, old: &BTreeMap<String, NotLive>) {
        let Some(agent) = self.fleets.get(name).and_then(|fleet| fleet.agents.get(agent_name)) else { return };
        for (resource, entry) in &agent.not_live {
            if old.get(resource) != Some(entry) {
                let objects: Vec<String> = self.users_of(name, resource).iter().map(ToString::to_string).collect();
                tracing::warn!(
                    agent = agent_name, resource, code = %entry.code, objects = objects.join(" "),
                    "not live: {}", entry.message
                );
            }
        }
        let now: BTreeSet<&String> = agent.not_live.keys().collect();
        for resource in old.keys().filter(|resource| !now.contains(resource)) {
            tracing::info!(agent = agent_name, resource, "live again, or gone");
        }
    }
}
