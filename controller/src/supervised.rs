//! The controller as a child of `scalwsctl up`: authority, tokens and the end come over standard input, and there is no other.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwap;
use push::authority::Authority;
use push::grpc::enrol;
use push::identity::{AgentIdentity, FleetId};
use push::server_session::Role;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use zeroize::Zeroizing;

use crate::args::Args;
use crate::election::Term;
use crate::epoch::{Counter, Epochs};
use crate::hub::Hub;
use crate::hub::names::Names;
use crate::identity::descriptor::{AuthorityPem, Descriptor};
use crate::leadership::Lead;
use crate::process;
use crate::service::Service;

/// How long the supervisor may take to answer for a token.
const REDEEM: Duration = Duration::from_secs(5);

/// Runs until a signal, the end of the supervisor, or a fault.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    process::die_with_parent().context("the end of the supervisor cannot be followed")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let (ended, input_ended) = oneshot::channel();
    let (authority, descriptor) = Descriptor::start(io::stdin(), Box::new(io::stdout()), move || {
        // Nobody listens when the process is ending already.
        let _ = ended.send(());
    })
    .context("standard input")?;
    runtime.block_on(serve(args, authority, descriptor, async move {
        // An error is a sender that is gone: the reader ended either way.
        let _ = input_ended.await;
    }))
}

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
    let service = Service::start(args, epoch).await?;
    let loopback = || TcpListener::bind(("127.0.0.1", 0));
    let enrol = loopback().await.context("no port for enrolment")?;
    let push = loopback().await.context("no port for the push")?;
    descriptor.announce(enrol.local_addr()?.to_string(), push.local_addr()?.to_string()).context("standard output")?;
    tracing::info!(epoch, "controller started");

    let redeemer = SupervisorRedeemer { descriptor, names: Arc::clone(&service.names), hub: Arc::clone(&service.hub) };
    // Without a cluster there is no other controller.
    service.hub.metrics().leading(true);
    let lead = Lead {
        role: watch::Sender::new(Role::Leading),
        term: Arc::new(Term::endless()),
        epochs: Epochs::Counter(counter),
        heartbeat_ms: None,
    };
    let ended = async {
        tokio::select! {
            _ = terminate.recv() => "asked to stop",
            _ = interrupt.recv() => "interrupted",
            () = input_ended => "the supervisor is gone",
        }
    };
    service.run(authority, redeemer, (enrol, push), lead, None, async { Ok(ended.await) }).await
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
