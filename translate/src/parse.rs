//! First stage: one Ingress to what it asks for, whoever else asks for the same.

use std::fmt;

use config::{Domain, Match, OrderKey, PathMatch};

use crate::FleetName;
use crate::annotations::{self, Policy};
use crate::claims::{Claimant, Contender, HostKey, PathKind, PathSlot};
use crate::class::{self, Class};
use crate::few::Map;
use crate::objects::{Backend, Ingress, NamespacedName, PortRef};
use crate::outcome::{Finding, reasons};
use crate::view::View;

/// The most paths that rules without host give to hosts that stand only in `spec.tls`.
const COPIES_MAX: usize = 20_000;

/// What an Ingress of ours asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) key: NamespacedName,
    pub(crate) created: i64,
    /// The fleet; none when the class names one that does not exist.
    pub(crate) fleet: Option<FleetName>,
    /// What it claims.
    pub(crate) domains: Map<Domain, DomainClaim>,
    /// The entries of `spec.tls`.
    pub(crate) tls: Vec<TlsEntry>,
    pub(crate) policy: Policy,
    pub(crate) findings: Vec<Finding>,
}

/// One host that an Ingress claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DomainClaim {
    /// See [`Claimant::weak`].
    pub(crate) weak: bool,
    pub(crate) wants_tls: bool,
    /// The field that names it first.
    pub(crate) field: Field,
    pub(crate) routes: Vec<Route>,
}

/// A field of an Ingress. Most are never told to anybody, so the text is made when it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Field {
    #[default]
    None,
    /// The host of a rule.
    Host(usize),
    /// A path of a rule.
    Path(usize, usize),
    /// A host of an entry of `spec.tls`.
    TlsHost(usize, usize),
    DefaultBackend,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::None => Ok(()),
            Field::Host(rule) => write!(f, "spec.rules[{rule}].host"),
            Field::Path(rule, path) => write!(f, "spec.rules[{rule}].http.paths[{path}]"),
            Field::TlsHost(entry, host) => write!(f, "spec.tls[{entry}].hosts[{host}]"),
            Field::DefaultBackend => f.write_str("spec.defaultBackend"),
        }
    }
}

/// One path of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) kind: PathKind,
    /// As it is written, or what is claimed in its place.
    pub(crate) path: Box<str>,
    /// Why no request can have the path that is written. The route answers 503.
    pub(crate) fault: Option<Box<str>>,
    /// Its number within the Ingress. A route with a fault comes after all others, so that it takes no path from them.
    pub(crate) number: u32,
    /// The Service that requests go to, and its port. None: the backend is no Service.
    pub(crate) service: Option<(NamespacedName, PortRef)>,
    /// The field that it comes from.
    pub(crate) field: Field,
}

/// One entry of `spec.tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsEntry {
    pub(crate) hosts: Box<[Domain]>,
    pub(crate) secret: Option<NamespacedName>,
}

impl Parsed {
    pub(crate) fn claimant(&self, claim: &DomainClaim) -> Claimant {
        Claimant { weak: claim.weak, created: self.created, ingress: self.key.clone() }
    }

    /// The hosts that it claims.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = HostKey> {
        self.fleet.iter().flat_map(|fleet| {
            self.domains.keys().map(|domain| HostKey { fleet: fleet.clone(), domain: domain.clone() })
        })
    }

    /// The paths that it claims.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (PathSlot, Contender)> {
        self.fleet.iter().flat_map(move |fleet| {
            self.domains.iter().flat_map(move |(domain, claim)| {
                claim.routes.iter().map(move |route| {
                    let host = HostKey { fleet: fleet.clone(), domain: domain.clone() };
                    (route.slot(host), Contender { claimant: self.claimant(claim), number: route.number })
                })
            })
        })
    }

    /// The Services that it may send requests to.
    pub(crate) fn services(&self) -> impl Iterator<Item = NamespacedName> {
        let served = self.fleet.is_some() && self.policy.refusal.is_none();
        let routes = self.domains.values().flat_map(|claim| &claim.routes).filter(move |_| served);
        routes.filter_map(|route| {
            let (service, _) = route.service.as_ref()?;
            Some(service.clone())
        })
    }

    /// The Secrets that its certificates come from. They are always of its own namespace.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = NamespacedName> {
        self.tls.iter().filter_map(|entry| entry.secret.clone())
    }
}

