//! A volume and a `scalwsd` in memory, for tests of the core. Both may die at any moment.

// Only tests use it, each a part of it.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use agent::core::{AgentCore, CallError, Effect, File, Input, MemberChange, Report, VolumeImage};
use bytes::Bytes;
use journal::admin::{ConfigAnswer, NotLive, ReloadAnswer};
use journal::members::{MemberSet, MembersReplay};
use journal::{Anew, Digest, Key, MemberTree, Replay, Tree, digest};
use push::agent_session::{MembersChange, Timings, Transfer, TransferPut};
use push::{Prefix, Secret, Version};

/// A wanted configuration: bodies with the secrets they name.
pub type Wanted = BTreeMap<Key, (Bytes, Vec<Digest>)>;

/// The files of a volume.
#[derive(Clone, Debug, Default)]
pub struct Volume {
    pub config: Vec<u8>,
    /// A configuration journal that is not in its place yet.
    pub beside: Option<Vec<u8>>,
    pub members: Vec<u8>,
    pub keys: BTreeMap<Digest, Vec<u8>>,
    /// Writes that make the volume larger than this fail half-way.
    pub limit: Option<usize>,
}

impl Volume {
    pub fn image(&self) -> VolumeImage {
        let right = self.keys.iter().filter(|(digest, bytes)| Digest::of(bytes) == **digest);
        VolumeImage {
            config: self.config.clone(),
            members: self.members.clone(),
            keys: right.map(|(digest, _)| *digest).collect(),
        }
    }

    fn file(&mut self, file: File) -> &mut Vec<u8> {
        match file {
            File::Config => &mut self.config,
            File::Members => &mut self.members,
        }
    }

    fn room(&self) -> usize {
        let used = self.config.len() + self.members.len() + self.keys.values().map(Vec::len).sum::<usize>();
        self.limit.map_or(usize::MAX, |limit| limit.saturating_sub(used))
    }

    /// `None` when the effect is none on files; false when there was no room.
    pub fn perform(&mut self, effect: &Effect) -> Option<bool> {
        let room = self.room();
        Some(match effect {
            Effect::WriteKey { bytes, .. } if bytes.bytes().len() > room => false,
            Effect::WriteKey { digest, bytes } => {
                self.keys.insert(*digest, bytes.bytes().to_vec());
                true
            }
            Effect::UnlinkKeys(digests) => {
                self.keys.retain(|digest, _| !digests.contains(digest));
                true
            }
            Effect::Append { file, lines } => {
                let fits = lines.len().min(room);
                self.file(*file).extend_from_slice(&lines[..fits]);
                fits == lines.len()
            }
            Effect::Cut { file, len } => {
                let len = usize::try_from(*len).expect("a file in memory");
                assert!(len <= self.file(*file).len(), "a cut never makes a file longer");
                self.file(*file).truncate(len);
                true
            }
            Effect::Replace { content, .. } if content.len() > room => false,
            Effect::Replace { file, content } => {
                *self.file(*file) = content.to_vec();
                true
            }
            _ => return None,
        })
    }
}

impl Volume {
    /// Writes the configuration journal anew, beside the old one; false when there was no room.
    fn compact(&mut self, journal: &str, settled: u64) -> bool {
        let settled = usize::try_from(settled).expect("a file in memory");
        let anew = Anew::of(&self.config[..settled], journal).expect("what settled can be read");
        let mut new = Vec::new();
        anew.write_to(&mut new).unwrap();
        assert_eq!(new.len() as u64, anew.len(), "it is as long as it said");
        self.beside = (new.len() <= self.room()).then_some(new);
        self.beside.is_some()
    }

    /// Puts it in its place: its length.
    fn adopt(&mut self) -> Option<u64> {
        self.config = self.beside.take()?;
        Some(self.config.len() as u64)
    }
}

