//! One replica of the controller: a process whose ways to the API server and to its agents a test can cut.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Handle;

use super::relay::{Relay, Way};
use crate::process::{program, until};
use crate::traffic::scene::metric;

/// The port for enrolment at every address.
pub const ENROLL: u16 = 9443;
/// The port for the push.
pub const PUSH: u16 = 9444;
/// The port of a replica's own way to the API server.
const API: u16 = 7443;
/// How long a controller may take to end when it is asked to.
const END: Duration = Duration::from_secs(15);

/// What replicas have in common.
#[derive(Clone, Debug)]
pub struct Common {
    /// The folder with the authority.
    pub authority: PathBuf,
    /// A kubeconfig whose server is replaced by the replica's own way to it.
    pub kubeconfig: PathBuf,
    /// The API server as that names it.
    pub api: SocketAddr,
    /// The folder for everything that they write.
    pub folder: PathBuf,
    /// Lease duration, renew deadline and retry period, as arguments.
    pub times: [String; 3],
    /// Further arguments.
    pub more: Vec<String>,
}

impl Common {
    /// Writes a kubeconfig that reaches the API server over a relay at this address.
    ///
    /// # Errors
    /// When the kubeconfig names another server.
    pub fn kubeconfig_through(&self, relay: SocketAddr, to: &Path) -> Result<()> {
        let text = fs::read_to_string(&self.kubeconfig)?;
        let server = |at: SocketAddr| format!("server: \"https://{at}\"");
        ensure!(text.contains(&server(self.api)), "{} does not name {}", self.kubeconfig.display(), self.api);
        // The certificate names the server's own addresses.
        let text = text.replace(&server(self.api), &format!("{}, tls-server-name: localhost", server(relay)));
        Ok(fs::write(to, text)?)
    }
}

/// A replica. It listens on an address of its own; agents and the API server are reached over relays.
#[derive(Debug)]
pub struct Replica {
    number: u8,
    common: Common,
    child: Option<Child>,
    /// To the API server.
    pub api: Relay,
    /// From agents: enrolment and push.
    agents: [Relay; 2],
    starts: usize,
}

/// The address that agents know a replica by.
pub fn known(number: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 2, number).into()
}

/// The address that it listens on.
fn own(number: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 1, number).into()
}

impl Replica {
    /// Starts one, with its relays on this runtime.
    ///
    /// # Errors
    /// When something cannot be started.
    pub fn start(runtime: &Handle, number: u8, common: &Common) -> Result<Replica> {
        // The API server has its own port on every address.
        let to_api = SocketAddr::new(Ipv4Addr::new(127, 0, 3, number).into(), API);
        let relay =
            |port| Relay::start(runtime, SocketAddr::new(known(number), port), SocketAddr::new(own(number), port));
        let mut replica = Replica {
            number,
            common: common.clone(),
            child: None,
            api: Relay::start(runtime, to_api, common.api)?,
            agents: [relay(ENROLL)?, relay(PUSH)?],
            starts: 0,
        };
        fs::create_dir_all(replica.folder())?;
        common.kubeconfig_through(to_api, &replica.folder().join("kubeconfig"))?;
        replica.start_again()?;
        Ok(replica)
    }

    fn folder(&self) -> PathBuf {
        self.common.folder.join(format!("controller-{}", self.number))
    }

    fn socket(&self) -> PathBuf {
        self.folder().join("c.sock")
    }

    /// The file with its log lines.
    pub fn log(&self) -> PathBuf {
        self.folder().join("log")
    }

    /// Starts the process, which must not run.
    ///
    /// # Errors
    /// When there is no program.
    pub fn start_again(&mut self) -> Result<()> {
        ensure!(self.child.is_none(), "controller {} runs already", self.number);
        self.starts += 1;
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log())?;
        let [lease, deadline, retry] = &self.common.times;
        let mut command = Command::new(program("scalws-controller")?);
        command.args(["--source", "cluster", "--kubeconfig"]).arg(self.folder().join("kubeconfig"));
        command.arg("--authority").arg(&self.common.authority).arg("--state").arg(self.folder().join("state"));
        command.arg("--socket").arg(self.socket()).args([
            "--http",
            &super::HTTP.to_string(),
            "--https",
            "8443",
            "--log",
            "json",
        ]);
        command.args(["--listen", &own(self.number).to_string(), "--advertise", &known(self.number).to_string()]);
        command.args(["--enroll-port", &ENROLL.to_string(), "--push-port", &PUSH.to_string()]);
        command.args(["--lease-duration", lease, "--renew-deadline", deadline, "--retry-period", retry]);
        command.args(&self.common.more).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().with_context(|| format!("{command:?}"))?);
        Ok(())
    }

    fn pid(&self) -> Result<Pid> {
        Pid::from_raw(i32::try_from(self.process()?)?).context("no process")
    }

    /// Its process.
    ///
    /// # Errors
    /// When it does not run.
    pub fn process(&self) -> Result<u32> {
        Ok(self.child.as_ref().with_context(|| format!("controller {} does not run", self.number))?.id())
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it does not run.
    pub fn send(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.pid()?, signal)?)
    }

    /// Kills it (SIGKILL) and waits for that.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("it does not run")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Asks it to end (SIGTERM) and waits until it has, with exit code 0.
    ///
    /// # Errors
    /// When it does not, with its log.
    pub fn end(&mut self) -> Result<()> {
        self.send(Signal::TERM)?;
        let mut child = self.child.take().context("it does not run")?;
        let mut status = None;
        let ended = until(END, "the controller ends", || {
            status = child.try_wait()?;
            Ok(status.is_some())
        });
        if ended.is_err() {
            child.kill()?;
        }
        ended.with_context(|| self.said())?;
        ensure!(status.is_some_and(|status| status.success()), "it ended with {status:?}\n{}", self.said());
        Ok(())
    }

    /// Changes its way to the agents.
    pub fn set_agents(&self, way: Way) {
        self.agents.iter().for_each(|relay| relay.set(way));
    }

    /// The end of its log.
    pub fn said(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(25).collect();
        format!("controller {}:\n{}", self.number, lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }

    /// The sum of a metric over all its labels in `labels`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metric(&self, name: &str, labels: &str) -> Result<f64> {
        metric(&self.socket(), name, labels).await
    }

    /// Whether it leads in this epoch; not when it does not answer.
    pub async fn leads_in(&self, epoch: u64) -> bool {
        if self.child.is_none() {
            return false;
        }
        let (leader, own) =
            (self.metric("scalws_controller_leader", "").await, self.metric("scalws_controller_epoch", "").await);
        // Epochs of a test are small.
        leader.is_ok_and(|leader| leader == 1.0) && own.is_ok_and(|own| format!("{own}") == epoch.to_string())
    }

    /// Whether it says that it is ready to take over.
    pub async fn is_ready(&self) -> bool {
        ready(&self.socket()).await
    }
}

async fn ready(socket: &Path) -> bool {
    crate::http_client::unix_get(socket, "/readyz").await.is_ok_and(|reply| reply.status == 200)
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended, or be stopped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
