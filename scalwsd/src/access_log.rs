//! The access log: one JSON object a line, written by a thread of its own so that no request waits for a disk.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use serde::Serialize;

use crate::metrics::Metrics;

/// How many lines may wait for the writer.
const QUEUE: usize = 8192;
/// The longest text of a client's that goes into a line, in characters.
const TEXT_MAX: usize = 1024;

/// Where the lines go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// Nowhere.
    Off,
    /// Standard output.
    #[default]
    Stdout,
    /// A file, appended to.
    File(PathBuf),
}

impl FromStr for Destination {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Destination, Self::Err> {
        Ok(match text {
            "off" => Destination::Off,
            "stdout" => Destination::Stdout,
            path => Destination::File(path.into()),
        })
    }
}

/// One request, as it is logged. Every text is a JSON string, so no text can end a line or start a field.
#[derive(Debug, Default, Serialize)]
pub struct Line<'a> {
    /// When it came (RFC 3339).
    pub time: String,
    /// The client's address and port.
    pub client: String,
    /// The port it came to.
    pub port: u16,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub protocol: &'a str,
    /// Whether it came over TLS.
    pub tls: bool,
    /// The method.
    pub method: &'a str,
    /// What it was addressed to; empty if that could not be told.
    pub host: &'a str,
    /// Path and query as the client wrote them, cut to 1,024 characters.
    pub target: &'a str,
    /// The answer.
    pub status: u16,
    /// Bytes of the answer's body.
    pub bytes: u64,
    /// Bytes of the request's body that were read.
    pub request_bytes: u64,
    /// From its head to the end of the answer, in milliseconds.
    pub duration_ms: f64,
    /// The id that the upstream saw.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub id: &'a str,
    /// The fragment whose route was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragment: Option<String>,
    /// The member that answered, or was tried last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// How often a member was tried; not written if it was once.
    #[serde(skip_serializing_if = "is_once")]
    pub tries: u32,
    /// Why the proxy itself answered, or what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'a str>,
    /// False if the answer did not go through whole.
    #[serde(skip_serializing_if = "is_true")]
    pub complete: bool,
    /// The client's program, cut to 1,024 characters.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub agent: &'a str,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
fn is_once(n: &u32) -> bool {
    *n <= 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
fn is_true(b: &bool) -> bool {
    *b
}

/// The beginning of a text, short enough for the log.
pub fn cut(text: &str) -> &str {
    match text.char_indices().nth(TEXT_MAX) {
        Some((at, _)) => text.get(..at).unwrap_or_default(),
        None => text,
    }
}

/// Takes lines. Clones write to the same place.
#[derive(Clone, Debug)]
pub struct AccessLog {
    queue: Option<SyncSender<Vec<u8>>>,
    metrics: Arc<Metrics>,
}

impl AccessLog {
    /// Opens the destination and starts the writer.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(destination: &Destination, metrics: Arc<Metrics>) -> io::Result<AccessLog> {
        let out: Box<dyn Write + Send> = match destination {
            Destination::Off => return Ok(AccessLog { queue: None, metrics }),
            Destination::Stdout => Box::new(io::stdout()),
            Destination::File(path) => Box::new(OpenOptions::new().create(true).append(true).open(path)?),
        };
        let (queue, lines) = sync_channel(QUEUE);
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || write_lines(&lines, out))?;
        Ok(AccessLog { queue: Some(queue), metrics })
    }

    /// Whether lines go anywhere.
    pub fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Logs a line. When the writer cannot keep up, the line is lost and counted.
    pub fn log(&self, line: &Line<'_>) {
        let Some(queue) = &self.queue else { return };
        let Ok(mut bytes) = serde_json::to_vec(line) else { return };
        bytes.push(b'\n');
        match queue.try_send(bytes) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.metrics.log_lines_lost.inc();
            }
        }
    }
}

fn write_lines(lines: &Receiver<Vec<u8>>, out: Box<dyn Write + Send>) {
    let mut out = BufWriter::with_capacity(64 * 1024, out);
    while let Ok(line) = lines.recv() {
        let mut result = out.write_all(&line);
        // Whatever waits goes out together.
        while let Ok(line) = lines.try_recv() {
            result = result.and_then(|()| out.write_all(&line));
        }
        if let Err(error) = result.and_then(|()| out.flush()) {
            tracing::error!(%error, "the access log cannot be written; it is off from now on");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_a_client_can_break_a_line_or_forge_a_field() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = AccessLog::open(&Destination::File(path.clone()), Arc::default()).unwrap();
        let evil = "x\"}\n{\"status\":200,\u{2028}\u{7f}\r\0";
        log.log(&Line { target: evil, host: evil, agent: evil, method: evil, why: Some(evil), ..Line::default() });
        log.log(&Line { status: 404, ..Line::default() });
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let text = loop {
            let text = std::fs::read_to_string(&path).unwrap();
            if text.matches('\n').count() >= 2 {
                break text;
            }
            assert!(std::time::Instant::now() < limit, "{text}");
            std::thread::yield_now();
        };
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["target"], &lines[0]["status"]), (&evil.into(), &0.into()));
        assert_eq!(lines[1]["status"], 404);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "ü".repeat(TEXT_MAX + 1);
        assert_eq!(cut(&long).chars().count(), TEXT_MAX);
        assert_eq!(cut("short"), "short");
    }
}
