//! `scalws.yaml`: a configuration that people write by hand, for a proxy without agent and controller.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use config::{
    Action, Body, CertificateBody, CertificateName, Claims, Domain, Envelope, ForwardAction, FragmentBody,
    FragmentName, HeaderChanges, HeaderMatch, HostBody, HostName, HostTls, Kind, ListenerBody, ListenerName,
    ListenerProtocol, Match, MemberSetName, MemberSource, Method, ObjectRef, OrderKey, PathMatch, PathRewrite,
    PoolBody, PoolName, QueryMatch, Redirect, Resource, ResourceId, RouteAction, SecretDigest, Share, Timeouts,
    ToHttps, Transport, UnknownName, UpstreamProtocol,
};
use journal::{Digest, Key, Tree, digest};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::state::Change;

/// The largest file that is read, in bytes.
const FILE_MAX: u64 = 64 << 20;
/// Stands where a namespace is needed.
const NAMESPACE: &str = "file";

/// The file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    listeners: Vec<Listener>,
    #[serde(default)]
    certificates: Vec<Certificate>,
    #[serde(default)]
    pools: Vec<Pool>,
    #[serde(default)]
    hosts: Vec<Host>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Listener {
    port: u16,
    #[serde(default = "http")]
    protocol: ListenerProtocol,
    #[serde(default)]
    unknown_name: UnknownName,
    #[serde(default)]
    default_certificate: Option<String>,
}

