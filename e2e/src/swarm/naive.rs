//! A naive control plane of our own, to compare with: after each change it encodes all it has anew for every agent.
//!
//! It has the same listeners, certificates, messages and client; what it lacks is deltas, shared encoding and content
//! addresses. It does not even translate: it is told which endpoint moved.

use std::convert::Infallible;
use std::io::Write;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use controller::identity::SERVER_NAME;
use controller::pipeline::convert;
use controller::watch::directory::Directory;
use futures_util::{Stream, StreamExt};
use prost::Message;
use proto::v1::controller_message::Message as ToAgent;
use proto::v1::push_server::{Push, PushServer};
use proto::v1::{
    AgentMessage, Applied, Begin, Change, Chunk, Commit, ControllerMessage, Members, MembersFull, Put, agent_message,
    change, members,
};
use push::authority::Authority;
use push::fleet::FleetChange;
use push::grpc::accept::Limits;
use push::grpc::client::Link;
use push::grpc::{enrol, tls};
use push::identity::{AgentIdentity, FleetId};
use push::limits;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tonic::{Request, Response, Status, Streaming};
use translate::{Engine, Settings};
use zeroize::Zeroizing;

/// All of the desired state, as a naive server keeps it.
type State = Arc<Mutex<FleetChange>>;

/// Runs the server until its input ends. It announces its listeners as a controller does, and takes lines `NUMBER SERIAL`.
///
/// # Errors
/// When the folder cannot be read or no listener opened.
pub fn serve(manifests: &Path) -> Result<()> {
    let mut lines = std::io::stdin().lines();
    let first: Value = serde_json::from_str(&lines.next().context("no authority")??)?;
    let text = |name: &str| first["authority"][name].as_str().unwrap_or_default().to_owned();
    let authority = Authority::from_pem(&text("ca_certificate_pem"), &text("ca_key_pem"))?;
    let state: State = Arc::new(Mutex::new(translated(manifests)?));
    let changed = watch::Sender::new(0);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let serving = Naive { state: Arc::clone(&state), changed: changed.clone() };
    runtime.spawn(async move {
        if let Err(error) = listen(authority, serving).await {
            eprintln!("naive: {error:#}");
        }
    });
    for line in lines {
        let line = line?;
        let Some((number, serial)) = line.split_once(' ') else { continue };
        let (number, serial): (usize, u64) = (number.parse()?, serial.parse()?);
        move_endpoint(&mut state.lock().unwrap_or_else(PoisonError::into_inner), number, serial);
        changed.send_modify(|count| *count += 1);
    }
    Ok(())
}

fn translated(manifests: &Path) -> Result<FleetChange> {
    let batch = Directory::open(manifests)?.rescan(Instant::now());
    let listing = batch.listed.context("nothing was listed")?;
    let mut engine = Engine::new(Settings::local(8080, 8443));
    let mut delta = engine.apply(listing.changes);
    let (_, fleet) = delta.fleets.pop_first().context("no fleet")?;
    Ok(convert::change(fleet))
}

fn move_endpoint(state: &mut FleetChange, number: usize, serial: u64) {
    let count = state.members.len().max(1);
    if let Some((_, Some(members))) = state.members.get_mut(number % count) {
        let moved: Arc<str> = super::world::member_of(serial).into();
        let first = members.first().cloned();
        *members = first.into_iter().chain([moved]).collect();
    }
}

async fn listen(authority: Authority, serving: Naive) -> Result<()> {
    let own = authority.server_identity(SERVER_NAME, SystemTime::now(), Duration::from_secs(24 * 3600))?;
    let (enrolment, push) =
        (tls::slot(tls::enrolment_server(&own)?), Arc::new(tls::push_server(&own, authority.bundle())?));
    let enrolling = TcpListener::bind("127.0.0.1:0").await?;
    let pushing = TcpListener::bind("127.0.0.1:0").await?;
    let (enroll, at) = (enrolling.local_addr()?, pushing.local_addr()?);
    let told = json!({ "listening": { "enroll": enroll.to_string(), "push": at.to_string() } });
    writeln!(std::io::stdout(), "{told}")?;
    let authority = Arc::new(ArcSwap::from_pointee(authority));
    let enrolled = enrol::serve(
        enrolling,
        enrolment,
        Limits::default(),
        enrol::Rate::default(),
        authority,
        Everybody,
        std::future::pending(),
    );
    let (ready, connections) = mpsc::channel(64);
    let accepting = async move {
        let acceptor = TlsAcceptor::from(push);
        while let Ok((tcp, _)) = pushing.accept().await {
            let (acceptor, ready) = (acceptor.clone(), ready.clone());
            tokio::spawn(async move {
                let _ = tcp.set_nodelay(true);
                if let Ok(connection) = acceptor.accept(tcp).await {
                    // The server is ending.
                    let _ = ready.send(Ok::<_, Infallible>(connection)).await;
                }
            });
        }
    };
    let connections = futures_util::stream::unfold(connections, |mut connections| async move {
        let next = connections.recv().await?;
        Some((next, connections))
    });
    let service = PushServer::new(serving).max_encoding_message_size(limits::MESSAGE);
    let server = tonic::transport::Server::builder().add_service(service).serve_with_incoming(connections);
    tokio::select! {
        end = enrolled => Ok(end?),
        end = server => Ok(end?),
        () = accepting => Ok(()),
    }
}

