//! Traffic at a constant rate against a running `up`, without retries: what fails, when, and what the run was doing then.

mod client;
pub mod deaths;
pub mod plane;
mod report;
pub mod scene;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustls::ClientConfig;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use client::Open;
pub use client::Trusted;
pub use report::{Closed, Failed, Kind, Report, Way};

/// What is asked for, and who has to answer.
#[derive(Clone, Debug)]
pub struct Target {
    /// A port on the loopback interface.
    pub port: u16,
    /// The `Host` field and, with TLS, the name in the handshake.
    pub host: String,
    /// The path.
    pub path: String,
    /// The certificates that may be shown; none means plain HTTP.
    pub tls: Option<Trusted>,
    /// `namespace/name` of the Service whose echo server has to answer, or of several.
    pub services: Vec<String>,
}

impl Target {
    /// Plain HTTP for `/`. One of the Services has to answer.
    pub fn http(port: u16, host: &str, services: &[&str]) -> Target {
        let services = services.iter().map(|service| (*service).to_owned()).collect();
        Target { port, host: host.to_owned(), path: "/".to_owned(), tls: None, services }
    }

    /// HTTPS for `/`.
    pub fn https(port: u16, host: &str, services: &[&str], trusted: &Trusted) -> Target {
        Target { tls: Some(trusted.clone()), ..Target::http(port, host, services) }
    }
}

/// How much traffic, and where to.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Asked in turn.
    pub targets: Vec<Target>,
    /// Requests per second over all targets, whatever the answers take (an open loop). Of each two to one target, one
    /// goes over a kept connection and one over a new one.
    pub per_second: u32,
    /// Kept connections for each target, opened before the first request. With 0 every request has one of its own.
    pub kept: usize,
    /// After this a request has failed.
    pub limit: Duration,
}

impl Plan {
    /// A moderate rate, for two cores that also run everything else.
    pub fn of(targets: Vec<Target>) -> Plan {
        Plan { targets, per_second: 200, kept: 4, limit: Duration::from_secs(5) }
    }
}

/// What all requests of a run share.
#[derive(Debug)]
struct Run {
    plan: Plan,
    tls: Arc<ClientConfig>,
    began: Instant,
    doing: Mutex<Arc<str>>,
    report: Mutex<Report>,
    /// Idle kept connections of each target.
    idle: Vec<Mutex<Vec<Open>>>,
    /// Closed connections do not count any more.
    over: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Running traffic. Dropping it ends it.
#[derive(Debug)]
pub struct Traffic {
    run: Arc<Run>,
    stop: tokio::sync::watch::Sender<bool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Traffic {
    /// Opens the kept connections and begins, on a thread of its own.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(plan: Plan) -> Result<Traffic> {
        let idle = plan.targets.iter().map(|_| Mutex::default()).collect();
        let run = Arc::new(Run {
            plan,
            tls: client::tls()?,
            began: Instant::now(),
            doing: Mutex::new("nothing".into()),
            report: Mutex::default(),
            idle,
            over: AtomicBool::new(false),
        });
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = Arc::clone(&run);
        let thread = std::thread::Builder::new()
            .name("traffic".to_owned())
            .spawn(move || runtime.block_on(shared.go(stopped)))
            .context("the thread of the traffic")?;
        Ok(Traffic { run, stop, thread: Some(thread) })
    }

    /// Says what the run does from now on; failures are noted with it.
    pub fn doing(&self, what: &str) {
        *lock(&self.run.doing) = what.into();
    }

    /// When the traffic began, for who measures on its clock.
    pub fn began(&self) -> Instant {
        self.run.began
    }

    /// Time since the traffic began, the clock of the report.
    pub fn now(&self) -> Duration {
        self.run.began.elapsed()
    }

    /// How many requests were answered until now.
    pub fn answered(&self) -> usize {
        lock(&self.run.report).answered()
    }