/// A `scalwsd` as far as the agent sees it.
#[derive(Clone, Debug, Default)]
pub struct Scalwsd {
    pub starts: u64,
    pub deaths: u64,
    journal: Option<String>,
    commit: u64,
    pub state: BTreeMap<Key, Bytes>,
    pub sets: BTreeMap<Arc<str>, MemberSet>,
    pub not_live: Vec<NotLive>,
    /// Bodies on which it dies.
    pub deadly: BTreeSet<Bytes>,
    /// Whether `check` finds them.
    pub check_is_blind: bool,
    /// Loads that broke off without a death.
    pub broken_off: u64,
    /// Bodies with which it refuses the whole.
    pub refused: BTreeSet<Bytes>,
    /// Members on which it dies.
    pub deadly_member: Option<Arc<str>>,
}

impl Scalwsd {
    pub fn root(&self) -> Digest {
        let mut tree = Tree::default();
        for (key, body) in &self.state {
            tree.insert(key.clone(), digest::leaf(key, body));
        }
        tree.root()
    }

    pub fn start(&mut self, volume: &Volume) {
        self.starts += 1;
        let replay = Replay::of(&volume.config);
        self.state = replay.resources.iter().map(|(k, s)| (k.clone(), s.body.clone())).collect();
        (self.journal, self.commit) = (replay.journal, replay.head.map_or(0, |h| h.commit));
        self.sets = MembersReplay::of(&volume.members).sets;
    }

    pub fn config(&self) -> ConfigAnswer {
        ConfigAnswer {
            start: format!("start-{}", self.starts),
            version: "test".to_owned(),
            schema: 1,
            journal: self.journal.clone(),
            commit: self.commit,
            root: self.root(),
            not_live: self.not_live.clone(),
            listening: Vec::new(),
        }
    }

    /// The state of a commit in a journal, accepted or open.
    pub fn read(volume: &Volume, journal: &str, commit: u64) -> Option<(BTreeMap<Key, Bytes>, Vec<Key>)> {
        let replay = Replay::of(&volume.config);
        let mut state: BTreeMap<Key, Bytes> = replay.resources.into_iter().map(|(k, s)| (k, s.body)).collect();
        if replay.journal.as_deref() != Some(journal) {
            return None;
        }
        if replay.head.is_some_and(|head| head.commit == commit) {
            return Some((state, Vec::new()));
        }
        let open = replay.open.filter(|open| open.commit.id == commit)?;
        let mut puts = Vec::new();
        for change in open.changes {
            match change.put {
                Some(put) => {
                    for secret in put.secrets.iter() {
                        assert!(volume.keys.contains_key(secret), "a key file stands before the commit that names it");
                    }
                    puts.push(change.key.clone());
                    state.insert(change.key, put.body(&volume.config));
                }
                None => {
                    state.remove(&change.key);
                }
            }
        }
        Some((state, puts))
    }

    pub fn reload(&mut self, volume: &Volume, journal: &str, commit: u64) -> Result<ReloadAnswer, CallError> {
        let Some((state, _)) = Scalwsd::read(volume, journal, commit) else {
            return Err(CallError::Refused(format!("no commit {commit}")));
        };
        if state.values().any(|body| self.deadly.contains(body)) {
            return Err(CallError::Gone);
        }
        if state.values().any(|body| self.refused.contains(body)) {
            return Err(CallError::Refused("unusable".to_owned()));
        }
        self.state = state;
        (self.journal, self.commit) = (Some(journal.to_owned()), commit);
        Ok(ReloadAnswer { root: self.root(), changed: 0, not_live: self.not_live.clone() })
    }
}

/// What happens before the N-th effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The agent dies.
    Agent,
    /// It dies in the middle of writing.
    AgentTorn,
    /// Agent and `scalwsd` die.
    Both,
    /// `scalwsd` dies.
    Scalwsd,
}

/// An agent core with its volume and its `scalwsd`.
pub struct World {
    pub core: AgentCore,
    pub volume: Volume,
    pub scalwsd: Scalwsd,
    pub reports: Vec<Report>,
    pub effects: u64,
    pub kill: Option<(u64, Death)>,
    pub fatal: Option<String>,
    pub secrets: BTreeMap<Digest, Vec<u8>>,
    /// Whether a journal that is written anew takes until [`World::end_compaction`].
    pub slow_compaction: bool,
    pub compacting: Option<(Arc<str>, u64)>,
    boots: u64,
}

