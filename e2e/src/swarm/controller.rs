//! Starts and ends a real `scalws-controller` as `scalwsctl up` does: authority and tokens over its standard input.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use push::authority::{Authority, Minted, bundle_from_pem};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio::sync::watch;
use zeroize::Zeroizing;

use super::usage::{self, Cpu};
use crate::process;

/// How long a controller may take until it listens.
const START: Duration = Duration::from_secs(30);
/// How long the authority is good.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Where a controller listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// For enrolment.
    pub enroll: SocketAddr,
    /// For the push stream.
    pub push: SocketAddr,
}

/// The authority and the tokens of a swarm; it outlives the controllers.
pub struct Supervisor {
    authority: Minted,
    trust: Vec<CertificateDer<'static>>,
    tokens: Mutex<HashMap<String, usize>>,
    addresses: watch::Sender<Option<Addresses>>,
    /// To its log; it is shown when something fails.
    log: PathBuf,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("addresses", &self.addresses.borrow()).finish_non_exhaustive()
    }
}

impl Supervisor {
    /// One with a fresh authority. The logs of its controllers go to this file.
    ///
    /// # Errors
    /// When no authority can be made.
    pub fn new(log: &Path) -> Result<Arc<Supervisor>> {
        let authority = Authority::mint("swarm", SystemTime::now(), LIFETIME)?;
        let trust = bundle_from_pem(&authority.certificate_pem)?;
        let (tokens, addresses) = (Mutex::default(), watch::Sender::new(None));
        Ok(Arc::new(Supervisor { authority, trust, tokens, addresses, log: log.to_owned() }))
    }

    /// The authority, to sign with.
    ///
    /// # Errors
    /// When it cannot be read back.
    pub fn authority(&self) -> Result<Authority> {
        Ok(Authority::from_pem(&self.authority.certificate_pem, &self.authority.key_pem)?)
    }

    /// Whom the agents trust.
    pub fn trust(&self) -> &[CertificateDer<'static>] {
        &self.trust
    }

    /// Where the controller listens, once there is one.
    pub async fn addresses(&self) -> Addresses {
        let mut told = self.addresses.subscribe();
        loop {
            let now = *told.borrow_and_update();
            if let Some(addresses) = now {
                return addresses;
            }
            // The sender lives as long as this.
            let _ = told.changed().await;
        }
    }

    /// A token for an agent, good once.
    pub fn token(&self, agent: usize) -> Zeroizing<String> {
        let token = format!("token-of-agent-{agent}");
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), agent);
        Zeroizing::new(token)
    }

    fn redeem(&self, line: &Value) -> Value {
        let token = line["redeem"]["token"].as_str().unwrap_or_default();
        let agent = self.tokens.lock().unwrap_or_else(PoisonError::into_inner).remove(token).map(|number| {
            let fleet = json!({ "namespace": "scalws", "name": "default" });
            json!({ "fleet": fleet, "pod": format!("agent-{number}"), "uid": format!("uid-{number}") })
        });
        json!({ "redeemed": { "id": line["redeem"]["id"], "agent": agent } })
    }

    /// The first line that a controller is told.
    pub fn first_line(&self) -> String {
        let authority = json!({
            "ca_certificate_pem": self.authority.certificate_pem, "ca_key_pem": self.authority.key_pem.as_str(),
        });
        format!("{}\n", json!({ "authority": authority }))
    }

    /// Starts a controller over a folder of manifests and a state directory. Call it from a thread that stays: the
    /// controller ends with it. `cpu` binds the process to one processor.
    ///
    /// # Errors
    /// When it does not come to listen.
    pub fn start(self: &Arc<Supervisor>, manifests: &Path, state: &Path, cpu: Option<usize>) -> Result<Controller> {
        fs::create_dir_all(state)?;
        let mut command = Command::new(process::program("scalws-controller")?);
        command.arg("--supervised").arg("--manifests").arg(manifests).arg("--state").arg(state);
        command.arg("--socket").arg(state.join("c.sock")).args(["--http", "8080", "--https", "8443"]);
        self.start_command(command, cpu)
    }

    /// Starts a program that speaks as a controller does.
    ///
    /// # Errors
    /// When it does not come to listen.
    pub fn start_command(self: &Arc<Supervisor>, mut command: Command, cpu: Option<usize>) -> Result<Controller> {
        let log = fs::OpenOptions::new().create(true).append(true).open(&self.log)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        // What this thread starts is bound as it is.
        usage::bind_this_thread(cpu);
        let began = Instant::now();
        let child = command.spawn();
        usage::bind_this_thread(None);
        let mut child = child.with_context(|| format!("{command:?}"))?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the controller has no pipes");
        };
        stdin.write_all(self.first_line().as_bytes())?;
        let stdin = Arc::new(Mutex::new(stdin));
        let (supervisor, answers) = (Arc::clone(self), Arc::clone(&stdin));
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
                let address = |name: &str| message["listening"][name].as_str()?.parse().ok();
                if let (Some(enroll), Some(push)) = (address("enroll"), address("push")) {
                    supervisor.addresses.send_replace(Some(Addresses { enroll, push }));
                } else {
                    let answer = supervisor.redeem(&message);
                    let mut stdin = answers.lock().unwrap_or_else(PoisonError::into_inner);
                    // It may have gone since.
                    let _ = writeln!(stdin, "{answer}");
                }
            }
        });
        let mut controller = Controller { child, stdin, began, supervisor: Arc::clone(self) };
        process::until(START, "the controller listens", || {
            if let Some(status) = controller.child.try_wait()? {
                bail!("the controller ended: {status}: {}", fs::read_to_string(&self.log).unwrap_or_default());
            }
            Ok(self.addresses.borrow().is_some())
        })?;
        Ok(controller)
    }
}

/// A running controller. Dropping it kills it.
#[derive(Debug)]
pub struct Controller {
    child: Child,
    stdin: Arc<Mutex<ChildStdin>>,
    began: Instant,
    supervisor: Arc<Supervisor>,
}

impl Controller {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// When it was started.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Writes a line to its standard input.
    ///
    /// # Errors
    /// When it is gone.
    pub fn tell(&self, line: &str) -> Result<()> {
        Ok(writeln!(self.stdin.lock().unwrap_or_else(PoisonError::into_inner), "{line}")?)
    }

    /// What it has used so far.
    pub fn cpu(&self) -> Cpu {
        Cpu::of(self.pid())
    }

    /// Its memory now.
    ///
    /// # Errors
    /// When it is gone.
    pub fn memory(&self) -> Result<usage::Memory> {
        usage::memory(self.pid())
    }

    /// Kills it as the system does when there is no memory left: no word to anybody.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.supervisor.addresses.send_replace(None);
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
