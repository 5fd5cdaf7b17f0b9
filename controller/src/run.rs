//! Puts the parts together and runs them until somebody asks for the end.

use std::future::Future;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use arc_swap::ArcSwap;
use push::authority::{Authority, BACKDATED};
use push::grpc::{accept, enrol, server, tls};
use push::identity::{AgentIdentity, FleetId};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use translate::Settings;
use zeroize::Zeroizing;

use crate::args::{Args, LogFormat};
use crate::epoch::Counter;
use crate::hub::Hub;
use crate::hub::names::Names;
use crate::hub::sessions::Sessions;
use crate::identity::SERVER_NAME;
use crate::identity::descriptor::{AuthorityPem, Descriptor};
use crate::pipeline::Worker;
use crate::store::Memory;
use crate::watch::directory::Directory;
use crate::{admin, process, report};

/// How long a certificate of the controller is valid; the next one is made at half of it.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// How often it is looked whether a next one has to be made: agents who come meanwhile may be refused because of the time.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(10);
/// How long the supervisor may take to answer for a token.
const REDEEM: Duration = Duration::from_secs(5);

/// Runs the controller until a signal, the end of its input, or a fault.
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

fn log(format: LogFormat) {
    let filter = EnvFilter::try_from_env("SCALWS_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // Fails only when a caller has set up logging already, which is then used.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

fn start(args: &Args) -> anyhow::Result<()> {
    if !args.supervised {
        return Err(anyhow!(
            "without --supervised there is nobody who proves agents; start it with `scalwsctl up`, which is the supervisor"
        ));
    }
    process::no_core_dumps().context("core dumps cannot be forbidden")?;
    process::die_with_parent().context("the end of the supervisor cannot be followed")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let (ended, input_ended) = oneshot::channel();
    let stdin = io::stdin();
    let (authority, descriptor) = Descriptor::start(stdin, Box::new(io::stdout()), move || {
        // Nobody listens when the process is ending already.
        let _ = ended.send(());
    })
    .context("standard input")?;
    runtime.block_on(serve(args, authority, descriptor, async move {
        // An error is a sender that is gone: the reader ended either way.
        let _ = input_ended.await;
    }))
}

/// Everything, until one of the parts ends.
async fn serve(
    args: &Args,
    authority: AuthorityPem,
    descriptor: Arc<Descriptor>,
    input_ended: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals")?;
    let authority =
        Authority::from_pem(&authority.certificate, &authority.key).context("the supervisor's authority")?;
    let authority = Arc::new(ArcSwap::from_pointee(authority));

    // The epoch is raised before anything is served.
    let counter = Counter::new(&args.state);
    let epoch = counter.raise(0).context("the epoch")?;
    let mut settings = Settings::local(args.http, args.https);
    settings.allow_loopback_endpoints = args.allow_loopback_endpoints;
    let hub = Arc::new(Hub::new(settings.fleets.keys().cloned(), epoch));
    let names = Arc::new(Names::load(args.state.join("status").join("agents.jsonl")));

    let directory = Directory::open(&args.manifests)
        .with_context(|| format!("the folder of manifests {}", args.manifests.display()))?;
    let run = args.socket.parent().unwrap_or(&args.socket);
    let memory = Memory::new(&args.state, run);
    let (worker, handle) = Worker::new(directory, settings, memory.clone(), args.allow_empty, Arc::clone(&hub))
        .context("no descriptor for the pipeline")?;
    let (worker_ended, worker_end) = oneshot::channel();
    std::thread::Builder::new().name("pipeline".to_owned()).spawn(move || {
        // Nobody listens when the process is ending already.
        let _ = worker_ended.send(worker.run());
    })?;

    let loopback = || TcpListener::bind(("127.0.0.1", 0));
    let enrol_listener = loopback().await.context("no port for enrolment")?;
    let push_listener = loopback().await.context("no port for the push")?;
    let api = admin::Api {
        hub: Arc::clone(&hub),
        worker: handle,
        confirm_with: format!("scalwsctl confirm --state {}", args.state.display()),
    };
    let socket = admin::bind(&args.socket).with_context(|| format!("the socket {}", args.socket.display()))?;
    let (enrol_tls, push_tls) = slots(&authority.load())?;
    descriptor
        .announce(enrol_listener.local_addr()?.to_string(), push_listener.local_addr()?.to_string())
        .context("standard output")?;
    tracing::info!(epoch, manifests = %args.manifests.display(), "controller started");

    let stop = CancellationToken::new();
    let redeemer = SupervisorRedeemer { descriptor, names: Arc::clone(&names), hub: Arc::clone(&hub) };
    let enrolment = enrol::serve(
        enrol_listener,
        Arc::clone(&enrol_tls),
        accept::Limits::default(),
        enrol::Rate::default(),
        Arc::clone(&authority),
        redeemer,
        stop.clone().cancelled_owned(),
    );
    let sessions = Arc::new(Sessions::new(Arc::clone(&hub), names, counter));
    let push = server::serve(
        push_listener,
        Arc::clone(&push_tls),
        accept::Limits::default(),
        sessions,
        stop.clone().cancelled_owned(),
    );
    let statuses = report::writer::run(Arc::clone(&hub), args.state.join("status").join("objects.json"), memory);

    let ended = tokio::select! {
        _ = terminate.recv() => Ok("asked to stop"),
        _ = interrupt.recv() => Ok("interrupted"),
        () = input_ended => Ok("the supervisor is gone"),
        end = worker_end => match end {
            Ok(Ok(())) => Ok("the pipeline ended"),
            Ok(Err(error)) => Err(anyhow!(error).context("the pipeline")),
            Err(_) => Err(anyhow!("the pipeline broke")),
        },
        end = enrolment => Err(end.err().map_or_else(|| anyhow!("enrolment ended"), anyhow::Error::from)),
        end = push => Err(end.err().map_or_else(|| anyhow!("the push ended"), anyhow::Error::from)),
        () = admin::serve(socket, api) => Err(anyhow!("the local API ended")),
        () = statuses => Err(anyhow!("the status writer ended")),
        error = renew(&authority, &enrol_tls, &push_tls) => Err(error),
    };
    stop.cancel();
    // A file that is left behind is replaced at the next start.
    let _ = std::fs::remove_file(&args.socket);
    let why = ended?;
    tracing::info!(why, "controller stops");
    Ok(())
}

/// TLS for both listeners with a fresh certificate.
fn slots(authority: &Authority) -> anyhow::Result<(tls::TlsSlot, tls::TlsSlot)> {
    let own = authority.server_identity(SERVER_NAME, SystemTime::now(), CERTIFICATE_LIFETIME)?;
    Ok((tls::slot(tls::enrolment_server(&own)?), tls::slot(tls::push_server(&own, authority.bundle())?)))
}

/// Replaces the certificate in time, for ever. Gives an error when no new one can be made.
async fn renew(authority: &ArcSwap<Authority>, enrol_tls: &tls::TlsSlot, push_tls: &tls::TlsSlot) -> anyhow::Error {
    let mut made = SystemTime::now();
    loop {
        tokio::time::sleep(CERTIFICATE_LOOK).await;
        let now = SystemTime::now();
        if !is_due(made, now) {
            continue;
        }
        match slots(&authority.load()) {
            Ok((enrol, push)) => {
                enrol_tls.store(enrol.load_full());
                push_tls.store(push.load_full());
                made = now;
                tracing::info!("the controller's certificate was renewed");
            }
            Err(error) => return error.context("the controller's certificate"),
        }
    }
}

/// Whether a certificate that was made then has to be replaced. By the time of day, as those judge it who see it: a clock may
/// be set, in both directions, and a machine may sleep.
fn is_due(made: SystemTime, now: SystemTime) -> bool {
    match now.duration_since(made) {
        Ok(age) => age >= CERTIFICATE_LIFETIME / 2,
        Err(back) => back.duration() >= BACKDATED / 2,
    }
}

/// Asks the supervisor whose token it is.
struct SupervisorRedeemer {
    descriptor: Arc<Descriptor>,
    names: Arc<Names>,
    hub: Arc<Hub>,
}

impl enrol::Redeemer for SupervisorRedeemer {
    async fn redeem(&self, token: Zeroizing<String>) -> Option<AgentIdentity> {
        let answer = tokio::time::timeout(REDEEM, self.descriptor.redeem(&token)).await;
        let agent = match answer {
            Ok(Ok(Some(redeemed))) => {
                let fleet = FleetId::new(&redeemed.fleet.namespace, &redeemed.fleet.name);
                AgentIdentity::new(fleet, &redeemed.pod, &redeemed.uid)
                    .inspect_err(|error| tracing::error!(%error, "the supervisor names an agent that cannot be"))
                    .ok()
            }
            Ok(Ok(None)) => None,
            Ok(Err(error)) => {
                tracing::warn!(%error, "a token could not be checked");
                None
            }
            Err(_) => {
                tracing::warn!("the supervisor took too long to check a token");
                None
            }
        };
        self.hub.metrics().enrolment(if agent.is_some() { "enrolled" } else { "refused" });
        if let Some(agent) = &agent {
            self.names.learn(&agent.uid, &agent.pod);
        }
        agent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_replaced_long_before_it_is_out_of_its_time_wherever_the_clock_is_set() {
        let (made, hour) = (SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000), Duration::from_secs(3600));
        assert!(!is_due(made, made));
        for hours in 1..=100 {
            // It is good for a day in both directions.
            let (ahead, back) = (is_due(made, made + hour * hours), is_due(made, made - hour * hours));
            assert_eq!((ahead, back), (hours >= 12, hours >= 12), "{hours} hours");
        }
        assert!(BACKDATED > hour * 2 && CERTIFICATE_LIFETIME > hour * 2, "an hour is nothing");
    }
}
