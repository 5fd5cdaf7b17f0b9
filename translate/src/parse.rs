//! First stage: one Ingress to what it asks for, whoever else asks for the same.

use std::collections::{BTreeMap, BTreeSet};

use config::{Domain, Match, OrderKey, PathMatch};

use crate::FleetName;
use crate::annotations::{self, Policy};
use crate::claims::{Claimant, Contender, HostKey, PathKind, PathSlot};
use crate::class::{self, Class};
use crate::objects::{Backend, Ingress, NamespacedName};
use crate::outcome::{Finding, reasons};
use crate::view::View;

/// The most paths that rules without host give to hosts that stand only in `spec.tls`.
const COPIES_MAX: usize = 20_000;

/// What an Ingress of ours asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parsed {
    pub(crate) key: NamespacedName,
    pub(crate) created: i64,
    /// The fleet; none when the class names one that does not exist.
    pub(crate) fleet: Option<FleetName>,
    /// What it claims.
    pub(crate) domains: BTreeMap<Domain, DomainClaim>,
    /// The entries of `spec.tls`.
    pub(crate) tls: Vec<TlsEntry>,
    pub(crate) policy: Policy,
    pub(crate) findings: Vec<Finding>,
}

/// One host that an Ingress claims.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DomainClaim {
    /// See [`Claimant::weak`].
    pub(crate) weak: bool,
    pub(crate) wants_tls: bool,
    /// The field that names it first.
    pub(crate) field: String,
    pub(crate) routes: Vec<Route>,
}

/// One path of one host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    pub(crate) kind: PathKind,
    /// As it is written, or what is claimed in its place.
    pub(crate) path: String,
    /// Why no request can have the path that is written. The route answers 503.
    pub(crate) fault: Option<String>,
    /// Its number within the Ingress. A route with a fault comes after all others, so that it takes no path from them.
    pub(crate) number: u32,
    pub(crate) backend: Backend,
    /// The field of its backend.
    pub(crate) field: String,
}

/// One entry of `spec.tls`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TlsEntry {
    pub(crate) hosts: BTreeSet<Domain>,
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
            let service = route.backend.service.as_ref()?;
            Some(NamespacedName::new(&self.key.namespace, &service.name))
        })
    }

    /// The Secrets that its certificates come from. They are always of its own namespace.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = NamespacedName> {
        self.tls.iter().filter_map(|entry| entry.secret.clone())
    }
}

impl Route {
    pub(crate) fn slot(&self, host: HostKey) -> PathSlot {
        PathSlot { host, kind: self.kind, path: config::compared(&self.path).into_owned() }
    }

