//! `POST /v1/wait`: until everything that the source holds now is live, or refused for good, at every agent named.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use push::Version;
use push::server_session::CRASHED;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::hub::Hub;
use crate::pipeline::{Scan, Target, WorkerHandle};
use crate::report::{Agent, Refusal, Report};

/// The longest wait, in milliseconds.
const LONGEST_MS: u64 = 3_600_000;

/// What is waited for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitRequest {
    /// How many agents there must be.
    #[serde(default)]
    pub replicas: usize,
    /// The names of agents that must be among them.
    #[serde(default)]
    pub agents: Vec<String>,
    /// How long to wait at most, in milliseconds.
    pub timeout_ms: u64,
}

/// An agent that does not have everything yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lagging {
    /// Its name.
    pub agent: String,
    /// What it lacks.
    pub why: String,
}

/// How a wait ended.
#[derive(Clone, Debug)]
pub enum WaitAnswer {
    /// Everything is live or refused for good.
    Live {
        /// The generation of each fleet.
        generations: BTreeMap<String, u64>,
    },
    /// Time is up.
    Lagging(Vec<Lagging>),
    /// The world is held, and why.
    Held(String),
    /// The process is ending.
    Stopping,
}

/// Waits. Nothing is polled: every change of the report is looked at once.
pub(super) async fn wait(hub: &Arc<Hub>, worker: &WorkerHandle, request: &WaitRequest) -> WaitAnswer {
    let deadline = Instant::now() + Duration::from_millis(request.timeout_ms.min(LONGEST_MS));
    let mut changed = hub.subscribe();
    let targets = match tokio::time::timeout_at(deadline, worker.rescan()).await {
        Ok(Ok(Scan::Published(targets))) => targets,
        Ok(Ok(Scan::Held(why))) => return WaitAnswer::Held(why),
        Ok(Err(_)) => return WaitAnswer::Stopping,
        Err(_) => {
            let why = "the source is still being read".to_owned();
            return WaitAnswer::Lagging(vec![Lagging { agent: "controller".to_owned(), why }]);
        }
    };
    loop {
        changed.mark_unchanged();
        let lagging = hub.read(|report| lagging(report, &targets, request));
        if lagging.is_empty() {
            let generations = targets.iter().map(|t| (t.fleet.to_string(), t.version.generation)).collect();
            return WaitAnswer::Live { generations };
        }
        match tokio::time::timeout_at(deadline, changed.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return WaitAnswer::Stopping,
            Err(_) => return WaitAnswer::Lagging(lagging),
        }
    }
}

/// The agents that lack something of the targets.
fn lagging(report: &Report, targets: &[Target], request: &WaitRequest) -> Vec<Lagging> {
    let mut lagging = Vec::new();
    let mut there = 0;
    let mut known: Vec<&str> = Vec::new();
    for target in targets {
        let Some(fleet) = report.fleets().get(&target.fleet) else { continue };
        for (name, agent) in &fleet.agents {
            known.push(name);
            let asked = request.agents.is_empty() || request.agents.contains(name);
            if !asked || (request.agents.is_empty() && !agent.connected) {
                continue;
            }
            match lacks(agent, target, fleet.version) {
                Some(why) => lagging.push(Lagging { agent: name.clone(), why }),
                None => there += 1,
            }
        }
    }
    for name in request.agents.iter().filter(|name| !known.contains(&name.as_str())) {
        lagging.push(Lagging { agent: name.clone(), why: "it never connected".to_owned() });
    }
    let missing = request.replicas.saturating_sub(there + lagging.len());
    if missing > 0 {
        let why = format!("{missing} of {} agents never connected", request.replicas);
        lagging.push(Lagging { agent: "(unknown)".to_owned(), why });
    }
    lagging
}

