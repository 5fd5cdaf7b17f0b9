//! The parts that every controller has, put together and run until one of them ends.

use std::future::Future;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use arc_swap::ArcSwap;
use push::authority::Authority;
use push::grpc::{accept, enrol, server};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::hub::Hub;
use crate::hub::names::Names;
use crate::hub::sessions::Sessions;
use crate::identity::Membership;
use crate::leadership::Lead;
use crate::pipeline::{Worker, WorkerHandle};
use crate::store::Memory;
use crate::watch::Source;
use crate::{admin, certificates, report};

/// The parts, with the pipeline running already.
pub(crate) struct Service {
    /// The fleets.
    pub(crate) hub: Arc<Hub>,
    /// The names of pods.
    pub(crate) names: Arc<Names>,
    /// The pipeline.
    pub(crate) worker: WorkerHandle,
    worker_end: oneshot::Receiver<std::io::Result<()>>,
    memory: Memory,
    socket: UnixListener,
    probes: Option<TcpListener>,
    args: Args,
}

impl Service {
    /// Opens the source and begins to read it, into fleets of this epoch.
    ///
    /// # Errors
    /// When there is no source, or no socket.
    pub(crate) async fn start(args: &Args, epoch: u64) -> anyhow::Result<Service> {
        let settings = args.settings();
        let hub = Arc::new(Hub::new(settings.fleets.keys().cloned(), epoch));
        let names = Arc::new(Names::load(args.state.join("status").join("agents.jsonl")));
        let source = Source::open(args, hub.metrics().watch_states()).await?;
        let run = args.socket.parent().unwrap_or(&args.socket);
        let memory = Memory::new(&args.state, run);
        let (worker, handle) = Worker::new(source, settings, memory.clone(), args.allow_empty, Arc::clone(&hub))
            .context("no descriptor for the pipeline")?;
        let (worker_ended, worker_end) = oneshot::channel();
        std::thread::Builder::new().name("pipeline".to_owned()).spawn(move || {
            // Nobody listens when the process is ending already.
            let _ = worker_ended.send(worker.run());
        })?;
        let socket = admin::bind(&args.socket).with_context(|| format!("the socket {}", args.socket.display()))?;
        let probes = match args.metrics_listen {
            Some(address) => {
                let bound = TcpListener::bind(address).await;
                let bound = bound.with_context(|| format!("--metrics-listen {address}: cannot listen there"))?;
                tracing::info!(address = %bound.local_addr()?, "serving health and metrics");
                Some(bound)
            }
            None => None,
        };
        Ok(Service { hub, names, worker: handle, worker_end, memory, socket, probes, args: args.clone() })
    }

    /// Serves on these listeners (enrolment, push) until `ended` gives the reason to stop, or a part ends, which is a fault.
    ///
    /// # Errors
    /// Why it could not go on.
    pub(crate) async fn run<R: enrol::Redeemer>(
        self,
        authority: Arc<ArcSwap<Authority>>,
        redeemer: R,
        (enrol_listener, push_listener): (TcpListener, TcpListener),
        lead: Lead,
        membership: Option<Membership>,
        ended: impl Future<Output = anyhow::Result<&'static str>>,
    ) -> anyhow::Result<()> {
        let Service { hub, names, worker, worker_end, memory, socket, probes, args } = self;
        let (enrol_tls, push_tls) = certificates::slots(&authority.load(), hub.metrics())?;
        let api = admin::Api {
            hub: Arc::clone(&hub),
            worker,
            confirm_with: format!("scalwsctl confirm --state {}", args.state.display()),
        };
        let probed = {
            let api = api.clone();
            async move {
                match probes {
                    Some(listener) => admin::serve_probes(listener, api).await,
                    None => std::future::pending().await,
                }
            }
        };
        let stop = CancellationToken::new();
        let enrolment = enrol::serve(
            enrol_listener,
            Arc::clone(&enrol_tls),
            accept::Limits::default(),
            enrol::Rate::default(),
            Arc::clone(&authority),
            redeemer,
            stop.clone().cancelled_owned(),
        );
        let sessions = Arc::new(Sessions::new(Arc::clone(&hub), names, lead, membership));
        let push = server::serve(
            push_listener,
            Arc::clone(&push_tls),
            accept::Limits::default(),
            sessions,
            stop.clone().cancelled_owned(),
        );
        let statuses = report::writer::run(Arc::clone(&hub), args.state.join("status").join("objects.json"), memory);
        let why = tokio::select! {
            ended = ended => ended,
            end = worker_end => match end {
                Ok(Ok(())) => Ok("the pipeline ended"),
                Ok(Err(error)) => Err(anyhow!(error).context("the pipeline")),
                Err(_) => Err(anyhow!("the pipeline broke")),
            },
            end = enrolment => Err(end.err().map_or_else(|| anyhow!("enrolment ended"), anyhow::Error::from)),
            end = push => Err(end.err().map_or_else(|| anyhow!("the push ended"), anyhow::Error::from)),
            () = admin::serve(socket, api) => Err(anyhow!("the local API ended")),
            () = probed => Err(anyhow!("the listener for probes ended")),
            () = statuses => Err(anyhow!("the status writer ended")),
            error = certificates::renew(&authority, &enrol_tls, &push_tls, hub.metrics()) => Err(error),
        };
        stop.cancel();
        // A file that is left behind is replaced at the next start.
        let _ = std::fs::remove_file(&args.socket);
        tracing::info!(why = why?, "controller stops");
        Ok(())
    }
}
