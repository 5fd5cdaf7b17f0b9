//! A controller as it runs in a pod, at a real API server: with the credentials of a service account where a pod has them, in a mount
//! namespace of its own, and without a kubeconfig.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use push::authority_folder;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::ControlPlane;
use crate::http_client::unix_get;
use crate::process::program;
use crate::traffic::scene::metric;

/// Makes the folder of the credentials, which no other process of this machine sees, and becomes the program: FOLDER PROGRAM...
const MOUNT: &str = "mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount && \
    mount --bind \"$1\" /run/secrets/kubernetes.io/serviceaccount && shift && exec \"$@\"";

/// The folder of its authority.
const AUTHORITY: &str = "authority";

/// The controller and its files. Dropping it kills it.
#[derive(Debug)]
pub struct Pod {
    runtime: Handle,
    folder: TempDir,
    child: Child,
}

impl Pod {
    /// Starts one that reaches the API server at this address, with this token and these further arguments, and with an authority in a
    /// folder unless they name a Secret. This thread has to be in the control plane's network.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(
        runtime: &Handle,
        plane: &ControlPlane,
        api: SocketAddr,
        token: &str,
        arguments: &[&str],
    ) -> Result<Pod> {
        let folder = tempfile::tempdir()?;
        let authority = folder.path().join(AUTHORITY);
        authority_folder::make(&authority, "test", SystemTime::now(), Duration::from_secs(24 * 3600))?;
        let account = folder.path().join("account");
        fs::create_dir(&account)?;
        fs::copy(plane.keys().join("ca.crt"), account.join("ca.crt"))?;
        fs::write(account.join("namespace"), "scalws")?;
        fs::write(account.join("token"), token)?;
        let log = fs::File::create(folder.path().join("log"))?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--", "sh", "-c", MOUNT, "sh"]).arg(account);
        command.arg(program("scalws-controller")?).args(["--source", "cluster", "--log", "json"]);
        if !arguments.contains(&"--authority-secret") {
            command.arg("--authority").arg(&authority);
        }
        command.arg("--state").arg(folder.path().join("state"));
        command.arg("--socket").arg(folder.path().join("c.sock")).args(["--listen", "127.0.0.1"]);
        command.args(["--lease-duration", "3s", "--renew-deadline", "2s", "--retry-period", "500ms"]);
        command.args(arguments).env_remove("KUBECONFIG").env("HOME", folder.path());
        command.env("KUBERNETES_SERVICE_HOST", api.ip().to_string());
        command.env("KUBERNETES_SERVICE_PORT", api.port().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        Ok(Pod { runtime: runtime.clone(), folder, child })
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("c.sock")
    }

    /// The certificate of its authority, PEM.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn trust(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.path().join(AUTHORITY).join(authority_folder::CERTIFICATE))?)
    }

    /// Replaces its token, as a kubelet does.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn give_token(&self, token: &str) -> Result<()> {
        let account = self.folder.path().join("account");
        fs::write(account.join("token.new"), token)?;
        Ok(fs::rename(account.join("token.new"), account.join("token"))?)
    }

    /// The status code and the text of `/readyz`.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn readyz(&self) -> Result<(u16, String)> {
        let reply = self.runtime.block_on(unix_get(&self.socket(), "/readyz"))?;
        Ok((reply.status.as_u16(), String::from_utf8_lossy(&reply.body).into_owned()))
    }

    /// Whether it is ready and has nothing to complain of.
    pub fn is_well(&self) -> bool {
        self.readyz().is_ok_and(|answer| answer == (200, "ready\n".to_owned()))
    }

    /// The names of all objects that are in force.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn world(&self) -> Result<BTreeSet<String>> {
        let reply = self.runtime.block_on(unix_get(&self.socket(), "/debug/world"))?;
        let world: Value = serde_json::from_slice(&reply.body)?;
        let objects = world["objects"].as_array().context("no objects")?;
        Ok(objects.iter().filter_map(|object| object["ref"].as_str().map(str::to_owned)).collect())
    }

    /// Its status document, or another view of its local API (`/v1/status`, `/debug/config`).
    ///
    /// # Errors
    /// When it does not answer.
    pub fn view(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&self.runtime.block_on(unix_get(&self.socket(), path))?.body)?)
    }

    /// The sum of a metric over all its labels in `labels`.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn metric(&self, name: &str, labels: &str) -> Result<f64> {
        self.runtime.block_on(metric(&self.socket(), name, labels))
    }

    /// Its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// It runs still, and nothing in it panicked.
    ///
    /// # Errors
    /// Its log, if not so.
    pub fn is_unharmed(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none() && !self.log().contains("panicked"), "{ended:?}\n{}", self.log());
        Ok(())
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
