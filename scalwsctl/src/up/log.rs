//! The log of `up` on stderr: its own lines, and those of its children with the name of the process before them.
//!
//! A thread writes it. Whoever reads may stop (a terminal that is held, a pipe that nobody empties), and then the supervisor and,
//! behind their full pipes, all its children would stand still with it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::Duration;

use crate::cli::LogFormat;
use crate::output;

use super::children::Role;

/// So many lines wait for the reader. What comes beyond is counted and left out.
const WAITING: usize = 1024;
/// How long the end of `up` waits for the reader.
const LAST_LINES: Duration = Duration::from_secs(1);

/// What the thread writes.
enum Line {
    /// A line of stderr.
    Log(String),
    /// Text of stdout.
    Answer(String),
    /// Tells that all before it is written.
    Written(SyncSender<()>),
}

/// Lines that were left out since the last one that was written.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

static LINES: LazyLock<SyncSender<Line>> = LazyLock::new(|| {
    let (lines, waiting) = mpsc::sync_channel(WAITING);
    // Without a thread the receiver is gone, and lines are written where they come up.
    let _thread = std::thread::Builder::new().name("log".to_owned()).spawn(move || write(&waiting));
    lines
});

fn write(lines: &Receiver<Line>) {
    for line in lines {
        line.write();
        let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            output::say(&format!("{left_out} lines of this log are left out, since nobody read it"));
        }
    }
}

impl Line {
    fn write(self) {
        match self {
            Line::Log(text) => output::note(&text),
            Line::Answer(text) => output::answer(&text),
            Line::Written(done) => {
                let _ = done.try_send(());
            }
        }
    }

    /// Never waits.
    fn hand_over(self) {
        match LINES.try_send(self) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                LEFT_OUT.fetch_add(1, Ordering::Relaxed);
            }
            Err(TrySendError::Disconnected(line)) => line.write(),
        }
    }
}

/// Writes log lines in one format.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    format: LogFormat,
}

impl Log {
    /// A log in this format.
    pub fn new(format: LogFormat) -> Log {
        Log { format }
    }

    /// Which format.
    pub fn format(self) -> LogFormat {
        self.format
    }

    /// A line of `up` itself.
    pub fn say(self, text: &str) {
        match self.format {
            LogFormat::Text => Line::Log(format!("scalwsctl: {}", output::clean(text))),
            LogFormat::Json => Line::Log(json_line("scalwsctl", text)),
        }
        .hand_over();
    }

    /// Text for stdout.
    pub fn answer(self, text: String) {
        Line::Answer(text).hand_over();
    }

    /// Waits until all that was said is written, but no longer than a second.
    pub fn finish(self) {
        let (written, done) = mpsc::sync_channel(1);
        Line::Written(written).hand_over();
        let _ = done.recv_timeout(LAST_LINES);
    }

    /// A line of a child.
    pub fn pass(self, role: Role, line: &str) {
        match self.format {
            LogFormat::Text => Line::Log(format!("{}: {}", role.prefix(), output::clean(line))),
            LogFormat::Json => Line::Log(with_process(&role.prefix(), line)),
        }
        .hand_over();
    }
}

fn json_line(process: &str, text: &str) -> String {
    serde_json::json!({"process": process, "level": "INFO", "message": text}).to_string()
}

/// A JSON line of a child gets a field; anything else becomes a message.
fn with_process(process: &str, line: &str) -> String {
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(line) {
        Ok(mut fields) => {
            fields.insert("process".to_owned(), process.into());
            serde_json::Value::Object(fields).to_string()
        }
        Err(_) => json_line(process, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_json_log_is_an_object_that_names_the_process() {
        for line in [r#"{"level":"WARN","message":"m"}"#, "panicked at \"x\"", "", "[1]"] {
            let out: serde_json::Value = serde_json::from_str(&with_process("controller", line)).unwrap();
            assert_eq!(out["process"], "controller");
        }
    }
}
