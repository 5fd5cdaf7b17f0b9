//! A real controller whose supervisor is played by the test, so that the test decides who its agents are.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use push::authority::{Authority, bundle_from_pem};
use push::grpc::client::{self, Credentials, Link};
use scalwsctl::up::descriptor::{Addresses, Agent, Fleet, FromController, ToController, line};
use tempfile::TempDir;

use super::scene::metric;
use crate::process::{SOON, program};

/// A running controller. Dropped, it is killed.
#[derive(Debug)]
pub struct Plane {
    folder: TempDir,
    child: Child,
    addresses: Addresses,
    trust: String,
}

impl Plane {
    /// Starts it on an empty folder of manifests.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start() -> Result<Plane> {
        let folder = tempfile::tempdir_in("/dev/shm")?;
        for part in ["manifests", "state", "run"] {
            fs::create_dir(folder.path().join(part))?;
        }
        let minted = Authority::mint("test", SystemTime::now(), Duration::from_secs(3600))?;
        let mut command = Command::new(program("scalws-controller")?);
        command.args(["--supervised", "--http", "80", "--https", "443", "--allow-empty", "--allow-loopback-endpoints"]);
        command.arg("--manifests").arg(folder.path().join("manifests")).arg("--state").arg(folder.path().join("state"));
        command.arg("--socket").arg(folder.path().join("run/controller.sock"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let authority =
            ToController::Authority { ca_certificate_pem: &minted.certificate_pem, ca_key_pem: &minted.key_pem };
        stdin.write_all(&line(&authority)?)?;
        let (listening, told) = mpsc::channel();
        let stdin = Arc::new(Mutex::new(stdin));
        std::thread::spawn(move || {
            for text in stdout.lines().map_while(Result::ok) {
                match serde_json::from_str(&text) {
                    // Nobody hears it when the start was given up.
                    Ok(FromController::Listening(addresses)) => drop(listening.send(addresses)),
                    // Whoever says a name is believed: the token is the name.
                    Ok(FromController::Redeem(redeem)) => answer(&stdin, redeem.id, &redeem.token),
                    Err(_) => {}
                }
            }
        });
        match told.recv_timeout(SOON) {
            Ok(addresses) => Ok(Plane { folder, child, addresses, trust: minted.certificate_pem }),
            Err(error) => {
                let _ = child.kill();
                bail!("the controller does not listen: {error}")
            }
        }
    }

    /// Puts a manifest in place by rename.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let part = self.folder.path().join("part");
        fs::write(&part, text)?;
        Ok(fs::rename(part, self.folder.path().join("manifests").join(name))?)
    }

    /// Enrols an agent of a name of its own.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn enroll(&self, name: &str) -> Result<Credentials> {
        let trust = bundle_from_pem(&self.trust)?;
        Ok(client::enroll(&self.addresses.enroll, &trust, name.to_owned().into()).await?)
    }

    /// Opens the stream of an agent.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn connect(&self, credentials: &Credentials) -> Result<Link> {
        Ok(client::connect(&self.addresses.push, credentials).await?)
    }

    /// The socket of its local API.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("run/controller.sock")
    }

    /// Bytes that it sent to agents, of one lane or of all.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn sent(&self, lane: &str) -> Result<f64> {
        metric(&self.socket(), "scalws_controller_sent_bytes_total", lane).await
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(stdin: &Mutex<ChildStdin>, id: u64, name: &str) {
    let agent = Agent { fleet: Fleet::local(), pod: name.to_owned(), uid: format!("uid-{name}") };
    if let Ok(line) = line(&ToController::Redeemed { id, agent: Some(agent) }) {
        // A controller that is gone needs no answer.
        let _ = stdin.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line);
    }
}

/// Resident memory of a process in bytes.
///
/// # Errors
/// When there is no such process.
pub fn resident(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().next().context("no number")?.parse::<u64>()? * 1024)
}
