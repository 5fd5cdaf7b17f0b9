//! Loading: from the volume's journal or a file to what requests see, one swap per reload.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use config::{Kind, Name, ResourceId};
use journal::admin::{ConfigAnswer, NotLive, ReloadAnswer, ReloadRequest, codes};
use journal::members::MembersReplay;
use journal::{Digest, Follower, Head, Key};
use tokio::sync::Mutex;

use crate::build::Builder;
use crate::keys::Keys;
use crate::listeners::Listeners;
use crate::not_live::{Fault, Faults, list};
use crate::proxy::Proxy;
use crate::standalone::StandAlone;
use crate::state::{Bodies, Change, State};
use crate::watch::{self, EndsWithPanic, Watch};

/// Faults of the environment are tried again after so long, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Where the configuration comes from.
pub enum Source {
    /// The journal on a volume.
    Volume(Box<Follower>),
    /// A hand-written file.
    File(StandAlone),
}

/// Loads, and knows what is loaded. All loading goes through its one lock; whoever asks what runs needs none.
pub struct Loader {
    inner: Mutex<Inner>,
    runs: ArcSwap<Runs>,
    proxy: Arc<Proxy>,
    start: String,
    draining: AtomicBool,
}

struct Inner {
    source: Source,
    state: State,
    builder: Builder,
    listeners: Listeners,
    /// Resources of kinds that this version does not know.
    foreign: Faults,
    loaded: Loaded,
    watch: Watch,
}

#[derive(Clone, Debug, Default)]
struct Loaded {
    journal: Option<String>,
    commit: u64,
    root: Option<Digest>,
}

impl Loaded {
    fn root(&self) -> Digest {
        self.root.unwrap_or_else(|| journal::Tree::default().root())
    }
}

/// What requests see, as it is said to who asks.
#[derive(Debug, Default)]
struct Runs {
    loaded: Loaded,
    not_live: Vec<NotLive>,
    listening: Vec<String>,
}

/// The whole is unusable; what ran before runs on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct Unusable(pub Vec<String>);

impl From<String> for Unusable {
    fn from(error: String) -> Unusable {
        Unusable(vec![error])
    }
}

impl Bodies for Source {
    fn body(&self, id: &ResourceId) -> std::io::Result<Option<Bytes>> {
        match self {
            Source::Volume(follower) => follower.body(&Key::new(id.kind.as_str(), id.name.as_str())),
            Source::File(file) => file.body(id),
        }
    }
}

impl Loader {
    /// Nothing is loaded yet.
    pub fn new(source: Source, builder: Builder, listeners: Listeners, proxy: Arc<Proxy>) -> Loader {
        let inner = Inner {
            source,
            state: State::default(),
            builder,
            listeners,
            foreign: Faults::new(),
            loaded: Loaded::default(),
            watch: Watch::default(),
        };
        let start = format!("{:032x}", rand::random::<u128>());
        let runs = ArcSwap::default();
        Loader { inner: Mutex::new(inner), runs, proxy, start, draining: AtomicBool::new(false) }
    }

    /// Loads the accepted state and the member sets of a volume.
    ///
    /// # Errors
    /// When the journal cannot be read. A volume without one is empty, and no error.
    pub async fn load_volume(&self, accepted: Option<Head>, members: Option<PathBuf>) -> Result<(), Unusable> {
        let mut inner = self.inner.lock().await;
        if let Some(path) = members {
            let replay = MembersReplay::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            if let Some(corrupt) = &replay.corrupt {
                tracing::warn!(path = %path.display(), offset = corrupt.offset, why = %corrupt.why, "the rest of the members journal cannot be read");
            }
            for (name, set) in replay.sets {
                if let Err(error) = inner.builder.members.take(name, set) {
                    tracing::warn!(%error, "a member set of the volume is not used");
                }
            }
        }
        let Some(accepted) = accepted else { return Ok(()) };
        let _guard = EndsWithPanic;
        let Source::Volume(follower) = &inner.source else { return Ok(()) };
        let journal = follower.journal().map(str::to_owned);
        let keys: Vec<Key> = follower.keys().cloned().collect();
        inner.fill(&keys, &self.proxy)?;
        inner.loaded = Loaded { journal, commit: accepted.commit, root: Some(accepted.root) };
        self.publish(&mut inner).await;
        Ok(())
    }

    /// Loads up to a commit of the journal, or the file anew. Goes on to its end even when nobody waits for it any
    /// more, so that what was loaded is published too.
    ///
    /// # Errors
    /// When the whole is unusable. Nothing changed.
    pub async fn reload(self: &Arc<Self>, request: &ReloadRequest) -> Result<ReloadAnswer, Unusable> {
        let (loader, request) = (Arc::clone(self), request.clone());
        let reloading = tokio::spawn(async move { loader.reload_to_the_end(&request).await });
        // A panic ended the process; what is left is the end of the runtime.
        reloading.await.unwrap_or_else(|why| Err(why.to_string().into()))
    }