/// What an agent lacks of a target, while `published` is what its fleet should have.
fn lacks(agent: &Agent, target: &Target, published: Version) -> Option<String> {
    if !agent.connected {
        return Some("it is not connected".to_owned());
    }
    // What killed a proxy is taken out at once, so what was refused for it is followed by what need not be.
    let is_mended = |refusal: &Refusal| refusal.code == CRASHED && refusal.version < published;
    let refused_for_good = agent
        .refused
        .as_ref()
        .is_some_and(|refusal| !refusal.transient && refusal.version >= target.version && !is_mended(refusal));
    let applied = agent.applied.unwrap_or_default();
    if applied < target.version && !refused_for_good {
        let refusal = agent.refused.as_ref().map_or(String::new(), |r| format!(" (refused: {})", r.message));
        return Some(format!("it runs {applied} of {}{refusal}", target.version));
    }
    if agent.member_version < target.member_version {
        return Some("it does not have every member set yet".to_owned());
    }
    agent.closed_listener().map(|entry| format!("{} is not open: {}", entry.resource, entry.message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use translate::FleetName;

    fn target() -> Target {
        Target { fleet: FleetName::new("scalws", "default"), version: Version::new(3, 7), member_version: 4 }
    }

    fn live() -> Agent {
        Agent { connected: true, applied: Some(Version::new(3, 7)), member_version: 4, ..Agent::default() }
    }

    #[test]
    fn an_agent_with_the_target_or_later_lacks_nothing() {
        assert_eq!(lacks(&live(), &target(), Version::new(3, 7)), None);
        assert_eq!(lacks(&Agent { applied: Some(Version::new(4, 1)), ..live() }, &target(), Version::new(3, 7)), None);
    }

    #[test]
    fn each_missing_part_is_named() {
        let cases: [(Agent, &str); 4] = [
            (Agent { connected: false, ..live() }, "not connected"),
            (Agent { applied: Some(Version::new(3, 6)), ..live() }, "it runs 3.6 of 3.7"),
            (Agent { applied: Some(Version::new(2, 9)), ..live() }, "it runs 2.9 of 3.7"),
            (Agent { member_version: 3, ..live() }, "member set"),
        ];
        for (agent, expected) in cases {
            let why = lacks(&agent, &target(), Version::new(3, 7)).unwrap();
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn a_refusal_for_good_ends_the_wait_and_a_transient_one_does_not() {
        let refusal = |transient| Refusal {
            version: Version::new(3, 7),
            code: "broken".to_owned(),
            message: "broken tree".to_owned(),
            transient,
        };
        let agent = Agent { applied: Some(Version::new(3, 6)), refused: Some(refusal(false)), ..live() };
        assert_eq!(lacks(&agent, &target(), Version::new(3, 7)), None);
        let agent = Agent { refused: Some(refusal(true)), ..agent };
        assert!(lacks(&agent, &target(), Version::new(3, 7)).unwrap().contains("broken tree"));
    }

    #[test]
    fn what_killed_a_proxy_is_waited_for_until_it_is_taken_out() {
        let refusal = Refusal {
            version: Version::new(3, 7),
            code: CRASHED.to_owned(),
            message: "it died".to_owned(),
            transient: false,
        };
        let agent = Agent { applied: Some(Version::new(3, 6)), refused: Some(refusal), ..live() };
        assert!(lacks(&agent, &target(), Version::new(3, 8)).unwrap().contains("it died"));
        assert_eq!(lacks(&agent, &target(), Version::new(3, 7)), None, "nothing better is on its way");
        let agent = Agent { applied: Some(Version::new(3, 8)), ..agent };
        assert_eq!(lacks(&agent, &target(), Version::new(3, 8)), None);
    }

    #[test]
    fn a_taken_port_is_waited_for_and_an_unsupported_listener_is_not() {
        let entry = |code: &str| journal::admin::NotLive {
            resource: "listener/tcp/80".to_owned(),
            code: code.to_owned(),
            message: "m".to_owned(),
        };
        let with = |code: &str| Agent { not_live: [("listener/tcp/80".to_owned(), entry(code))].into(), ..live() };
        assert!(lacks(&with("port_taken"), &target(), Version::new(3, 7)).unwrap().contains("not open"));
        assert_eq!(lacks(&with("unsupported"), &target(), Version::new(3, 7)), None);
    }
}