impl World {
    pub fn new() -> World {
        let (core, effects) = AgentCore::open(VolumeImage::default(), "boot-0");
        let mut world = World {
            core,
            volume: Volume::default(),
            scalwsd: Scalwsd::default(),
            reports: Vec::new(),
            effects: 0,
            kill: None,
            fatal: None,
            secrets: BTreeMap::new(),
            slow_compaction: false,
            compacting: None,
            boots: 0,
        };
        world.perform(effects);
        world.scalwsd.start(&world.volume);
        world.feed(Input::Up(world.scalwsd.config()));
        world
    }

    /// The agent starts anew on what is on the volume.
    pub fn restart_agent(&mut self) {
        self.boots += 1;
        // The thread died with it, and opening the volume removes what it left.
        (self.compacting, self.volume.beside) = (None, None);
        let (core, effects) = AgentCore::open(self.volume.image(), &format!("boot-{}", self.boots));
        self.core = core;
        self.perform(effects);
        let answer = self.scalwsd.config();
        self.feed(Input::Up(answer));
    }

    /// `scalwsd` starts anew on what is on the volume.
    pub fn restart_scalwsd(&mut self) {
        self.scalwsd.deaths += 1;
        self.scalwsd.start(&self.volume);
    }

    pub fn feed(&mut self, input: Input) {
        let effects = self.core.step(input);
        self.perform(effects);
    }

    /// The journal that is written anew is done.
    pub fn end_compaction(&mut self) {
        let (journal, settled) = self.compacting.take().expect("a journal is being written");
        self.volume.compact(&journal, settled);
        let len = self.volume.adopt();
        self.feed(Input::Replaced { file: File::Config, len });
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        let mut queue: VecDeque<Effect> = effects.into();
        let mut failed: BTreeSet<File> = BTreeSet::new();
        let mut answers: VecDeque<Input> = VecDeque::new();
        loop {
            let Some(effect) = queue.pop_front() else {
                let Some(answer) = answers.pop_front() else { return };
                failed.clear();
                queue = self.core.step(answer).into();
                continue;
            };
            if effect.file().is_some_and(|file| failed.contains(&file)) {
                continue;
            }
            self.effects += 1;
            if let Some((_, death)) = self.kill.take_if(|(at, _)| *at == self.effects) {
                match (death, &effect) {
                    (Death::AgentTorn, Effect::Append { file, lines }) => {
                        self.volume.file(*file).extend_from_slice(&lines[..lines.len() / 2]);
                    }
                    (Death::AgentTorn, Effect::Compact { journal, settled }) => {
                        self.volume.compact(journal, *settled);
                    }
                    _ => {}
                }
                match death {
                    Death::Both => {
                        self.restart_scalwsd();
                        return self.restart_agent();
                    }
                    Death::Agent | Death::AgentTorn => return self.restart_agent(),
                    Death::Scalwsd => {
                        self.restart_scalwsd();
                        answers.push_back(Input::Down);
                        answers.push_back(Input::Up(self.scalwsd.config()));
                        match effect {
                            // It has nothing to do with that, and goes on below.
                            Effect::Compact { .. } => {}
                            Effect::Report(report) => {
                                self.reports.push(report);
                                continue;
                            }
                            // A call on the connection that dropped gets no answer.
                            other => {
                                let _none_if_a_call = self.volume.perform(&other);
                                continue;
                            }
                        }
                    }
                }
            }
            if let Effect::Compact { journal, settled } = effect {
                if self.slow_compaction {
                    let before = self.compacting.replace((journal, settled));
                    assert_eq!(before, None, "one at a time");
                    continue;
                }
                self.volume.compact(&journal, settled);
                // The rename is an effect of its own.
                self.effects += 1;
                match self.kill.take_if(|(at, _)| *at == self.effects) {
                    None => {}
                    Some((_, Death::Agent | Death::AgentTorn)) => return self.restart_agent(),
                    Some((_, Death::Both)) => {
                        self.restart_scalwsd();
                        return self.restart_agent();
                    }
                    Some((_, Death::Scalwsd)) => {
                        self.restart_scalwsd();
                        answers.push_back(Input::Down);
                        answers.push_back(Input::Up(self.scalwsd.config()));
                    }
                }
                let len = self.volume.adopt();
                answers.push_back(Input::Replaced { file: File::Config, len });
                continue;
            }
            if let Some(done) = self.volume.perform(&effect) {
                match effect {
                    Effect::Replace { file, .. } => {
                        let len = done.then(|| self.volume.file(file).len() as u64);
                        answers.push_back(Input::Replaced { file, len });
                    }
                    other if !done => {
                        let file = other.file().expect("every write has its file");
                        failed.insert(file);
                        answers.push_back(Input::VolumeFailed { file, message: "no room".to_owned() });
                    }
                    _ => {}
                }
                continue;
            }
            self.call(effect, &mut answers);
        }
    }

