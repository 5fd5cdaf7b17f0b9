//! A worker with a volume, a keeper and two listeners; and short ways to write resources.

use std::path::PathBuf;
use std::sync::Arc;

use config::{
    Action, Body, CertificateBody, CertificateName, Claims, Envelope, ForwardAction, FragmentBody, FragmentName,
    HeaderChanges, HostBody, HostName, HostTls, Kind, ListenerBody, ListenerName, ListenerProtocol, Match,
    MemberSetName, MemberSource, Name, ObjectRef, OrderKey, PathMatch, PoolBody, PoolName, Resource, ResourceId,
    RouteAction, SecretDigest, Share, Timeouts, Transport, UnknownName, UpstreamProtocol,
};
use journal::admin::{NotLive, ReloadAnswer, ReloadRequest};
use journal::record::encode_transaction;
use journal::{CONFIG_FILE, Digest, Follower, JournalFile, KEYS_FOLDER, Key, MEMBERS_FILE, Record, Tree, digest};
use keeper::server::Keeper;
use scalwsd::access_log::{AccessLog, Destination};
use scalwsd::dns::AddressRules;
use scalwsd::keys::Keys;
use scalwsd::listeners::Sockets;
use scalwsd::loader::{Source, Unusable};
use scalwsd::worker::Worker;

/// A change of the volume.
pub(crate) enum Edit {
    Put(Resource),
    Remove(ResourceId),
    /// Of a kind that this version does not know.
    Foreign(&'static str, &'static str, &'static str),
}

pub(crate) struct Site {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) keeper: Keeper,
    pub(crate) worker: Worker,
    pub(crate) http: u16,
    pub(crate) https: u16,
    journal: JournalFile,
    tree: Tree,
    commit: u64,
}

const JOURNAL: &str = "j1";

impl Site {
    /// With a listener for HTTP and one for TLS, and nothing else.
    pub(crate) async fn new() -> Site {
        Site::with_log(Destination::Off).await
    }

    pub(crate) async fn with_log(log: Destination) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let keeper = Keeper::new();
        let (http, https) = (keeper.pin(0).unwrap(), keeper.pin(0).unwrap());
        let listener = tokio::net::UnixListener::bind(dir.path().join("keeper")).unwrap();
        let serving = keeper.clone();
        tokio::spawn(async move { serving.serve(listener).await });
        std::fs::create_dir(dir.path().join(KEYS_FOLDER)).unwrap();
        let mut journal = JournalFile::open(&dir.path().join(CONFIG_FILE)).unwrap();
        let mut line = Vec::new();
        Record::Journal { id: JOURNAL.to_owned() }.encode_into(&mut line);
        journal.append(&line).unwrap();
        let worker = start(dir.path().to_owned(), log).await;
        let mut site = Site { dir, keeper, worker, http, https, journal, tree: Tree::default(), commit: 0 };
        let listeners = [listener_on(http, ListenerProtocol::Http), listener_on(https, ListenerProtocol::Tls)];
        site.commit(listeners).await;
        site
    }

    /// A second worker on the same volume and keeper, as after a death of the first.
    pub(crate) async fn another_worker(&self) -> Worker {
        start(self.dir.path().to_owned(), Destination::Off).await
    }

    /// Commits, reloads and accepts.
    pub(crate) async fn commit(&mut self, edits: impl IntoIterator<Item = Edit>) -> ReloadAnswer {
        let request = self.write(edits);
        let answer = self.worker.loader.reload(&request).await.unwrap();
        assert_eq!(answer.root, self.tree.root());
        self.accept();
        answer
    }

    /// Commits and reloads what is expected to be unusable.
    pub(crate) async fn commit_unusable(&mut self, edits: impl IntoIterator<Item = Edit>) -> Unusable {
        let request = self.write(edits);
        self.worker.loader.reload(&request).await.unwrap_err()
    }

    /// Writes a transaction up to its commit.
    pub(crate) fn write(&mut self, edits: impl IntoIterator<Item = Edit>) -> ReloadRequest {
        self.commit += 1;
        let mut records = Vec::new();
        for edit in edits {
            let (key, body, secrets) = match edit {
                Edit::Put(Resource { id, bytes, secrets }) => {
                    let secrets = secrets.iter().map(|s| s.0.parse().unwrap()).collect();
                    (Key::new(id.kind.as_str(), id.name.as_str()), bytes, secrets)
                }
                Edit::Foreign(kind, name, body) => (Key::new(kind, name), body.into(), Vec::new()),
                Edit::Remove(id) => {
                    let key = Key::new(id.kind.as_str(), id.name.as_str());
                    self.tree.remove(&key);
                    records.push(Record::Remove { key });
                    continue;
                }
            };
            self.tree.insert(key.clone(), digest::leaf(&key, &body));
            records.push(Record::Put { key, secrets: secrets.into(), body });
        }
        let mut lines = Vec::new();
        encode_transaction(records, self.commit, (1, self.commit), self.tree.root(), &mut lines);
        self.journal.append(&lines).unwrap();
        ReloadRequest { journal: Some(JOURNAL.to_owned()), commit: Some(self.commit) }
    }

    /// Accepts the last transaction.
    pub(crate) fn accept(&mut self) {
        let mut line = Vec::new();
        Record::Accepted { id: self.commit }.encode_into(&mut line);
        self.journal.append(&line).unwrap();
    }

    /// Sets the members of a pool's set.
    pub(crate) fn members(&self, service: &str, members: &[&str]) -> Digest {
        let members = members.iter().map(|m| Arc::from(*m)).collect();
        self.worker.members.put(set_name(service).to_name().as_str(), members).unwrap()
    }

    /// A pool with members, a host on the HTTP listener, and a route for all its paths.
    pub(crate) async fn serve(&mut self, domain: &str, members: &[&str], change: impl FnOnce(&mut ForwardAction)) {
        self.members(domain, members);
        let mut forward = forward_to(domain);
        change(&mut forward);
        let http = self.http;
        let edits = [
            pool(domain, UpstreamProtocol::Http1),
            host(http, domain, None),
            fragment(&[http], domain, vec![("/", act(Action::Forward(forward)))]),
        ];
        let answer = self.commit(edits).await;
        assert_eq!(answer.not_live, []);
    }

    /// Writes a key file as the agent does.
    pub(crate) fn write_key(&self, pem: &str) -> SecretDigest {
        let digest = SecretDigest(Digest::of(pem.as_bytes()).to_string().into());
        std::fs::write(self.dir.path().join(KEYS_FOLDER).join(&*digest.0), pem).unwrap();
        digest
    }

    /// What is not live.
    pub(crate) async fn not_live(&self) -> Vec<NotLive> {
        self.worker.loader.config().not_live
    }
}