    /// Ends it: no more requests, those under way are waited for. Gives what happened.
    ///
    /// # Errors
    /// When the traffic could not run.
    pub fn stop(mut self) -> Result<Report> {
        self.end()?;
        Ok(std::mem::take(&mut *lock(&self.run.report)))
    }

    fn end(&mut self) -> Result<()> {
        // Nobody listens when it has ended by itself.
        let _ = self.stop.send(true);
        match self.thread.take() {
            Some(thread) => thread.join().map_err(|_| anyhow!("the traffic panicked"))?,
            None => Ok(()),
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl Run {
    async fn go(self: Arc<Run>, mut stopped: tokio::sync::watch::Receiver<bool>) -> Result<()> {
        for (number, target) in self.plan.targets.iter().enumerate() {
            for _ in 0..self.plan.kept {
                let open = self.open(target, true).await.map_err(|kind| anyhow!("{}: {kind:?}", target.host))?;
                lock(&self.idle[number]).push(open);
            }
        }
        let mut tick = tokio::time::interval(Duration::from_secs(1) / self.plan.per_second.max(1));
        // What could not be sent in time is sent late, so that the rate holds.
        tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut under_way = JoinSet::new();
        let mut number = 0;
        loop {
            tokio::select! {
                biased;
                _ = stopped.changed() => break,
                _ = tick.tick() => {}
            }
            while under_way.try_join_next().is_some() {}
            let round = number / self.plan.targets.len();
            let way = if self.plan.kept > 0 && round.is_multiple_of(2) { Way::Kept } else { Way::New };
            under_way.spawn(Arc::clone(&self).one(number % self.plan.targets.len(), way));
            number += 1;
        }
        while under_way.join_next().await.is_some() {}
        self.over.store(true, Ordering::SeqCst);
        self.idle.iter().for_each(|idle| lock(idle).clear());
        Ok(())
    }

    /// One request, from the decision to send it to the whole answer.
    async fn one(self: Arc<Run>, number: usize, way: Way) {
        let target = &self.plan.targets[number];
        let (began, doing) = (self.began.elapsed(), lock(&self.doing).clone());
        let result = tokio::time::timeout(self.plan.limit, self.exchange(number, way)).await;
        let ended = self.began.elapsed();
        let mut report = lock(&self.report);
        match result.unwrap_or(Err(Kind::Timeout)) {
            Ok(()) => report.answer(way, target.tls.is_some(), ended.saturating_sub(began)),
            Err(kind) => {
                let after = lock(&self.doing).clone();
                report.failed.push(Failed { began, ended, kind, way, host: target.host.clone(), doing, after });
            }
        }
    }

    async fn exchange(self: &Arc<Run>, number: usize, way: Way) -> Result<(), Kind> {
        let target = &self.plan.targets[number];
        let idle = match way {
            Way::Kept => self.idle(number),
            Way::New => None,
        };
        let mut open = match idle {
            Some(open) => open,
            None => self.open(target, way == Way::Kept).await?,
        };
        open.ask(target).await?;
        if way == Way::Kept {
            lock(&self.idle[number]).push(open);
        }
        Ok(())
    }

    /// A kept connection that is idle and was not closed. Those that were are let go: their end is counted.
    fn idle(&self, number: usize) -> Option<Open> {
        let mut idle = lock(&self.idle[number]);
        // The oldest first, so that each is used.
        while !idle.is_empty() {
            let open = idle.remove(0);
            if !open.is_closed() {
                return Some(open);
            }
        }
        None
    }

    async fn open(self: &Arc<Run>, target: &Target, kept: bool) -> Result<Open, Kind> {
        let (open, driver) = client::open(target, &self.tls).await?;
        let (run, host) = (Arc::clone(self), target.host.clone());
        tokio::spawn(async move {
            // How it ended is told by the request on it, if there is one.
            let _ended = driver.await;
            if kept && !run.over.load(Ordering::SeqCst) {
                let doing = lock(&run.doing).clone();
                lock(&run.report).closed.push(Closed { at: run.began.elapsed(), host, doing });
            }
        });
        Ok(open)
    }
}
