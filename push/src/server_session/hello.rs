//! Hello and its answer: protocol, epoch, admission, then Welcome.

use journal::Digest;
use journal::mutants::{self, Mutant};
use proto::v1::controller_message::Message as ToAgent;
use proto::v1::{Hello, NotLeader, RetryAfter, Unsupported, Welcome};

use super::config_lane::ConfigLane;
use super::member_lane::MemberLane;
use super::{Event, HelloFacts, Lanes, Phase, Place, Role, ServerSession, target};
use crate::Version;
use crate::fleet::Fleet;
use crate::limits;
use crate::wire::{self, Broken};

/// The longest version, boot id or state, in bytes.
const WORD: usize = 128;

impl ServerSession {
    pub(super) fn hello(&mut self, now: u64, hello: Hello, fleet: &mut Fleet) -> Result<(), Broken> {
        if !matches!(self.phase, Phase::Hello(_)) {
            return Err(Broken("a second Hello"));
        }
        let (range, ours) = ((hello.protocol_min, hello.protocol_max), limits::protocol());
        let facts = facts(hello)?;
        // What it runs is what it says from now on.
        fleet.agent_left(&self.agent.uid);
        self.next_heartbeat = now.saturating_add(self.heartbeat_ms);
        self.events.push(Event::Hello(Box::new(facts.clone())));
        self.hello = Some(facts);
        self.protocol = range.1.min(ours.1);
        let other = self.protocol < range.0.max(ours.0);
        if other && !mutants::active(Mutant::OtherProtocolIsAccepted) {
            self.farewell(ToAgent::Unsupported(Unsupported { what: "protocol".to_owned() }), "unsupported");
            return Ok(());
        }
        match &self.role {
            Role::NotLeader { leader_address, retry_ms } => {
                let leader_address = leader_address.clone().unwrap_or_default();
                let answer = NotLeader { leader_address, retry_ms: *retry_ms };
                self.farewell(ToAgent::NotLeader(answer), "not_leader");
            }
            Role::Leading if fleet.is_published() => self.judge(now, fleet),
            Role::Leading | Role::Standby | Role::Unsure => {
                self.make_lanes(fleet);
                self.phase = Phase::Parked { told: false };
            }
        }
        Ok(())
    }

    fn make_lanes(&mut self, fleet: &Fleet) {
        let Some(facts) = &self.hello else { return };
        let base = facts.applied.map_or(fleet.empty_root(), |(_, root)| root);
        let config = ConfigLane::new(self.agent.uid.clone(), facts.scalwsd_version.clone(), facts.applied, base);
        let members = MemberLane::new(facts.member_root, fleet);
        self.lanes = Some(Lanes { config, members, reported: None });
    }

    /// Whether this agent can be served now: its epoch first, then a place.
    pub(super) fn judge(&mut self, now: u64, fleet: &mut Fleet) {
        let Some(facts) = self.hello.clone() else { return };
        // A stream that was served before knows better than its Hello what the agent runs.
        let applied = self.applied().or(facts.applied);
        let reported = facts.highest_epoch.max(applied.map_or(0, |(version, _)| version.epoch));
        let ours = fleet.version();
        let beyond = applied.is_some_and(|(version, root)| version > ours || version == ours && root != fleet.root());
        if reported > ours.epoch.saturating_add(limits::EPOCH_JUMP) {
            self.events.push(Event::EpochAlarm(reported));
            return self.farewell(ToAgent::Unsupported(Unsupported { what: "epoch".to_owned() }), "unsupported");
        }
        if (reported > ours.epoch || beyond) && !mutants::active(Mutant::NoFence) {
            if !matches!(self.phase, Phase::Epoch { .. }) {
                self.events.push(Event::EpochReported(reported));
                self.phase = Phase::Epoch { reported, until: now.saturating_add(limits::EPOCH_MS) };
                self.next_heartbeat = self.next_heartbeat.min(now.saturating_add(limits::FIRST_WORD_MS));
            }
            if self.lanes.is_none() {
                self.make_lanes(fleet);
            }
            return;
        }
        // The lanes begin with what is desired now, unless the stream was served before.
        if !self.welcomed {
            self.make_lanes(fleet);
            self.condemn(&facts.condemned, fleet);
        }
        let base_known = self.lanes.as_ref().is_some_and(|lanes| lanes.config.base_is_known(fleet));
        let cold = facts.applied.is_none();
        if self.place.is_none() && (cold || !base_known) {
            let until = now.saturating_add(limits::PUSH_MS);
            self.place =
                fleet.admission().admit(cold).map(|admitted| Place { _admitted: admitted, until, used: false });
            if self.place.is_none() {
                let ms = self.spread(now);
                return self.farewell(ToAgent::RetryAfter(RetryAfter { ms }), "retry_after");
            }
        }
        self.phase = Phase::Welcome;
    }

    /// A wait of 200 to 2,000 ms that differs from agent to agent and from time to time; the agent adds its own jitter.
    fn spread(&self, now: u64) -> u32 {
        let mut seed = self.agent.uid.as_bytes().to_vec();
        seed.extend_from_slice(&now.to_le_bytes());
        let Digest(bytes) = Digest::of(&seed);
        200 + u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) % 1_800
    }

    pub(super) fn welcome(&mut self, now: u64, fleet: &mut Fleet) -> ToAgent {
        self.phase = Phase::Live;
        self.welcomed = true;
        self.next_heartbeat = now.saturating_add(self.heartbeat_ms);
        self.events.push(Event::Welcomed);
        if let Some(lanes) = &mut self.lanes
            && lanes.config.base() == Some(fleet.root())
        {
            lanes.config.adopting(fleet.version(), now);
        }
        ToAgent::Welcome(Welcome {
            epoch: fleet.epoch(),
            protocol: self.protocol,
            heartbeat_ms: self.heartbeat_on_the_wire(),
            target: Some(target(fleet)),
            member_root: wire::raw(&fleet.members().root()),
            agent: self.agent.name.clone(),
        })
    }
}

fn facts(hello: Hello) -> Result<HelloFacts, Broken> {
    let applied = match hello.applied {
        Some(version) => Some((Version::from(version), wire::digest(&hello.applied_root)?)),
        None => None,
    };
    Ok(HelloFacts {
        boot_id: wire::cut(hello.boot_id, WORD),
        schema_version: hello.schema_version,
        highest_epoch: hello.highest_epoch,
        applied,
        member_root: wire::digest(&hello.member_root)?,
        condemned: wire::digests(&hello.condemned, limits::CONDEMNED)?,
        scalwsd_version: wire::cut(hello.scalwsd_version, WORD),
        scalwsd_state: wire::cut(hello.scalwsd_state, WORD),
    })
}
