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

use super::translator::Translator;
use crate::hub::Hub;
use crate::store::{Gate, Memory};
use crate::watch::directory::{Batch, Directory};

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

/// The thread's state.
#[derive(Debug)]
pub struct Worker {
    directory: Directory,
    gate: Gate,
    memory: Memory,
    translator: Translator,
    hub: Arc<Hub>,
    commands: Receiver<Command>,
    wake: Arc<OwnedFd>,
    scans: Vec<oneshot::Sender<Scan>>,
    began: Instant,
    published: bool,
}

impl Worker {
    /// A worker over a folder that was not looked at yet.
    ///
    /// # Errors
    /// When the kernel gives no descriptor to wake it by.
    pub fn new(
        directory: Directory,
        settings: Settings,
        memory: Memory,
        allow_empty: bool,
        hub: Arc<Hub>,
    ) -> std::io::Result<(Worker, WorkerHandle)> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (sender, commands) = mpsc::channel();
        let worker = Worker {
            directory,
            gate: Gate::new(memory.recall(), allow_empty),
            memory,
            translator: Translator::new(settings),
            hub,
            commands,
            wake: Arc::clone(&wake),
            scans: Vec::new(),
            began: Instant::now(),
            published: false,
        };
        Ok((worker, WorkerHandle { commands: sender, wake }))
    }

    /// Works until every handle is gone.
    ///
    /// # Errors
    /// When the kernel refuses to wait, which only a bug explains.
    pub fn run(mut self) -> std::io::Result<()> {
        let first = self.directory.rescan(Instant::now());
        self.take(first);
        loop {
            self.wait()?;
            let now = Instant::now();
            let batch = self.directory.step(now);
            self.take(batch);
            loop {
                match self.commands.try_recv() {
                    Ok(command) => self.obey(command),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            let list_again = self.gate.list_again_at().is_some_and(|at| at <= self.now_ms());
            // Removals that are under way are waited for, so that a scan does not take half of them for a list's word.
            if (!self.scans.is_empty() && !self.directory.is_settling()) || list_again {
                let batch = self.directory.rescan(Instant::now());
                self.take(batch);
                for scan in std::mem::take(&mut self.scans) {
                    // Whoever asked may have given up.
                    let _ = scan.send(self.outcome());
                }
            }
        }
    }

    fn wait(&self) -> std::io::Result<()> {
        let now = Instant::now();
        let list_again = self.gate.list_again_at().map(|ms| self.began + Duration::from_millis(ms));
        let at = [self.directory.wake_at(), list_again].into_iter().flatten().min();
        let timeout = at.map(|at| {
            let left = at.saturating_duration_since(now);
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
        });
        let mut fds = vec![PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)];
        fds.extend(self.directory.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
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
            Command::Rescan(answer) => self.scans.push(answer),
            Command::Confirm(answer) => {
                let passed = self.gate.confirm();
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

    fn take(&mut self, batch: Batch) {
        let mut passed = self.gate.observed(batch.observed);
        if let Some(listing) = batch.listed {
            let now = self.now_ms();
            passed.extend(self.gate.listed(now, listing.changes, listing.objects, listing.missing));
        }
        if !batch.findings.is_empty() {
            self.hub.files(batch.findings);
        }
        self.publish(passed);
    }

    /// Publishes what passed the gate; the first time also when that is nothing.
    fn publish(&mut self, passed: Vec<Change>) {
        self.hub.set_held(self.gate.held());
        if !self.gate.is_open() || (passed.is_empty() && self.published) {
            return;
        }
        if !self.published {
            self.published = true;
            // Before anything is published, so that a controller that dies right after it remembers.
            if let Err(error) = self.memory.note(self.gate.objects()) {
                tracing::warn!(%error, "cannot remember how much is in force");
            }
        }
        let outcome = self.translator.apply(passed);
        self.hub.changed(&outcome.applied, &outcome.faults);
        for delta in outcome.deltas {
            self.hub.publish(delta);
        }
    }

    fn outcome(&self) -> Scan {
        match self.gate.held() {
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
        json!({ "objects": objects, "ignored": self.directory.ignored(), "held": self.gate.held() })
    }
}
