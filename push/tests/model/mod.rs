//! A model of an agent's volume, of a link that loses things, and a run of both sessions over it in virtual time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, missing_docs, unreachable_pub, reason = "shared by several test files, each of which uses a part")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use journal::digest::{leaf, members};
use journal::members::MemberSet;
use journal::{Digest, Key, MemberTree, Tree};
use proto::v1::{AgentMessage, ControllerMessage};
use push::agent_session::{self, AgentSession, Effect, HelloFacts, Holdings, MembersChange, Transfer};
use push::fleet::{Fleet, FleetChange, Item};
use push::server_session::{self, Agent, Event, Role, ServerSession};
use push::{Prefix, Secret, Version};

/// SplitMix64: small, and the same everywhere.
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }
}

/// What an agent holds on its volume; survives crashes of the agent.
#[derive(Default)]
pub struct Volume {
    pub tree: Tree,
    pub bodies: BTreeMap<Key, Bytes>,
    pub named: BTreeMap<Key, Vec<Digest>>,
    pub keys: BTreeSet<Digest>,
    pub member_tree: MemberTree,
    pub sets: BTreeMap<Arc<str>, MemberSet>,
    pub applied: Option<Version>,
    pub epoch: u64,
    pub applications: u64,
}

impl Holdings for Volume {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn members(&self) -> &MemberTree {
        &self.member_tree
    }

    fn has_secret(&self, digest: &Digest) -> bool {
        self.keys.contains(digest)
    }

    fn body(&self, key: &Key) -> Option<Bytes> {
        self.bodies.get(key).cloned()
    }
}

impl Volume {
    /// Applies a transfer as a real agent would, and checks what the session promised.
    pub fn apply(&mut self, transfer: &Transfer) {
        assert_eq!(self.tree.root(), transfer.base_root, "the base is what is held");
        assert!(self.applied.is_none_or(|applied| applied <= transfer.version), "an agent never goes back");
        for (digest, secret) in &transfer.blobs {
            assert_eq!(*digest, secret.digest());
            self.keys.insert(*digest);
        }
        for key in &transfer.removes {
            assert!(self.bodies.remove(key).is_some(), "what is removed is there");
            self.named.remove(key);
            self.tree.remove(key);
        }
        for put in &transfer.puts {
            assert!(put.secrets.iter().all(|secret| self.keys.contains(secret)), "no body without its keys");
            assert_eq!(put.leaf, leaf(&put.key, &put.body));
            self.tree.insert(put.key.clone(), put.leaf);
            self.bodies.insert(put.key.clone(), put.body.clone());
            self.named.insert(put.key.clone(), put.secrets.clone());
        }
        assert_eq!(self.tree.root(), transfer.root, "the root is as promised");
        self.applied = Some(transfer.version);
        self.applications += 1;
        let named: BTreeSet<Digest> = self.named.values().flatten().copied().collect();
        self.keys.retain(|key| named.contains(key));
    }

    /// The digest of a set, or why the change cannot be made.
    pub fn change_members(&mut self, set: &Arc<str>, change: &MembersChange, digest: Prefix) -> Result<(), ()> {
        if *change == MembersChange::Drop {
            self.sets.remove(set);
            self.member_tree.remove(set);
            return Ok(());
        }
        let now = change.result(set, self.sets.get(set)).filter(|now| digest.fits(&now.digest)).ok_or(())?;
        assert_eq!(now.digest, members(set, now.members.iter().map(|member| &**member)), "a set has its digest");
        self.member_tree.insert(Arc::clone(set), now.digest);
        self.sets.insert(Arc::clone(set), now);
        Ok(())
    }

    pub fn facts(&self, boot: u64) -> HelloFacts {
        HelloFacts {
            boot_id: format!("boot-{boot}"),
            schema_version: 1,
            highest_epoch: self.epoch,
            applied: self.applied,
            scalwsd_version: "1".to_owned(),
            scalwsd_state: "ready".to_owned(),
            ..HelloFacts::default()
        }
    }
}

/// One in so many; 0 is never.
#[derive(Clone, Copy, Default, Debug)]
pub struct Faults {
    pub lose: u64,
    pub double: u64,
    pub swap: u64,
    pub cut: u64,
    pub crash: u64,
    pub failover: u64,
    pub fail_apply: u64,
    pub crash_in_apply: u64,
    pub refuse_members: u64,
}

