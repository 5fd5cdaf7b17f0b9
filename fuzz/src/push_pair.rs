//! Both sessions of a stream that loses, repeats, delays and damages messages: the agent never runs what was not
//! published, never goes back, and is current once the faults end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use journal::digest::{self, leaf};
use journal::members::MemberSet;
use journal::{Digest, Key, MemberTree, Tree};
use prost::Message;
use proto::v1::{AgentMessage, ControllerMessage};
use push::agent_session::{AgentSession, Close, Effect, HelloFacts, Holdings, Input as AgentInput, MembersChange};
use push::fleet::{Fleet, FleetChange, Item};
use push::server_session::{Agent, Event, Input, Role, ServerSession};
use push::{Prefix, Version};

/// Steps that an input may make.
const STEPS_MAX: usize = 300;
/// Rounds of one second in which an agent must become current after the faults.
const ROUNDS_MAX: usize = 120;

/// What an agent holds, in memory.
#[derive(Default)]
struct Volume {
    tree: Tree,
    bodies: BTreeMap<Key, Bytes>,
    members: MemberTree,
    sets: BTreeMap<Arc<str>, MemberSet>,
    applied: Option<Version>,
    highest_epoch: u64,
}

impl Holdings for Volume {
    fn tree(&self) -> &Tree {
        &self.tree
    }
    fn members(&self) -> &MemberTree {
        &self.members
    }
    fn has_secret(&self, _: &Digest) -> bool {
        false
    }
    fn body(&self, key: &Key) -> Option<Bytes> {
        self.bodies.get(key).cloned()
    }
}

struct Pair {
    now: u64,
    fleet: Fleet,
    /// Every root that was ever published.
    published: BTreeSet<Digest>,
    volume: Volume,
    agent: AgentSession,
    server: ServerSession,
    to_agent: VecDeque<ControllerMessage>,
    to_server: VecDeque<AgentMessage>,
    changes: u32,
    over: bool,
}

fn server(now: u64) -> ServerSession {
    ServerSession::new(Agent { uid: "uid".into(), name: "replica-0".to_owned() }, Role::Leading, now)
}

impl Pair {
    fn new() -> Pair {
        let mut pair = Pair {
            now: 0,
            fleet: Fleet::new(1),
            published: BTreeSet::from([Tree::default().root()]),
            volume: Volume::default(),
            agent: AgentSession::new(1 << 20),
            server: server(0),
            to_agent: VecDeque::new(),
            to_server: VecDeque::new(),
            changes: 0,
            over: false,
        };
        pair.publish(0);
        pair.connect();
        pair
    }

    /// A new stream: new sessions over the same fleet and volume.
    fn connect(&mut self) {
        self.over = false;
        self.to_agent.clear();
        self.to_server.clear();
        self.server = server(self.now);
        self.agent = AgentSession::new(1 << 20);
        let facts = HelloFacts {
            boot_id: "fuzz".to_owned(),
            schema_version: 1,
            highest_epoch: self.volume.highest_epoch,
            applied: self.volume.applied,
            scalwsd_state: "ready".to_owned(),
            ..HelloFacts::default()
        };
        self.agent_step(AgentInput::Connected(facts));
    }

    fn publish(&mut self, number: u8) {
        self.changes += 1;
        let key = Key::new("pool", &format!("demo/shop/{}/", u16::from(number % 8) + 1));
        let (mut puts, mut removes) = (Vec::new(), Vec::new());
        if number < 192 {
            let body = Bytes::from(format!("{{\"v\":{}}}", self.changes));
            puts.push(Item { key, body, secrets: Vec::new() });
        } else {
            removes.push(key);
        }
        let name = Arc::from(format!("demo/shop:{}/tcp", u16::from(number / 8 % 4) + 1));
        let member = |host: u32| Arc::from(format!("10.0.0.{host}:80"));
        let members = (!number.is_multiple_of(5)).then(|| Arc::from([member(1), member(2 + self.changes % 200)]));
        let change = FleetChange { puts, removes, members: vec![(name, members)], ..FleetChange::default() };
        self.published.insert(self.fleet.publish(change).root);
        self.server_step(Input::FleetChanged);
    }

    fn server_step(&mut self, input: Input) {
        let mut todo = self.server.step(self.now, input, &mut self.fleet);
        // What the owner of a session does about its events.
        while let Some(event) = todo.pop() {
            match event {
                Event::EpochReported(epoch) => {
                    self.fleet.raise_epoch(epoch.saturating_add(1));
                    todo.extend(self.server.step(self.now, Input::FleetChanged, &mut self.fleet));
                }
                Event::Condemned { keys, .. } => {
                    self.changes += 1;
                    let body = Bytes::from(format!("{{\"withheld\":{}}}", self.changes));
                    let put = |key: &Key| Item { key: key.clone(), body: body.clone(), secrets: Vec::new() };
                    let change = FleetChange { puts: keys.iter().map(put).collect(), ..FleetChange::default() };
                    self.published.insert(self.fleet.publish(change).root);
                    todo.extend(self.server.step(self.now, Input::FleetChanged, &mut self.fleet));
                }
                Event::Closed(_) => self.over = true,
                _ => {}
            }
        }
        while let Some(message) = self.server.poll(self.now, &mut self.fleet) {
            self.to_agent.push_back(message);
        }
        self.over |= self.server.closed().is_some();
    }

