//! The controller as one of several replicas: an authority that all of them hold, join tokens, and a Lease that one holds.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use push::authority::Authority;
use push::authority_folder;
use push::grpc::enrol;
use push::identity::AgentIdentity;
use push::join::JoinKey;
use push::server_session::Role;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use zeroize::Zeroizing;

use crate::args::{Args, Enrolment, ReplicaArgs, SourceKind};
use crate::authority::{self, Keeper, Lifetimes};
use crate::election::{self, Elector, Lease, Standing, Term};
use crate::epoch::Epochs;
use crate::hub::Hub;
use crate::hub::names::Names;
use crate::identity::pod_redeemer::PodRedeemer;
use crate::identity::presence::Presence;
use crate::identity::{Membership, pod_watch};
use crate::leadership::{self, Lead};
use crate::report::fleet_status;
use crate::service::Service;

/// How long giving the Lease back may take when we are asked to stop.
const RELEASE: Duration = Duration::from_secs(5);
/// How long agents may take to go elsewhere then.
const FAREWELL: Duration = Duration::from_secs(2);

/// Runs until a signal or a fault.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(serve(args, &args.replica))
}

/// The address that agents reach us by.
fn advertised(replica: &ReplicaArgs) -> anyhow::Result<String> {
    match &replica.advertise {
        Some(address) => Ok(address.clone()),
        None if replica.listen.is_unspecified() => {
            bail!("--listen {} is no address that agents can reach: give theirs with --advertise", replica.listen)
        }
        None => Ok(replica.listen.to_string()),
    }
}

/// The authority, and who takes care of it when it is in a Secret.
async fn authority(args: &Args, replica: &ReplicaArgs) -> anyhow::Result<(Arc<ArcSwap<Authority>>, Option<Keeper>)> {
    let ReplicaArgs { authority_secret, authority: folder, trust_configmap, .. } = replica;
    let lifetimes = Lifetimes { authority: replica.authority_lifetime, certificate: replica.certificate_lifetime };
    if let Some(secret) = authority_secret.clone() {
        let settings = authority::Settings { secret, trust: trust_configmap.clone(), lifetimes };
        let keeper = Keeper::open(args.api_server.client().await?, settings).await?;
        return Ok((keeper.authority(), Some(keeper)));
    }
    let folder = folder.as_deref().context("no authority")?;
    let authority = authority_folder::read(folder).with_context(|| {
        format!("--authority {0}: no authority can be read; `scalwsctl authority {0}` makes one", folder.display())
    })?;
    Ok((Arc::new(ArcSwap::from_pointee(authority.with_lifetime(lifetimes.certificate))), None))
}