struct Stream {
    server: ServerSession,
    agent: AgentSession,
    down: VecDeque<ControllerMessage>,
    up: VecDeque<AgentMessage>,
    work: VecDeque<Effect>,
}

pub struct Node {
    pub volume: Volume,
    stream: Option<Stream>,
    boots: u64,
    reconnect_at: u64,
    pub events: Vec<Event>,
    pub closes: Vec<agent_session::Close>,
}

/// A fleet with agents.
pub struct World {
    pub now: u64,
    pub dice: Dice,
    pub fleet: Fleet,
    pub nodes: Vec<Node>,
    pub faults: Faults,
    pub desired: BTreeMap<Key, (Bytes, Vec<Digest>)>,
    pub secrets: BTreeMap<Digest, Secret>,
    pub sets: BTreeMap<Arc<str>, Arc<[Arc<str>]>>,
    pub messages: u64,
}

pub fn body(dice: &mut Dice, size: u64) -> Bytes {
    let filler: String = (0..size).map(|_| char::from(b'a' + (dice.below(26)) as u8)).collect();
    Bytes::from(format!("{{\"n\":{},\"filler\":\"{filler}\"}}", dice.next() % 1_000_000))
}

impl World {
    pub fn new(seed: u64, agents: usize, faults: Faults) -> World {
        let node = || Node {
            volume: Volume::default(),
            stream: None,
            boots: 0,
            reconnect_at: 0,
            events: Vec::new(),
            closes: Vec::new(),
        };
        World {
            now: 1_000,
            dice: Dice(seed),
            fleet: Fleet::new(1),
            nodes: (0..agents).map(|_| node()).collect(),
            faults,
            desired: BTreeMap::new(),
            secrets: BTreeMap::new(),
            sets: BTreeMap::new(),
            messages: 0,
        }
    }

    /// A random change, published.
    pub fn publish_something(&mut self, names: u64, size: u64) {
        let mut change = FleetChange::default();
        for _ in 0..1 + self.dice.below(4) {
            let key = Key::new("fragment", &format!("f{}", self.dice.below(names)));
            if self.dice.one_in(3) {
                if self.desired.remove(&key).is_some() {
                    change.puts.retain(|item| item.key != key);
                    change.removes.push(key);
                }
                continue;
            }
            let mut secrets = Vec::new();
            if self.dice.one_in(3) {
                let secret = Secret::new(format!("key {}", self.dice.below(5)).into_bytes());
                secrets.push(secret.digest());
                change.secrets.push((secret.digest(), secret.clone()));
                self.secrets.insert(secret.digest(), secret);
            }
            change.removes.retain(|removed| *removed != key);
            change.puts.retain(|item| item.key != key);
            let text = body(&mut self.dice, size);
            self.desired.insert(key.clone(), (text.clone(), secrets.clone()));
            change.puts.push(Item { key, body: text, secrets });
        }
        let named: BTreeSet<Digest> = self.desired.values().flat_map(|(_, secrets)| secrets).copied().collect();
        change.drop_secrets = self.secrets.keys().filter(|digest| !named.contains(digest)).copied().collect();
        self.secrets.retain(|digest, _| named.contains(digest));
        for _ in 0..self.dice.below(4) {
            let set: Arc<str> = format!("ns/svc{}:80/tcp", self.dice.below(8)).into();
            if self.dice.one_in(4) {
                if self.sets.remove(&set).is_some() {
                    change.members.push((set, None));
                }
                continue;
            }
            let count = self.dice.below(12);
            let all: BTreeSet<Arc<str>> =
                (0..count).map(|_| format!("10.0.0.{}:80", self.dice.below(20)).into()).collect();
            let all: Arc<[Arc<str>]> = all.into_iter().collect::<Vec<_>>().into();
            self.sets.insert(Arc::clone(&set), Arc::clone(&all));
            change.members.push((set, Some(all)));
        }
        let published = self.fleet.publish(change);
        assert_eq!(published.missing_secrets, Vec::<Digest>::new());
    }