    fn call(&mut self, effect: Effect, answers: &mut VecDeque<Input>) {
        let died = |world: &mut World, answers: &mut VecDeque<Input>| {
            world.restart_scalwsd();
            answers.push_back(Input::Down);
            answers.push_back(Input::Up(world.scalwsd.config()));
        };
        match effect {
            Effect::Reload { journal, commit } => {
                let result = self.scalwsd.reload(&self.volume, &journal, commit);
                let gone = result == Err(CallError::Gone);
                answers.push_back(Input::Reloaded { result, timings: Timings::default() });
                if gone {
                    died(self, answers);
                }
            }
            Effect::ReadBack => {
                answers.push_back(Input::ReadBack { result: Ok(self.scalwsd.config()), took_us: 1 });
            }
            Effect::Check { journal, commit } => {
                let read = Scalwsd::read(&self.volume, &journal, commit);
                let (state, _) = read.expect("a commit that is checked is in the journal");
                let deadly = |key: &Key| !self.scalwsd.check_is_blind && self.scalwsd.deadly.contains(&state[key]);
                answers.push_back(Input::Checked { dead: state.keys().filter(|key| deadly(key)).cloned().collect() });
            }
            Effect::ListUpstreams => {
                let sets = self.scalwsd.sets.iter().map(|(name, set)| (name.clone(), set.digest)).collect();
                answers.push_back(Input::Upstreams(Ok(sets)));
            }
            Effect::PutMembers { set, members } => {
                if self.scalwsd.deadly_member.as_ref().is_some_and(|m| members.contains(m)) {
                    answers.push_back(Input::MembersAnswered(Err(CallError::Gone)));
                    return died(self, answers);
                }
                let taken = MemberSet::new(&set, members.to_vec());
                answers.push_back(Input::MembersAnswered(Ok(Some(taken.digest))));
                self.scalwsd.sets.insert(set, taken);
            }
            Effect::PatchMembers { set, base, add, remove } => {
                let held = self.scalwsd.sets.get(&set);
                match held {
                    Some(held) if held.digest == base => {
                        let taken = held.changed(&set, &add, &remove);
                        answers.push_back(Input::MembersAnswered(Ok(Some(taken.digest))));
                        self.scalwsd.sets.insert(set, taken);
                    }
                    held => {
                        let has = held.map_or(digest::members(&set, []), |held| held.digest);
                        answers.push_back(Input::MembersAnswered(Err(CallError::Conflict(has))));
                    }
                }
            }
            Effect::DeleteMembers { set } => {
                self.scalwsd.sets.remove(&set);
                answers.push_back(Input::MembersAnswered(Ok(None)));
            }
            Effect::Report(report) => self.reports.push(report),
            Effect::Fatal(why) => self.fatal = Some(why),
            other => panic!("{other:?} is an effect on files"),
        }
    }

