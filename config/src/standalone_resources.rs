//! From `scalws.yaml` to the resources that it stands for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::standalone::{
    FileCertificate, FileForward, FileHost, FileListener, FilePath, FilePool, FileRoute, StandaloneFile,
};
use crate::{
    Action, Body, CertificateBody, CertificateName, Claims, Domain, Envelope, ForwardAction, FragmentBody,
    FragmentName, HeaderMatch, HostBody, HostName, HostTls, Kind, ListenerBody, ListenerName, ListenerProtocol, Match,
    MemberSetName, MemberSource, Method, Name, ObjectRef, OrderKey, PathMatch, PoolBody, PoolName, Resource,
    ResourceId, RouteAction, SecretDigest, Share, State, ToHttps, Transport, UnknownName, check_spelling, compared,
    load,
};

/// The namespace in the names of all that a file declares.
const NAMESPACE: &str = "file";
/// The port in the names of pools and member sets; a file's pools have none of their own.
const NAME_PORT: u16 = 1;

/// How the paths in a file are read. The reader knows what relative paths are relative to.
pub trait StandaloneFiles {
    /// The text of a file that is no secret.
    ///
    /// # Errors
    /// A sentence that names the path.
    fn text(&mut self, path: &str) -> Result<String, String>;

    /// Reads and keeps a secret file, and gives its digest.
    ///
    /// # Errors
    /// A sentence that names the path and shows nothing of the content.
    fn secret(&mut self, path: &str) -> Result<SecretDigest, String>;
}

/// What a file stands for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standalone {
    /// Every resource, sorted.
    pub resources: Vec<Resource>,
    /// The members of every set that the file declares: `address:port`, sorted, each once.
    pub members: BTreeMap<MemberSetName, Vec<String>>,
}

impl StandaloneFile {
    /// The resources of the file. All of them are live.
    ///
    /// # Errors
    /// Every fault of the file, each with the place where it is, such as `hosts[0].routes[2].pool`.
    pub fn resources(&self, files: &mut dyn StandaloneFiles) -> Result<Standalone, Vec<String>> {
        let mut reader = Reader { file: self, out: Standalone::default(), seen: BTreeSet::new(), errors: Vec::new() };
        for (i, listener) in self.listeners.iter().enumerate() {
            reader.at(&format!("listeners[{i}]"), |reader, at| reader.listener(at, listener));
        }
        for (i, certificate) in self.certificates.iter().enumerate() {
            reader.at(&format!("certificates[{i}]"), |reader, at| reader.certificate(at, certificate, files));
        }
        for (i, pool) in self.pools.iter().enumerate() {
            reader.at(&format!("pools[{i}]"), |reader, at| reader.pool(at, pool));
        }
        for (i, host) in self.hosts.iter().enumerate() {
            reader.at(&format!("hosts[{i}]"), |reader, at| reader.host(at, host));
        }
        let Reader { mut out, errors, .. } = reader;
        out.resources.sort_by(|a, b| a.id.cmp(&b.id));
        if errors.is_empty() { Ok(out) } else { Err(errors) }
    }
}

/// The work under way.
struct Reader<'f> {
    file: &'f StandaloneFile,
    out: Standalone,
    seen: BTreeSet<ResourceId>,
    errors: Vec<String>,
}

