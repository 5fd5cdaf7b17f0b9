//! A Kubernetes API of a test's own: kube-apiserver and etcd in a network of their own, with faults, and gone with the test.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::here;
use crate::machine::not_run::not_run;
use crate::process::until;

/// Within this everything is up, or back after a fault, on a slow machine.
const UP: Duration = Duration::from_secs(60);
/// Within this all its processes are gone.
const GONE: Duration = Duration::from_secs(10);
/// The address of the API server as seen from its own network, where it is also 192.0.2.10.
const READY: &str = "https://127.0.0.1:6443/readyz";
/// The address of the store, in the same network.
const STORE: &str = "http://127.0.0.1:2379";

/// A program of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The store.
    Etcd,
    /// What everybody talks to.
    ApiServer,
}

impl Component {
    /// Its program, and the name of its log.
    pub fn name(self) -> &'static str {
        match self {
            Component::Etcd => "etcd",
            Component::ApiServer => "kube-apiserver",
        }
    }
}

/// How it is started.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Further arguments of kube-apiserver; none may contain a space.
    pub api_server: Vec<String>,
    /// How many nodes there are, with containers, the controllers of Kubernetes, a scheduler and names.
    pub nodes: u8,
}

/// kube-apiserver and etcd. Without nodes there are no controllers either: pods stay pending, a namespace that is deleted stays, and
/// service accounts are there only when the test makes them. Dropping it ends it, and so does the death of the test.
#[derive(Debug)]
pub struct ControlPlane {
    programs: PathBuf,
    state: TempDir,
    /// The first process of its namespaces, as this machine numbers it.
    pid: i32,
    /// While this is open the cluster lives.
    lifeline: Option<ChildStdin>,
}

