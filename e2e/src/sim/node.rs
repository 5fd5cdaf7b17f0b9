//! One proxy pod: the shipped agent core and session over a volume and a `scalwsd` in memory, with everything that may
//! happen to them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use agent::core::{AgentCore, CallError, Effect, File, Input, MemberChange, Report, VolumeImage};
use journal::{Digest, Key};
use proto::v1::{AgentMessage, ControllerMessage};
use push::Version;
use push::agent_session::{self as session, AgentSession, Timings};
use push::server_session::{Role, ServerSession};
use translate::FleetName;

mod oracle;

use oracle::marks_of;

use super::dice::Dice;
use super::faults::Faults;
use super::proxy::{Proxy, Readings, Volume};

/// How often the agent reads back and compares, in milliseconds (as the shipped driver does).
const POLL_MS: u64 = 15_000;
const COMPARE_MS: u64 = 60_000;
/// How long the first answer of a controller may take, in milliseconds, where there are others.
const ANSWER_MS: u64 = 1_000;
/// How long Hello waits for `scalwsd`, in milliseconds.
const HELLO_MS: u64 = 2_000;

/// A journal is written anew from this length on, in bytes: those of a run are short.
const FLOOR: u64 = 4_096;
/// The longest time that it takes, in milliseconds.
const COMPACTION_MS: u64 = 400;

/// A stream to one of the controllers, with the session at its other end.
pub(crate) struct Stream {
    /// Which controller.
    pub(crate) controller: u64,
    /// The controller's session.
    pub(crate) server: ServerSession,
    session: AgentSession,
    /// On their way to the agent.
    pub(crate) down: VecDeque<ControllerMessage>,
    /// On their way to the controller.
    pub(crate) up: VecDeque<AgentMessage>,
    /// Half open: whatever is sent is lost, and nobody is told.
    pub(crate) dead_link: bool,
    /// The agent does not read before this time.
    pub(crate) reads_from: u64,
    close: Option<session::Close>,
    /// What the controller's session was told that it is.
    pub(crate) told: Role,
    /// When it leaves a leader that is not sure to lead.
    leaves_at: Option<u64>,
    /// A transfer was begun and neither answered nor called off.
    pub(crate) unanswered: bool,
}

/// A pod.
pub(crate) struct Node {
    /// Its fleet, by number.
    pub(crate) fleet: usize,
    /// Its name and UID.
    pub(crate) name: Arc<str>,
    core: AgentCore,
    volume: Volume,
    /// Its proxy.
    pub(crate) proxy: Proxy,
    /// Its stream, if it has one.
    pub(crate) stream: Option<Stream>,
    answers: VecDeque<(u64, Input)>,
    /// The journal that is being written anew, as which and from how much, and when that is done.
    compaction: Option<(u64, Arc<str>, u64)>,
    /// Journals that were put in their place while the agent ran.
    pub(crate) compactions: u64,
    /// How often it was sent to another controller.
    pub(crate) redirected: u64,
    /// How often it had to wait at a controller that does not lead.
    pub(crate) parked: u64,
    /// The controller that it was sent to.
    pub(crate) sent_to: Option<u64>,
    /// When it may connect again.
    pub(crate) connect_at: u64,
    /// Since when a stream waits for its Hello.
    waiting: Option<(u64, u64, ServerSession, Role)>,
    boots: u64,
    poll_at: u64,
    compare_at: u64,
    /// What it applied last, over all its lives.
    applied: Option<Version>,
    seen_kept: BTreeSet<Key>,
    /// The newest mark that it had of each thing that is marked.
    marks: BTreeMap<String, u64>,
    /// Roots that it refused for good, with how often a transfer to them came afterwards.
    refused: BTreeMap<Digest, u64>,
    /// How long a reload takes.
    pub(crate) reload_ms: u64,
    /// When its members were last changed.
    pub(crate) members_changed_at: u64,
    /// When its agent, which ended, is started again.
    starts_at: Option<u64>,
    /// The counter of epochs was never lost, so that no two leaders can have the same one.
    pub(crate) counted: bool,
    /// No two controllers led at one time, and each knew everything when it began: nothing ever looks older than before.
    pub(crate) in_order: bool,
    /// Nothing goes wrong in this run.
    pub(crate) calm: bool,
}

