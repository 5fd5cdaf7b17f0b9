//! What a dead child leaves behind is ours: it is ended and reaped. A process of its own, since it becomes a parent.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use scalwsctl::up::orphans;

/// The state and the parent of a process (proc_pid_stat(5)): nothing when it is not there.
fn state_and_parent(pid: u32) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "not within 20 s: {what}");
        // sleep: looks again until it holds, within the limit.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A child that ends at once, and a process that it started and that outlives it: one that goes on, or ends as well.
fn orphan(command: &str) -> u32 {
    let script = format!("{command} & echo $!");
    let mut child = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.wait().unwrap();
    line.trim().parse().unwrap()
}

#[test]
fn orphans_become_ours_and_are_reaped_and_ended() {
    orphans::adopt().unwrap();
    let me = std::process::id();
    // One that ended is reaped, unless somebody else waits for it.
    let ended = orphan("true");
    until("the ended orphan is ours", || state_and_parent(ended) == Some(("Z".to_owned(), me)));
    orphans::reap(&BTreeSet::from([i32::try_from(ended).unwrap()]));
    assert!(state_and_parent(ended).is_some(), "somebody else waits for it");
    orphans::reap(&BTreeSet::new());
    assert_eq!(state_and_parent(ended), None);
    // Those that go on, with what they started themselves, are ended.
    let parent = orphan("sh -c 'sleep 600 >/dev/null & sleep 600 >/dev/null' >/dev/null");
    until("the orphan is ours", || state_and_parent(parent).is_some_and(|(_, parent)| parent == me));
    let children = format!("/proc/{parent}/task/{parent}/children");
    let below = || std::fs::read_to_string(&children).unwrap_or_default();
    until("the orphan has started two processes", || below().split_whitespace().count() == 2);
    let all: Vec<u32> = below().split_whitespace().map(|pid| pid.parse().unwrap()).chain([parent]).collect();
    orphans::reap(&BTreeSet::new());
    assert!(state_and_parent(parent).is_some(), "what goes on is not ended before the end");
    orphans::end_all();
    for pid in all {
        assert_eq!(state_and_parent(pid), None, "{pid} is left");
    }
}