/// Whoever comes is an agent: this server is for a bench.
struct Everybody;

impl enrol::Redeemer for Everybody {
    async fn redeem(&self, token: Zeroizing<String>) -> Option<AgentIdentity> {
        let name = token.rsplit('-').next()?.to_owned();
        AgentIdentity::new(FleetId::new("scalws", "default"), &name, &name).ok()
    }
}

struct Naive {
    state: State,
    changed: watch::Sender<u64>,
}

#[tonic::async_trait]
impl Push for Naive {
    type SyncStream = Pin<Box<dyn Stream<Item = Result<ControllerMessage, Status>> + Send>>;

    async fn sync(&self, request: Request<Streaming<AgentMessage>>) -> Result<Response<Self::SyncStream>, Status> {
        let mut inbound = request.into_inner();
        tokio::spawn(async move { while let Ok(Some(_)) = inbound.message().await {} });
        let (state, mut changed) = (Arc::clone(&self.state), self.changed.subscribe());
        changed.mark_changed();
        let snapshots = futures_util::stream::unfold((state, changed), |(state, mut changed)| async move {
            changed.changed().await.ok()?;
            let transfer = *changed.borrow_and_update();
            let messages = snapshot(&state.lock().unwrap_or_else(PoisonError::into_inner), transfer);
            Some((futures_util::stream::iter(messages.into_iter().map(Ok)), (state, changed)))
        });
        Ok(Response::new(Box::pin(snapshots.flatten())))
    }
}

/// Everything, encoded anew.
fn snapshot(state: &FleetChange, transfer: u64) -> Vec<ControllerMessage> {
    let mut data = Vec::new();
    for item in &state.puts {
        let put = Put {
            kind: item.key.kind.to_string(),
            name: item.key.name.to_string(),
            body: item.body.clone(),
            secrets: Vec::new(),
        };
        let change = Change { change: Some(change::Change::Put(put)) };
        // A vector grows as needed.
        let _ = change.encode_length_delimited(&mut data);
    }
    let mut messages = vec![ToAgent::Begin(Begin { bytes: data.len() as u64, transfer, ..Begin::default() })];
    let mut offset = 0;
    for part in data.chunks(limits::CHUNK) {
        let chunk = Chunk { transfer, data: bytes::Bytes::copy_from_slice(part), offset };
        offset += part.len() as u64;
        messages.push(ToAgent::Chunk(chunk));
    }
    for (name, set) in &state.members {
        let all = set.iter().flat_map(|set| set.iter()).map(ToString::to_string).collect();
        let content = Some(members::Content::Full(MembersFull { members: all }));
        messages.push(ToAgent::Members(Members { set_name: name.to_string(), content, ..Members::default() }));
    }
    messages.push(ToAgent::Commit(Commit { transfer }));
    messages.into_iter().map(|message| ControllerMessage { message: Some(message) }).collect()
}

/// The naive agent: keeps all it is sent, and acknowledges each snapshot. Gives `told` the number of each.
pub(super) async fn follow(mut link: Link, mut told: impl FnMut(u64)) {
    let (mut resources, mut sets) = (std::collections::HashMap::new(), std::collections::HashMap::new());
    let mut data = Vec::new();
    while let Ok(Some(message)) = link.receive.message().await {
        match message.message {
            Some(ToAgent::Begin(_)) => {
                data.clear();
                resources.clear();
                sets.clear();
            }
            Some(ToAgent::Chunk(chunk)) => data.extend_from_slice(&chunk.data),
            Some(ToAgent::Members(set)) => {
                sets.insert(set.set_name, set.content);
            }
            Some(ToAgent::Commit(commit)) => {
                let mut rest = bytes::Bytes::from(std::mem::take(&mut data));
                while let Ok(change) = Change::decode_length_delimited(&mut rest) {
                    if let Some(change::Change::Put(put)) = change.change {
                        resources.insert((put.kind, put.name), put.body);
                    }
                }
                let applied = agent_message::Message::Applied(Applied::default());
                if link.send.send(AgentMessage { message: Some(applied) }).await.is_err() {
                    return;
                }
                told(commit.transfer);
            }
            _ => {}
        }
    }
}
