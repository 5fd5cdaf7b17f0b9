//! Starts and stops the real programs: one `scalwsctl up` with all its children, driven as a user drives it.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use scalwsctl::state::UpFile;
use serde_json::Value;

/// How long anything that needs no waiting may take on a slow machine.
pub const SOON: Duration = Duration::from_secs(20);
/// The bound for the end of `up` after SIGTERM.
pub const STOP: Duration = Duration::from_secs(10);
/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Waits for a condition.
///
/// # Errors
/// When it does not hold within the limit; `what` says what was waited for.
pub fn until(limit: Duration, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + limit;
    loop {
        if holds()? {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("not within {limit:?}: {what}");
        }
        // sleep: looks again until it holds, within the limit.
        std::thread::sleep(LOOK);
    }
}

/// A program of ours, beside the folder of this test's executable (`target/<profile>/deps/`).
///
/// # Errors
/// When it has not been built.
pub fn program(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let folders = this.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    found.with_context(|| {
        format!(
            "{name} is not built beside {}; `cargo build -p scalwsctl -p controller -p agent -p scalwsd` builds it",
            this.display()
        )
    })
}

/// Runs `scalwsctl` to its end.
///
/// # Errors
/// When it cannot be started.
pub fn scalwsctl<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Output> {
    let output = Command::new(program("scalwsctl")?).args(arguments).stdin(Stdio::null()).output()?;
    Ok(output)
}

/// What a command wrote to stderr.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// How an `up` is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many proxies.
    pub replicas: u16,
    /// The port for HTTP; 0 lets the system choose.
    pub http: u16,
    /// The port for HTTPS, as above.
    pub https: u16,
    /// Further arguments.
    pub more: Vec<String>,
    /// What `SCALWS_LOG` says, which all its processes read; as in this process when it is none.
    pub log: Option<String>,
    /// A command that runs it, such as `ip netns exec NAME`; it has to become it (execve(2)).
    pub within: Vec<String>,
    /// The folder of its programs; where they were built when it is none.
    pub programs: Option<PathBuf>,
    /// Further variables of the environment, which all its processes get.
    pub variables: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            replicas: 2,
            http: 0,
            https: 0,
            more: vec!["--echo".to_owned()],
            log: None,
            within: Vec::new(),
            programs: None,
            variables: Vec::new(),
        }
    }
}

/// One process below `up`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Below {
    /// Its process id.
    pub pid: i32,
    /// Its program and arguments.
    pub command: Vec<String>,
}

impl Below {
    /// Whether it is this program.
    pub fn is(&self, program: &str) -> bool {
        self.command.first().is_some_and(|c| Path::new(c).file_name().is_some_and(|n| n == program))
    }
}

/// A running `scalwsctl up`. Dropping it kills it.
#[derive(Debug)]
pub struct Up {
    child: Child,
    state: PathBuf,
    file: UpFile,
    said: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Up {
    /// Starts it on a folder of manifests and a state directory, and waits until it has opened its ports.
    ///
    /// # Errors
    /// When it ends at once; what it said is in the error.
    pub fn start(manifests: &Path, state: &Path, options: &Options) -> Result<Up> {
        let first = match &options.programs {
            Some(folder) => folder.join("scalwsctl"),
            None => program("scalwsctl")?,
        };
        let mut words = options.within.iter().map(Into::into).chain([first.into_os_string()]);
        let mut command = Command::new(words.next().context("no program")?);
        command.args(words).arg("up").arg(manifests).arg("--state").arg(state);
        command.args(["--http", &options.http.to_string(), "--https", &options.https.to_string()]);
        command.args(["--replicas", &options.replicas.to_string()]).args(&options.more);
        command.envs(options.log.iter().map(|filter| ("SCALWS_LOG", filter)));
        command.envs(options.variables.iter().map(|(name, value)| (name, value)));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let said = Arc::new(Mutex::new(String::new()));
        let mut readers = Vec::new();
        if let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) {
            readers.push(collect(out, Arc::clone(&said)));
            readers.push(collect(err, Arc::clone(&said)));
        }
        let mut file = None;
        let started = until(SOON, "up.json is written", || {
            if let Some(status) = child.try_wait()? {
                bail!("up ended: {status}");
            }
            file = UpFile::read(state)?.filter(|f| f.pid == child.id());
            Ok(file.is_some())
        });
        match (started, file) {
            (Ok(()), Some(file)) => Ok(Up { child, state: state.to_owned(), file, said, readers }),
            (result, _) => {
                let _ = child.kill();
                let _ = child.wait();
                readers.into_iter().for_each(|r| drop(r.join()));
                let text = said.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Err(result.err().unwrap_or_else(|| anyhow::anyhow!("no up.json"))).context(text)
            }
        }
    }

    /// What `up` says about itself.
    pub fn file(&self) -> &UpFile {
        &self.file
    }

