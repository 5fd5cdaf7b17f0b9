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
    /// What it applied, while it is connected.
    fn stands(&self) -> Option<Option<Version>> {
        self.connected.then_some(self.applied)
    }

    /// Whether a listener is wanted and not open for a reason that may go away.
    pub fn closed_listener(&self) -> Option<&NotLive> {
        self.not_live
            .values()
            .find(|entry| entry.resource.starts_with("listener/") && codes::is_environment(&entry.code))
    }
}

/// How many connected agents applied each version last; without one: nothing yet. The lowest is found without looking at
/// every agent, which each verdict of thousands asks for.
pub(super) type Standing = BTreeMap<Option<Version>, usize>;

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
        /// It did not answer any more.
        silent: bool,
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

/// Moves an agent from where it stood to where it stands.
fn restand(standing: &mut Standing, stood: Option<Option<Version>>, agent: &Agent) {
    let stands = agent.stands();
    if stands == stood {
        return;
    }
    if let Some(old) = stood
        && let Some(count) = standing.get_mut(&old)
    {
        *count -= 1;
        if *count == 0 {
            standing.remove(&old);
        }
    }
    if let Some(new) = stands {
        *standing.entry(new).or_default() += 1;
    }
}

impl Report {
    /// Takes in news of an agent. Gives the lag in microseconds when a generation landed there.
    pub fn news(&mut self, name: &FleetName, agent_name: &str, now_us: u64, news: AgentNews) -> Option<u64> {
        let fleet = self.fleet_mut(name)?;
        let published = |version: Version, fleet: &super::FleetReport| {
            fleet.waiting.get(&version.generation).map(|w| w.published_at_us)
        };
        let published_at = match &news {
            AgentNews::Applied { version, .. } => published(*version, fleet),
            _ => None,
        };
        let super::FleetReport { agents, standing, .. } = fleet;
        let agent = agents.entry(agent_name.to_owned()).or_default();
        let stood = agent.stands();
        agent.last_seen_us = now_us;
        let mut lag = None;
        match news {
            AgentNews::Hello { session, uid, scalwsd_version } => {
                // What it has is what it says from now on: its volume may be a new one.
                *agent = Agent { session, uid, scalwsd_version, last_seen_us: now_us, ..Agent::default() };
                restand(standing, stood, agent);
            }
            AgentNews::Welcomed { session } => {
                let scalwsd = &agent.scalwsd_version;
                tracing::info!(agent = agent_name, fleet = %name, scalwsd, "agent connected");
                agent.session = session;
                agent.connected = true;
                restand(standing, stood, agent);
            }
            AgentNews::Gone { session, why, silent } => {
                // A newer session may have taken over.
                if agent.session == session {
                    tracing::info!(agent = agent_name, fleet = %name, why, "agent disconnected");
                    agent.connected = false;
                    restand(standing, stood, agent);
                    self.lost_in_silence = silent;
                }
            }
            AgentNews::Applied { version, root, not_live } => {
                if agent.applied.is_none_or(|old| old < version) {
                    lag = published_at.map(|at| now_us.saturating_sub(at));
                    agent.lag_us = lag.or(agent.lag_us);
                }
                agent.applied = Some(version);
                restand(standing, stood, agent);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_agents_stand_is_counted_as_if_every_agent_was_looked_at() {
        let fleet = FleetName::new("scalws", "default");
        let mut report = Report::default();
        report.begin_fleet(&fleet, Version::new(1, 0));
        let applied = |generation| AgentNews::Applied {
            version: Version::new(1, generation),
            root: Digest([0; 32]),
            not_live: Vec::new(),
        };
        let hello = |session| AgentNews::Hello { session, uid: "u".to_owned(), scalwsd_version: "1".to_owned() };
        let gone = |session| AgentNews::Gone { session, why: "lost".to_owned(), silent: false };
        let story = [
            ("a", hello(1)),
            ("a", AgentNews::Welcomed { session: 1 }),
            ("a", applied(1)),
            ("b", hello(2)),
            ("b", applied(3)),
            ("b", AgentNews::Welcomed { session: 2 }),
            ("a", applied(2)),
            ("a", AgentNews::Members { member_version: 1 }),
            // A second stream takes over, and the end of the first one comes late.
            ("a", hello(3)),
            ("a", AgentNews::Welcomed { session: 3 }),
            ("a", gone(1)),
            ("a", applied(2)),
            ("b", gone(2)),
            ("b", gone(2)),
        ];
        for (step, (agent, news)) in story.into_iter().enumerate() {
            report.news(&fleet, agent, 0, news);
            let mut looked_at = Standing::new();
            let known = &report.fleets[&fleet];
            known.agents.values().filter_map(Agent::stands).for_each(|at| *looked_at.entry(at).or_default() += 1);
            assert_eq!(known.standing, looked_at, "after step {step}");
        }
    }
}
