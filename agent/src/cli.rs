//! What people type, and the process around the driver.

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tracing_subscriber::EnvFilter;

use crate::bootstrap::{BootstrapError, Descriptor};
use crate::driver::{Driver, End, Options};
use crate::replicas::Replicas;
use crate::status::Status;
use crate::{check, hardening, link, replicas, status, volume};

/// How log lines look.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Log {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The agent beside a scalwsd: takes pushes from a ScalWS controller, applies them and says whether they took.
#[derive(Debug, Parser)]
#[command(name = "scalws-agent", version, after_help = EXAMPLES)]
struct Arguments {
    /// Ask for tokens and addresses on stdin and stdout, and end with the parent process.
    #[arg(long, conflicts_with = "controller", required_unless_present = "controller")]
    supervised: bool,
    /// A replica of the controller: an IP address, or a DNS name that stands for all its addresses. May be repeated.
    #[arg(long, value_name = "HOST", requires_all = ["trust", "token"])]
    controller: Vec<String>,
    /// The port that every replica takes enrolments on.
    #[arg(long, value_name = "PORT", default_value_t = 9443, requires = "controller", value_parser = clap::value_parser!(u16).range(1..))]
    enroll_port: u16,
    /// The port that every replica pushes on.
    #[arg(long, value_name = "PORT", default_value_t = 9444, requires = "controller", value_parser = clap::value_parser!(u16).range(1..))]
    push_port: u16,
    /// The certificates of the controllers' authority, PEM (its ca.crt). Read anew at each enrolment.
    #[arg(long, value_name = "FILE", requires = "controller")]
    trust: Option<PathBuf>,
    /// What proves this agent: the ServiceAccount token that its pod has for the audience scalws.io/agent, or what
    /// `scalwsctl join-token` printed. Read anew at each enrolment.
    #[arg(long, value_name = "FILE", requires = "controller")]
    token: Option<PathBuf>,
    /// The folder that this agent shares with its scalwsd. It must be memory-backed: it holds private keys.
    #[arg(long, value_name = "DIR")]
    volume: PathBuf,
    /// The unix socket of scalwsd's admin API.
    #[arg(long, value_name = "SOCKET")]
    admin: PathBuf,
    /// The name of this replica in log lines.
    #[arg(long, default_value = "agent")]
    name: String,
    /// Serve /healthz, /readyz and /metrics on this unix socket.
    #[arg(long, value_name = "SOCKET")]
    status_socket: Option<PathBuf>,
    /// Serve the same on this address, for probes and Prometheus. Nobody is asked who they are.
    #[arg(long, value_name = "IP:PORT")]
    metrics_listen: Option<SocketAddr>,
    /// The scalwsd executable, to find out what it died on [default: the one beside this executable].
    #[arg(long, value_name = "FILE")]
    scalwsd: Option<PathBuf>,
    /// How log lines look. What is logged is set by SCALWS_LOG.
    #[arg(long, value_enum, default_value = "text")]
    log: Log,
}