    /// Everything that it and its children wrote until now.
    pub fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// While this is held nobody reads what they write.
    pub fn unread(&self) -> MutexGuard<'_, String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `scalwsctl wait` with a limit.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn wait_output(&self, timeout: &str) -> Result<Output> {
        let state = self.state.display().to_string();
        scalwsctl(["wait", "--state", &state, "--timeout", timeout])
    }

    /// `scalwsctl wait`, which must say that everything is live.
    ///
    /// # Errors
    /// When it does not; the log of `up` is in the error.
    pub fn wait(&self) -> Result<()> {
        let output = self.wait_output("30s")?;
        if !output.status.success() {
            bail!("wait: {}: {}\n{}", output.status, stderr(&output), self.said());
        }
        Ok(())
    }

    /// `scalwsctl status -o json`.
    ///
    /// # Errors
    /// When it fails or prints no JSON.
    pub fn status(&self) -> Result<Value> {
        let output = scalwsctl(["status", "--state", &self.state.display().to_string(), "-o", "json"])?;
        if !output.status.success() {
            bail!("status: {}: {}", output.status, stderr(&output));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// The events of one object in the status, as `type reason: message`.
    ///
    /// # Errors
    /// As [`Up::status`]; when the object is not in it.
    pub fn events(&self, reference: &str) -> Result<Vec<String>> {
        events_in(&self.status()?, reference)
    }

    /// The processes that it has started.
    pub fn children(&self) -> Vec<Below> {
        below(i32::try_from(self.child.id()).unwrap_or_default())
    }

    /// The one child of a program with an argument; an empty argument means any.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(&self, program: &str, argument: &str) -> Result<Below> {
        let fits = |c: &Below| c.is(program) && (argument.is_empty() || c.command.iter().any(|a| a.contains(argument)));
        let children = self.children();
        children.iter().find(|c| fits(c)).cloned().with_context(|| format!("no {program} {argument} in {children:?}"))
    }

    /// Sends `up` itself a signal.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        send(i32::try_from(self.child.id())?, signal)
    }

    /// Waits for the end of `up` and gives its status and what it said.
    ///
    /// # Errors
    /// When it does not end within the limit.
    pub fn ended(mut self, limit: Duration) -> Result<(ExitStatus, String)> {
        let mut status = None;
        until(limit, "up ends", || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })
        .with_context(|| self.said())?;
        for reader in self.readers.drain(..) {
            // Its pipes end when the last child has ended.
            let _ = reader.join();
        }
        Ok((status.context("no status")?, self.said()))
    }

    /// SIGTERM, and a clean end within [`STOP`] with nothing left behind.
    ///
    /// # Errors
    /// When it takes longer, fails, or leaves a process or its runtime directory.
    pub fn stop(self) -> Result<()> {
        let runtime = self.file.runtime_dir.clone();
        let children = self.children();
        self.signal(Signal::TERM)?;
        let (status, said) = self.ended(STOP)?;
        if !status.success() {
            bail!("up: {status}\n{said}");
        }
        if let Some(left) = children.iter().find(|c| lives(c)) {
            bail!("{left:?} outlived up\n{said}");
        }
        if runtime.exists() {
            bail!("{} was left behind", runtime.display());
        }
        Ok(())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut from: impl Read + Send + 'static, to: Arc<Mutex<String>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            to.lock().unwrap_or_else(PoisonError::into_inner).push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
    })
}

/// Sends a signal to a process.
///
/// # Errors
/// When there is no such process.
pub fn send(pid: i32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(pid).context("no process id")?;
    rustix::process::kill_process(pid, signal).with_context(|| format!("process {pid:?}"))
}

/// Whether a process still runs (a zombie does not).
pub fn lives(process: &Below) -> bool {
    command_of(process.pid).is_some_and(|command| command == process.command)
}

/// The children of a process that are no zombies, by number.
pub fn below(parent: i32) -> Vec<Below> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let mut out: Vec<Below> = pids
        .filter(|pid| parent_of(*pid) == Some(parent))
        .filter_map(|pid| command_of(pid).map(|command| Below { pid, command }))
        .collect();
    out.sort_by_key(|b| b.pid);
    out
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The arguments of a process; none for a zombie, which has none any more.
fn command_of(pid: i32) -> Option<Vec<String>> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok().filter(|b| !b.is_empty())?;
    let words = bytes.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned());
    Some(words.filter(|w| !w.is_empty()).collect())
}

/// The events of one object in a status document, as `type reason: message`.
///
/// # Errors
/// When the object is not in it.
pub fn events_in(status: &Value, reference: &str) -> Result<Vec<String>> {
    let objects = status["objects"].as_array().context("no objects")?;
    let object = objects.iter().find(|o| o["ref"] == reference);
    let object = object.with_context(|| format!("{reference} is not in the status {status:#}"))?;
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let events = object["events"].as_array().context("no events")?;
    Ok(events.iter().map(|e| format!("{} {}: {}", text(e, "type"), text(e, "reason"), text(e, "message"))).collect())
}