impl Node {
    /// A pod with an empty volume.
    pub(crate) fn new(fleet: usize, number: usize, readings: &mut Readings) -> Node {
        let (core, effects) = AgentCore::open(VolumeImage::default(), "boot-0");
        let mut node = Node {
            fleet,
            name: format!("pod-{number}").into(),
            core,
            volume: Volume::default(),
            proxy: Proxy::default(),
            stream: None,
            answers: VecDeque::new(),
            compaction: None,
            compactions: 0,
            redirected: 0,
            parked: 0,
            sent_to: None,
            connect_at: 0,
            waiting: None,
            boots: 0,
            poll_at: POLL_MS,
            compare_at: COMPARE_MS,
            applied: None,
            seen_kept: BTreeSet::new(),
            marks: BTreeMap::new(),
            refused: BTreeMap::new(),
            reload_ms: 1,
            members_changed_at: 0,
            starts_at: None,
            counted: true,
            in_order: true,
            calm: false,
        };
        let mut calm = Dice::new(0);
        node.core.set_journal_floor(FLOOR);
        node.perform(0, effects, &mut calm, Faults::default(), readings);
        node.end_compaction(0, &mut calm, Faults::default(), readings);
        node.proxy.start(&node.volume, readings);
        node.answers.push_back((0, Input::Up(node.proxy.config())));
        node
    }

    /// The name of its fleet.
    pub(crate) fn fleet_name(&self) -> FleetName {
        super::manifests::fleets()[self.fleet].clone()
    }

    /// What it applied last.
    pub(crate) fn applied(&self) -> Option<Version> {
        self.applied
    }

    /// Makes writes fail, or work again.
    pub(crate) fn set_full(&mut self, full: bool) {
        self.volume.full = full;
    }

    /// A new stream; Hello follows when the agent is ready for it.
    pub(crate) fn connect(&mut self, now: u64, controller: u64, server: ServerSession, role: Role) {
        self.waiting = Some((now, controller, server, role));
    }

    /// Whether it could open a stream now.
    pub(crate) fn may_connect(&self, now: u64) -> bool {
        self.stream.is_none() && self.waiting.is_none() && self.starts_at.is_none() && now >= self.connect_at
    }

    /// The stream ends for both sides.
    pub(crate) fn cut(&mut self, now: u64, wait: u64, dice: &mut Dice, faults: Faults, readings: &mut Readings) {
        self.waiting = None;
        self.connect_at = now + wait;
        if self.stream.take().is_some() {
            self.feed(now, Input::StreamEnded, dice, faults, readings);
        }
    }

    /// The agent dies and starts again on its volume.
    pub(crate) fn crash(&mut self, now: u64, dice: &mut Dice, readings: &mut Readings) {
        self.boots += 1;
        (self.stream, self.waiting) = (None, None);
        self.answers.clear();
        if let Some((_, journal, settled)) = self.compaction.take() {
            // Somewhere in the middle of it.
            self.volume.compact(&journal, settled, true);
        }
        self.connect_at = now + dice.below(300);
        let (core, effects) = AgentCore::open(self.volume.image(), &format!("boot-{}", self.boots));
        self.core = core;
        self.core.set_journal_floor(FLOOR);
        let found = self.core.facts().applied.map(|(version, _)| version);
        assert!(found >= self.applied, "{} found {found:?} on its volume, after it said {:?}", self.name, self.applied);
        self.perform(now, effects, dice, Faults::default(), readings);
        // What an agent starts with, it waits for.
        self.end_compaction(now, dice, Faults::default(), readings);
        self.answers.push_back((now, Input::Up(self.proxy.config())));
    }