const EXAMPLES: &str = "\
Examples:
  As a child of a supervisor, which answers {\"need\":\"credentials\"} and {\"need\":\"addresses\"} on stdin:
    scalws-agent --supervised --volume /dev/shm/scalws/r0 --admin /dev/shm/scalws/r0/admin.sock --name replica-0

  With a status socket:
    scalws-agent --supervised --volume DIR --admin DIR/admin.sock --status-socket DIR/agent.sock
    curl --unix-socket DIR/agent.sock http://agent/metrics

  By itself, with a controller of two replicas; SIGTERM or Ctrl-C ends it:
    scalwsctl join-token --authority AUTHORITY --pod replica-0 > replica-0.token
    scalws-agent --controller 10.0.0.1 --controller 10.0.0.2 --enroll-port 7400 --push-port 7401
      --trust AUTHORITY/ca.crt --token replica-0.token --volume DIR --admin DIR/admin.sock";

/// The whole program.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_env("SCALWS_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // Colours are for people who look, unless they do not want any (<https://no-color.org>).
    let coloured = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(coloured).with_writer(io::stderr);
    match arguments.log {
        Log::Text => log.init(),
        Log::Json => log.json().init(),
    }
    match run(&arguments) {
        Ok(code) => code,
        Err(e) => {
            tracing::error!("{e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    hardening::seal().context("cannot forbid core dumps")?;
    if arguments.supervised {
        hardening::die_with_parent().context("cannot ask to end with the parent process")?;
    }
    let folder = &arguments.volume;
    let look = || format!("the volume {} cannot be used; it has to be a folder on tmpfs", folder.display());
    if !volume::is_in_memory(folder).with_context(look)? {
        bail!("the volume {} is not memory-backed (tmpfs or ramfs), and it holds private keys", folder.display());
    }
    let scalwsd = match &arguments.scalwsd {
        Some(path) => path.clone(),
        None => {
            check::beside_this_executable().context("cannot find the scalwsd executable; name it with --scalwsd")?
        }
    };
    let options = Options { volume: folder.clone(), admin: arguments.admin.clone(), scalwsd };
    // One thread: every hop of an apply stays on one core.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let end = runtime.block_on(serve(arguments, &options))?;
    // The reader of stdin has a thread of its own that cannot be woken.
    runtime.shutdown_background();
    match end {
        Some(End::ForgetEpoch) => {
            tracing::error!(
                "the controller does not believe the epoch on this volume: starting again with what the volume holds, of no epoch"
            );
            volume::forget_epoch(folder).context("cannot write the volume anew")?;
            Ok(ExitCode::FAILURE)
        }
        Some(End::Restart(why)) => bail!("{why}"),
        None => Ok(ExitCode::SUCCESS),
    }
}

async fn serve(arguments: &Arguments, options: &Options) -> anyhow::Result<Option<End>> {
    let name = arguments.name.as_str();
    tracing::info!(name, volume = %options.volume.display(), "starting");
    let figures = Arc::new(Status::default());
    if let Some(socket) = &arguments.status_socket {
        status::serve(socket, figures.clone())
            .with_context(|| format!("cannot serve the status on {}", socket.display()))?;
    }
    if let Some(address) = arguments.metrics_listen {
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("--metrics-listen {address}: cannot listen there"))?;
        tracing::info!(address = %listener.local_addr()?, "serving health and metrics");
        status::serve_on(listener, figures.clone());
    }
    let driver = Driver::start(options, Arc::clone(&figures))
        .with_context(|| format!("cannot open the volume {}", options.volume.display()))?;
    let (hand_over, opened) = mpsc::channel(1);
    match arguments.replicas() {
        Some(options) => {
            let replicas = Replicas::new(options);
            replicas.check().await.context("cannot join")?;
            until_ended(driver, opened, link::keep(replicas, hand_over, figures), asked_to_end()?).await
        }
        None => {
            let (descriptor, stdin_end) = Descriptor::new();
            let gone = async move {
                // An error is a reader that broke: the input is gone either way.
                let _ = stdin_end.await;
                "the supervisor is gone"
            };
            until_ended(driver, opened, link::keep(descriptor, hand_over, figures), gone).await
        }
    }
}

/// Runs driver and link until one of them ends, or there is a reason to.
async fn until_ended(
    driver: Driver,
    opened: mpsc::Receiver<link::Opened>,
    link: impl Future<Output = Result<(), BootstrapError>>,
    reason: impl Future<Output = &'static str>,
) -> anyhow::Result<Option<End>> {
    tokio::select! {
        end = driver.run(opened) => Ok(Some(end)),
        reason = reason => {
            tracing::info!(reason, "stopping");
            Ok(None)
        }
        kept = link => {
            kept.context("no more streams")?;
            Ok(None)
        }
    }
}

/// Waits for SIGTERM or SIGINT.
fn asked_to_end() -> anyhow::Result<impl Future<Output = &'static str>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "asked to stop",
            _ = interrupt.recv() => "interrupted",
        }
    })
}

impl Arguments {
    /// The replicas that were named; none under a supervisor. The command line has either or is refused.
    fn replicas(&self) -> Option<replicas::Options> {
        Some(replicas::Options {
            hosts: Some(self.controller.clone()).filter(|hosts| !hosts.is_empty())?,
            enroll_port: self.enroll_port,
            push_port: self.push_port,
            trust: self.trust.clone()?,
            token: self.token.clone()?,
        })
    }
}
