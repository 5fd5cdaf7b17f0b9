//! What `up` starts: the programs, their arguments, and where their sockets stand.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tokio::process::Command;

use crate::cli::LogFormat;
use crate::state::UpFile;

use super::children::Role;
use super::log::Log;

/// The longest path of a unix socket, without the final zero byte (unix(7)).
const SOCKET_PATH_LIMIT: usize = 107;
/// How long a proxy may finish requests after it was told to stop.
const DRAIN: &str = "5s";

/// Everything that is fixed at the start.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The folder with the programs.
    pub programs: PathBuf,
    /// The folder with the manifests.
    pub manifests: PathBuf,
    /// The state directory.
    pub state: PathBuf,
    /// The runtime directory.
    pub runtime: PathBuf,
    /// The port for HTTP.
    pub http: u16,
    /// The port for HTTPS.
    pub https: u16,
    /// How many proxies.
    pub replicas: u16,
    /// Whether there are echo servers.
    pub echo: bool,
    /// Whether an empty world may be published.
    pub allow_empty: bool,
    /// Where log lines go.
    pub log: Log,
}

impl Plan {
    /// Every role, in the order in which they are started.
    pub fn roles(&self) -> Vec<Role> {
        let mut roles = vec![Role::Controller];
        for replica in 0..self.replicas {
            roles.push(Role::Proxy(replica));
            roles.push(Role::Agent(replica));
        }
        roles
    }

    /// The name of a replica's agent.
    pub fn agent_name(replica: u16) -> String {
        format!("replica-{replica}")
    }

    /// The socket of the keeper.
    pub fn keeper_socket(&self) -> PathBuf {
        self.runtime.join("keeper.sock")
    }

    /// The socket of the controller's local API.
    pub fn controller_socket(&self) -> PathBuf {
        self.runtime.join("controller.sock")
    }

    fn volume(&self, replica: u16) -> PathBuf {
        self.runtime.join(format!("r{replica}"))
    }

    fn admin_socket(&self, replica: u16) -> PathBuf {
        self.volume(replica).join("admin.sock")
    }

    /// Whether every socket's path is short enough.
    ///
    /// # Errors
    ///
    /// When the runtime directory stands too deep.
    pub fn check_sockets(&self) -> Result<()> {
        for path in [self.controller_socket(), self.admin_socket(self.replicas.saturating_sub(1))] {
            if path.as_os_str().len() > SOCKET_PATH_LIMIT {
                anyhow::bail!(
                    "the socket path {} is too long (unix(7) allows {SOCKET_PATH_LIMIT} bytes)",
                    path.display()
                );
            }
        }
        Ok(())
    }

    /// How a role is started.
    pub fn command(&self, role: Role) -> Command {
        let mut command = Command::new(self.programs.join(role.program()));
        // Its stderr is a pipe to us; colours would only be noise there (<https://no-color.org>).
        command.env("NO_COLOR", "1");
        match role {
            Role::Controller => {
                command.arg("--supervised").arg("--manifests").arg(&self.manifests);
                command.arg("--state").arg(&self.state).arg("--socket").arg(self.controller_socket());
                command.arg("--http").arg(self.http.to_string()).arg("--https").arg(self.https.to_string());
                if self.echo {
                    command.arg("--allow-loopback-endpoints");
                }
                if self.allow_empty {
                    command.arg("--allow-empty");
                }
            }
            Role::Proxy(replica) => {
                command.arg("run").arg("--supervised").arg("--volume").arg(self.volume(replica));
                command.arg("--admin").arg(self.admin_socket(replica)).arg("--keeper").arg(self.keeper_socket());
                command.arg("--drain-timeout").arg(DRAIN);
            }
            Role::Agent(replica) => {
                command.arg("--supervised").arg("--volume").arg(self.volume(replica));
                command.arg("--admin").arg(self.admin_socket(replica)).arg("--name").arg(Plan::agent_name(replica));
            }
        }
        if self.log.format() == LogFormat::Json {
            command.arg("--log").arg("json");
        }
        command
    }

    /// What other commands are told.
    pub fn up_file(&self) -> UpFile {
        UpFile {
            pid: std::process::id(),
            runtime_dir: self.runtime.clone(),
            controller_socket: self.controller_socket(),
            replicas: self.replicas,
            agents: (0..self.replicas).map(Plan::agent_name).collect(),
            http: self.http,
            https: self.https,
        }
    }
}

/// The folder with our programs: that of this executable.
///
/// # Errors
///
/// When one is missing.
pub fn find_programs() -> Result<PathBuf> {
    let this = std::env::current_exe().context("this program's own path is not known")?;
    let folder = this.parent().context("this program's own path has no folder")?.to_owned();
    for role in [Role::Controller, Role::Proxy(0), Role::Agent(0)] {
        check_program(&folder.join(role.program()))?;
    }
    Ok(folder)
}

fn check_program(path: &Path) -> Result<()> {
    if !path.is_file() {
        anyhow::bail!(
            "the program {} is missing; scalwsctl, scalws-controller, scalws-agent and scalwsd stand in one folder \
             (cargo build builds all four)",
            path.display()
        );
    }
    Ok(())
}