    /// The match as it travels. Longer paths come first and an exact path before a prefix of the same length (Ingress
    /// API reference, "multiple matches"), by the text that the router compares: no spelling makes a path longer. Default
    /// backends come after every path, weak ones last.
    pub(crate) fn to_match(&self, claimant: &Claimant) -> Match {
        let length = u32::try_from(config::compared(&self.path).len()).unwrap_or(u32::MAX);
        let (path, rank) = match self.kind {
            PathKind::Exact => (PathMatch::Exact(self.path.clone()), vec![2, length]),
            PathKind::Prefix => (PathMatch::Prefix(self.path.clone()), vec![1, length]),
            PathKind::Default => (PathMatch::Prefix("/".to_owned()), vec![0, u32::from(!claimant.weak)]),
        };
        let tie = (claimant.ingress.namespace.clone(), claimant.ingress.name.clone(), self.number);
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
        domains.values_mut().for_each(|claim| claim.routes.clear());
    }
    let tls = ingress.spec.tls.iter().map(|entry| TlsEntry {
        hosts: entry.hosts.iter().filter_map(|host| host.parse().ok()).collect(),
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

fn domains(ingress: &Ingress, findings: &mut Vec<Finding>) -> BTreeMap<Domain, DomainClaim> {
    let spec = &ingress.spec;
    let mut domains: BTreeMap<Domain, DomainClaim> = BTreeMap::new();
    let mut read = |text: &str, field: &str| match text.parse::<Domain>() {
        Ok(domain) => Some(domain),
        Err(error) => {
            findings.push(Finding::warning(reasons::HOST_INVALID, field, error.to_string()));
            None
        }
    };
    let mut number = 0;
    for (i, rule) in spec.rules.iter().enumerate() {
        let field = format!("spec.rules[{i}].host");
        let domain = match rule.host.as_deref().filter(|host| !host.is_empty()) {
            None => Some(Domain::any()),
            Some(host) => read(host, &field),
        };
        let Some(domain) = domain else { continue };
        let claim = domains.entry(domain).or_default();
        if claim.field.is_empty() {
            claim.field = field;
        }
        for (j, path) in rule.http.iter().flat_map(|http| &http.paths).enumerate() {
            let (kind, text, fault) = read_path(path.path.as_deref().unwrap_or_default(), &path.path_type);
            let field = format!("spec.rules[{i}].http.paths[{j}].backend");
            claim.routes.push(Route { kind, path: text, fault, number, backend: path.backend.clone(), field });
            number += 1;
        }
    }
    let mut faulty: Vec<&mut Route> =
        domains.values_mut().flat_map(|claim| &mut claim.routes).filter(|route| route.fault.is_some()).collect();
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
            let field = format!("spec.tls[{i}].hosts[{j}]");
            let Some(domain) = read(host, &field) else { continue };
            domains.entry(domain).or_insert_with(|| {
                let fits = copied.len() <= room;
                if fits {
                    room -= copied.len();
                } else {
                    too_large.get_or_insert(field.clone());
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
        findings.push(Finding::warning(reasons::TOO_LARGE, field, message));
    }
    if let Some(backend) = &spec.default_backend {
        // The API says that the default backend handles "requests that don't match any rule", which holds for unmatched
        // paths of the Ingress's own hosts and for hosts that nobody names. ingress-nginx does the first when the
        // Ingress created the host, and the second only for an Ingress without rules. Here both always hold, but beside
        // rules the claim on every other host is weak: it yields to whoever asks for all hosts explicitly, so that no
        // Ingress takes the catch-all of a fleet by the way.
        let explicit = spec.rules.is_empty() || hostless.is_some();
        let any = domains.entry(Domain::any()).or_default();
        if any.field.is_empty() {
            any.field = "spec.defaultBackend".to_owned();
        }
        any.weak = !explicit;
        for claim in domains.values_mut() {
            claim.routes.push(Route {
                kind: PathKind::Default,
                path: "/".to_owned(),
                fault: None,
                number,
                backend: backend.clone(),
                field: "spec.defaultBackend".to_owned(),
            });
        }
    }
    for (domain, claim) in &mut domains {
        // The catch-all never has a certificate of its own: nothing says which names it is for.
        claim.wants_tls = !spec.tls.is_empty() && !domain.is_any();
    }
    domains
}

/// A trailing slash in a prefix does not count (Ingress API reference, `pathType`); in an exact path it does.
///
/// A path that no request can have is claimed as the prefix above it, with the place that this prefix has by itself: what
/// its owner meant falls through to nothing wider, and nothing more specific is taken away.
fn read_path(text: &str, path_type: &str) -> (PathKind, String, Option<String>) {
    let (kind, path) = if path_type == "Exact" {
        (PathKind::Exact, text)
    } else {
        let trimmed = text.trim_end_matches('/');
        (PathKind::Prefix, if trimmed.is_empty() { "/" } else { trimmed })
    };
    match config::check_spelling(path) {
        // A path that does not begin with '/' is not one: the check of the match says so.
        Err(why) if path.starts_with('/') => {
            (PathKind::Prefix, config::spellable_part(path).to_owned(), Some(why.to_string()))
        }
        _ => (kind, path.to_owned(), None),
    }
}
