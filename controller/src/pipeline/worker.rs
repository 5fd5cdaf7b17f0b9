//! The one thread that reads the source, owns the world and publishes.
//!
//! It takes in whatever has come and publishes at once. While it works, more gathers; so the window in which changes
//! are put together grows with the load and is nothing without it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use translate::objects::NO_TIME;
use translate::{Change, FleetName, Settings};

use super::translator::{Translator, subject};
use crate::hub::Hub;
use crate::identity::declared::Declared;
use crate::store::{Gates, Memory};
use crate::watch::{Batch, Source};

/// What a scan led to.
#[derive(Clone, Debug)]
pub enum Scan {
    /// This is published, and holds everything that the scan saw.
    Published(Vec<Target>),
    /// The world, or a part of it, is held, and why.
    Held(String),
}

/// What an agent of a fleet must have for everything up to a scan to be live.
#[derive(Clone, Debug)]
pub struct Target {
    /// The fleet.
    pub fleet: FleetName,
    /// Epoch and generation.
    pub version: push::Version,
    /// The member version.
    pub member_version: u64,
}

/// A view for people who look for a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debug {
    /// Which objects are in force, and what is ignored.
    World,
    /// What the fleets have published.
    Config,
}

/// What the thread is asked to do.
#[derive(Debug)]
pub enum Command {
    /// Look at the whole source, and say what that led to once it is published.
    Rescan(oneshot::Sender<Scan>),
    /// Publish everything that the source has now, and say when that is done, or why it cannot be.
    CatchUp(oneshot::Sender<Result<(), String>>),
    /// Let what is held pass.
    Confirm(oneshot::Sender<Scan>),
    /// Give a view.
    Debug(Debug, oneshot::Sender<Value>),
}

/// The thread is gone: the process is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the controller is stopping")]
pub struct Stopped;

/// How others reach the thread.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
}

impl WorkerHandle {
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Stopped> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).map_err(|_| Stopped)?;
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }

    /// Looks at the whole source and publishes what it shows.
    ///
    /// # Errors
    /// When the process is ending.
    pub async fn rescan(&self) -> Result<Scan, Stopped> {
        self.ask(Command::Rescan).await
    }

    /// Returns when everything that the source had at this moment is published. A part of the world that is held by the shrink
    /// guard does not count: of that, what was in force before stays so.
    ///
    /// # Errors
    /// When the first world is held, and why; or when the process is ending.
    pub async fn catch_up(&self) -> Result<(), String> {
        self.ask(Command::CatchUp).await.map_err(|error| error.to_string())?
    }

    /// Publishes what is held.
    ///
    /// # Errors
    /// When the process is ending.
    pub async fn confirm(&self) -> Result<Scan, Stopped> {
        self.ask(Command::Confirm).await
    }

    /// A view for people.
    ///
    /// # Errors
    /// When the process is ending.
    pub async fn debug(&self, view: Debug) -> Result<Value, Stopped> {
        self.ask(|answer| Command::Debug(view, answer)).await
    }
}

/// Somebody who waits until everything that the source has is published.
#[derive(Debug)]
enum Waiting {
    Scan(oneshot::Sender<Scan>),
    CatchUp(oneshot::Sender<Result<(), String>>),
}

/// The thread's state.
#[derive(Debug)]
pub struct Worker {
    source: Source,
    gates: Gates,
    memory: Memory,
    translator: Translator,
    hub: Arc<Hub>,
    commands: Receiver<Command>,
    wake: Arc<OwnedFd>,
    /// Who wants to know of everything that the source has now, and was not asked for yet.
    waiting: Vec<Waiting>,
    /// Who was, with the ticket that is waited for.
    asked: Vec<(u64, Waiting)>,
    began: Instant,
    published: bool,
    /// The hub was told which fleets are declared.
    declared: bool,
}