    /// Another controller takes over, with the same world and a higher epoch.
    pub fn failover(&mut self) {
        let mut fleet = Fleet::new(self.fleet.epoch() + 1);
        if self.fleet.is_published() {
            fleet.publish(FleetChange {
                puts: self
                    .desired
                    .iter()
                    .map(|(key, (body, secrets))| Item {
                        key: key.clone(),
                        body: body.clone(),
                        secrets: secrets.clone(),
                    })
                    .collect(),
                secrets: self.secrets.iter().map(|(digest, secret)| (*digest, secret.clone())).collect(),
                members: self.sets.iter().map(|(name, all)| (Arc::clone(name), Some(Arc::clone(all)))).collect(),
                ..FleetChange::default()
            });
            assert_eq!(fleet.root(), self.fleet.root(), "the same world gives the same root");
            assert_eq!(fleet.members().root(), self.fleet.members().root());
        }
        self.fleet = fleet;
        for node in &mut self.nodes {
            node.stream = None;
        }
    }

    /// One turn of every node: at most one thing each.
    pub fn turn(&mut self) {
        self.now += 1 + self.dice.below(20);
        if self.dice.one_in(self.faults.failover) {
            self.failover();
        }
        for at in 0..self.nodes.len() {
            self.turn_node(at);
        }
    }

    fn turn_node(&mut self, at: usize) {
        let World { now, dice, fleet, nodes, faults, messages, .. } = self;
        let (now, faults) = (*now, *faults);
        let node = &mut nodes[at];
        let Some(stream) = &mut node.stream else {
            if now >= node.reconnect_at {
                node.boots += 1;
                let agent = Agent { uid: format!("uid-{at}").into(), name: format!("agent-{at}") };
                let mut session = AgentSession::new(64 << 20);
                let facts = node.volume.facts(node.boots);
                let effects = session.step(now, agent_session::Input::Connected(facts), &node.volume);
                let server = ServerSession::new(agent, Role::Leading, now);
                let (down, up) = (VecDeque::new(), VecDeque::new());
                node.stream = Some(Stream { server, agent: session, down, up, work: effects.into() });
            }
            return;
        };
        if dice.one_in(faults.cut) || dice.one_in(faults.crash) {
            node.stream = None;
            node.reconnect_at = now + dice.below(200);
            return;
        }
        // The controller writes when the link has room.
        if stream.down.len() < 4 + dice.below(8) as usize
            && let Some(message) = stream.server.poll(now, fleet)
        {
            *messages += 1;
            let copies = if dice.one_in(faults.lose) { 0 } else { 1 + u64::from(dice.one_in(faults.double)) };
            (0..copies).for_each(|_| stream.down.push_back(message.clone()));
            if dice.one_in(faults.swap) && stream.down.len() > 1 {
                let last = stream.down.len() - 1;
                stream.down.swap(last, last - 1);
            }
        }
        if stream.server.deadline().is_some_and(|at| now >= at) {
            node.events.extend(stream.server.step(now, server_session::Input::Tick, fleet));
        }
        if !dice.one_in(3)
            && let Some(message) = stream.up.pop_front()
        {
            node.events.extend(stream.server.step(now, server_session::Input::Received(message), fleet));
        }
        node.events.extend(stream.server.take_events());
        let mut inputs = Vec::new();
        if stream.agent.deadline().is_some_and(|at| now >= at) {
            inputs.push(agent_session::Input::Tick);
        }
        if !dice.one_in(3)
            && let Some(message) = stream.down.pop_front()
        {
            inputs.push(agent_session::Input::Received(message));
        }
        for input in inputs {
            stream.work.extend(stream.agent.step(now, input, &node.volume));
        }
        let mut dead = false;
        for _ in 0..1 + dice.below(4) {
            let Some(effect) = stream.work.pop_front() else { break };
            match work(&mut node.volume, effect, dice, faults, &mut stream.up, &mut node.closes) {
                Some(Next::Inputs(inputs)) => {
                    for input in inputs {
                        stream.work.extend(stream.agent.step(now, input, &node.volume));
                    }
                }
                Some(Next::Dead) => {
                    dead = true;
                    break;
                }
                None => {}
            }
        }
        if dead || stream.server.closed().is_some() && stream.down.is_empty() {
            node.stream = None;
            node.reconnect_at = now + dice.below(200);
        }
    }