async fn serve(args: &Args, replica: &ReplicaArgs) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals")?;
    let (authority, keeper) = authority(args, replica).await?;
    let settings = replica.election(identity(), advertised(replica)?);
    settings.check().with_context(|| {
        let ReplicaArgs { lease_duration, renew_deadline, retry_period, .. } = replica;
        format!(
            "--lease-duration {lease_duration:?}, --renew-deadline {renew_deadline:?} and --retry-period {retry_period:?} do \
             not fit together"
        )
    })?;
    let (lease_duration, heartbeat_ms) = (Duration::from_millis(settings.lease_ms), settings.lease_ms / 3);

    // No epoch before the Lease gives one.
    let service = Service::start(args, 0).await?;
    let (enrol, push) =
        (bind(replica.listen, replica.enroll_port).await?, bind(replica.listen, replica.push_port).await?);
    tracing::info!(identity = settings.identity, enroll = %enrol.local_addr()?, push = %push.local_addr()?, "controller started");

    let client = args.api_server.client().await?;
    let timeout = Duration::from_millis(settings.renew_deadline_ms / 2);
    let lease = Lease::new(client.clone(), &replica.lease.namespace, &replica.lease.name, timeout);
    let standing = watch::Sender::new(Standing::Following { leader: None });
    let role = watch::Sender::new(Role::Standby);
    let (reported, reports) = watch::channel(0);
    let release = CancellationToken::new();
    let follow =
        leadership::follow(standing.subscribe(), role.clone(), Arc::clone(&service.hub), service.worker.clone());
    let step_down = Arc::new(Notify::new());
    let agents = leadership::watch_over_agents(
        role.subscribe(),
        Arc::clone(&service.hub),
        lease_duration,
        Arc::clone(&step_down),
    );
    let elector = Elector::new(settings);
    let term = Arc::new(Term::none());
    // Connections of its own, and nothing waits for it.
    let statuses = match args.source {
        SourceKind::Cluster => {
            let (hub, client) = (Arc::clone(&service.hub), args.api_server.client().await?);
            let statuses = fleet_status::run(hub, role.subscribe(), Arc::clone(&term), client);
            Some(AbortOnDropHandle::new(tokio::spawn(statuses)))
        }
        SourceKind::Directory => None,
    };
    let election =
        tokio::spawn(election::run(elector, lease, Arc::clone(&term), standing, reports, step_down, release.clone()));
    let names = Arc::clone(&service.names);
    let (redeemer, membership, pods) = match replica.enrolment {
        Enrolment::JoinToken => {
            let authority = Arc::clone(&authority);
            (Redeemer::Join(TokenRedeemer { authority, names, hub: Arc::clone(&service.hub) }), None, None)
        }
        Enrolment::PodToken => {
            let (presence, declared) = (Arc::new(Presence::default()), service.hub.declared());
            // Connections of its own: of those that others left idle each may be dead.
            let own = args.api_server.client().await?;
            let pods = pod_watch::follow(own, declared.clone(), Arc::clone(&presence));
            let redeemer = PodRedeemer::new(client, Arc::clone(&presence), names, Arc::clone(&service.hub));
            let pods = AbortOnDropHandle::new(tokio::spawn(pods));
            (Redeemer::Pod(redeemer), Some(Membership::new(declared, presence)), Some(pods))
        }
    };
    let keeper = keeper.map(|keeper| {
        let hub = Arc::clone(&service.hub);
        let kept = keeper.keep(role.subscribe(), move |held| authority::note(hub.metrics(), held));
        AbortOnDropHandle::new(tokio::spawn(kept))
    });
    let (hub, own_role) = (Arc::clone(&service.hub), role.clone());
    let ended = async move {
        let why = tokio::select! {
            _ = terminate.recv() => "asked to stop",
            _ = interrupt.recv() => "interrupted",
            () = follow => "the pipeline ended",
            () = agents => "the fleets ended",
        };
        hand_over(&release, election, &own_role, &hub).await;
        Ok(why)
    };
    let lead = Lead { role, term, epochs: Epochs::Lease(reported), heartbeat_ms: Some(heartbeat_ms) };
    let ran = service.run(authority, redeemer, (enrol, push), lead, membership, ended).await;
    drop((pods, statuses, keeper));
    ran
}

async fn bind(address: IpAddr, port: u16) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::new(address, port);
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// Stops to act, gives the Lease back, and sends agents to the others.
async fn hand_over(
    release: &CancellationToken,
    election: tokio::task::JoinHandle<()>,
    role: &watch::Sender<Role>,
    hub: &Hub,
) {
    // Nothing more is pushed from here on. Parked streams cost nothing until the Lease is free.
    role.send_replace(Role::Standby);
    release.cancel();
    if tokio::time::timeout(RELEASE, election).await.is_err() {
        tracing::warn!("the Lease could not be given back; another replica takes it when its duration is over");
    }
    role.send_replace(Role::NotLeader { leader_address: None, retry_ms: 0 });
    let mut news = hub.subscribe();
    let gone = async { while hub.read(crate::report::Report::is_anyone_connected) && news.changed().await.is_ok() {} };
    // Who does not go by itself loses its connection with this process.
    let _ = tokio::time::timeout(FAREWELL, gone).await;
}

/// Another one for each start, and readable in the Lease.
fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}_{:016x}", rand::random::<u64>())
}

/// How agents prove who they are.
enum Redeemer {
    Join(TokenRedeemer),
    Pod(PodRedeemer),
}

impl enrol::Redeemer for Redeemer {
    async fn redeem(&self, token: Zeroizing<String>) -> Option<AgentIdentity> {
        match self {
            Redeemer::Join(redeemer) => redeemer.redeem(token).await,
            Redeemer::Pod(redeemer) => redeemer.redeem(token).await,
        }
    }
}

/// Checks join tokens.
struct TokenRedeemer {
    authority: Arc<ArcSwap<Authority>>,
    names: Arc<Names>,
    hub: Arc<Hub>,
}

impl enrol::Redeemer for TokenRedeemer {
    async fn redeem(&self, token: Zeroizing<String>) -> Option<AgentIdentity> {
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(u64::MAX, |since| since.as_secs());
        let agent = match JoinKey::of(&self.authority.load()).verify(&token, now) {
            Ok(agent) => Some(agent),
            Err(error) => {
                tracing::warn!(%error, "a join token was refused");
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