    async fn reload_to_the_end(&self, request: &ReloadRequest) -> Result<ReloadAnswer, Unusable> {
        let began = Instant::now();
        let mut inner = self.inner.lock().await;
        let _guard = EndsWithPanic;
        let result = match &inner.source {
            Source::Volume(_) => inner.reload_volume(request, &self.proxy),
            Source::File(_) => inner.reload_file(&self.proxy),
        };
        let changed = match result {
            Ok(changed) => changed,
            Err(unusable) => {
                self.proxy.metrics.reloads_refused.inc();
                tracing::error!(errors = ?unusable.0, "the configuration is unusable as a whole; the old one stays");
                return Err(unusable);
            }
        };
        self.publish(&mut inner).await;
        let not_live = inner.not_live();
        self.proxy.metrics.reloads.inc();
        self.proxy.metrics.reload_duration.observe(began.elapsed().as_secs_f64());
        tracing::debug!(changed, not_live = not_live.len(), took = ?began.elapsed(), "loaded");
        Ok(ReloadAnswer { root: inner.loaded.root(), changed, not_live })
    }

    /// What really runs. Waits for no load that is under way.
    pub fn config(&self) -> ConfigAnswer {
        let runs = self.runs.load();
        ConfigAnswer {
            start: self.start.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: config::SCHEMA_VERSION,
            journal: runs.loaded.journal.clone(),
            commit: runs.loaded.commit,
            root: runs.loaded.root(),
            not_live: runs.not_live.clone(),
            listening: runs.listening.clone(),
        }
    }

    /// One swap: what was loaded is what requests see from here on, and what is said to run.
    async fn publish(&self, inner: &mut Inner) {
        inner.publish(&self.proxy, self.is_draining()).await;
        self.tell(inner);
    }

    fn tell(&self, inner: &Inner) {
        let (loaded, not_live) = (inner.loaded.clone(), inner.not_live());
        self.runs.store(Arc::new(Runs { loaded, not_live, listening: inner.listeners.listening() }));
    }

    /// Whether it serves something accepted, and every listener in it is open or reported.
    pub fn is_ready(&self) -> bool {
        !self.is_draining() && self.runs.load().loaded.root.is_some()
    }

    /// Whether draining has begun.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Stops accepting; connections end in order.
    pub async fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        let mut inner = self.inner.lock().await;
        inner.listeners.drain().await;
        self.tell(&inner);
    }

    /// Tries again, after 1 to 30 s, what the environment kept from being live; and closes idle connections.
    pub async fn maintain(self: Arc<Self>) {
        let mut pause = RETRY.0;
        loop {
            tokio::time::sleep(pause).await;
            if self.is_draining() {
                return;
            }
            let mut inner = self.inner.lock().await;
            inner.builder.members.sweep();
            // A listener may have ended by itself.
            self.tell(&inner);
            let faulty = |inner: &Inner| inner.not_live().iter().filter(|n| codes::is_environment(&n.code)).count();
            let before = faulty(&inner);
            if before == 0 {
                pause = RETRY.0;
                continue;
            }
            let inner = &mut *inner;
            if !inner.retry() {
                pause = RETRY.1;
                continue;
            }
            self.publish(inner).await;
            pause = if faulty(inner) < before { RETRY.0 } else { (pause * 2).min(RETRY.1) };
        }
    }
}

/// What is said of a resource that only newer versions know.
const UNKNOWN_KIND: &str = "this version does not know this kind of resource";

/// Does long work; others work on meanwhile, however many threads there are and however long it takes.
fn beside_others<T>(work: impl FnOnce() -> T) -> T {
    let multi = tokio::runtime::Handle::try_current()
        .is_ok_and(|r| r.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread);
    if multi { tokio::task::block_in_place(work) } else { work() }
}

impl Inner {
    fn reload_volume(&mut self, request: &ReloadRequest, proxy: &Proxy) -> Result<usize, Unusable> {
        let (Some(journal), Some(commit)) = (&request.journal, request.commit) else {
            return Err("a reload from a volume names journal and commit".to_owned().into());
        };
        let Source::Volume(follower) = &mut self.source else { return Ok(0) };
        let staged = follower.read_to(journal, commit).map_err(|e| e.to_string())?;
        let changes: Vec<_> = staged.changes.iter().map(|c| (c.key.clone(), c.body.clone())).collect();
        let changed = changes.len();
        let loaded = Loaded { journal: Some(journal.clone()), commit, root: Some(staged.root) };
        self.load(changes, proxy)?;
        if let Source::Volume(follower) = &mut self.source {
            follower.keep(staged);
        }
        self.loaded = loaded;
        Ok(changed)
    }