    /// A transfer from what the agent holds to what is wanted.
    pub fn transfer_to(&mut self, wanted: &Wanted, version: (u64, u64)) -> Transfer {
        let held: BTreeMap<Key, Bytes> = {
            use push::agent_session::Holdings;
            let resources = Replay::of(&self.volume.config).resources;
            Holdings::tree(&self.core).iter().map(|(key, _)| (key.clone(), resources[key].body.clone())).collect()
        };
        let base_root = self.core.facts().root;
        let puts: Vec<TransferPut> = wanted
            .iter()
            .filter(|(key, (body, _))| held.get(*key) != Some(body))
            .map(|(key, (body, secrets))| TransferPut {
                key: key.clone(),
                body: body.clone(),
                leaf: digest::leaf(key, body),
                secrets: secrets.clone(),
            })
            .collect();
        let named: BTreeSet<Digest> = puts.iter().flat_map(|put| put.secrets.clone()).collect();
        let missing = named.iter().filter(|secret| !self.core.secrets().contains(secret));
        let blobs = missing.map(|secret| (*secret, Secret::new(self.secrets[secret].clone()))).collect();
        Transfer {
            version: Version::new(version.0, version.1),
            base_root,
            root: root_of(wanted),
            puts,
            removes: held.keys().filter(|key| !wanted.contains_key(*key)).cloned().collect(),
            blobs,
        }
    }

    pub fn push(&mut self, wanted: &Wanted, version: (u64, u64)) {
        let transfer = self.transfer_to(wanted, version);
        self.feed(Input::Transfer(Box::new(transfer)));
    }

    pub fn secret(&mut self, text: &str) -> Digest {
        let digest = Digest::of(text.as_bytes());
        self.secrets.insert(digest, text.as_bytes().to_vec());
        digest
    }

    pub fn put_set(&mut self, seq: u64, set: &str, members: &[&str]) {
        let members: Vec<Arc<str>> = members.iter().map(|m| Arc::from(*m)).collect();
        let digest = Prefix::of(&MemberSet::new(set, members.clone()).digest);
        self.feed(Input::Members(MemberChange { seq, set: set.into(), change: MembersChange::Full(members), digest }));
    }

    /// What must always hold when nothing is under way.
    pub fn assert_in_step(&mut self) {
        assert_eq!(self.fatal, None);
        let facts = self.core.facts();
        let resources = Replay::of(&self.volume.config).resources;
        let held: BTreeMap<Key, Bytes> = resources.iter().map(|(k, s)| (k.clone(), s.body.clone())).collect();
        assert_eq!(self.scalwsd.state, held, "scalwsd runs what the agent accepted");
        let named: BTreeSet<Digest> = resources.values().flat_map(|s| s.secrets.iter().copied()).collect();
        let files: BTreeSet<Digest> = self.volume.keys.keys().copied().collect();
        assert_eq!(files, named, "exactly the keys that the accepted state names are on the volume");
        let replay = Replay::of(&self.volume.config);
        assert!(replay.corrupt.is_none(), "{:?}", replay.corrupt);
        assert_eq!(replay.head.map(|h| (Version::new(h.version.0, h.version.1), h.root)), facts.applied);
        assert_eq!(replay.tree.clone().root(), facts.root);
        let ours: BTreeMap<Arc<str>, Digest> = self.core.member_sets().map(|(n, d)| (n.clone(), d)).collect();
        let theirs: BTreeMap<Arc<str>, Digest> = self.scalwsd.sets.iter().map(|(n, s)| (n.clone(), s.digest)).collect();
        assert_eq!(ours, theirs, "scalwsd has the member sets that the agent holds");
        let mut tree = MemberTree::default();
        for (name, set) in MembersReplay::of(&self.volume.members).sets {
            tree.insert(name, set.digest);
        }
        assert_eq!(tree.root(), facts.member_root);
    }
}

pub fn root_of(wanted: &Wanted) -> Digest {
    let mut tree = Tree::default();
    for (key, (body, _)) in wanted {
        tree.insert(key.clone(), digest::leaf(key, body));
    }
    tree.root()
}

pub fn resource(wanted: &mut Wanted, name: &str, body: &str, secrets: &[Digest]) {
    let body = Bytes::from(format!("{{\"body\":\"{body}\"}}"));
    wanted.insert(Key::new("fragment", name), (body, secrets.to_vec()));
}
