//! The shipped sessions do what `sessions.rs` says: every agent and every leader of a small world, each pair of them.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use journal::digest::leaf;
use journal::{Digest, Key, MemberTree, Tree};
use push::agent_session::{self, AgentSession, Close, Effect, HelloFacts, Holdings, Transfer};
use push::fleet::{Fleet, FleetChange, Item};
use push::server_session::{self, Event, Role, ServerSession};
use push::{Version, limits};

use super::sessions::{Agent, Push, Taken, Versions};

/// The objects, as the resources that are made of them.
fn item(object: usize, version: u8) -> Item {
    let body = Bytes::from(format!("{{\"version\":{version}}}"));
    Item { key: Key::new("fragment", &object.to_string()), body, secrets: Vec::new() }
}

/// A volume that holds what an agent of the model runs.
#[derive(Default)]
struct Volume {
    tree: Tree,
    members: MemberTree,
    bodies: BTreeMap<Key, Bytes>,
    applied: Option<Version>,
    seen: u64,
}

impl Holdings for Volume {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn members(&self) -> &MemberTree {
        &self.members
    }

    fn has_secret(&self, _: &Digest) -> bool {
        true
    }

    fn body(&self, key: &Key) -> Option<Bytes> {
        self.bodies.get(key).cloned()
    }
}

impl Volume {
    fn of(agent: Agent) -> Volume {
        let mut volume = Volume { seen: agent.seen.into(), ..Volume::default() };
        if let Some(push) = agent.applied {
            volume.applied = Some(Version::new(push.epoch.into(), push.generation.into()));
            for (object, version) in push.content.iter().enumerate() {
                volume.put(item(object, *version));
            }
        }
        volume
    }

    fn put(&mut self, item: Item) {
        self.tree.insert(item.key.clone(), leaf(&item.key, &item.body));
        self.bodies.insert(item.key, item.body);
    }

    fn apply(&mut self, transfer: Transfer) {
        for key in &transfer.removes {
            self.tree.remove(key);
            self.bodies.remove(key);
        }
        for put in transfer.puts {
            self.put(Item { key: put.key, body: put.body, secrets: Vec::new() });
        }
        assert_eq!(self.tree.root(), transfer.root, "what is held is what was promised");
    }

    fn facts(&self) -> HelloFacts {
        let (highest_epoch, applied) = (self.seen, self.applied);
        HelloFacts { boot_id: "boot".to_owned(), schema_version: 1, highest_epoch, applied, ..HelloFacts::default() }
    }

    /// In the words of the model.
    fn holds(&self) -> Agent {
        let small = |number: u64| u8::try_from(number).unwrap();
        let version = |object: usize| {
            let body = &self.bodies[&Key::new("fragment", &object.to_string())];
            (0..9).find(|version| item(object, *version).body == *body).unwrap()
        };
        let applied = self.applied.map(|applied| Push {
            epoch: small(applied.epoch),
            generation: small(applied.generation),
            content: [0, 1, 2].map(version),
        });
        Agent { seen: small(self.seen), applied }
    }
}

/// The desired state of a leader whose newest generation is this.
fn fleet(push: Push) -> Fleet {
    let mut fleet = Fleet::new(push.epoch.into());
    let publish = |fleet: &mut Fleet, content: Versions| {
        let puts = content.iter().enumerate().map(|(object, version)| item(object, *version)).collect();
        fleet.publish(FleetChange { puts, ..FleetChange::default() });
    };
    for before in 1..push.generation {
        publish(&mut fleet, [before + 3; 3]);
    }
    publish(&mut fleet, push.content);
    assert_eq!(fleet.version(), Version::new(push.epoch.into(), push.generation.into()));
    fleet
}

/// What a conversation came to.
#[derive(Debug, Default)]
struct Outcome {
    reported: Option<u64>,
    welcomed: bool,
    applied: bool,
    fenced: bool,
}

/// Both sessions talk until neither has anything to say. The controller hears `hello` instead of what the agent says,
/// when there is one: a Hello that was said before the agent moved on.
fn talk(volume: &mut Volume, fleet: &mut Fleet, hello: Option<&Volume>) -> Outcome {
    let mut outcome = Outcome::default();
    let mut agent = AgentSession::new(limits::STAGING);
    let who = server_session::Agent { uid: "uid".into(), name: "agent".to_owned() };
    let mut server = ServerSession::new(who, Role::Leading, 0);
    let mut work: VecDeque<Effect> = agent.step(0, agent_session::Input::Connected(volume.facts()), volume).into();
    if let Some(before) = hello {
        let mut old = AgentSession::new(limits::STAGING);
        work = old.step(0, agent_session::Input::Connected(before.facts()), before).into();
    }
    loop {
        let Some(effect) = work.pop_front() else {
            let Some(message) = server.poll(0, fleet) else { return outcome };
            work.extend(agent.step(0, agent_session::Input::Received(message), volume));
            continue;
        };
        let (version, root) = match effect {
            Effect::Send(message) => {
                for event in server.step(0, server_session::Input::Received(message), fleet) {
                    match event {
                        Event::EpochReported(epoch) => outcome.reported = Some(epoch),
                        Event::Welcomed => outcome.welcomed = true,
                        _ => {}
                    }
                }
                continue;
            }
            Effect::RecordEpoch(epoch) => {
                volume.seen = epoch;
                continue;
            }
            Effect::Apply(transfer) => {
                let (version, root) = (transfer.version, transfer.root);
                volume.apply(*transfer);
                outcome.applied = true;
                (version, root)
            }
            Effect::Adopt { version, root } => (version, root),
            Effect::Close(Close::Fenced { .. }) => {
                outcome.fenced = true;
                return outcome;
            }
            Effect::Close(close) => panic!("the stream was closed: {close:?}"),
            _ => continue,
        };
        volume.applied = Some(version);
        let timings = agent_session::Timings::default();
        let done = agent_session::Input::Applied { version, root, timings, not_live: Vec::new() };
        work.extend(agent.step(0, done, volume));
    }
}

