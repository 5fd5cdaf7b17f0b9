//! A real controller process with many agents of one process: the shipped session and client, volumes in memory.

pub mod agent;
pub mod board;
pub mod controller;
pub mod held;
pub mod metered;
pub mod naive;
pub mod usage;
pub mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use agent::Enrolled;
use board::Board;
use controller::Supervisor;
use metered::Meter;

/// Enrolments at one time: an agent's start, not a storm.
const ENROLLING: usize = 32;

/// When nothing came for so long, nothing is under way.
const QUIET: Duration = Duration::from_millis(300);

/// Agents that run until this is dropped.
#[derive(Debug)]
pub struct Swarm {
    runtime: tokio::runtime::Runtime,
    board: Arc<Board>,
    meter: Meter,
    agents: Vec<JoinHandle<()>>,
}

impl Drop for Swarm {
    fn drop(&mut self) {
        self.agents.iter().for_each(JoinHandle::abort);
    }
}

impl Swarm {
    /// An empty swarm, on one thread of its own; `cpu` binds that thread to one processor.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn new(cpu: Option<usize>) -> Result<Swarm> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("swarm")
            .on_thread_start(move || usage::bind_this_thread(cpu))
            .enable_all()
            .build()?;
        Ok(Swarm { runtime, board: Arc::default(), meter: Meter::default(), agents: Vec::new() })
    }

    /// What the agents have reached.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// The bytes of all their connections.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.agents.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    /// Adds agents until there are so many. Each enrols with a token over the enrolment listener, and then connects and
    /// comes again whenever its stream ends. Returns when all have enrolled.
    ///
    /// # Errors
    /// When one cannot enrol.
    pub fn grow(&mut self, supervisor: &Arc<Supervisor>, count: usize) -> Result<()> {
        for member in self.enrol(supervisor, count)? {
            self.agents.push(self.runtime.spawn(member.run()));
        }
        Ok(())
    }

    /// Adds agents of the naive server of [`naive`]; a serial on the board is a snapshot.
    ///
    /// # Errors
    /// When one cannot enrol.
    pub fn grow_naive(&mut self, supervisor: &Arc<Supervisor>, count: usize) -> Result<()> {
        for member in self.enrol(supervisor, count)? {
            self.agents.push(self.runtime.spawn(member.run_naive()));
        }
        Ok(())
    }

    fn enrol(&self, supervisor: &Arc<Supervisor>, count: usize) -> Result<Vec<Enrolled>> {
        let places = Arc::new(Semaphore::new(ENROLLING));
        let first = self.agents.len();
        let enrolling: Vec<_> = (first..count)
            .map(|number| {
                let (supervisor, places) = (Arc::clone(supervisor), Arc::clone(&places));
                let (board, meter) = (Arc::clone(&self.board), self.meter.clone());
                self.runtime.spawn(async move {
                    let _place = places.acquire().await?;
                    Enrolled::enrol(number, supervisor, board, meter).await
                })
            })
            .collect();
        enrolling.into_iter().map(|member| self.runtime.block_on(member).context("an agent panicked")?).collect()
    }

    /// Waits until no member set has come for a while: what was made is everywhere.
    ///
    /// # Errors
    /// When that does not come within the limit.
    pub fn drained(&self, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        let mut seen = self.board.counts().members;
        loop {
            // sleep: the pause is what is waited for.
            std::thread::sleep(QUIET);
            let now = self.board.counts().members;
            if now == seen {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("member sets still come after {limit:?}");
            }
            seen = now;
        }
    }

    /// Waits until all agents run the newest configuration that one of them was told of, with so many member sets.
    ///
    /// # Errors
    /// When that does not come within the limit.
    pub fn settled(&self, epoch: u64, sets: usize, limit: Duration) -> Result<()> {
        if self.board.wait_current(epoch, sets, self.len(), limit) {
            return Ok(());
        }
        bail!("not all of {} agents are current within {limit:?}: {}", self.len(), self.board.describe())
    }
}
