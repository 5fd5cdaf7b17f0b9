//! Runs `scalwsd check` as a child to find the resources on which it dies.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use journal::Key;
use journal::check::CheckLine;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// How long a child may say nothing. Each resource has less time in it, so that it ends by itself.
const LIMIT: Duration = Duration::from_secs(30);
/// So many are started at most for one commit. Each resource that is found takes two.
const CHILDREN: usize = 128;

/// Where `scalwsd` is and what it reads.
#[derive(Clone, Debug)]
pub struct Checker {
    /// The executable.
    pub scalwsd: PathBuf,
    /// The volume.
    pub volume: PathBuf,
}

impl Checker {
    /// The resources of a commit on which `scalwsd` dies: two children in a row died on each, by their own fault. Each
    /// child leaves out those that were found before it.
    pub async fn find_deadly(&self, journal: &str, commit: u64) -> Vec<Key> {
        let mut dead: BTreeSet<Key> = BTreeSet::new();
        let mut suspect = None;
        for _ in 0..CHILDREN {
            match self.run(journal, commit, &dead).await {
                Ok(Some(key)) if dead.contains(&key) => break,
                Ok(Some(key)) if suspect.as_ref() == Some(&key) => {
                    dead.insert(key);
                    suspect = None;
                }
                Ok(Some(key)) => suspect = Some(key),
                Ok(None) => break,
                Err(e) => {
                    tracing::warn!(commit, "cannot run {} check: {e}", self.scalwsd.display());
                    break;
                }
            }
        }
        dead.into_iter().collect()
    }

    /// One child: the resource on which it died by its own fault, if it did.
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
            loop {
                let Ok(line) = tokio::time::timeout(LIMIT, lines.next_line()).await else {
                    tracing::warn!(commit, "scalwsd check says nothing for {LIMIT:?}");
                    return Ok(last);
                };
                let Some(line) = line? else { break };
                match serde_json::from_str(&line) {
                    Ok(CheckLine::Put { kind, name }) => last = Some(Key::new(&kind, &name)),
                    Ok(CheckLine::Done { .. }) => last = None,
                    Err(_) => {}
                }
            }
        }
        let status = child.wait().await?;
        Ok(last.filter(|_| !from_outside(status)))
    }
}

/// Ended by a signal that no process sends itself: for want of memory, or by a person. That proves nothing. Whatever else
/// ends a child before it said that it is done was its own doing, a panic too.
fn from_outside(status: std::process::ExitStatus) -> bool {
    use rustix::process::Signal;
    use std::os::unix::process::ExitStatusExt;
    const OUTSIDE: [Signal; 5] = [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
    status.signal().is_some_and(|signal| OUTSIDE.iter().any(|outside| outside.as_raw() == signal))
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