async fn start(volume: PathBuf, log: Destination) -> Worker {
    let client = keeper::client::Client::connect(volume.join("keeper")).await.unwrap();
    let (follower, accepted) = Follower::open(&volume.join(CONFIG_FILE)).unwrap();
    let metrics = Arc::default();
    let log = AccessLog::open(&log, Arc::clone(&metrics)).unwrap();
    let rules = AddressRules { allow_loopback: true, own: Vec::new() };
    let source = Source::Volume(Box::new(follower));
    let keys = Keys::Folder(volume.join(KEYS_FOLDER));
    let worker = Worker::new(source, keys, Sockets::Keeper(client), rules, metrics, log).unwrap();
    worker.loader.load_volume(accepted, Some(volume.join(MEMBERS_FILE))).await.unwrap();
    worker
}

fn put(kind: Kind, name: Name, claims: Option<Claims>, body: &Body) -> Edit {
    Edit::Put(Envelope::with_body(ResourceId { kind, name }, Vec::new(), claims, body))
}

pub(crate) fn listener_on(port: u16, protocol: ListenerProtocol) -> Edit {
    let body = ListenerBody { protocol, unknown_name: UnknownName::Default, default_certificate: None, pool: None };
    put(Kind::Listener, ListenerName::tcp(port).to_name(), None, &Body::Listener(body))
}

/// A TLS listener with a certificate for names that nobody serves.
pub(crate) fn listener_with_default(port: u16, certificate: &str) -> Edit {
    let body = ListenerBody {
        protocol: ListenerProtocol::Tls,
        unknown_name: UnknownName::Default,
        default_certificate: Some(certificate_name(certificate)),
        pool: None,
    };
    put(Kind::Listener, ListenerName::tcp(port).to_name(), None, &Body::Listener(body))
}

pub(crate) fn host(port: u16, domain: &str, tls: Option<HostTls>) -> Edit {
    put(Kind::Host, host_id(port, domain).name, None, &Body::Host(HostBody { owner: "t".to_owned(), tls }))
}

pub(crate) fn host_id(port: u16, domain: &str) -> ResourceId {
    let name = HostName { listener: ListenerName::tcp(port), domain: domain.parse().unwrap() };
    ResourceId { kind: Kind::Host, name: name.to_name() }
}