impl Reader<'_> {
    fn at(&mut self, at: &str, read: impl FnOnce(&mut Self, &str) -> Result<(), String>) {
        if let Err(why) = read(self, at) {
            self.errors.push(format!("{at}{why}"));
        }
    }

    /// Adds a resource, after the validation that every resource passes.
    fn put(&mut self, kind: Kind, name: Name, claims: Option<Claims>, body: &Body) -> Result<(), String> {
        let id = ResourceId { kind, name };
        if !self.seen.insert(id.clone()) {
            return Err(format!(": there already is a {kind} {}", id.name));
        }
        let resource = Envelope::with_body(id.clone(), vec![source()], claims, body);
        let loaded = load(id, &resource.bytes).map_err(|e| format!(": {}", e.why))?;
        match loaded.state {
            State::Live(_) => {
                self.out.resources.push(resource);
                Ok(())
            }
            State::NotLive { message, .. } => Err(format!(": {message}")),
            State::Withheld(withheld) => Err(format!(": {}", withheld.message)),
        }
    }

    fn listener(&mut self, _at: &str, listener: &FileListener) -> Result<(), String> {
        let default_certificate = match &listener.default_certificate {
            Some(name) => Some(self.certificate_name(name).map_err(|why| format!(".defaultCertificate: {why}"))?),
            None => None,
        };
        let pool = match &listener.pool {
            Some(name) => Some(self.pool_name(name).map_err(|why| format!(".pool: {why}"))?),
            None => None,
        };
        let body = ListenerBody {
            protocol: listener.protocol,
            unknown_name: listener.unknown_name,
            default_certificate,
            pool,
        };
        let name = ListenerName { transport: listener.transport, port: listener.port };
        self.put(Kind::Listener, name.to_name(), None, &Body::Listener(body))
    }

    fn certificate(
        &mut self,
        _at: &str,
        certificate: &FileCertificate,
        files: &mut dyn StandaloneFiles,
    ) -> Result<(), String> {
        let chain = if certificate.chain.trim_start().starts_with("-----BEGIN") {
            certificate.chain.clone()
        } else {
            files.text(&certificate.chain).map_err(|why| format!(".chain: {why}"))?
        };
        let key = files.secret(&certificate.key).map_err(|why| format!(".key: {why}"))?;
        let name = self.certificate_name(&certificate.name).map_err(|why| format!(".name: {why}"))?;
        self.put(Kind::Certificate, name.to_name(), None, &Body::Certificate(CertificateBody { chain, key }))
    }

    fn pool(&mut self, _at: &str, pool: &FilePool) -> Result<(), String> {
        let name = self.pool_name(&pool.name).map_err(|why| format!(".name: {why}"))?;
        let members = match (&pool.members, &pool.dns) {
            (Some(members), None) => {
                let set = member_set(&pool.name);
                let mut addresses = Vec::new();
                for (i, member) in members.iter().enumerate() {
                    match member.parse::<SocketAddr>() {
                        Ok(address) if address.port() > 0 => addresses.push(address.to_string()),
                        _ => return Err(format!(".members[{i}]: {member:?} is not address:port")),
                    }
                }
                addresses.sort_unstable();
                addresses.dedup();
                self.out.members.insert(set.clone(), addresses);
                MemberSource::Set(set)
            }
            (None, Some(dns)) => MemberSource::Dns { host: dns.host.clone(), port: dns.port },
            _ => return Err(": exactly one of members and dns must be given".to_owned()),
        };
        let body = PoolBody { members, protocol: pool.protocol, tls: None };
        self.put(Kind::Pool, name.to_name(), None, &Body::Pool(body))
    }

    fn host(&mut self, at: &str, host: &FileHost) -> Result<(), String> {
        let domain: Domain = host.domain.parse().map_err(|e| format!(".domain: {e}"))?;
        let listeners = self.listeners_of(host)?;
        let tls = match &host.passthrough {
            Some(_) if !host.routes.is_empty() || !host.certificates.is_empty() => {
                return Err(".passthrough: it leaves no place for routes and certificates".to_owned());
            }
            Some(pool) => {
                HostTls::Passthrough { pool: self.pool_name(pool).map_err(|why| format!(".passthrough: {why}"))? }
            }
            None => {
                let names = host.certificates.iter().map(|name| self.certificate_name(name));
                let certificates = names.collect::<Result<_, _>>().map_err(|why| format!(".certificates: {why}"))?;
                HostTls::Terminate { certificates, fallback: UnknownName::Default, client_auth: None }
            }
        };
        for (name, protocol) in &listeners {
            let tls = (*protocol == ListenerProtocol::Tls).then(|| tls.clone());
            let body = HostBody { owner: NAMESPACE.to_owned(), tls };
            let name = HostName { listener: *name, domain: domain.clone() };
            self.put(Kind::Host, name.to_name(), None, &Body::Host(body))?;
        }
        if host.passthrough.is_some() {
            return Ok(());
        }
        let to_https = if host.redirect_to_https { Some(self.to_https()?) } else { None };
        let (mut matches, mut actions) = (Vec::new(), Vec::new());
        for (i, route) in host.routes.iter().enumerate() {
            match self.action(route, to_https.as_ref()) {
                Ok(action) => {
                    let one = claim(&domain, i, route);
                    if let Err(why) = spelled(&one.path) {
                        self.errors.push(format!("{at}.routes[{i}].path: {why}"));
                    }
                    matches.push(one);
                    actions.push(action);
                }
                Err(why) => self.errors.push(format!("{at}.routes[{i}]{why}")),
            }
        }
        if host.routes.is_empty() {
            return Ok(());
        }
        let name = FragmentName { source: source(), domain: domain.clone() };
        let claims = Claims { listeners: listeners.into_iter().map(|(name, _)| name).collect(), host: domain, matches };
        self.put(Kind::Fragment, name.to_name(), Some(claims), &Body::Fragment(FragmentBody { actions }))
    }

    /// The listeners of a host, each once.
    fn listeners_of(&self, host: &FileHost) -> Result<Vec<(ListenerName, ListenerProtocol)>, String> {
        let wanted = |listener: &&FileListener| match &host.listeners {
            Some(ports) => ports.contains(&listener.port),
            None => listener.protocol != ListenerProtocol::Raw,
        };
        let usable = |listener: &&FileListener| {
            // Port 0 was reported with its listener.
            listener.port != 0
                && listener.transport == Transport::Tcp
                && listener.protocol != ListenerProtocol::Raw
                && (host.passthrough.is_none() || listener.protocol == ListenerProtocol::Tls)
        };
        for port in host.listeners.iter().flatten() {
            if !self.file.listeners.iter().filter(usable).any(|listener| listener.port == *port) {
                return Err(format!(".listeners: no listener with port {port} can serve this host"));
            }
        }
        let found = self.file.listeners.iter().filter(wanted).filter(usable);
        let mut found: Vec<_> = found.map(|listener| (ListenerName::tcp(listener.port), listener.protocol)).collect();
        // A port that is listed twice was reported with its listener.
        found.sort_by_key(|(name, _)| *name);
        found.dedup_by_key(|(name, _)| *name);
        if found.is_empty() {
            return Err(": no listener can serve this host".to_owned());
        }
        Ok(found)
    }

    fn to_https(&self) -> Result<ToHttps, String> {
        let tls = self.file.listeners.iter().find(|listener| listener.protocol == ListenerProtocol::Tls);
        let port = tls.map(|listener| listener.port).ok_or(".redirectToHttps: there is no tls listener")?;
        Ok(ToHttps { status: 308, port })
    }

    fn action(&self, route: &FileRoute, to_https: Option<&ToHttps>) -> Result<RouteAction, String> {
        let action = match (&route.forward, &route.redirect, route.respond) {
            (Some(forward), None, None) => self.forward(route, forward)?,
            (None, Some(redirect), None) => Action::Redirect(redirect.clone()),
            (None, None, Some(status)) => Action::Respond(status),
            _ => return Err(": exactly one of forward, redirect and respond must be given".to_owned()),
        };
        let plain = ForwardAction::to(Vec::new());
        let FileRoute { rewrite, host, request_headers, timeouts, retries, .. } = route;
        let changes_forwarding = rewrite.is_some()
            || host.is_some()
            || retries.is_some()
            || *request_headers != plain.request_headers
            || *timeouts != plain.timeouts;
        if changes_forwarding && route.forward.is_none() {
            return Err(": rewrite, host, requestHeaders, timeouts and retries need forward".to_owned());
        }
        Ok(RouteAction {
            action,
            to_https: route.to_https.as_ref().or(to_https).cloned(),
            policies: Vec::new(),
            response_headers: route.response_headers.clone(),
        })
    }

    fn forward(&self, route: &FileRoute, to: &FileForward) -> Result<Action, String> {
        let share = |pool: &str, weight: u32| {
            Ok(Share::Pool { name: self.pool_name(pool).map_err(|why| format!(".forward: {why}"))?, weight })
        };
        let shares = match to {
            FileForward::One(pool) => vec![share(pool, 1)?],
            FileForward::Many(many) => {
                many.iter().map(|one| share(&one.pool, one.weight)).collect::<Result<_, String>>()?
            }
        };
        Ok(Action::Forward(ForwardAction {
            path: route.rewrite.clone(),
            host: route.host.clone(),
            request_headers: route.request_headers.clone(),
            timeouts: route.timeouts.clone(),
            retries: route.retries.unwrap_or(ForwardAction::to(Vec::new()).retries),
            ..ForwardAction::to(shares)
        }))
    }

    /// The name of a pool that the file declares.
    fn pool_name(&self, name: &str) -> Result<PoolName, String> {
        if !self.file.pools.iter().any(|pool| pool.name == name) {
            return Err(format!("there is no pool {name:?}"));
        }
        let (namespace, service) = (NAMESPACE.to_owned(), name.to_owned());
        Ok(PoolName { namespace, service, port: NAME_PORT, variant: String::new() })
    }

    /// The name of a certificate that the file declares.
    fn certificate_name(&self, name: &str) -> Result<CertificateName, String> {
        if !self.file.certificates.iter().any(|certificate| certificate.name == name) {
            return Err(format!("there is no certificate {name:?}"));
        }
        Ok(CertificateName { namespace: NAMESPACE.to_owned(), name: name.to_owned() })
    }
}