impl ControlPlane {
    /// Starts one and waits until it is ready. None where this machine cannot, which is said with the name of what is not run.
    ///
    /// # Errors
    /// When it does not become ready, with its logs.
    pub fn start(what: &str, settings: &Settings) -> Result<Option<ControlPlane>> {
        let programs = match here::programs(settings.nodes > 0) {
            Ok(programs) => programs,
            Err(why) => {
                not_run(what, &why);
                return Ok(None);
            }
        };
        let state = tempfile::tempdir()?;
        let mut up = script("up.sh", &programs, state.path());
        let controllers = if settings.nodes > 0 { "1" } else { "0" };
        up.env("NODE", settings.nodes.to_string()).envs([("KCM", controllers), ("LIFELINE", "1")]);
        up.env("APISERVER_ARGS", settings.api_server.join(" "));
        up.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = up.spawn().context("up.sh")?;
        // Taken first: waiting for the output would close it.
        let lifeline = child.stdin.take();
        let mut plane = ControlPlane { programs, state, pid: 0, lifeline };
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("no control plane: {}\n{}", said(&output), plane.logs());
        }
        plane.pid = fs::read_to_string(plane.state.path().join("pid"))?.trim().parse().context("the first process")?;
        Ok(Some(plane))
    }

    /// A kubeconfig that may do everything. Its address is reached from the network of the control plane only.
    pub fn kubeconfig(&self) -> PathBuf {
        self.state.path().join("kubeconfig")
    }

    /// The folder with keys, certificates and kubeconfigs: `ca.crt`, `sa.pub`, `admin.kubeconfig` and others.
    pub fn keys(&self) -> PathBuf {
        self.state.path().join("pki")
    }

    /// What stands before a command that is to run in its network and become that command.
    pub fn within(&self) -> Vec<String> {
        ["nsenter", "--target", &self.pid.to_string(), "--net", "--"].map(str::to_owned).to_vec()
    }

    /// Moves this thread into its network, with all threads and processes that it starts from now on.
    ///
    /// # Errors
    /// When it is gone.
    pub fn enter(&self) -> Result<()> {
        let path = format!("/proc/{}/ns/net", self.pid);
        let file = File::open(&path).context(path)?;
        Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// `kubectl` with these arguments; gives what it wrote to stdout.
    ///
    /// # Errors
    /// When it does not exit with 0, with what it wrote to stderr.
    pub fn kubectl<S: AsRef<str>>(&self, arguments: &[S]) -> Result<String> {
        self.kubectl_reading("", arguments)
    }

    /// The same, with a text to read: `kubectl apply -f -`.
    ///
    /// # Errors
    /// As [`ControlPlane::kubectl`].
    pub fn kubectl_reading<S: AsRef<str>>(&self, text: &str, arguments: &[S]) -> Result<String> {
        let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        let mut kubectl = self.inside("kubectl");
        let child =
            kubectl.args(&arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let output = give(child, text)?;
        ensure!(output.status.success(), "kubectl {}: {}", arguments.join(" "), said(&output));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// `helm` with these arguments; gives what it wrote to stdout. Only where there are nodes.
    ///
    /// # Errors
    /// When it does not exit with 0, with what it wrote to stderr.
    pub fn helm(&self, arguments: &[&str]) -> Result<String> {
        let output = self.inside("helm").args(arguments).env("HOME", self.state.path()).output()?;
        ensure!(output.status.success(), "helm {}: {}", arguments.join(" "), said(&output));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Makes an image of a folder, with the shared libraries that this program in it needs, and gives it to every node.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn image(&self, name: &str, root: &Path, program: &str) -> Result<()> {
        let mut make = script("image.sh", &self.programs, self.state.path());
        make.envs([("WITH_LIBS", "1"), ("IMAGE_USER", "65532:65532")]);
        let output = make.arg(name).arg(root).arg(program).output()?;
        ensure!(output.status.success(), "image {name}: {}", said(&output));
        Ok(())
    }

    /// Kills a component (SIGKILL), which stays down until it is started.
    ///
    /// # Errors
    /// When the cluster is gone.
    pub fn stop(&self, component: Component) -> Result<()> {
        self.control("stop", component)
    }

    /// Starts a component that was stopped; it is not ready yet.
    ///
    /// # Errors
    /// When the cluster is gone.
    pub fn start_again(&self, component: Component) -> Result<()> {
        self.control("start", component)
    }

    /// Kills a component (SIGKILL), which comes back by itself.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&self, component: Component) -> Result<()> {
        self.control("restart", component)
    }

    /// Stops a component from doing anything (SIGSTOP); its connections stay open.
    ///
    /// # Errors
    /// When it does not run.
    pub fn hang(&self, component: Component) -> Result<()> {
        self.control("hang", component)
    }

    /// Lets a component that hangs go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self, component: Component) -> Result<()> {
        self.control("resume", component)
    }

    /// Makes the store forget all changes up to now. The API server knows them still, for as long as it runs.
    ///
    /// # Errors
    /// When it does not.
    pub fn compact(&self) -> Result<()> {
        // The key "\0": any answer says what the present revision is.
        let now = self.ask_store("range", &json!({ "key": "AA==" }))?;
        let revision = &now["header"]["revision"];
        self.ask_store("compaction", &json!({ "revision": revision, "physical": true })).map(drop)
    }

    /// Makes the store and the API server forget all changes up to now: what is asked of a version before that is answered with
    /// 410. The API server begins anew for it (SIGKILL), since what it keeps of the past in memory it drops only after minutes.
    ///
    /// # Errors
    /// When it is not ready again within a minute.
    pub fn forget(&self) -> Result<()> {
        self.compact()?;
        self.stop(Component::ApiServer)?;
        self.start_again(Component::ApiServer)?;
        self.wait_ready()
    }

    /// A request to the store, in its own words (`/v3/kv`).
    fn ask_store(&self, what: &str, body: &Value) -> Result<Value> {
        let mut ask = self.inside("curl");
        ask.args(["--silent", "--show-error", "--fail-with-body", "--max-time", "10", "--data", &body.to_string()]);
        let output = ask.arg(format!("{STORE}/v3/kv/{what}")).output()?;
        ensure!(output.status.success(), "etcd, {what}: {}", said(&output));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Whether the API server says that it is ready, which it is only with its store.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn is_ready(&self) -> Result<bool> {
        let mut ask = self.inside("curl");
        let output = ask.args(["--silent", "--fail", "--insecure", "--max-time", "2", READY]).output()?;
        Ok(output.status.success())
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// When it is not within a minute, with its logs.
    pub fn wait_ready(&self) -> Result<()> {
        until(UP, "the API server is ready", || self.is_ready()).with_context(|| self.logs())
    }

    /// The end of everything that its programs wrote.
    pub fn logs(&self) -> String {
        let mut files: Vec<_> = fs::read_dir(self.state.path().join("log")).into_iter().flatten().flatten().collect();
        files.sort_by_key(fs::DirEntry::file_name);
        let tail = |path: &Path| {
            let text = fs::read(path).unwrap_or_default();
            let lines: Vec<_> = text.split(|byte| *byte == b'\n').rev().take(20).collect();
            lines.into_iter().rev().map(|line| String::from_utf8_lossy(line) + "\n").collect::<String>()
        };
        files.iter().map(|file| format!("{}:\n{}", file.file_name().display(), tail(&file.path()))).collect()
    }

    /// Ends it; nothing of it is left.
    ///
    /// # Errors
    /// When a process of it is left.
    pub fn end(mut self) -> Result<()> {
        let first = PathBuf::from(format!("/proc/{}", self.pid));
        self.lifeline = None;
        until(GONE, "the control plane ends with the test that holds it", || Ok(!first.exists()))
    }

    fn control(&self, what: &str, component: Component) -> Result<()> {
        let mut command = script("ctl.sh", &self.programs, self.state.path());
        let output = command.args([what, component.name()]).output()?;
        ensure!(output.status.success(), "{what} {}: {}", component.name(), said(&output));
        Ok(())
    }

    /// A program in its network, with the files and processes of this machine.
    fn inside(&self, program: &str) -> Command {
        let mut command = script("enter.sh", &self.programs, self.state.path());
        // What kubectl remembers of the kinds of a server is by its address, which all have in common.
        command.env("NET_ONLY", "1").env("KUBECACHEDIR", self.state.path().join("kubectl")).arg(program);
        command
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.lifeline = None;
        // Waits for the end, so that its files can go.
        let _ = script("down.sh", &self.programs, self.state.path()).output();
    }
}

/// A script with its folder of programs and its state.
fn script(name: &str, programs: &Path, state: &Path) -> Command {
    let mut command = Command::new(here::script(name));
    command.env("BIN", programs).arg(state).stdin(Stdio::null());
    command
}

/// Gives a process a text to read and waits for its end.
fn give(mut child: Child, text: &str) -> Result<Output> {
    if let Some(mut stdin) = child.stdin.take() {
        // One that has ended already reads nothing; its status says why.
        let _ = stdin.write_all(text.as_bytes());
    }
    Ok(child.wait_with_output()?)
}

/// How a process ended and what it wrote.
fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    format!("{}\n{out}\n{err}", output.status)
}
