//! The names of pods by their UIDs, for people. A certificate proves a UID only; the name comes at enrolment.
//!
//! They are kept in `STATEDIR/status/agents.jsonl`, a line for each enrolment, since a certificate outlives the controller.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::files::replace;

/// The most pods that are remembered.
const MOST: usize = 65_536;
/// Lines that say nothing any more before the file is written anew, beside as many as there are pods.
const STALE: usize = 256;

/// A line of the file.
#[derive(Debug, Deserialize, Serialize)]
struct Line {
    uid: String,
    pod: String,
}

/// The table.
#[derive(Debug)]
pub struct Names {
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    names: BTreeMap<String, String>,
    /// The other way round: a pod that was replaced under its name has another UID, and the old one is gone.
    uids: BTreeMap<String, String>,
    /// Of the file. Zero when it has to be written anew.
    lines: usize,
}

impl Known {
    fn insert(&mut self, Line { uid, pod }: Line) {
        if let Some(old) = self.uids.insert(pod.clone(), uid.clone()).filter(|old| *old != uid) {
            self.names.remove(&old);
        }
        if let Some(old) = self.names.insert(uid, pod.clone()).filter(|old| *old != pod) {
            self.uids.remove(&old);
        }
        while self.names.len() > MOST
            && let Some((_, pod)) = self.names.pop_first()
        {
            self.uids.remove(&pod);
        }
    }

    /// Brings the file up to this line, which is in the table already.
    fn write(&mut self, path: &Path, line: &Line) -> io::Result<()> {
        if self.lines > 0 && self.lines < 2 * self.names.len() + STALE {
            let encoded = encoded(line)?;
            let added = OpenOptions::new().append(true).open(path).and_then(|mut file| file.write_all(&encoded));
            if added.is_ok() {
                self.lines += 1;
                return Ok(());
            }
            // It may have left a part of a line.
            self.lines = 0;
        }
        let mut text = Vec::new();
        for (uid, pod) in &self.names {
            text.extend(encoded(&Line { uid: uid.clone(), pod: pod.clone() })?);
        }
        replace(path, &text, false)?;
        self.lines = self.names.len();
        Ok(())
    }
}

fn encoded(line: &Line) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line).map_err(io::Error::other)?;
    text.push(b'\n');
    Ok(text)
}

impl Names {
    /// Reads the table; lines that cannot be read are left out, and that is said.
    pub fn load(path: PathBuf) -> Names {
        let mut known = Known::default();
        let text = std::fs::read(&path).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(path = %path.display(), %error, "cannot read the names of agents");
            }
            Vec::new()
        });
        let mut whole = text.is_empty() || text.ends_with(b"\n");
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(line) => {
                    known.insert(line);
                    known.lines += 1;
                }
                Err(error) => {
                    whole = false;
                    tracing::warn!(path = %path.display(), %error, "cannot read the name of an agent");
                }
            }
        }
        if !whole {
            known.lines = 0;
        }
        Names { path, known: Mutex::new(known) }
    }

    /// The name of a pod; its UID if the name is not known.
    pub fn of(&self, uid: &str) -> String {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.names.get(uid).cloned().unwrap_or_else(|| uid.to_owned())
    }

    /// Learns a name.
    pub fn learn(&self, uid: &str, pod: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.names.get(uid).is_some_and(|known| known == pod) {
            return;
        }
        let line = Line { uid: uid.to_owned(), pod: pod.to_owned() };
        known.insert(Line { uid: uid.to_owned(), pod: pod.to_owned() });
        if let Err(error) = known.write(&self.path, &line) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remember the names of agents");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_there_after_a_restart_and_a_replaced_pod_forgets_its_old_uid() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status").join("agents.jsonl");
        let names = Names::load(path.clone());
        assert_eq!(names.of("u1"), "u1");
        names.learn("u1", "replica-0");
        names.learn("u2", "replica-1");
        names.learn("u3", "replica-0");
        names.learn("u2", "replica-2");
        names.learn("u4", "replica-1");
        for names in [names, Names::load(path)] {
            let all = ["u1", "u2", "u3", "u4"].map(|uid| names.of(uid));
            assert_eq!(all, ["u1", "replica-2", "replica-0", "replica-1"]);
        }
    }

    #[test]
    fn a_name_costs_a_line_and_the_file_does_not_grow_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agents.jsonl");
        let names = Names::load(path.clone());
        let length = || std::fs::metadata(&path).unwrap().len();
        names.learn("uid-00000", "pod");
        let line = length();
        for number in 1..20_000 {
            names.learn(&format!("uid-{number:05}"), "pod");
            assert!(
                length() <= line * (STALE as u64 + 2),
                "after {number} pods of one name the file is {} bytes",
                length()
            );
        }
        assert_eq!(Names::load(path).of("uid-19999"), "pod");
    }

    #[test]
    fn half_a_line_costs_itself_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agents.jsonl");
        let names = Names::load(path.clone());
        names.learn("u1", "replica-0");
        names.learn("u2", "replica-1");
        let text = std::fs::read(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let names = Names::load(path.clone());
        assert_eq!((names.of("u1"), names.of("u2")), ("replica-0".into(), "u2".into()));
        names.learn("u3", "replica-2");
        let names = Names::load(path);
        assert_eq!((names.of("u1"), names.of("u3")), ("replica-0".into(), "replica-2".into()));
    }
}
