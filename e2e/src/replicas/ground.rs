//! What controllers need before they start: an API server, a Lease, an authority, and a join token for each agent.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ::controller::api_server::ApiServer;
use anyhow::Result;
use kube::Client;
use push::authority_folder;
use push::identity::{AgentIdentity, FleetId};
use push::join::{Claims, JoinKey};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::controller::Common;
use crate::cluster::{self, ControlPlane};

/// How long tokens and authority are good for.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// See the module. Everything ends when it is dropped.
pub struct Ground {
    /// Everything of the test's own that runs on tokio, in the control plane's network.
    pub runtime: Runtime,
    /// A client of the API server.
    pub client: Client,
    /// What the controllers have in common.
    pub common: Common,
    /// The certificate that agents trust.
    pub trust: PathBuf,
    /// A file with a join token for each agent.
    pub tokens: Vec<PathBuf>,
    /// The folder of all files.
    pub folder: TempDir,
    /// The API server and its store.
    pub plane: ControlPlane,
}

impl Ground {
    /// Prepares for so many agents. None where this machine has no API server, which is said with the name of what is not run.
    /// `times` are lease duration, renew deadline and retry period. This thread moves into the control plane's network.
    ///
    /// # Errors
    /// When a part does not come up.
    pub fn start(what: &str, agents: usize, times: [&str; 3]) -> Result<Option<Ground>> {
        let Some(plane) = ControlPlane::start(what, &cluster::Settings::default())? else { return Ok(None) };
        plane.enter()?;
        // After the move, so that its threads are there too.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let api_server = ApiServer { kubeconfig: Some(plane.kubeconfig()), context: None };
        let client = runtime.block_on(api_server.client())?;
        // As the chart does: a Lease without a holder is free at once.
        plane.kubectl(&["create", "namespace", "scalws"])?;
        let lease =
            "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: scalws-controller, namespace: scalws}}";
        plane.kubectl_reading(lease, &["apply", "--filename", "-"])?;

        let folder = tempfile::tempdir()?;
        let authority = folder.path().join("authority");
        authority_folder::make(&authority, "test", SystemTime::now(), DAY)?;
        let tokens = tokens(&authority, agents, folder.path())?;
        let trust = authority.join(authority_folder::CERTIFICATE);
        let common = Common {
            authority,
            kubeconfig: plane.kubeconfig(),
            api: "192.0.2.10:6443".parse()?,
            folder: folder.path().to_owned(),
            times: times.map(str::to_owned),
            more: Vec::new(),
        };
        Ok(Some(Ground { runtime, client, common, trust, tokens, folder, plane }))
    }
}

/// Files with a join token for each agent.
fn tokens(authority: &Path, count: usize, folder: &Path) -> Result<Vec<PathBuf>> {
    let key = JoinKey::of(&authority_folder::read(authority)?);
    let not_after = (SystemTime::UNIX_EPOCH.elapsed()? + DAY).as_secs();
    let token = |number: usize| {
        let fleet = FleetId::new("scalws", "default");
        let agent = AgentIdentity::new(fleet, &format!("agent-{number}"), &format!("uid-{number}"))?;
        let path = folder.join(format!("token-{number}"));
        fs::write(&path, key.issue(&Claims { agent, not_after })?.as_str())?;
        Ok(path)
    };
    (0..count).map(token).collect()
}