impl Route {
    /// The field of its backend.
    pub(crate) fn backend_field(&self) -> String {
        match self.field {
            Field::Path(..) => format!("{}.backend", self.field),
            field => field.to_string(),
        }
    }

    pub(crate) fn slot(&self, host: HostKey) -> PathSlot {
        PathSlot { host, kind: self.kind, path: config::compared(&self.path).into_owned() }
    }

    /// The match as it travels. Longer paths come first and an exact path before a prefix of the same length (Ingress
    /// API reference, "multiple matches"), by the text that the router compares: no spelling makes a path longer. Default
    /// backends come after every path, weak ones last.
    pub(crate) fn to_match(&self, claimant: &Claimant) -> Match {
        let length = u32::try_from(config::compared(&self.path).len()).unwrap_or(u32::MAX);
        let (path, rank) = match self.kind {
            PathKind::Exact => (PathMatch::Exact(self.path.to_string()), vec![2, length]),
            PathKind::Prefix => (PathMatch::Prefix(self.path.to_string()), vec![1, length]),
            PathKind::Default => (PathMatch::Prefix("/".to_owned()), vec![0, u32::from(!claimant.weak)]),
        };
        let tie = (claimant.ingress.namespace.to_string(), claimant.ingress.name.to_string(), self.number);
        let key = OrderKey { rank, created: claimant.created, tie };
        Match { path, method: None, headers: Vec::new(), query: Vec::new(), key }
    }
}

/// Reads an Ingress. None: it is not ours.
pub(crate) fn parse(view: &View<'_>, key: &NamespacedName) -> Option<Parsed> {
    let ingress = view.ingress(key)?;
    let mut findings = Vec::new();
    let fleet = match class::resolve(view, ingress) {
        Class::NotOurs => return None,
        Class::Fleet(name) => Some(name),
        Class::NoFleet(message) => {
            findings.push(Finding::warning(reasons::REJECTED, "spec.ingressClassName", message));
            None
        }
    };
    let policy = annotations::read(&ingress.metadata.annotations);
    let mut domains = domains(ingress, &mut findings);
    if policy.canary {
        // The paths of a canary are those of the Ingress that it shadows: claiming them would take them away from it.
        domains.iter_mut().for_each(|(_, claim)| claim.routes.clear());
    }
    let tls = ingress.spec.tls.iter().map(|entry| TlsEntry {
        hosts: hosts(&entry.hosts),
        secret: entry
            .secret_name
            .as_ref()
            .filter(|name| !name.is_empty())
            .map(|name| NamespacedName::new(&key.namespace, name)),
    });
    Some(Parsed {
        key: key.clone(),
        created: ingress.metadata.creation_timestamp,
        fleet,
        domains,
        tls: tls.collect(),
        policy,
        findings,
    })
}

