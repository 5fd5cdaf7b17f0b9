//! A volume and a `scalwsd` in memory. The volume outlives both the agent and the proxy.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent::core::{CallError, Effect, File, VolumeImage};
use bytes::Bytes;
use config::{Body, Kind, MemberSource, Name, ResourceId, Share, State};
use journal::admin::{ConfigAnswer, NotLive, ReloadAnswer, codes};
use journal::members::{MemberSet, MembersReplay};
use journal::{Anew, Digest, Key, Replay, Tree, digest};
use push::Version;

use super::manifests::{DEADLY, UNBUILT};

/// The files of a volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Volume {
    config: Vec<u8>,
    /// A configuration journal that is not in its place yet, perhaps half of one.
    beside: Option<Vec<u8>>,
    members: Vec<u8>,
    /// The key files.
    pub(crate) keys: BTreeMap<Digest, Bytes>,
    /// Whether writes find no room.
    pub(crate) full: bool,
}

impl Volume {
    /// What an agent finds when it starts.
    pub(crate) fn image(&mut self) -> VolumeImage {
        // As the shipped one does when it is opened.
        self.beside = None;
        VolumeImage {
            config: self.config.clone(),
            members: self.members.clone(),
            keys: self.keys.keys().copied().collect(),
        }
    }

    pub(crate) fn file(&mut self, file: File) -> &mut Vec<u8> {
        match file {
            File::Config => &mut self.config,
            File::Members => &mut self.members,
        }
    }

    /// Writes half of an append, as a death in the middle leaves it.
    pub(crate) fn tear(&mut self, effect: &Effect) {
        if let Effect::Append { file, lines } = effect {
            let half = lines.len() / 2;
            self.file(*file).extend_from_slice(&lines[..half]);
        }
    }

    /// Writes the configuration journal anew, beside the old one, or as much of it as a death in the middle leaves.
    pub(crate) fn compact(&mut self, journal: &str, settled: u64, half: bool) {
        self.beside = None;
        if self.full {
            return;
        }
        let settled = usize::try_from(settled).unwrap_or(usize::MAX);
        let old = self.config.get(..settled).expect("what settled is in the file");
        let mut new = Vec::new();
        Anew::of(old, journal).and_then(|anew| anew.write_to(&mut new)).expect("what settled can be read");
        new.truncate(if half { new.len() / 2 } else { new.len() });
        self.beside = Some(new);
    }

    /// Puts it in the place of the old one: its length, or nothing if there is none.
    pub(crate) fn adopt(&mut self) -> Option<u64> {
        self.config = self.beside.take()?;
        Some(self.config.len() as u64)
    }

    /// Does an effect on files: whether it worked, or nothing if it is none.
    pub(crate) fn perform(&mut self, effect: &Effect) -> Option<bool> {
        let full = self.full;
        match effect {
            Effect::WriteKey { .. } | Effect::Append { .. } | Effect::Replace { .. } if full => Some(false),
            Effect::WriteKey { digest, bytes } => {
                self.keys.insert(*digest, Bytes::copy_from_slice(bytes.bytes()));
                Some(true)
            }
            Effect::UnlinkKeys(digests) => {
                self.keys.retain(|digest, _| !digests.contains(digest));
                Some(true)
            }
            Effect::Append { file, lines } => {
                self.file(*file).extend_from_slice(lines);
                Some(true)
            }
            Effect::Cut { file, len } => {
                let len = usize::try_from(*len).unwrap_or(usize::MAX);
                self.file(*file).truncate(len);
                Some(true)
            }
            Effect::Replace { file, content } => {
                *self.file(*file) = content.to_vec();
                Some(true)
            }
            _ => None,
        }
    }
}

/// What a body names and does, read once for each leaf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The resources it names.
    pub(crate) names: Vec<Key>,
    /// Loading it kills the proxy.
    pub(crate) deadly: bool,
    /// The proxy cannot build it.
    pub(crate) unbuilt: bool,
    /// The member set behind a pool.
    pub(crate) set: Option<Arc<str>>,
}

/// Readings by leaf, and what the pods of a run have to agree on.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    by_leaf: BTreeMap<Digest, Arc<Reading>>,
    /// The root of every version that somebody applied, by fleet: one version is one configuration.
    pub(crate) roots: BTreeMap<(usize, Version), Digest>,
}

impl Readings {
    /// Reads a resource with the code that the real proxy loads it with.
    pub(crate) fn of(&mut self, key: &Key, body: &Bytes) -> Arc<Reading> {
        let leaf = digest::leaf(key, body);
        Arc::clone(self.by_leaf.entry(leaf).or_insert_with(|| Arc::new(read(key, body))))
    }
}

fn read(key: &Key, body: &Bytes) -> Reading {
    let kind: Kind = key.kind.parse().expect("the controller sends known kinds");
    let id = ResourceId { kind, name: Name::from_wire(&*key.name) };
    let loaded = config::load(id, body).expect("every envelope decodes");
    let mut reading = Reading::default();
    let mut name = |kind: Kind, name: Name| reading.names.push(Key::new(kind.as_str(), name.as_str()));
    match loaded.state {
        State::Live(Body::Fragment(fragment)) => {
            for action in fragment.actions {
                let config::Action::Forward(forward) = action.action else { continue };
                for share in forward.shares {
                    if let Share::Pool { name: pool, .. } = share {
                        reading.deadly |= pool.service == DEADLY;
                        reading.unbuilt |= pool.service == UNBUILT;
                        name(Kind::Pool, pool.to_name());
                    }
                }
            }
        }
        State::Live(Body::Host(host)) => {
            if let Some(config::HostTls::Terminate { certificates, .. }) = host.tls {
                certificates.iter().for_each(|certificate| name(Kind::Certificate, certificate.to_name()));
            }
        }
        State::Live(Body::Pool(pool)) => {
            if let MemberSource::Set(set) = pool.members {
                reading.set = Some(set.to_string().into());
            }
        }
        State::Live(_) | State::Withheld(_) => {}
        State::NotLive { message, .. } => panic!("translate made a body that scalwsd refuses: {key}: {message}"),
    }
    reading
}