const CONTENTS: [Versions; 2] = [[1, 0, 0], [1, 1, 0]];

fn pushes() -> Vec<Push> {
    let mut all = Vec::new();
    for epoch in 1..=3 {
        for generation in 1..=3 {
            all.extend(CONTENTS.map(|content| Push { epoch, generation, content }));
        }
    }
    all
}

fn agents() -> Vec<Agent> {
    let mut all: Vec<Agent> = (0..=4).map(|seen| Agent { seen, applied: None }).collect();
    for push in pushes() {
        all.extend((push.epoch..=4).map(|seen| Agent { seen, applied: Some(push) }));
    }
    all
}

#[test]
fn a_shipped_leader_serves_or_reports_as_the_model_does() {
    let (mut served, mut reported) = (0, 0);
    for agent in agents() {
        for push in pushes() {
            let mut volume = Volume::of(agent);
            let outcome = talk(&mut volume, &mut fleet(push), None);
            let case = format!("{agent:?} comes to the leader of {push:?}: {outcome:?}");
            assert_eq!(outcome.reported, agent.reports(push).map(u64::from), "{case}");
            assert_eq!(outcome.welcomed, agent.reports(push).is_none(), "{case}");
            let mut expected = agent;
            if outcome.welcomed {
                assert_ne!(expected.take(push, true), Taken::Refused, "{case}");
                served += 1;
            } else {
                reported += 1;
            }
            assert_eq!(volume.holds(), expected, "{case}");
        }
    }
    println!("sessions: {served} pairs were served, {reported} agents were beyond the leader");
    assert!(served > 100 && reported > 100, "{served} {reported}");
}

/// The leader does not know how far the agent has come: what it sends is late.
#[test]
fn a_shipped_agent_takes_or_refuses_what_is_late_as_the_model_does() {
    let (mut applied, mut refused, mut same) = (0, 0, 0);
    for agent in agents() {
        for push in pushes() {
            let mut volume = Volume::of(agent);
            let before = Volume::default();
            let outcome = talk(&mut volume, &mut fleet(push), Some(&before));
            let case = format!("{push:?} arrives at {agent:?}: {outcome:?}");
            let mut expected = agent;
            let taken = expected.take(push, true);
            assert_eq!(outcome.fenced, taken == Taken::Refused, "{case}");
            assert_eq!(volume.holds(), expected, "{case}");
            match taken {
                Taken::Applied => applied += 1,
                Taken::Refused => refused += 1,
                Taken::Same => same += 1,
            }
        }
    }
    println!("sessions: {applied} late pushes were applied, {refused} refused, {same} were there already");
    assert!(applied > 100 && refused > 100 && same > 10, "{applied} {refused} {same}");
}

/// What the model calls hearing: the stream breaks after Welcome.
#[test]
fn a_shipped_agent_that_hears_only_the_beginning_notes_the_epoch_as_the_model_does() {
    for agent in agents() {
        for push in pushes() {
            let mut volume = Volume::of(agent);
            let mut fleet = fleet(push);
            let who = server_session::Agent { uid: "uid".into(), name: "agent".to_owned() };
            let mut server = ServerSession::new(who, Role::Leading, 0);
            let before = Volume::default();
            let hello =
                AgentSession::new(limits::STAGING).step(0, agent_session::Input::Connected(before.facts()), &before);
            for effect in hello {
                if let Effect::Send(message) = effect {
                    server.step(0, server_session::Input::Received(message), &mut fleet);
                }
            }
            let mut session = AgentSession::new(limits::STAGING);
            session.step(0, agent_session::Input::Connected(volume.facts()), &volume);
            let welcome = server.poll(0, &mut fleet).expect("a Welcome");
            for effect in session.step(0, agent_session::Input::Received(welcome), &volume) {
                if let Effect::RecordEpoch(epoch) = effect {
                    volume.seen = epoch;
                }
            }
            let mut expected = agent;
            expected.hear(push, true);
            assert_eq!(volume.holds(), expected, "{push:?} begins to arrive at {agent:?}");
        }
    }
}
