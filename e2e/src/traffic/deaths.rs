//! When programs of an `up` died, and which requests died with them: those under way on connections that they had accepted.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{Failed, Way};
use crate::process::below;

/// How long until a client has heard of a death, and how long a dying process may take to be gone.
const HEARD: Duration = Duration::from_millis(50);
/// How often it is looked for processes that were started.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// A death, on the clock of the traffic.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    /// It was not dying yet.
    pub before: Duration,
    /// All its sockets were closed.
    pub gone: Duration,
}

impl Death {
    /// Whether a request died of it: its connection was cut, and it was sent before the process was gone, or, over a kept
    /// connection, before the client had heard that it was.
    pub fn explains(&self, failed: &Failed) -> bool {
        let late = if failed.way == Way::Kept { HEARD } else { Duration::ZERO };
        failed.is_cut() && failed.began <= self.gone + late && failed.ended + HEARD >= self.before
    }
}

/// Sees every death of a program, until it is stopped.
#[derive(Debug)]
pub struct Deaths {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<Death>>>>,
}

impl Deaths {
    /// Watches the children of a process that are this program. `began` is the beginning of the traffic.
    pub fn watch(parent: u32, program: &str, began: Instant) -> Deaths {
        let over = Arc::new(AtomicBool::new(false));
        let (stop, program, parent) = (Arc::clone(&over), program.to_owned(), parent.cast_signed());
        // Those that run now are known before anything is done to them.
        let mut alive = Vec::new();
        find(parent, &program, &mut alive, began.elapsed());
        let thread = std::thread::spawn(move || see(parent, &program, began, alive, &stop));
        Deaths { over, thread: Some(thread) }
    }

    /// Every death until now.
    ///
    /// # Errors
    /// When the processes could not be watched.
    pub fn stop(mut self) -> Result<Vec<Death>> {
        self.over.store(true, Ordering::SeqCst);
        let thread = self.thread.take();
        thread.map_or(Ok(Vec::new()), |thread| thread.join().map_err(|_| anyhow!("the watch panicked"))?)
    }
}

impl Drop for Deaths {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

/// A process that runs, or whose end is not told yet.
struct Alive {
    pid: i32,
    /// Tells of its end.
    descriptor: OwnedFd,
    /// When it was not dying yet.
    well: Duration,
}

/// `PF_EXITING` of include/linux/sched.h, among the flags of `/proc/PID/stat`.
const EXITING: u64 = 0x4;

/// Whether a process began to die. On a busy machine its sockets are closed long before its end is told.
fn is_dying(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The flags are the ninth field; the second is the name, in brackets, and may hold anything.
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse::<u64>().ok());
    flags.is_none_or(|flags| flags & EXITING != 0)
}

/// Adds those that are not known yet.
fn find(parent: i32, program: &str, alive: &mut Vec<Alive>, well: Duration) {
    for child in below(parent).iter().filter(|child| child.is(program)) {
        if !alive.iter().any(|known| known.pid == child.pid)
            && let Some(pid) = Pid::from_raw(child.pid)
            && let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty())
        {
            alive.push(Alive { pid: child.pid, descriptor, well });
        }
    }
}

fn see(parent: i32, program: &str, began: Instant, mut alive: Vec<Alive>, over: &AtomicBool) -> Result<Vec<Death>> {
    let mut deaths = Vec::new();
    // Once more after the end is asked for, so that none is missed.
    let mut last = false;
    while !last {
        last = over.load(Ordering::SeqCst);
        let looked = began.elapsed();
        find(parent, program, &mut alive, looked);
        alive.iter_mut().filter(|process| !is_dying(process.pid)).for_each(|process| process.well = looked);
        let mut polled: Vec<PollFd<'_>> =
            alive.iter().map(|process| PollFd::new(&process.descriptor, PollFlags::IN)).collect();
        poll(&mut polled, Some(&LOOK))?;
        let gone = began.elapsed();
        let mut ended = polled.iter().map(|entry| !entry.revents().is_empty()).collect::<Vec<_>>().into_iter();
        alive.retain(|process| {
            let has_ended = ended.next().unwrap_or_default();
            if has_ended {
                deaths.push(Death { before: process.well, gone });
            }
            !has_ended
        });
    }
    Ok(deaths)
}