/// A `scalwsd` as far as the agent sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proxy {
    starts: u64,
    journal: Option<String>,
    commit: u64,
    /// What it runs.
    pub(crate) state: BTreeMap<Key, Bytes>,
    /// Its member sets.
    pub(crate) sets: BTreeMap<Arc<str>, MemberSet>,
    not_live: Vec<NotLive>,
    /// Whether it refuses every configuration as a whole.
    pub(crate) refuses: bool,
    /// How often it died while it loaded something.
    pub(crate) deaths: u64,
}

impl Proxy {
    fn root(&self) -> Digest {
        let mut tree = Tree::default();
        for (key, body) in &self.state {
            tree.insert(key.clone(), digest::leaf(key, body));
        }
        tree.root()
    }

    /// Starts on the accepted state of the volume, without agent or controller.
    pub(crate) fn start(&mut self, volume: &Volume, readings: &mut Readings) {
        self.starts += 1;
        let replay = Replay::of(&volume.config);
        self.state = replay.resources.iter().map(|(key, stored)| (key.clone(), stored.body.clone())).collect();
        (self.journal, self.commit) = (replay.journal, replay.head.map_or(0, |head| head.commit));
        self.sets = MembersReplay::of(&volume.members).sets;
        self.judge(readings);
    }

    fn judge(&mut self, readings: &mut Readings) {
        let unbuilt = self.state.iter().filter(|(key, body)| readings.of(key, body).unbuilt);
        self.not_live = unbuilt
            .map(|(key, _)| NotLive {
                resource: key.to_string(),
                code: codes::UNSUPPORTED.to_owned(),
                message: "not built yet".to_owned(),
            })
            .collect();
    }

    /// `GET /v1/config`.
    pub(crate) fn config(&self) -> ConfigAnswer {
        ConfigAnswer {
            start: format!("start-{}", self.starts),
            version: "simulated".to_owned(),
            schema: 1,
            journal: self.journal.clone(),
            commit: self.commit,
            root: self.root(),
            not_live: self.not_live.clone(),
            listening: Vec::new(),
        }
    }

    /// The state of a commit and the resources that it puts.
    fn read(volume: &Volume, journal: &str, commit: u64) -> Option<(BTreeMap<Key, Bytes>, Vec<Key>)> {
        let replay = Replay::of(&volume.config);
        if replay.journal.as_deref() != Some(journal) {
            return None;
        }
        let mut state: BTreeMap<Key, Bytes> =
            replay.resources.into_iter().map(|(key, stored)| (key, stored.body)).collect();
        if replay.head.is_some_and(|head| head.commit == commit) {
            return Some((state, Vec::new()));
        }
        let mut puts = Vec::new();
        for change in replay.open.filter(|open| open.commit.id == commit)?.changes {
            match change.put {
                Some(put) => {
                    for secret in put.secrets.iter() {
                        assert!(volume.keys.contains_key(secret), "{} loads without its key", change.key);
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

    /// `POST /v1/reload`.
    ///
    /// # Errors
    /// `Gone` when it died on something deadly.
    pub(crate) fn reload(
        &mut self,
        volume: &Volume,
        readings: &mut Readings,
        journal: &str,
        commit: u64,
    ) -> Result<ReloadAnswer, CallError> {
        if self.refuses {
            return Err(CallError::Refused("unusable".to_owned()));
        }
        let Some((state, _)) = Proxy::read(volume, journal, commit) else {
            return Err(CallError::Refused(format!("no commit {commit}")));
        };
        if state.iter().any(|(key, body)| readings.of(key, body).deadly) {
            self.deaths += 1;
            return Err(CallError::Gone);
        }
        self.state = state;
        (self.journal, self.commit) = (Some(journal.to_owned()), commit);
        self.judge(readings);
        Ok(ReloadAnswer { root: self.root(), changed: 0, not_live: self.not_live.clone() })
    }

    /// `scalwsd check`: the puts of a commit on which it dies.
    pub(crate) fn check(volume: &Volume, readings: &mut Readings, journal: &str, commit: u64) -> Vec<Key> {
        let Some((state, puts)) = Proxy::read(volume, journal, commit) else { return Vec::new() };
        puts.into_iter().filter(|key| readings.of(key, &state[key]).deadly).collect()
    }

    /// PUT of a member set.
    pub(crate) fn put(&mut self, set: Arc<str>, members: &[Arc<str>]) -> Digest {
        let taken = MemberSet::new(&set, members.to_vec());
        let digest = taken.digest;
        self.sets.insert(set, taken);
        digest
    }

    /// PATCH of a member set.
    ///
    /// # Errors
    /// `Conflict` when the base is another.
    pub(crate) fn patch(
        &mut self,
        set: Arc<str>,
        base: Digest,
        add: &[Arc<str>],
        remove: &[Arc<str>],
    ) -> Result<Digest, CallError> {
        let has = self.sets.get(&set).map_or(digest::members(&set, []), |held| held.digest);
        match self.sets.get(&set) {
            Some(held) if held.digest == base => {
                let taken = held.changed(&set, add, remove);
                let digest = taken.digest;
                self.sets.insert(set, taken);
                Ok(digest)
            }
            _ => Err(CallError::Conflict(has)),
        }
    }
}
