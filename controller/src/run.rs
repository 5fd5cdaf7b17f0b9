//! Starts the process: its log, then the way it was told to run.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use anyhow::{Context, bail};
use tracing_subscriber::EnvFilter;

use crate::args::{Args, LogFormat, SourceKind};
use crate::{process, replica, supervised};

/// Runs the controller until a signal, the end of its supervisor, or a fault.
pub fn run(args: &Args) -> ExitCode {
    log(args.log);
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What is logged when nobody asks for something else. The client of the API server would call each request without an answer an
/// error, several a second while there is no API server; whoever sends a request says it once.
const LOGGED: &str = "info,kube_client::client::builder=off";

/// Colours are for people who look, unless they do not want any (<https://no-color.org>).
fn is_coloured() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn log(format: LogFormat) {
    let filter = EnvFilter::try_from_env("SCALWS_LOG").unwrap_or_else(|_| EnvFilter::new(LOGGED));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(is_coloured()).with_writer(io::stderr);
    // Fails only when a caller has set up logging already, which is then used.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

fn start(args: &Args) -> anyhow::Result<()> {
    process::no_core_dumps().context("core dumps cannot be forbidden")?;
    if args.http == args.https {
        bail!("--http and --https are both {}; a proxy needs a port for each", args.http);
    }
    if let (SourceKind::Cluster, Some(folder)) = (args.source, &args.manifests) {
        bail!("--manifests {} is not read with --source cluster; give one of them", folder.display());
    }
    if args.supervised {
        return supervised::run(args);
    }
    if args.replica.authority.is_none() && args.replica.authority_secret.is_none() {
        bail!(
            "nothing proves who an agent is: give --authority DIR (`scalwsctl authority DIR` makes one) or in a cluster \
             --authority-secret NAMESPACE/NAME, or let `scalwsctl up` start the controller for a folder of manifests"
        );
    }
    replica::run(args)
}