    /// A journal that is being written anew is complete and takes the place of the old one. Each step may be the last.
    fn end_compaction(&mut self, now: u64, dice: &mut Dice, faults: Faults, readings: &mut Readings) {
        let Some((_, journal, settled)) = &self.compaction else { return };
        if dice.one_in(faults.die_at_effect) {
            return self.crash(now, dice, readings);
        }
        self.volume.compact(journal, *settled, false);
        self.compaction = None;
        if dice.one_in(faults.die_at_effect) {
            return self.crash(now, dice, readings);
        }
        let len = self.volume.adopt();
        self.compactions += u64::from(len.is_some());
        if dice.one_in(faults.die_at_effect) {
            return self.crash(now, dice, readings);
        }
        self.answers.push_back((now, Input::Replaced { file: File::Config, len }));
    }

    /// The proxy dies and starts again; answers of its last life never come.
    pub(crate) fn crash_proxy(&mut self, now: u64, readings: &mut Readings) {
        self.proxy.start(&self.volume, readings);
        self.answers.retain(|(_, input)| {
            !matches!(
                input,
                Input::Reloaded { .. }
                    | Input::ReadBack { .. }
                    | Input::MembersAnswered(_)
                    | Input::Upstreams(_)
                    | Input::Up(_)
                    | Input::Down
            )
        });
        self.answers.push_back((now, Input::Down));
        self.answers.push_back((now + 1, Input::Up(self.proxy.config())));
    }

    /// When it next does something by itself.
    pub(crate) fn next_at(&self) -> u64 {
        let answers = self.answers.iter().map(|(at, _)| *at).min();
        let hello = self.waiting.as_ref().map(|(at, ..)| at + HELLO_MS);
        let stream = self.stream.as_ref().and_then(|s| s.session.deadline().into_iter().chain(s.leaves_at).min());
        let server = self.stream.as_ref().and_then(|s| s.server.deadline());
        if let Some(at) = self.starts_at {
            return at;
        }
        let connect = (self.stream.is_none() && self.waiting.is_none()).then_some(self.connect_at);
        let compaction = self.compaction.as_ref().map(|(at, ..)| *at);
        [compaction, answers, hello, stream, server, connect, Some(self.poll_at.min(self.compare_at))]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(u64::MAX)
    }

    /// One turn. Gives whether anything happened.
    pub(crate) fn turn(&mut self, now: u64, dice: &mut Dice, faults: Faults, readings: &mut Readings) -> bool {
        self.look();
        if let Some(at) = self.starts_at {
            if now >= at {
                self.starts_at = None;
                self.crash(now, dice, readings);
            }
            return true;
        }
        let mut busy = false;
        if now >= self.poll_at {
            self.poll_at = now + POLL_MS;
            self.feed(now, Input::Poll, dice, faults, readings);
        }
        if now >= self.compare_at {
            self.compare_at = now + COMPARE_MS;
            self.feed(now, Input::Compare, dice, faults, readings);
        }
        if self.compaction.as_ref().is_some_and(|(at, ..)| now >= *at) {
            busy = true;
            self.end_compaction(now, dice, faults, readings);
        }
        // Each lane answers in its own order; the two lanes in none.
        if let Some(at) = self.answers.iter().position(|(at, _)| *at <= now)
            && let Some((_, input)) = self.answers.remove(at)
        {
            busy = true;
            self.feed(now, input, dice, faults, readings);
        }
        busy |= self.say_hello(now, dice, faults, readings);
        let Some(stream) = &mut self.stream else { return busy };
        let mut inputs = Vec::new();
        if stream.session.deadline().is_some_and(|at| now >= at) {
            inputs.push(session::Input::Tick);
        }
        if now >= stream.reads_from
            && !dice.one_in(3)
            && let Some(message) = stream.down.pop_front()
        {
            busy = true;
            self.count_resends(&message);
            let standby = matches!(message.message, Some(proto::v1::controller_message::Message::Standby(_)));
            self.parked += u64::from(standby);
            inputs.push(session::Input::Received(message));
        }
        for input in inputs {
            self.converse(now, input, dice, faults, readings);
        }
        if let Some(close) = self.stream.as_mut().and_then(|stream| stream.close.take()) {
            let wait = match close {
                session::Close::NotLeader { leader_address, retry_ms } => {
                    self.redirected += 1;
                    self.sent_to = leader_address.and_then(|address| address.parse().ok());
                    retry_ms + dice.below(50)
                }
                _ => 50 + dice.below(500),
            };
            self.cut(now, wait, dice, faults, readings);
            busy = true;
        }
        if self.stream.as_ref().is_some_and(|stream| stream.leaves_at.is_some_and(|at| now >= at)) {
            self.cut(now, 0, dice, faults, readings);
            busy = true;
        }
        busy
    }

