//! The connection to the Kubernetes API server: which one, as whom.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// How long a TCP and TLS handshake with the API server may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Which API server, and as whom.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ApiServer {
    /// The kubeconfig to use [default: the pod's service account; outside a pod $KUBECONFIG, then ~/.kube/config].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl ApiServer {
    /// A client with connections of its own. It has no timeout for answers, since a watch has none, and it asks
    /// nothing twice: whoever asks sets both.
    ///
    /// # Errors
    /// When there is no usable configuration. The API server itself is not asked.
    pub async fn client(&self) -> Result<Client> {
        let mut config = self.config().await?;
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = None;
        config.write_timeout = None;
        // Whoever asks decides when to ask again.
        config.default_retry = false;
        Client::try_from(config).context("the connection to the API server cannot be set up")
    }

    async fn config(&self) -> Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        if let Some(path) = &self.kubeconfig {
            let file = || format!("the kubeconfig {}", path.display());
            let kubeconfig = Kubeconfig::read_from(path).with_context(file)?;
            return Config::from_custom_kubeconfig(kubeconfig, &options).await.with_context(file);
        }
        // A context is meant for a kubeconfig.
        if self.context.is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            return Config::incluster().context("the pod's service account");
        }
        let config = Config::from_kubeconfig(&options).await;
        match &self.context {
            Some(context) => config.with_context(|| format!("--context {context}, of KUBECONFIG or ~/.kube/config")),
            None => config
                .context("no API server: give --kubeconfig, set KUBECONFIG, or run in a pod with a service account"),
        }
    }
}