/// Hosts, each once.
fn hosts(texts: &[String]) -> Box<[Domain]> {
    let mut hosts: Vec<Domain> = texts.iter().filter_map(|host| host.parse().ok()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts.into()
}

fn domains(ingress: &Ingress, findings: &mut Vec<Finding>) -> Map<Domain, DomainClaim> {
    let spec = &ingress.spec;
    let namespace = ingress.metadata.namespace();
    let mut domains: Map<Domain, DomainClaim> = Map::default();
    // The paths of an Ingress mostly lead to one Service.
    let mut named: Option<NamespacedName> = None;
    let mut service = |backend: &Backend| {
        let service = backend.service.as_ref()?;
        if named.as_ref().is_none_or(|named| *named.name != *service.name) {
            named = Some(NamespacedName::new(namespace, &service.name));
        }
        Some((named.clone()?, service.port.clone()))
    };
    let mut read = |text: &str, field: Field| match text.parse::<Domain>() {
        Ok(domain) => Some(domain),
        Err(error) => {
            findings.push(Finding::warning(reasons::HOST_INVALID, field.to_string(), error.to_string()));
            None
        }
    };
    let mut number = 0;
    for (i, rule) in spec.rules.iter().enumerate() {
        let field = Field::Host(i);
        let domain = match rule.host.as_deref().filter(|host| !host.is_empty()) {
            None => Some(Domain::any()),
            Some(host) => read(host, field),
        };
        let Some(domain) = domain else { continue };
        let claim = domains.or_default(domain);
        if claim.field == Field::None {
            claim.field = field;
        }
        for (j, path) in rule.http.iter().flat_map(|http| &http.paths).enumerate() {
            let (kind, text, fault) = read_path(path.path.as_deref().unwrap_or_default(), &path.path_type);
            let field = Field::Path(i, j);
            let service = service(&path.backend);
            claim.routes.push(Route { kind, path: text, fault, number, service, field });
            number += 1;
        }
    }
    let routes = domains.iter_mut().flat_map(|(_, claim)| &mut claim.routes);
    let mut faulty: Vec<&mut Route> = routes.filter(|route| route.fault.is_some()).collect();
    faulty.sort_by_key(|route| route.number);
    for route in faulty {
        route.number = number;
        number += 1;
    }
    // A host that stands only in `spec.tls` is claimed too: else another namespace could take it, and answer under the
    // certificate. Rules without host are for all traffic of the Ingress, so they hold for such a host as well.
    let hostless = domains.get(&Domain::any()).map(|claim| claim.routes.clone());
    let copied = hostless.as_deref().unwrap_or_default();
    let mut room = COPIES_MAX;
    let mut too_large = None;
    for (i, entry) in spec.tls.iter().enumerate() {
        for (j, host) in entry.hosts.iter().enumerate() {
            let field = Field::TlsHost(i, j);
            let Some(domain) = read(host, field) else { continue };
            domains.or_insert_with(domain, || {
                let fits = copied.len() <= room;
                if fits {
                    room -= copied.len();
                } else {
                    too_large.get_or_insert(field);
                }
                let routes = if fits { copied.to_vec() } else { Vec::new() };
                DomainClaim { field, routes, ..DomainClaim::default() }
            });
        }
    }
    if let Some(field) = too_large {
        let message = format!(
            "rules without host, times hosts that stand only in spec.tls, are more than {COPIES_MAX} paths; this host and \
             those after it are not served; write rules for them"
        );
        findings.push(Finding::warning(reasons::TOO_LARGE, field.to_string(), message));
    }
    if let Some(backend) = &spec.default_backend {
        // The API says that the default backend handles "requests that don't match any rule", which holds for unmatched
        // paths of the Ingress's own hosts and for hosts that nobody names. ingress-nginx does the first when the
        // Ingress created the host, and the second only for an Ingress without rules. Here both always hold, but beside
        // rules the claim on every other host is weak: it yields to whoever asks for all hosts explicitly, so that no
        // Ingress takes the catch-all of a fleet by the way.
        let explicit = spec.rules.is_empty() || hostless.is_some();
        let any = domains.or_default(Domain::any());
        if any.field == Field::None {
            any.field = Field::DefaultBackend;
        }
        any.weak = !explicit;
        let service = service(backend);
        for (_, claim) in domains.iter_mut() {
            claim.routes.push(Route {
                kind: PathKind::Default,
                path: "/".into(),
                fault: None,
                number,
                service: service.clone(),
                field: Field::DefaultBackend,
            });
        }
    }
    for (domain, claim) in domains.iter_mut() {
        claim.routes.shrink_to_fit();
        // The catch-all never has a certificate of its own: nothing says which names it is for.
        claim.wants_tls = !spec.tls.is_empty() && !domain.is_any();
    }
    domains
}

/// A trailing slash in a prefix does not count (Ingress API reference, `pathType`); in an exact path it does.
///
/// A path that no request can have is claimed as the prefix above it, with the place that this prefix has by itself: what
/// its owner meant falls through to nothing wider, and nothing more specific is taken away.
fn read_path(text: &str, path_type: &str) -> (PathKind, Box<str>, Option<Box<str>>) {
    let (kind, path) = if path_type == "Exact" {
        (PathKind::Exact, text)
    } else {
        let trimmed = text.trim_end_matches('/');
        (PathKind::Prefix, if trimmed.is_empty() { "/" } else { trimmed })
    };
    match config::check_spelling(path) {
        // A path that does not begin with '/' is not one: the check of the match says so.
        Err(why) if path.starts_with('/') => {
            (PathKind::Prefix, config::spellable_part(path).into(), Some(why.to_string().into()))
        }
        _ => (kind, path.into(), None),
    }
}
