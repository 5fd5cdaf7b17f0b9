//! One child process: its start, its descriptor lines, its log lines, its end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use super::descriptor::LINE_LIMIT;
use super::log::Log;

/// How many lines may wait for a child that does not read.
const WAITING_LINES: usize = 64;
/// How long the last log lines of a child that has ended are waited for.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What a child is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The controller.
    Controller,
    /// The proxy of a replica.
    Proxy(u16),
    /// The agent of a replica.
    Agent(u16),
}

impl Role {
    /// The file name of its program.
    pub fn program(self) -> &'static str {
        match self {
            Role::Controller => "scalws-controller",
            Role::Proxy(_) => "scalwsd",
            Role::Agent(_) => "scalws-agent",
        }
    }

    /// What stands before its log lines.
    pub fn prefix(self) -> String {
        match self {
            Role::Controller => "controller".to_owned(),
            Role::Proxy(i) => format!("replica-{i}/scalwsd"),
            Role::Agent(i) => format!("replica-{i}/agent"),
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Role::Controller => f.write_str("controller"),
            Role::Proxy(i) => write!(f, "scalwsd of replica-{i}"),
            Role::Agent(i) => write!(f, "agent of replica-{i}"),
        }
    }
}

/// What happened to a child. `serial` tells one start of a role from the next.
pub enum ChildEvent {
    /// It wrote a descriptor line.
    Line {
        /// Who.
        role: Role,
        /// Which start.
        serial: u64,
        /// The line without its end. It may hold a token.
        line: Zeroizing<String>,
    },
    /// It has ended and is reaped.
    Ended {
        /// Who.
        role: Role,
        /// Which start.
        serial: u64,
        /// How, in words.
        how: String,
    },
}

/// A running child. Its handle does not end it; [`Child::signal`] does.
pub struct Child {
    /// Which start this is.
    pub serial: u64,
    /// Its process id.
    pub pid: i32,
    /// When it was started.
    pub since: Instant,
    // Signals go to this descriptor, never to a number that another process may have by now.
    process: OwnedFd,
    lines: mpsc::Sender<Zeroizing<Vec<u8>>>,
}

impl Child {
    /// Starts it, in a process group of its own so that Ctrl-C reaches only the supervisor.
    ///
    /// # Errors
    ///
    /// When the program cannot be started.
    pub fn spawn(
        role: Role,
        serial: u64,
        mut command: Command,
        events: mpsc::Sender<ChildEvent>,
        log: Log,
    ) -> io::Result<Child> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let (Some(pid), Some(stdin), Some(stdout), Some(stderr)) =
            (pid, child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("the child has no pipes"));
        };
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let (lines, waiting) = mpsc::channel(WAITING_LINES);
        tokio::spawn(write_lines(stdin, waiting));
        tokio::spawn(read_lines(role, serial, stdout, events.clone()));
        let errors = tokio::spawn(pass_log(role, stderr, log));
        tokio::spawn(async move {
            let how = match child.wait().await {
                Ok(status) => in_words(status),
                Err(error) => format!("lost: {error}"),
            };
            let _ = tokio::time::timeout(LAST_WORDS, errors).await;
            let _ = events.send(ChildEvent::Ended { role, serial, how }).await;
        });
        Ok(Child { serial, pid: pid.as_raw_nonzero().get(), since: Instant::now(), process, lines })
    }

    /// Sends a signal. A child that has ended already is no error.
    pub fn signal(&self, signal: Signal) {
        let _ = rustix::process::pidfd_send_signal(&self.process, signal);
    }

    /// Hands the child a line. False if it does not read.
    #[must_use]
    pub fn tell(&self, line: Zeroizing<Vec<u8>>) -> bool {
        self.lines.try_send(line).is_ok()
    }
}

async fn write_lines(mut stdin: ChildStdin, mut waiting: mpsc::Receiver<Zeroizing<Vec<u8>>>) {
    while let Some(line) = waiting.recv().await {
        if stdin.write_all(&line).await.is_err() {
            return;
        }
    }
}

async fn read_lines(role: Role, serial: u64, stdout: ChildStdout, events: mpsc::Sender<ChildEvent>) {
    let mut reader = BufReader::new(stdout);
    while let Ok(Some(line)) = next_line(&mut reader).await {
        let line = Zeroizing::new(line);
        if events.send(ChildEvent::Line { role, serial, line }).await.is_err() {
            return;
        }
    }
}

async fn pass_log(role: Role, stderr: ChildStderr, log: Log) {
    let mut reader = BufReader::new(stderr);
    while let Ok(Some(line)) = next_line(&mut reader).await {
        log.pass(role, &line);
    }
}

/// The next line without its end, cut after [`LINE_LIMIT`] bytes; `None` at the end.
async fn next_line(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(LINE_LIMIT).unwrap_or(u64::MAX);
    if (&mut *reader).take(limit).read_until(b'\n', &mut bytes).await? == 0 {
        return Ok(None);
    }
    while bytes.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
        bytes.pop();
    }
    Ok(Some(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }))
}

fn in_words(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("killed by signal {signal}"),
        (None, Some(code)) => format!("ended with code {code}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::LogFormat;

    async fn next(events: &mut mpsc::Receiver<ChildEvent>) -> ChildEvent {
        tokio::time::timeout(Duration::from_secs(10), events.recv()).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn lines_go_both_ways_and_the_end_is_told_in_words() {
        let (send, mut events) = mpsc::channel(8);
        let mut command = Command::new("sh");
        command.args(["-c", "read line; echo \"got $line\"; read wait"]);
        let child = Child::spawn(Role::Agent(1), 3, command, send, Log::new(LogFormat::Text)).unwrap();
        assert!(child.tell(Zeroizing::new(b"hello\n".to_vec())));
        let ChildEvent::Line { role: Role::Agent(1), serial: 3, line } = next(&mut events).await else {
            panic!("no line")
        };
        assert_eq!(*line, "got hello");
        child.signal(Signal::KILL);
        let ChildEvent::Ended { how, .. } = next(&mut events).await else { panic!("no end") };
        assert_eq!(how, "killed by signal 9");
    }

    #[tokio::test]
    async fn a_program_that_is_missing_is_an_error() {
        let (send, _events) = mpsc::channel(8);
        let command = Command::new("/nonexistent/program");
        assert!(Child::spawn(Role::Controller, 1, command, send, Log::new(LogFormat::Text)).is_err());
    }

    #[tokio::test]
    async fn endless_lines_are_cut() {
        let long = vec![b'x'; LINE_LIMIT + 10];
        let mut reader = BufReader::new(&long[..]);
        assert_eq!(next_line(&mut reader).await.unwrap().map(|l| l.len()), Some(LINE_LIMIT));
        assert_eq!(next_line(&mut reader).await.unwrap().map(|l| l.len()), Some(10));
        assert_eq!(next_line(&mut reader).await.unwrap(), None);
    }
}