pub(crate) fn terminate(certificates: &[&str]) -> Option<HostTls> {
    Some(HostTls::Terminate {
        certificates: certificates.iter().map(|name| certificate_name(name)).collect(),
        fallback: UnknownName::Default,
        client_auth: None,
    })
}

pub(crate) fn certificate_name(name: &str) -> CertificateName {
    CertificateName { namespace: "t".to_owned(), name: name.to_owned() }
}

pub(crate) fn certificate(name: &str, chain: &str, key: SecretDigest) -> Edit {
    let body = Body::Certificate(CertificateBody { chain: chain.to_owned(), key });
    put(Kind::Certificate, certificate_name(name).to_name(), None, &body)
}

pub(crate) fn set_name(service: &str) -> MemberSetName {
    MemberSetName { namespace: "t".to_owned(), service: service.to_owned(), port: 80, transport: Transport::Tcp }
}

pub(crate) fn pool_name(service: &str) -> PoolName {
    PoolName { namespace: "t".to_owned(), service: service.to_owned(), port: 80, variant: String::new() }
}

pub(crate) fn pool(service: &str, protocol: UpstreamProtocol) -> Edit {
    let body = PoolBody { members: MemberSource::Set(set_name(service)), protocol, tls: None };
    put(Kind::Pool, pool_name(service).to_name(), None, &Body::Pool(body))
}

pub(crate) fn pool_id(service: &str) -> ResourceId {
    ResourceId { kind: Kind::Pool, name: pool_name(service).to_name() }
}

pub(crate) fn forward_to(service: &str) -> ForwardAction {
    ForwardAction {
        shares: vec![Share::Pool { name: pool_name(service), weight: 1 }],
        path: None,
        host: None,
        request_headers: HeaderChanges::default(),
        timeouts: Timeouts::default(),
        retries: 2,
    }
}

pub(crate) fn act(action: Action) -> RouteAction {
    RouteAction { action, to_https: None, policies: Vec::new(), response_headers: HeaderChanges::default() }
}

pub(crate) fn fragment_id(domain: &str) -> ResourceId {
    let source = ObjectRef { kind: "Ingress".to_owned(), namespace: "t".to_owned(), name: domain.replace('*', "w") };
    ResourceId { kind: Kind::Fragment, name: FragmentName { source, domain: domain.parse().unwrap() }.to_name() }
}

pub(crate) fn claims(ports: &[u16], domain: &str, paths: &[PathMatch]) -> Claims {
    let mut listeners: Vec<ListenerName> = ports.iter().map(|port| ListenerName::tcp(*port)).collect();
    listeners.sort_unstable();
    let matches = paths.iter().enumerate().map(|(number, path)| {
        let (class, length) = match path {
            PathMatch::Exact(path) => (3, path.len()),
            PathMatch::Regex(_) => (2, 0),
            PathMatch::Prefix(path) => (1, path.len()),
        };
        let key = OrderKey {
            rank: vec![class, length as u32],
            created: 0,
            tie: ("t".to_owned(), domain.to_owned(), number as u32),
        };
        Match { path: path.clone(), method: None, headers: Vec::new(), query: Vec::new(), key }
    });
    Claims { listeners, host: domain.parse().unwrap(), matches: matches.collect() }
}

/// A fragment whose matches are prefixes.
pub(crate) fn fragment(ports: &[u16], domain: &str, routes: Vec<(&str, RouteAction)>) -> Edit {
    let paths: Vec<_> = routes.iter().map(|(path, _)| PathMatch::Prefix((*path).to_owned())).collect();
    fragment_of(ports, domain, &paths, routes.into_iter().map(|(_, action)| action).collect())
}

pub(crate) fn fragment_of(ports: &[u16], domain: &str, paths: &[PathMatch], actions: Vec<RouteAction>) -> Edit {
    let body = Body::Fragment(FragmentBody { actions });
    put(Kind::Fragment, fragment_id(domain).name, Some(claims(ports, domain, paths)), &body)
}

/// A resource with this text as its body.
pub(crate) fn raw(id: ResourceId, claims: Option<Claims>, body: &str) -> Edit {
    let body = serde_json::value::RawValue::from_string(body.to_owned()).unwrap();
    let envelope = Envelope { v: 1, origin: Vec::new(), claims, withheld: None, body: Some(body) };
    Edit::Put(Resource { id, bytes: serde_json::to_vec(&envelope).unwrap().into(), secrets: Vec::new() })
}