fn http() -> ListenerProtocol {
    ListenerProtocol::Http
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Certificate {
    name: String,
    chain: PathBuf,
    key: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Pool {
    name: String,
    #[serde(default)]
    members: Vec<String>,
    #[serde(default)]
    dns: Option<Dns>,
    #[serde(default)]
    protocol: UpstreamProtocol,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Dns {
    host: String,
    port: u16,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Host {
    domain: String,
    #[serde(default)]
    listeners: Option<Vec<u16>>,
    #[serde(default)]
    certificates: Vec<String>,
    #[serde(default)]
    routes: Vec<Route>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Route {
    #[serde(default)]
    path: Path_,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    headers: Vec<HeaderMatch>,
    #[serde(default)]
    query: Vec<QueryMatch>,
    #[serde(default)]
    forward: Option<Forward>,
    #[serde(default)]
    redirect: Option<Redirect>,
    #[serde(default)]
    respond: Option<u16>,
    #[serde(default)]
    to_https: Option<ToHttps>,
    #[serde(default)]
    rewrite: Option<PathRewrite>,
    #[serde(default)]
    host: Option<String>,
    #[serde(default)]
    request_headers: HeaderChanges,
    #[serde(default)]
    response_headers: HeaderChanges,
    #[serde(default)]
    timeouts: Timeouts,
    #[serde(default = "two")]
    retries: u8,
}

fn two() -> u8 {
    2
}

/// A path: a text is a prefix.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Path_ {
    Prefix(String),
    Match(PathMatch),
}

impl Default for Path_ {
    fn default() -> Path_ {
        Path_::Prefix("/".to_owned())
    }
}

/// One pool, or several with weights.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Forward {
    One(String),
    Many(Vec<Weighted>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Weighted {
    pool: String,
    weight: u32,
}

/// A configuration that was read.
pub struct Read {
    resources: BTreeMap<ResourceId, Bytes>,
    members: BTreeMap<String, Vec<Arc<str>>>,
    /// Private keys, by digest.
    pub keys: BTreeMap<SecretDigest, Zeroizing<Vec<u8>>>,
    /// The root of the resources.
    pub root: Digest,
}

/// The file, and what was loaded from it last.
pub struct StandAlone {
    path: PathBuf,
    resources: BTreeMap<ResourceId, Bytes>,
    members: BTreeMap<String, Vec<Arc<str>>>,
}

impl Read {
    /// Everything, as changes of nothing.
    pub fn changes(&self) -> Vec<Change> {
        self.resources.iter().map(|(id, bytes)| Change { id: id.clone(), bytes: Some(bytes.clone()) }).collect()
    }

    /// The member sets that the file holds.
    pub fn members(&self) -> &BTreeMap<String, Vec<Arc<str>>> {
        &self.members
    }
}

impl StandAlone {
    /// A file that was not read yet.
    pub fn new(path: &Path) -> StandAlone {
        StandAlone { path: path.to_owned(), resources: BTreeMap::new(), members: BTreeMap::new() }
    }

    /// Reads the file, and the certificates and keys that it names.
    ///
    /// # Errors
    /// Sentences that name the place in the file.
    pub fn read(&self) -> Result<Read, Vec<String>> {
        let of_file = |error: String| vec![format!("{}: {error}", self.path.display())];
        let text = read_text(&self.path).map_err(of_file)?;
        let file: File = serde_saphyr::from_str(&text).map_err(|e| of_file(e.to_string()))?;
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let read = Read {
            resources: BTreeMap::new(),
            members: BTreeMap::new(),
            keys: BTreeMap::new(),
            root: Tree::default().root(),
        };
        let mut writer = Writer { folder, read, errors: Vec::new(), listeners: BTreeMap::new() };
        writer.file(&file);
        let Writer { mut read, errors, .. } = writer;
        if !errors.is_empty() {
            return Err(errors.into_iter().flat_map(of_file).collect());
        }
        let mut tree = Tree::default();
        for (id, bytes) in &read.resources {
            let key = Key::new(id.kind.as_str(), id.name.as_str());
            let leaf = digest::leaf(&key, bytes);
            tree.insert(key, leaf);
        }
        read.root = tree.root();
        Ok(read)
    }

    /// What differs from what was kept last.
    pub fn changes(&self, read: &Read) -> Vec<(Key, Option<Bytes>)> {
        let key = |id: &ResourceId| Key::new(id.kind.as_str(), id.name.as_str());
        let gone = self.resources.keys().filter(|id| !read.resources.contains_key(id)).map(|id| (key(id), None));
        let new = read.resources.iter().filter(|(id, bytes)| self.resources.get(id) != Some(bytes));
        gone.chain(new.map(|(id, bytes)| (key(id), Some(bytes.clone())))).collect()
    }

    /// What was read is loaded. Gives the member sets that the file changed: others hold what was set at run time.
    pub fn keep(&mut self, read: Read) -> Vec<(String, Option<Vec<Arc<str>>>)> {
        let gone = self.members.keys().filter(|set| !read.members.contains_key(*set)).map(|set| (set.clone(), None));
        let new = read.members.iter().filter(|(set, members)| self.members.get(*set) != Some(members));
        let changed = gone.chain(new.map(|(set, members)| (set.clone(), Some(members.clone())))).collect();
        self.resources = read.resources;
        self.members = read.members;
        changed
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let bytes = read_bytes(path)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| "it is not UTF-8".to_owned())
}

fn read_bytes(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let size = std::fs::metadata(path).map_err(|e| e.to_string())?.len();
    if size > FILE_MAX {
        return Err(format!("{size} bytes are more than {FILE_MAX}"));
    }
    std::fs::read(path).map(Zeroizing::new).map_err(|e| e.to_string())
}

/// Turns the file into resources.
struct Writer<'a> {
    folder: &'a Path,
    read: Read,
    errors: Vec<String>,
    listeners: BTreeMap<u16, ListenerProtocol>,
}

impl Writer<'_> {
    fn file(&mut self, file: &File) {
        for (number, listener) in file.listeners.iter().enumerate() {
            self.listeners.insert(listener.port, listener.protocol);
            let body = ListenerBody {
                protocol: listener.protocol,
                unknown_name: listener.unknown_name,
                default_certificate: listener.default_certificate.as_deref().map(certificate_name),
                pool: None,
            };
            let name = ListenerName::tcp(listener.port);
            if listener.port == 0 {
                self.errors.push(format!("listeners[{number}].port: 0 is no port"));
            } else {
                self.put(&format!("listeners[{number}]"), Kind::Listener, name.to_name(), None, &Body::Listener(body));
            }
        }
        for (number, certificate) in file.certificates.iter().enumerate() {
            if let Err(why) = self.certificate(number, certificate) {
                self.errors.push(format!("certificates[{number}] ({:?}): {why}", certificate.name));
            }
        }
        for (number, pool) in file.pools.iter().enumerate() {
            self.pool(number, pool);
        }
        for (number, host) in file.hosts.iter().enumerate() {
            if let Err(why) = self.host(number, host) {
                self.errors.push(format!("hosts[{number}] ({:?}): {why}", host.domain));
            }
        }
    }

    fn put(&mut self, at: &str, kind: Kind, name: config::Name, claims: Option<Claims>, body: &Body) {
        let Resource { id, bytes, .. } = Envelope::with_body(ResourceId { kind, name }, Vec::new(), claims, body);
        if self.read.resources.insert(id, bytes).is_some() {
            self.errors.push(format!("{at}: there are two of this name"));
        }
    }

    fn certificate(&mut self, number: usize, certificate: &Certificate) -> Result<(), String> {
        let chain = read_text(&self.folder.join(&certificate.chain)).map_err(|e| format!("chain: {e}"))?;
        let key = read_bytes(&self.folder.join(&certificate.key)).map_err(|e| format!("key: {e}"))?;
        let digest = SecretDigest(Digest::of(&key).to_string().into());
        self.read.keys.insert(digest.clone(), key);
        let body = Body::Certificate(CertificateBody { chain, key: digest });
        let name = certificate_name(&certificate.name).to_name();
        self.put(&format!("certificates[{number}]"), Kind::Certificate, name, None, &body);
        Ok(())
    }

    fn pool(&mut self, number: usize, pool: &Pool) {
        let set = MemberSetName {
            namespace: NAMESPACE.to_owned(),
            service: pool.name.clone(),
            port: 1,
            transport: Transport::Tcp,
        };
        let members = match &pool.dns {
            Some(dns) => MemberSource::Dns { host: dns.host.clone(), port: dns.port },
            None => MemberSource::Set(set.clone()),
        };
        if pool.dns.is_some() != pool.members.is_empty() {
            self.errors.push(format!("pools[{number}] ({:?}): exactly one of members and dns is needed", pool.name));
        }
        for member in &pool.members {
            if member.parse::<std::net::SocketAddr>().is_err() {
                let why = format!("{member:?} is not address:port (IPv6 in brackets)");
                self.errors.push(format!("pools[{number}] ({:?}): members: {why}", pool.name));
            }
        }
        if pool.dns.is_none() {
            let members = pool.members.iter().map(|m| Arc::from(m.as_str())).collect();
            self.read.members.insert(set.to_name().as_str().to_owned(), members);
        }
        let body = Body::Pool(PoolBody { members, protocol: pool.protocol, tls: None });
        self.put(&format!("pools[{number}]"), Kind::Pool, pool_name(&pool.name).to_name(), None, &body);
    }

    fn host(&mut self, number: usize, host: &Host) -> Result<(), String> {
        let at = format!("hosts[{number}]");
        let domain: Domain = host.domain.parse().map_err(|e| format!("domain: {e}"))?;
        let ports = host.listeners.clone().unwrap_or_else(|| self.listeners.keys().copied().collect());
        let mut listeners = Vec::new();
        for port in ports {
            let protocol =
                *self.listeners.get(&port).ok_or_else(|| format!("listeners: there is none on port {port}"))?;
            let tls = (protocol == ListenerProtocol::Tls).then(|| HostTls::Terminate {
                certificates: host.certificates.iter().map(|name| certificate_name(name)).collect(),
                fallback: UnknownName::Default,
                client_auth: None,
            });
            let body = Body::Host(HostBody { owner: NAMESPACE.to_owned(), tls });
            let name = HostName { listener: ListenerName::tcp(port), domain: domain.clone() };
            self.put(&at, Kind::Host, name.to_name(), None, &body);
            listeners.push(ListenerName::tcp(port));
        }
        if host.routes.is_empty() {
            return Ok(());
        }
        listeners.sort_unstable();
        let mut matches = Vec::new();
        let mut actions = Vec::new();
        for (number, route) in host.routes.iter().enumerate() {
            let at = |why: String| format!("routes[{number}]: {why}");
            matches.push(route_match(number, route, &domain));
            actions.push(route_action(route).map_err(at)?);
        }
        let source =
            ObjectRef { kind: "Host".to_owned(), namespace: NAMESPACE.to_owned(), name: domain.as_str().to_owned() };
        let name = FragmentName { source, domain: domain.clone() }.to_name();
        let claims = Claims { listeners, host: domain, matches };
        self.put(&at, Kind::Fragment, name, Some(claims), &Body::Fragment(FragmentBody { actions }));
        Ok(())
    }
}

fn certificate_name(name: &str) -> CertificateName {
    CertificateName { namespace: NAMESPACE.to_owned(), name: name.to_owned() }
}

fn pool_name(name: &str) -> PoolName {
    PoolName { namespace: NAMESPACE.to_owned(), service: name.to_owned(), port: 1, variant: String::new() }
}

/// Exact paths come first, then expressions in the order of the file, then prefixes from the longest; among equals more
/// conditions come first, then the order of the file.
fn route_match(number: usize, route: &Route, domain: &Domain) -> Match {
    let path = match &route.path {
        Path_::Prefix(prefix) => PathMatch::Prefix(prefix.clone()),
        Path_::Match(path) => path.clone(),
    };
    let (class, length) = match &path {
        PathMatch::Exact(path) => (3, path.len()),
        PathMatch::Regex(_) => (2, 0),
        PathMatch::Prefix(path) => (1, path.len()),
    };
    let conditions = usize::from(route.method.is_some()) + route.headers.len() + route.query.len();
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Match {
        path,
        method: route.method.clone().map(Method),
        headers: route.headers.clone(),
        query: route.query.clone(),
        key: OrderKey {
            rank: vec![class, small(length), small(conditions)],
            created: 0,
            tie: (NAMESPACE.to_owned(), domain.as_str().to_owned(), small(number)),
        },
    }
}

fn route_action(route: &Route) -> Result<RouteAction, String> {
    let action = match (&route.forward, &route.redirect, route.respond) {
        (Some(forward), None, None) => {
            let share = |pool: &str, weight| Share::Pool { name: pool_name(pool), weight };
            let shares = match forward {
                Forward::One(pool) => vec![share(pool, 1)],
                Forward::Many(many) => many.iter().map(|w| share(&w.pool, w.weight)).collect(),
            };
            Action::Forward(ForwardAction {
                shares,
                path: route.rewrite.clone(),
                host: route.host.clone(),
                request_headers: route.request_headers.clone(),
                timeouts: route.timeouts.clone(),
                retries: route.retries,
            })
        }
        (None, Some(redirect), None) => Action::Redirect(redirect.clone()),
        (None, None, Some(status)) => Action::Respond(status),
        _ => return Err("exactly one of forward, redirect and respond is needed".to_owned()),
    };
    Ok(RouteAction {
        action,
        to_https: route.to_https.clone(),
        policies: Vec::new(),
        response_headers: route.response_headers.clone(),
    })
}
