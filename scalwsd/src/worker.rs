//! The process that proxies: puts the parts together, serves until it is told to end, and ends in order.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use journal::admin::ReloadRequest;
use journal::{CONFIG_FILE, Follower, KEYS_FOLDER, MEMBERS_FILE};
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::access_log::{AccessLog, Destination};
use crate::admin::{self, Admin};
use crate::build::Builder;
use crate::cli::{Common, Run};
use crate::dns::{AddressRules, Resolver};
use crate::keys::Keys;
use crate::listeners::{Listeners, Sockets};
use crate::loader::{Loader, Source};
use crate::members::Members;
use crate::metrics::Metrics;
use crate::process;
use crate::proxy::Proxy;
use crate::standalone::StandAlone;
use crate::tls::Tls;

/// A proxy whose parts are put together.
pub struct Worker {
    /// What connections share.
    pub proxy: Arc<Proxy>,
    /// Loads.
    pub loader: Arc<Loader>,
    /// Member sets.
    pub members: Arc<Members>,
}

impl Worker {
    /// Puts the parts together.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn new(
        source: Source,
        keys: Keys,
        sockets: Sockets,
        rules: AddressRules,
        metrics: Arc<Metrics>,
        log: AccessLog,
    ) -> anyhow::Result<Worker> {
        let members = Arc::new(Members::default());
        let proxy = Proxy::new(metrics, log);
        let builder = Builder {
            tls: Arc::new(Tls::new().context("no randomness for TLS")?),
            members: Arc::clone(&members),
            resolver: Arc::new(Resolver::new(rules)),
            keys,
        };
        let listeners = Listeners::new(Arc::clone(&proxy), sockets);
        let loader = Arc::new(Loader::new(source, builder, listeners, Arc::clone(&proxy)));
        Ok(Worker { proxy, loader, members })
    }

    /// The admin API of this proxy.
    pub fn admin(&self) -> Admin {
        Admin { loader: Arc::clone(&self.loader), members: Arc::clone(&self.members), proxy: Arc::clone(&self.proxy) }
    }

    /// Stops accepting and waits for what is open, at most so long. Says whether everything ended by itself.
    pub async fn drain(&self, limit: Duration) -> bool {
        let drained = async {
            // A load under way is waited for, as long as there is time.
            self.loader.drain().await;
            self.proxy.all_closed().await;
        };
        tokio::time::timeout(limit, drained).await.is_ok()
    }
}

/// `scalwsd run` with a keeper outside, and the worker of one without.
///
/// # Errors
/// When it cannot start.
pub async fn run(options: &Run) -> anyhow::Result<()> {
    let common = &options.common;
    let default = if options.supervised { Destination::Off } else { Destination::Stdout };
    let (metrics, log) = observe(common, default)?;
    let keeper = options.keeper.as_deref().context("a worker needs --keeper")?;
    let sockets = Sockets::Keeper(keeper::client::Client::connect(keeper).await?);
    let journal = options.volume.join(CONFIG_FILE);
    let (follower, accepted) = Follower::open(&journal).with_context(|| journal.display().to_string())?;
    let keys = Keys::Folder(options.volume.join(KEYS_FOLDER));
    let rules = AddressRules::of_this_machine(common.allow_loopback);
    let worker = Worker::new(Source::Volume(Box::new(follower)), keys, sockets, rules, metrics, log)?;
    let admin = common.admin.clone().unwrap_or_else(|| options.volume.join("admin.sock"));
    // Before anything is accepted: a process that cannot start must not take connections from one that can.
    let admin = open_admin(Some(&admin))?;
    // An accepted state that does not load is a bug of somebody's; the agent finds out and sends another one.
    if let Err(error) = worker.loader.load_volume(accepted, Some(options.volume.join(MEMBERS_FILE))).await {
        tracing::error!(%error, "the accepted state of the volume cannot be loaded");
    }
    serve(&worker, admin, common.drain_timeout, options.supervised, None).await
}

/// `scalwsd --config FILE`.
///
/// # Errors
/// When it cannot start, or the file is unusable.
pub async fn stand_alone(file: &Path, common: &Common) -> anyhow::Result<()> {
    // Before anything is served: whoever sees it serve may ask for a reload.
    let hangup = signal(SignalKind::hangup())?;
    let (metrics, log) = observe(common, Destination::Stdout)?;
    let source = Source::File(StandAlone::new(file));
    let keys = Keys::Memory(Default::default());
    let rules = AddressRules::of_this_machine(common.allow_loopback);
    let worker = Worker::new(source, keys, Sockets::Own, rules, metrics, log)?;
    let admin = open_admin(common.admin.as_deref())?;
    let answer = worker.loader.reload(&ReloadRequest::default()).await?;
    for fault in answer.not_live {
        tracing::warn!(resource = %fault.resource, code = %fault.code, "{}", fault.message);
    }
    serve(&worker, admin, common.drain_timeout, false, Some(hangup)).await
}

fn observe(common: &Common, default: Destination) -> anyhow::Result<(Arc<Metrics>, AccessLog)> {
    let metrics = Arc::new(Metrics::new());
    let destination = common.access_log.clone().unwrap_or(default);
    let log = AccessLog::open(&destination, Arc::clone(&metrics))
        .with_context(|| format!("the access log cannot be written to {destination:?}"))?;
    Ok((metrics, log))
}

fn open_admin(path: Option<&Path>) -> anyhow::Result<Option<(PathBuf, UnixListener)>> {
    let Some(path) = path else { return Ok(None) };
    let listener = admin::bind(path).with_context(|| path.display().to_string())?;
    Ok(Some((path.to_owned(), listener)))
}

async fn serve(
    worker: &Worker,
    admin: Option<(PathBuf, UnixListener)>,
    drain_timeout: Duration,
    supervised: bool,
    hangup: Option<Signal>,
) -> anyhow::Result<()> {
    let mut ends = Ends::new(supervised)?;
    let admin = admin.map(|(path, listener)| {
        tokio::spawn(worker.admin().serve(listener));
        path
    });
    tokio::spawn(Arc::clone(&worker.loader).maintain());
    let hangup_reloads = hangup.is_some();
    let mut hangup = match hangup {
        Some(hangup) => hangup,
        None => signal(SignalKind::hangup())?,
    };
    loop {
        tokio::select! {
            why = ends.next() => {
                tracing::info!(why, open = worker.proxy.open(), "ending");
                break;
            }
            _ = hangup.recv(), if hangup_reloads => {
                // The loader says what is wrong.
                if let Ok(answer) = worker.loader.reload(&ReloadRequest::default()).await {
                    tracing::info!(changed = answer.changed, root = %answer.root.short(), "read again");
                }
            }
        }
    }
    if !worker.drain(drain_timeout).await {
        tracing::warn!(open = worker.proxy.open(), "connections were still open at the end of the drain time");
    }
    if let Some(path) = admin {
        // Whoever starts next replaces it anyway.
        let _gone = std::fs::remove_file(path);
    }
    Ok(())
}

/// What ends the process.
pub struct Ends {
    terminate: Signal,
    interrupt: Signal,
    supervised: bool,
}

impl Ends {
    /// Watches for signals and, when supervised, for the end of the supervisor.
    ///
    /// # Errors
    /// When signals cannot be watched.
    pub fn new(supervised: bool) -> std::io::Result<Ends> {
        Ok(Ends {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            supervised,
        })
    }

    /// Waits for the first reason to end.
    pub async fn next(&mut self) -> &'static str {
        let supervised = self.supervised;
        let supervisor = async move {
            if supervised {
                process::stdin_ended().await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            () = supervisor => "the supervisor is gone",
        }
    }
}
