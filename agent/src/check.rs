//! Runs `scalwsd check` as a child to find the resources on which it dies.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use journal::Key;
use journal::check::CheckLine;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// How long one child may take. A check that hangs found nothing.
const LIMIT: Duration = Duration::from_secs(30);
/// A child names one resource; so many are started at most for one commit.
const CHILDREN: usize = 64;

/// Where `scalwsd` is and what it reads.
#[derive(Clone, Debug)]
pub struct Checker {
    /// The executable.
    pub scalwsd: PathBuf,
    /// The volume.
    pub volume: PathBuf,
}

impl Checker {
    /// The resources of a commit on which `scalwsd` dies, each found by a child of its own that leaves out those before.
    pub async fn find_deadly(&self, journal: &str, commit: u64) -> Vec<Key> {
        let mut dead: BTreeSet<Key> = BTreeSet::new();
        while dead.len() < CHILDREN {
            match tokio::time::timeout(LIMIT, self.run(journal, commit, &dead)).await {
                Ok(Ok(Some(key))) if !dead.contains(&key) => {
                    dead.insert(key);
                }
                Ok(Ok(_)) => break,
                Ok(Err(e)) => {
                    tracing::warn!(commit, "cannot run {} check: {e}", self.scalwsd.display());
                    break;
                }
                Err(_) => {
                    tracing::warn!(commit, "scalwsd check did not end within {LIMIT:?}");
                    break;
                }
            }
        }
        dead.into_iter().collect()
    }

    /// One child: the resource on which it was killed by a signal, if it was.
    async fn run(&self, journal: &str, commit: u64, skip: &BTreeSet<Key>) -> std::io::Result<Option<Key>> {
        let mut command = Command::new(&self.scalwsd);
        command.arg("check").arg("--volume").arg(&self.volume);
        command.args(["--journal", journal, "--commit", &commit.to_string()]);
        for key in skip {
            command.arg("--skip").arg(key.to_string());
        }
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn()?;
        let mut last = None;
        if let Some(stdout) = child.stdout.take() {
            let mut lines = BufReader::new(stdout).lines();
            while let Some(line) = lines.next_line().await? {
                match serde_json::from_str(&line) {
                    Ok(CheckLine::Put { kind, name }) => last = Some(Key::new(&kind, &name)),
                    Ok(CheckLine::Done { .. }) => last = None,
                    Err(_) => {}
                }
            }
        }
        let status = child.wait().await?;
        Ok(last.filter(|_| died(status)))
    }
}

/// Ended by a signal: a refusal ends with a code of its own.
fn died(status: std::process::ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal().is_some()
}

/// The `scalwsd` beside this executable.
///
/// # Errors
/// When this executable's own path is not known.
pub fn beside_this_executable() -> std::io::Result<PathBuf> {
    Ok(std::env::current_exe()?
        .parent()
        .map_or_else(|| PathBuf::from("scalwsd"), |folder: &Path| folder.join("scalwsd")))
}