impl Worker {
    /// A worker over a source that was not looked at yet.
    ///
    /// # Errors
    /// When the kernel gives no descriptor to wake it by.
    pub fn new(
        source: impl Into<Source>,
        settings: Settings,
        memory: Memory,
        allow_empty: bool,
        hub: Arc<Hub>,
    ) -> std::io::Result<(Worker, WorkerHandle)> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (sender, commands) = mpsc::channel();
        let source = source.into();
        let worker = Worker {
            gates: Gates::new(&source.parts(), memory.recall(), allow_empty),
            source,
            memory,
            translator: Translator::new(settings),
            hub,
            commands,
            wake: Arc::clone(&wake),
            waiting: Vec::new(),
            asked: Vec::new(),
            began: Instant::now(),
            published: false,
            declared: false,
        };
        Ok((worker, WorkerHandle { commands: sender, wake }))
    }

    /// Works until every handle is gone.
    ///
    /// # Errors
    /// When the kernel refuses to wait, which only a bug explains.
    pub fn run(mut self) -> std::io::Result<()> {
        let first = self.source.begin(Instant::now());
        self.take(first);
        loop {
            self.wait()?;
            let batches = self.source.step(Instant::now())?;
            self.take(batches);
            loop {
                match self.commands.try_recv() {
                    Ok(command) => self.obey(command),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            // Removals that are under way are waited for, so that a scan does not take half of them for a list's word.
            if !self.waiting.is_empty() && !self.source.is_settling() {
                let ticket = self.ask(None);
                self.asked.extend(self.waiting.drain(..).map(|waiting| (ticket, waiting)));
            }
            for part in self.gates.due(self.now_ms()) {
                self.ask(Some(part));
            }
            self.answer();
        }
    }

    /// Asks the source for everything that it has now, and gives the ticket.
    fn ask(&mut self, part: Option<&str>) -> u64 {
        let (batch, ticket) = self.source.ask(Instant::now(), part);
        self.take(batch);
        ticket
    }

    /// Answers those for whom everything has come.
    fn answer(&mut self) {
        let seen = self.source.seen();
        for (_, waiting) in self.asked.extract_if(.., |(ticket, _)| *ticket <= seen).collect::<Vec<_>>() {
            // Whoever asked may have given up.
            match waiting {
                Waiting::Scan(answer) => drop(answer.send(self.outcome())),
                Waiting::CatchUp(answer) => drop(answer.send(match self.gates.is_open() {
                    true => Ok(()),
                    false => Err(self.gates.held().unwrap_or_else(|| "the first world is not there yet".to_owned())),
                })),
            }
        }
    }

    fn wait(&self) -> std::io::Result<()> {
        let now = Instant::now();
        let list_again = self.gates.list_again_at().map(|ms| self.began + Duration::from_millis(ms));
        let at = [self.source.wake_at(), list_again].into_iter().flatten().min();
        let timeout = at.map(|at| {
            let left = at.saturating_duration_since(now);
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
        });
        let mut fds = vec![PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)];
        fds.extend(self.source.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut count = [0; 8];
        match rustix::io::read(&self.wake, &mut count) {
            Ok(_) | Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Rescan(answer) => self.waiting.push(Waiting::Scan(answer)),
            Command::CatchUp(answer) => self.waiting.push(Waiting::CatchUp(answer)),
            Command::Confirm(answer) => {
                let passed = self.gates.confirm();
                self.publish(passed);
                let _ = answer.send(self.outcome());
            }
            Command::Debug(view, answer) => {
                let _ = answer.send(match view {
                    Debug::World => self.world(),
                    Debug::Config => self.hub.debug_config(),
                });
            }
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Takes in what the source tells, as one step.
    fn take(&mut self, batches: impl IntoIterator<Item = Batch>) {
        let now = self.now_ms();
        let mut passed = Vec::new();
        for Batch { part, observed, listed, findings } in batches {
            passed.extend(self.gates.observed(part, observed));
            passed.extend(listed.map(|listing| self.gates.listed(now, part, listing)).unwrap_or_default());
            if !findings.is_empty() {
                self.hub.files(findings);
            }
        }
        self.publish(passed);
    }

    /// Publishes what passed the gate; the first time also when that is nothing.
    fn publish(&mut self, passed: Vec<Change>) {
        self.hub.set_held(self.gates.held());
        if !self.gates.is_open() || (passed.is_empty() && self.published) {
            return;
        }
        if !self.published {
            self.published = true;
            // Before anything is published, so that a controller that dies right after it remembers.
            if let Err(error) = self.memory.note(&self.gates.objects()) {
                tracing::warn!(%error, "cannot remember how much is in force");
            }
        }
        let outcome = self.translator.apply(passed);
        self.hub.changed(&outcome.applied, &outcome.faults);
        for delta in outcome.deltas {
            self.hub.publish(delta);
        }
        let kinds = outcome.applied.iter().filter_map(subject);
        if !self.declared || kinds.into_iter().any(|object| Declared::depends_on(object.kind())) {
            self.declared = true;
            self.hub.declare(Declared::of(self.translator.world()));
        }
    }

    fn outcome(&self) -> Scan {
        match self.gates.held() {
            Some(why) => Scan::Held(why),
            None => Scan::Published(self.hub.targets()),
        }
    }

    /// What is in force, without contents: no value of a Secret ever leaves the process this way.
    fn world(&self) -> Value {
        let objects: Vec<Value> = self
            .translator
            .world()
            .iter()
            .map(|object| {
                let metadata = object.metadata();
                json!({
                    "ref": object.reference().to_string(),
                    "uid": &*metadata.uid,
                    "creationTimestamp": Some(metadata.creation_timestamp).filter(|created| *created != NO_TIME),
                    "generation": metadata.generation,
                })
            })
            .collect();
        json!({ "objects": objects, "ignored": self.source.ignored(), "held": self.gates.held() })
    }
}
