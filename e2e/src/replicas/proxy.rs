//! A real proxy with its agent, as in a pod: `scalwsd run` and `scalws-agent`, which knows several controllers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::process::program;

/// The pair. Dropping it kills both.
#[derive(Debug)]
pub struct Proxy {
    volume: TempDir,
    children: Vec<Child>,
    logs: PathBuf,
}

impl Proxy {
    /// Starts both, in `folder` with their log; the agent knows these controllers by their ports for enrolment and push, joins with this
    /// token and trusts this authority.
    ///
    /// # Errors
    /// When a program is missing.
    pub fn start(folder: &Path, controllers: &[String], ports: [u16; 2], trust: &Path, token: &str) -> Result<Proxy> {
        let volume = tempfile::tempdir_in("/dev/shm")?;
        let logs = folder.join("proxy.log");
        let join = volume.path().join("join-token");
        fs::write(&join, token)?;
        let admin = volume.path().join("admin.sock");
        let mut proxy = Proxy { volume, children: Vec::new(), logs };
        let mut scalwsd = Command::new(program("scalwsd")?);
        scalwsd.arg("run").arg("--volume").arg(proxy.volume.path()).arg("--admin").arg(&admin);
        scalwsd.args(["--access-log", "off"]);
        proxy.spawn(scalwsd)?;
        let mut agent = Command::new(program("scalws-agent")?);
        agent.arg("--volume").arg(proxy.volume.path()).arg("--admin").arg(&admin).args(["--name", "proxy"]);
        for controller in controllers {
            agent.args(["--controller", controller]);
        }
        agent.args(["--enroll-port", &ports[0].to_string(), "--push-port", &ports[1].to_string()]);
        agent.arg("--trust").arg(trust).arg("--token").arg(&join);
        proxy.spawn(agent)?;
        Ok(proxy)
    }

    fn spawn(&mut self, mut command: Command) -> Result<()> {
        let log = fs::OpenOptions::new().create(true).append(true).open(&self.logs)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.children.push(command.spawn().with_context(|| format!("{command:?}"))?);
        Ok(())
    }

    /// What both said.
    pub fn said(&self) -> String {
        let text = fs::read_to_string(&self.logs).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(15).collect();
        format!("the proxy and its agent:\n{}", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