    /// Whether every agent holds exactly what is desired.
    pub fn difference(&self) -> Option<String> {
        for (at, node) in self.nodes.iter().enumerate() {
            let volume = &node.volume;
            let desired: BTreeMap<&Key, &Bytes> = self.desired.iter().map(|(key, (body, _))| (key, body)).collect();
            let held: BTreeMap<&Key, &Bytes> = volume.bodies.iter().collect();
            if desired != held {
                return Some(format!("agent {at} holds {} resources, not the {} desired", held.len(), desired.len()));
            }
            if volume.applied != Some(self.fleet.version()) {
                return Some(format!("agent {at} is at {:?}, not at {}", volume.applied, self.fleet.version()));
            }
            let held: BTreeMap<&Arc<str>, Vec<&Arc<str>>> =
                volume.sets.iter().map(|(name, all)| (name, all.members.iter().collect())).collect();
            let wanted: BTreeMap<&Arc<str>, Vec<&Arc<str>>> =
                self.sets.iter().map(|(name, all)| (name, all.iter().collect())).collect();
            if held != wanted {
                return Some(format!("agent {at} has sets {held:?}, wanted {wanted:?}"));
            }
            let named: BTreeSet<Digest> = self.desired.values().flat_map(|(_, secrets)| secrets).copied().collect();
            if volume.keys != named {
                return Some(format!("agent {at} has {} keys, {} are named", volume.keys.len(), named.len()));
            }
        }
        None
    }

    /// Ends the faults and waits at most so many virtual milliseconds for everything to agree.
    pub fn settle(&mut self, limit: u64) -> Result<u64, String> {
        self.faults = Faults::default();
        let start = self.now;
        loop {
            match self.difference() {
                None => return Ok(self.now - start),
                Some(difference) if self.now - start > limit => return Err(difference),
                Some(_) => self.turn(),
            }
        }
    }
}

enum Next {
    Inputs(Vec<agent_session::Input>),
    Dead,
}

fn work(
    volume: &mut Volume,
    effect: Effect,
    dice: &mut Dice,
    faults: Faults,
    up: &mut VecDeque<AgentMessage>,
    closes: &mut Vec<agent_session::Close>,
) -> Option<Next> {
    use agent_session::Input;
    match effect {
        Effect::Send(message) => {
            let copies = if dice.one_in(faults.lose) { 0 } else { 1 + u64::from(dice.one_in(faults.double)) };
            (0..copies).for_each(|_| up.push_back(message.clone()));
            None
        }
        Effect::Apply(transfer) => {
            if dice.one_in(faults.crash_in_apply) {
                if dice.one_in(2) {
                    volume.apply(&transfer);
                }
                return Some(Next::Dead);
            }
            let (version, root) = (transfer.version, transfer.root);
            if dice.one_in(faults.fail_apply) {
                return Some(Next::Inputs(vec![Input::Refused {
                    version,
                    root,
                    code: "volume".to_owned(),
                    message: "the volume is full".to_owned(),
                    leaves: Vec::new(),
                    transient: true,
                }]));
            }
            volume.apply(&transfer);
            Some(Next::Inputs(vec![Input::Applied {
                version,
                root,
                timings: Default::default(),
                not_live: Vec::new(),
            }]))
        }
        Effect::Adopt { version, root } => {
            assert_eq!(volume.tree.root(), root, "what is adopted is held");
            assert!(volume.applied.is_none_or(|applied| applied <= version), "an agent never goes back");
            volume.applied = Some(version);
            Some(Next::Inputs(vec![Input::Applied {
                version,
                root,
                timings: Default::default(),
                not_live: Vec::new(),
            }]))
        }
        Effect::RecordEpoch(epoch) => {
            assert!(epoch > volume.epoch);
            volume.epoch = epoch;
            None
        }
        Effect::Members { seq, set, change, digest } => {
            let mut inputs = Vec::new();
            if volume.change_members(&set, &change, digest).is_err() {
                inputs.push(Input::MembersBaseUnknown { set });
            }
            inputs.push(Input::MembersApplied { seq, root: volume.member_tree.root() });
            Some(Next::Inputs(inputs))
        }
        Effect::Welcomed { .. } | Effect::LookElsewhere => None,
        Effect::Close(close) => {
            closes.push(close);
            Some(Next::Dead)
        }
    }
}