    fn reload_file(&mut self, proxy: &Proxy) -> Result<usize, Unusable> {
        let Source::File(file) = &mut self.source else { return Ok(0) };
        let read = file.read().map_err(Unusable)?;
        let held = file.changes(&read);
        let changed = held.len();
        // The file is tried on a state of its own first: without an agent there is no partial load.
        let trial = Builder {
            tls: Arc::clone(&self.builder.tls),
            members: Arc::default(),
            resolver: Arc::new(crate::dns::Resolver::default()),
            keys: Keys::Memory(read.keys.clone()),
        };
        let mut state = State::default();
        // It is thrown away, whatever a panic left of it. Nothing runs that would start from the file before.
        catch_unwind(AssertUnwindSafe(|| state.apply(read.changes(), &trial, &read)))
            .map_err(|_| "a fault of this version: it panics on this file".to_owned())?
            .map_err(Unusable)?;
        if !state.faults().is_empty() {
            let errors = state.faults().iter().map(|(name, fault)| format!("{name}: {}", fault.message));
            return Err(Unusable(errors.collect()));
        }
        self.builder.keys = Keys::Memory(read.keys.clone());
        self.load(held, proxy)?;
        if let Source::File(file) = &mut self.source {
            self.loaded = Loaded { journal: None, commit: self.loaded.commit + 1, root: Some(read.root) };
            for (set, members) in file.keep(read) {
                let result = match members {
                    Some(members) => self.builder.members.put(&set, members).map(drop),
                    None => {
                        self.builder.members.drop_set(&set);
                        Ok(())
                    }
                };
                // The addresses were read before anything was loaded.
                result.map_err(|e| e.to_string())?;
            }
        }
        Ok(changed)
    }

    /// Loads what the source has into the empty state.
    fn fill(&mut self, keys: &[Key], proxy: &Proxy) -> Result<(), Unusable> {
        let Inner { source, state, builder, foreign, watch, .. } = self;
        let mut known = Vec::with_capacity(keys.len());
        for key in keys {
            match key.kind.parse::<Kind>() {
                Ok(kind) => known.push(ResourceId { kind, name: Name::from_wire(Arc::clone(&key.name)) }),
                Err(_) => drop(foreign.insert(key.to_string(), Fault::unsupported(UNKNOWN_KIND))),
            }
        }
        let watched = watch.over(watch::limit(known.len()));
        beside_others(|| state.fill(known, builder, source)).map_err(Unusable)?;
        drop(watched);
        self.count(proxy);
        Ok(())
    }

    fn count(&self, proxy: &Proxy) {
        proxy.metrics.resources.set(i64::try_from(self.state.len() + self.foreign.len()).unwrap_or(i64::MAX));
    }

    /// Loads changes into the state. Requests do not see them before [`Inner::publish`].
    fn load(&mut self, changes: Vec<(Key, Option<Bytes>)>, proxy: &Proxy) -> Result<(), Unusable> {
        let mut known = Vec::with_capacity(changes.len());
        let mut foreign: BTreeMap<String, bool> = BTreeMap::new();
        for (key, bytes) in changes {
            match key.kind.parse::<Kind>() {
                Ok(kind) => {
                    known.push(Change { id: ResourceId { kind, name: Name::from_wire(key.name) }, bytes });
                }
                Err(_) => {
                    foreign.insert(key.to_string(), bytes.is_some());
                }
            }
        }
        let Inner { source, state, builder, watch, .. } = self;
        let watched = watch.over(watch::limit(known.len()));
        beside_others(|| state.apply(known, builder, source)).map_err(Unusable)?;
        drop(watched);
        for (name, there) in foreign {
            if there {
                self.foreign.insert(name, Fault::unsupported(UNKNOWN_KIND));
            } else {
                self.foreign.remove(&name);
            }
        }
        self.count(proxy);
        Ok(())
    }

    /// Builds once more what the environment kept from being live. Says whether that worked: after a panic everything is
    /// as not live as before, and nothing of it is published. Ending the process would not help, since the next one
    /// would come to the same.
    fn retry(&mut self) -> bool {
        let Inner { source, state, builder, .. } = self;
        let faults = state.faults().clone();
        let done = catch_unwind(AssertUnwindSafe(|| state.retry(builder, source))).is_ok();
        if !done {
            tracing::error!("a fault of this version: it panics on what it tries again; it stays as it was");
            state.put_faults_back(faults);
        }
        done
    }

    async fn publish(&mut self, proxy: &Proxy, draining: bool) {
        let snapshot = Arc::new(self.state.snapshot());
        // No connection is accepted on a port that is not configured any more, and none before its port is.
        self.listeners.close_missing(&snapshot).await;
        proxy.snapshot.store(Arc::clone(&snapshot));
        if !draining {
            self.listeners.open_missing(&snapshot).await;
        }
        proxy.metrics.not_live.set(i64::try_from(self.not_live().len()).unwrap_or(i64::MAX));
    }

    fn not_live(&self) -> Vec<NotLive> {
        let listeners = self.listeners.faults();
        let mut all = list(self.state.faults().iter().chain(&self.foreign).chain(&listeners));
        all.sort();
        all
    }
}