    fn say_hello(&mut self, now: u64, dice: &mut Dice, faults: Faults, readings: &mut Readings) -> bool {
        let facts = self.core.facts();
        let ready = self.core.is_settled() && facts.scalwsd != agent::core::ScalwsdState::Down;
        let Some((_, controller, server, told)) = self.waiting.take_if(|(since, ..)| ready || now >= *since + HELLO_MS)
        else {
            return false;
        };
        self.stream = Some(Stream {
            controller,
            server,
            session: AgentSession::new(64 << 20).with_answer_limit(ANSWER_MS),
            down: VecDeque::new(),
            up: VecDeque::new(),
            dead_link: false,
            reads_from: now,
            close: None,
            told,
            leaves_at: None,
            unanswered: false,
        });
        let hello = session::HelloFacts {
            boot_id: format!("{}-{}", self.name, self.boots),
            schema_version: 1,
            highest_epoch: facts.highest_epoch,
            applied: facts.applied.map(|(version, _)| version),
            condemned: facts.condemned,
            scalwsd_version: "simulated".to_owned(),
            scalwsd_state: facts.scalwsd.as_str().to_owned(),
        };
        self.converse(now, session::Input::Connected(hello), dice, faults, readings);
        true
    }

    fn converse(&mut self, now: u64, input: session::Input, dice: &mut Dice, faults: Faults, readings: &mut Readings) {
        let Some(stream) = &mut self.stream else { return };
        let (mut inputs, mut told) = (Vec::new(), Vec::new());
        for effect in stream.session.step(now, input, &self.core) {
            match effect {
                session::Effect::Send(message) if stream.dead_link => drop(message),
                session::Effect::Send(message) => faults.carry(dice, &mut stream.up, message),
                session::Effect::Apply(transfer) => inputs.push(Input::Transfer(transfer)),
                session::Effect::Adopt { version, root } => inputs.push(Input::Adopt { version, root }),
                session::Effect::RecordEpoch(epoch) => inputs.push(Input::Epoch(epoch)),
                session::Effect::Members { seq, set, change, digest } => {
                    told.extend(marks_of(&set, &change));
                    inputs.push(Input::Members(MemberChange { seq, set, change, digest }));
                }
                session::Effect::Welcomed { .. } => {}
                session::Effect::LookElsewhere => stream.leaves_at = Some(now + dice.below(500)),
                session::Effect::Close(close) => stream.close = Some(close),
            }
        }
        told.into_iter().for_each(|(what, mark)| self.mark(what, mark));
        inputs.into_iter().for_each(|input| self.feed(now, input, dice, faults, readings));
    }

    fn feed(&mut self, now: u64, input: Input, dice: &mut Dice, faults: Faults, readings: &mut Readings) {
        if self.starts_at.is_some() {
            return;
        }
        let effects = self.core.step(input);
        self.perform(now, effects, dice, faults, readings);
    }