fn source() -> ObjectRef {
    ObjectRef { kind: "File".to_owned(), namespace: String::new(), name: "scalws.yaml".to_owned() }
}

fn member_set(pool: &str) -> MemberSetName {
    let (namespace, service) = (NAMESPACE.to_owned(), pool.to_owned());
    MemberSetName { namespace, service, port: NAME_PORT, transport: Transport::Tcp }
}

/// The match of a route: exact paths first, then expressions as they stand, then the longest prefix; then whoever asks more.
fn claim(domain: &Domain, place: usize, route: &FileRoute) -> Match {
    let path = match &route.path {
        FilePath::Prefix(path) | FilePath::Match(PathMatch::Prefix(path)) => {
            PathMatch::Prefix(trim_prefix(path).to_owned())
        }
        FilePath::Match(path) => path.clone(),
    };
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let asks = [u32::from(route.method.is_some()), count(route.headers.len()), count(route.query.len())];
    let rank = match &path {
        PathMatch::Exact(_) => [vec![3, 0], asks.to_vec()].concat(),
        PathMatch::Regex(_) => vec![2],
        PathMatch::Prefix(path) => [vec![1, count(compared(path).len())], asks.to_vec()].concat(),
    };
    let lower = |header: &HeaderMatch| HeaderMatch { name: header.name.to_ascii_lowercase(), ..header.clone() };
    Match {
        path,
        method: route.method.clone().map(Method),
        headers: route.headers.iter().map(lower).collect(),
        query: route.query.clone(),
        key: OrderKey { rank, created: 0, tie: (NAMESPACE.to_owned(), domain.as_str().to_owned(), count(place)) },
    }
}

/// A path that no request can have is a fault of the file.
fn spelled(path: &PathMatch) -> Result<(), String> {
    match path {
        // The check of the match tells what does not begin with '/'.
        PathMatch::Exact(path) | PathMatch::Prefix(path) if path.starts_with('/') => {
            check_spelling(path).map_err(|why| format!("no request can match {path:?}: {why}"))
        }
        _ => Ok(()),
    }
}

fn trim_prefix(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" if path.starts_with('/') => "/",
        trimmed => trimmed,
    }
}