    fn agent_step(&mut self, input: AgentInput) {
        let mut todo: VecDeque<Effect> = self.agent.step(self.now, input, &self.volume).into();
        while let Some(effect) = todo.pop_front() {
            let answer = match effect {
                Effect::Send(message) => {
                    self.to_server.push_back(message);
                    None
                }
                Effect::RecordEpoch(epoch) => {
                    assert!(epoch >= self.volume.highest_epoch, "an epoch is never taken back");
                    self.volume.highest_epoch = epoch;
                    None
                }
                Effect::Apply(transfer) => {
                    assert_eq!(transfer.base_root, self.volume.tree.root(), "a transfer applies on what is held");
                    for put in &transfer.puts {
                        assert_eq!(put.leaf, leaf(&put.key, &put.body));
                        self.volume.tree.insert(put.key.clone(), put.leaf);
                        self.volume.bodies.insert(put.key.clone(), put.body.clone());
                    }
                    transfer.removes.iter().for_each(|key| _ = self.volume.tree.remove(key));
                    Some(self.applied(transfer.version, transfer.root))
                }
                Effect::Adopt { version, root } => Some(self.applied(version, root)),
                Effect::Members { seq, set, change, digest } => {
                    let known = self.change_members(&set, change, digest);
                    if !known {
                        todo.extend(self.agent.step(self.now, AgentInput::MembersBaseUnknown { set }, &self.volume));
                    }
                    Some(AgentInput::MembersApplied { seq, root: self.volume.members.root() })
                }
                Effect::Welcomed { .. } | Effect::LookElsewhere => None,
                Effect::Close(close) => {
                    if close == Close::EpochRejected {
                        self.volume = Volume::default();
                    }
                    self.over = true;
                    None
                }
            };
            if let Some(input) = answer {
                todo.extend(self.agent.step(self.now, input, &self.volume));
            }
        }
    }

    fn applied(&mut self, version: Version, root: Digest) -> AgentInput {
        assert!(self.volume.applied.is_none_or(|applied| version >= applied), "an agent never goes back");
        assert_eq!(self.volume.tree.root(), root, "what is held is what was promised");
        assert!(self.published.contains(&root), "an agent runs only what was published");
        self.volume.applied = Some(version);
        AgentInput::Applied { version, root, timings: Default::default(), not_live: Vec::new() }
    }

    /// Whether base and result were right.
    fn change_members(&mut self, name: &Arc<str>, change: MembersChange, want: Prefix) -> bool {
        if change == MembersChange::Drop {
            self.volume.sets.remove(name);
            self.volume.members.remove(name);
            return true;
        }
        let Some(set) = change.result(name, self.volume.sets.get(name)) else { return false };
        assert_eq!(set.digest, digest::members(name, set.members.iter().map(|member| &**member)));
        if !want.fits(&set.digest) {
            return false;
        }
        self.volume.members.insert(Arc::clone(name), set.digest);
        self.volume.sets.insert(Arc::clone(name), set);
        true
    }

    fn deliver_to_agent(&mut self) -> bool {
        let Some(message) = self.to_agent.pop_front() else { return false };
        self.agent_step(AgentInput::Received(message));
        true
    }

    fn deliver_to_server(&mut self) -> bool {
        let Some(message) = self.to_server.pop_front() else { return false };
        self.server_step(Input::Received(message));
        true
    }

    fn wait(&mut self, ms: u64) {
        self.now += ms;
        self.server_step(Input::Tick);
        self.agent_step(AgentInput::Tick);
    }

    /// Delivers everything until both are silent or the stream is over.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            if self.over || !(self.deliver_to_agent() | self.deliver_to_server()) {
                return;
            }
        }
        panic!("the two talk for ever");
    }

    fn fault(&mut self, op: u8, value: u8) {
        match op % 12 {
            0 | 1 => _ = self.deliver_to_agent(),
            2 | 3 => _ = self.deliver_to_server(),
            4 => self.settle(),
            5 => self.publish(value),
            6 => self.wait(u64::from(value) * 100),
            7 => self.connect(),
            8 => _ = self.to_agent.pop_front(),
            9 => {
                if let Some(message) = self.to_agent.front().cloned() {
                    self.to_agent.push_front(message);
                }
            }
            10 => damage(&mut self.to_agent, op, value),
            _ => damage(&mut self.to_server, op, value),
        }
        if self.over {
            self.connect();
        }
    }

    fn current(&mut self) -> bool {
        self.volume.tree.root() == self.fleet.root() && self.volume.members.root() == self.fleet.members().root()
    }
}

/// Changes one byte of the first message; one that no longer decodes is lost.
fn damage<M: Message + Default>(queue: &mut VecDeque<M>, op: u8, value: u8) {
    let Some(message) = queue.pop_front() else { return };
    let mut bytes = message.encode_to_vec();
    let length = bytes.len().max(1);
    if let Some(byte) = bytes.get_mut(usize::from(value) % length) {
        *byte ^= (op / 12) | 1;
    }
    if let Ok(message) = M::decode(bytes.as_slice()) {
        queue.push_front(message);
    }
}

pub(crate) fn run(data: &[u8]) {
    let mut pair = Pair::new();
    for step in data.chunks_exact(2).take(STEPS_MAX) {
        pair.fault(step[0], step[1]);
    }
    // The faults end. A damaged refusal holds for the bytes that it was about, so everything changes once more.
    for number in 0..64 {
        pair.publish(number);
    }
    pair.connect();
    for _ in 0..ROUNDS_MAX {
        pair.settle();
        if pair.current() {
            return;
        }
        if pair.over {
            pair.connect();
        }
        pair.wait(1_000);
    }
    panic!("the agent is not current: {:?} of {:?}", pair.volume.applied, pair.fleet.version());
}