    /// Does effects in order; a failed write ends the batch for its file, a death ends it whole.
    fn perform(&mut self, now: u64, effects: Vec<Effect>, dice: &mut Dice, faults: Faults, readings: &mut Readings) {
        let mut failed: BTreeSet<File> = BTreeSet::new();
        for effect in effects {
            if effect.file().is_some_and(|file| failed.contains(&file)) {
                continue;
            }
            if dice.one_in(faults.die_at_effect) {
                if dice.one_in(2) {
                    self.volume.tear(&effect);
                }
                return self.crash(now, dice, readings);
            }
            match (self.volume.perform(&effect), effect) {
                (Some(done), Effect::Replace { file, .. }) => {
                    let len = done.then(|| self.volume.file(file).len() as u64);
                    self.answers.push_back((now, Input::Replaced { file, len }));
                }
                (Some(true), _) => {}
                (Some(false), effect) => {
                    let file = effect.file().expect("every write has its file");
                    failed.insert(file);
                    self.answers.push_back((now, Input::VolumeFailed { file, message: "no room".to_owned() }));
                }
                (None, effect) => self.call(now, effect, dice, faults, readings),
            }
        }
    }

    fn call(&mut self, now: u64, effect: Effect, dice: &mut Dice, faults: Faults, readings: &mut Readings) {
        let soon = now + dice.below(5);
        let answer = match effect {
            Effect::Reload { journal, commit } => {
                let result = self.proxy.reload(&self.volume, readings, &journal, commit);
                if result == Err(CallError::Gone) {
                    return self.crash_proxy(now, readings);
                }
                self.look_at_members(readings);
                let done = (now + self.reload_ms, Input::Reloaded { result, timings: Timings::default() });
                return self.answers.push_back(done);
            }
            Effect::ReadBack => Input::ReadBack { result: Ok(self.proxy.config()), took_us: 1 },
            Effect::Check { journal, commit } => {
                Input::Checked { dead: Proxy::check(&self.volume, readings, &journal, commit) }
            }
            Effect::ListUpstreams => {
                let sets = self.proxy.sets.iter().map(|(name, set)| (Arc::clone(name), set.digest)).collect();
                Input::Upstreams(Ok(sets))
            }
            Effect::PutMembers { set, members } => {
                self.members_changed_at = now;
                Input::MembersAnswered(Ok(Some(self.proxy.put(set, &members))))
            }
            Effect::PatchMembers { set, base, add, remove } => {
                self.members_changed_at = now;
                Input::MembersAnswered(self.proxy.patch(set, base, &add, &remove).map(Some))
            }
            Effect::DeleteMembers { set } => {
                self.look_at_drop(&set, readings);
                self.proxy.sets.remove(&set);
                Input::MembersAnswered(Ok(None))
            }
            Effect::Compact { journal, settled } => {
                assert!(self.compaction.is_none(), "{}: two journals are written anew at once", self.name);
                self.compaction = Some((now + dice.below(COMPACTION_MS), journal, settled));
                return;
            }
            Effect::Report(report) => return self.report(now, report, dice, faults, readings),
            Effect::Fatal(_) => {
                // The process ends; whoever supervises it starts it again.
                (self.stream, self.waiting) = (None, None);
                self.starts_at = Some(now + 500);
                return;
            }
            other => panic!("{other:?} is an effect on files"),
        };
        self.answers.push_back((soon, answer));
    }

    fn report(&mut self, now: u64, report: Report, dice: &mut Dice, faults: Faults, readings: &mut Readings) {
        let input = match report {
            Report::Applied { version, root, timings, not_live } => {
                self.check(version, root, readings);
                session::Input::Applied { version, root, timings, not_live }
            }
            Report::Refused { version, root, code, message, leaves, transient } => {
                if !transient {
                    self.refused.entry(root).or_insert(0);
                }
                session::Input::Refused { version, root, code: code.to_owned(), message, leaves, transient }
            }
            Report::NotLiveChanged(not_live) => session::Input::NotLiveChanged(not_live),
            Report::HoldingsChanged => session::Input::HoldingsChanged,
            Report::MembersApplied { seq, root } => session::Input::MembersApplied { seq, root },
            Report::MembersBaseUnknown { set } => session::Input::MembersBaseUnknown { set },
            Report::MembersRefused { seq, set, code, message } => {
                session::Input::MembersRefused { seq, set, code: code.to_owned(), message }
            }
        };
        self.converse(now, input, dice, faults, readings);
    }
}
