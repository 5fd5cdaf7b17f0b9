//! Last stage of an Ingress: its fragments, the pools that they need, and what is to be said about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{
    Action, Body, Claims, Domain, Envelope, ForwardAction, FragmentBody, FragmentName, HeaderChanges, HostName, Kind,
    ListenerName, Match, ObjectRef, PathMatch, PoolName, Resource, ResourceId, RouteAction, Share, State, Timeouts,
    ToHttps, Withheld,
};

use crate::FleetName;
use crate::address;
use crate::backend::Shape;
use crate::claims::HostKey;
use crate::host::HostState;
use crate::objects::NamespacedName;
use crate::outcome::{BackendRef, Draft, FINDINGS_MAX, Finding, Served, Severity, reasons};
use crate::parse::{DomainClaim, Parsed, Route};
use crate::view::View;
use crate::world::FleetSettings;

/// Ingress paths below this are never redirected: who checks an ACME challenge need not trust the old certificate.
const ACME: &str = "/.well-known/acme-challenge";

/// From these sizes on it is checked whether a fragment still loads; below them it always does.
const LARGE_BYTES: usize = 256 << 10;
const LARGE_ROUTES: usize = 1_000;

/// The longest path that is claimed as it is written instead of one that is too long to travel, in bytes.
const CLAIMABLE_BYTES: usize = 4 << 10;

/// What one Ingress comes to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Output {
    /// The fleet that the resources are for.
    pub(crate) fleet: Option<FleetName>,
    /// In the order of their ids.
    pub(crate) fragments: Box<[Resource]>,
    /// The pools that the fragments name, sorted.
    pub(crate) pools: Box<[PoolName]>,
    /// Every Service port that was found, served or not, sorted.
    pub(crate) backends: Box<[BackendRef]>,
    pub(crate) draft: Arc<Draft>,
}

impl Output {
    /// A fragment by its id.
    pub(crate) fn fragment(&self, id: &ResourceId) -> Option<&Resource> {
        let at = self.fragments.binary_search_by(|resource| resource.id.cmp(id)).ok()?;
        Some(&self.fragments[at])
    }
}

/// The object that an Ingress is.
pub(crate) fn reference(key: &NamespacedName) -> ObjectRef {
    ObjectRef { kind: "Ingress".to_owned(), namespace: key.namespace.to_string(), name: key.name.to_string() }
}

/// Works out an Ingress of ours.
pub(crate) fn output(view: &View<'_>, key: &NamespacedName) -> Option<Output> {
    let parsed = view.parsed(key)?;
    let mut work = Work {
        view,
        parsed,
        findings: parsed.findings.clone(),
        fragments: BTreeMap::new(),
        pools: BTreeSet::new(),
        backends: BTreeSet::new(),
        resources: BTreeSet::new(),
        lost: false,
        more: 0,
    };
    if let Some(fleet) = &parsed.fleet
        && let Some(settings) = view.fleet(fleet)
    {
        if let Some((annotation, why)) = &parsed.policy.refusal {
            let message = format!("not served because of the annotation {annotation}: {why}; its paths answer 503");
            let field = format!("metadata.annotations[{annotation}]");
            work.findings.push(Finding::warning(reasons::REJECTED, field, message));
        }
        for (domain, claim) in parsed.domains.iter() {
            work.domain(&HostKey { fleet: fleet.clone(), domain: domain.clone() }, claim, settings);
        }
        work.findings.extend(parsed.policy.findings.iter().cloned());
        if parsed.policy.refusal.is_none()
            && let Some(tls) = view.tls(key)
        {
            work.findings.extend(tls.findings.iter().cloned());
        }
    }
    Some(work.finish())
}

struct Work<'a> {
    view: &'a View<'a>,
    parsed: &'a Parsed,
    findings: Vec<Finding>,
    fragments: BTreeMap<ResourceId, Resource>,
    pools: BTreeSet<PoolName>,
    backends: BTreeSet<BackendRef>,
    resources: BTreeSet<ResourceId>,
    lost: bool,
    /// Findings that are not listed.
    more: usize,
}

impl Work<'_> {
    fn say(&mut self, finding: Finding) {
        if self.findings.len() >= FINDINGS_MAX {
            self.more += 1;
        } else if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    fn domain(&mut self, key: &HostKey, claim: &DomainClaim, settings: &FleetSettings) {
        let Some(host) = self.view.host(key) else { return };
        if host.namespace() != &*self.parsed.key.namespace {
            self.conflict(&key.domain, host, claim);
            return;
        }
        let listeners = [settings.http_port, settings.https_port].map(ListenerName::tcp);
        for listener in listeners {
            let name = HostName { listener, domain: key.domain.clone() };
            self.resources.insert(ResourceId { kind: Kind::Host, name: name.to_name() });
        }
        for certificate in host.tls.iter().flat_map(|tls| &tls.certificates) {
            self.resources.insert(ResourceId { kind: Kind::Certificate, name: certificate.to_name() });
        }
        if !claim.routes.is_empty() {
            self.fragment(key, claim, host, settings);
        }
        if self.parsed.policy.refusal.is_none() {
            self.certificate_conflict(&key.domain, host);
        }
    }

    fn conflict(&mut self, domain: &Domain, host: &HostState, claim: &DomainClaim) {
        let by = match &host.covered_by {
            Some(wildcard) => format!("{wildcard}, which covers it,"),
            None => "it".to_owned(),
        };
        let what = if domain.is_any() { "the catch-all of all hosts".to_owned() } else { format!("host {domain}") };
        let message = format!(
            "{what} belongs to namespace {}, because Ingress {} claims {by} and is older or comes first by name; \
             use another host, or move this Ingress to that namespace",
            host.namespace(),
            host.owner.ingress
        );
        if claim.weak {
            // Nobody asked for all hosts here, so nothing that was asked for is missing.
            self.say(Finding::note(reasons::HOST_CONFLICT, claim.field.to_string(), message));
        } else {
            self.lost = true;
            self.say(Finding::warning(reasons::HOST_CONFLICT, claim.field.to_string(), message));
        }
    }

    fn certificate_conflict(&mut self, domain: &Domain, host: &HostState) {
        let Some(chosen) = &host.tls else { return };
        let own = self.view.tls(&self.parsed.key).and_then(|tls| tls.certificates.get(domain));
        if let Some(source) = &chosen.source {
            let differs = own.is_some_and(|own| !own.is_empty() && *own != chosen.certificates);
            if *source != self.parsed.key && differs {
                let message = format!("host {domain} is served with the certificate of the older Ingress {source}");
                self.say(Finding::warning(reasons::CERTIFICATE_CONFLICT, "spec.tls", message));
            }
        }
        if let Some(wildcard) = &chosen.inherited {
            let message = format!(
                "plain http of {domain} is redirected, because {wildcard} has TLS; set ssl-redirect to false to keep it"
            );
            self.say(Finding::note(reasons::REDIRECTED, "spec.tls", message));
        }
    }

    fn fragment(&mut self, key: &HostKey, claim: &DomainClaim, host: &HostState, settings: &FleetSettings) {
        let parsed = self.parsed;
        let claimant = parsed.claimant(claim);
        let source = reference(&parsed.key);
        let mut listeners = vec![ListenerName::tcp(settings.http_port), ListenerName::tcp(settings.https_port)];
        listeners.sort();
        listeners.dedup();
        let mut matches: Vec<Match> = claim.routes.iter().map(|route| route.to_match(&claimant)).collect();
        let mut faulty = BTreeSet::new();
        for (i, one) in matches.iter_mut().enumerate() {
            let route = &claim.routes[i];
            let field = || format!("{}.path", route.field);
            if let Some(why) = &route.fault {
                let message = format!(
                    "no request can match it: {}; what is below {:?} answers 503 where no other path claims it",
                    shorten(why),
                    shorten(&route.path)
                );
                self.say(Finding::warning(reasons::PATH_INVALID, field(), message));
                faulty.insert(i);
            }
            if let Err(why) = config::check_match(one) {
                self.say(Finding::warning(
                    reasons::PATH_INVALID,
                    field(),
                    format!("{}; what is below it answers 503", shorten(&why)),
                ));
                // The nearest path above it that can be claimed, with the same key.
                one.path = PathMatch::Prefix(claimable(&route.path));
                faulty.insert(i);
            }
        }
        let frame = Claims { listeners, host: key.domain.clone(), matches: Vec::new() };
        let claims = Claims { matches, ..frame.clone() };
        let name = FragmentName { source: source.clone(), domain: key.domain.clone() };
        let id = ResourceId { kind: Kind::Fragment, name: name.to_name() };
        let resource = if let Some((annotation, why)) = &parsed.policy.refusal {
            self.lost = true;
            let message = format!("{annotation}: {why}");
            let reason = Withheld { code: "AnnotationRefused".to_owned(), message };
            Envelope::without_body(id.clone(), vec![source], Some(claims), reason)
        } else {
            let actions = claim.routes.iter().enumerate().map(|(i, route)| {
                let mut action = self.route(key, claim, route, host, settings);
                if faulty.contains(&i) {
                    self.lost = true;
                    action.action = Action::Respond(503);
                }
                action
            });
            let actions = actions.collect();
            Envelope::with_body(id.clone(), vec![source], Some(claims), &Body::Fragment(FragmentBody { actions }))
        };
        let resource = self.within_bounds(resource, claim, frame);
        self.resources.insert(id.clone());
        self.fragments.insert(id, resource);
    }

    /// What would not load is withheld, so that the rest of the configuration does. Only very large Ingresses come here.
    fn within_bounds(&mut self, resource: Resource, claim: &DomainClaim, frame: Claims) -> Resource {
        if resource.bytes.len() < LARGE_BYTES && claim.routes.len() < LARGE_ROUTES {
            return resource;
        }
        let (why, claims) = match config::load(resource.id.clone(), &resource.bytes) {
            Ok(loaded) => match loaded.state {
                State::NotLive { message, .. } => (message, loaded.claims),
                State::Live(_) | State::Withheld(_) => return resource,
            },
            Err(error) => (error.to_string(), None),
        };
        self.lost = true;
        let message = format!(
            "too many or too long paths on this host, so all of them answer 503; use several Ingresses ({})",
            shorten(&why)
        );
        self.say(Finding::warning(reasons::TOO_LARGE, claim.field.to_string(), message.clone()));
        let claims = claims.unwrap_or_else(|| {
            let claimant = self.parsed.claimant(claim);
            let everything = claim.routes.first().map(|route| {
                let mut one = route.to_match(&claimant);
                (one.path, one.key.rank) = (PathMatch::Prefix("/".to_owned()), vec![1, 1]);
                one
            });
            Claims { matches: everything.into_iter().collect(), ..frame }
        });
        let reason = Withheld { code: "TooLarge".to_owned(), message };
        Envelope::without_body(resource.id, vec![reference(&self.parsed.key)], Some(claims), reason)
    }

    fn route(
        &mut self,
        key: &HostKey,
        claim: &DomainClaim,
        route: &Route,
        host: &HostState,
        settings: &FleetSettings,
    ) -> RouteAction {
        let policy = &self.parsed.policy;
        let redirect = policy.force_ssl_redirect || (policy.ssl_redirect && host.tls.is_some());
        let to_https = (redirect && !config::compared(&route.path).starts_with(ACME))
            .then_some(ToHttps { status: 308, port: settings.https_port });
        // A route with a fault has no path to lose.
        let wins = route.fault.is_some() || self.contest(key, claim, route);
        let action = match self.backend(route) {
            Ok(pool) => {
                self.lost |= !wins;
                self.resources.insert(ResourceId { kind: Kind::Pool, name: pool.to_name() });
                self.pools.insert(pool.clone());
                Action::Forward(ForwardAction {
                    shares: vec![Share::Pool { name: pool, weight: 1 }],
                    path: None,
                    host: None,
                    request_headers: HeaderChanges::default(),
                    timeouts: Timeouts::default(),
                    retries: 2,
                })
            }
            Err(finding) => {
                self.lost = true;
                self.say(finding);
                // What cannot be forwarded keeps its claim: a request must never fall through to a wider path.
                Action::Respond(503)
            }
        };
        RouteAction { action, to_https, policies: Vec::new(), response_headers: HeaderChanges::default() }
    }

    /// Whether this match has its path; the oldest Ingress of the namespace does. The router comes to the same by the
    /// order keys, so the fragments of the others need not change.
    fn contest(&mut self, key: &HostKey, claim: &DomainClaim, route: &Route) -> bool {
        let own = &self.parsed.key;
        let Some(winner) = self.view.path_winner(&route.slot(key.clone()), &own.namespace) else { return true };
        if winner.claimant.ingress == *own && winner.number == route.number {
            return true;
        }
        let field = route.field.to_string();
        let what = match route.kind {
            crate::claims::PathKind::Exact => format!("exact path {:?}", shorten(&route.path)),
            crate::claims::PathKind::Prefix => format!("path {:?}", shorten(&route.path)),
            crate::claims::PathKind::Default => "the default backend".to_owned(),
        };
        let message = if winner.claimant.ingress == *own {
            format!("{what} of host {} is given twice; the first one is used", key.domain)
        } else {
            format!(
                "{what} of host {} is taken by Ingress {}, which is older or comes first by name",
                key.domain, winner.claimant.ingress
            )
        };
        let weak = claim.weak && winner.claimant.ingress != *own;
        self.say(if weak {
            Finding::note(reasons::PATH_CONFLICT, field, message)
        } else {
            Finding::warning(reasons::PATH_CONFLICT, field, message)
        });
        weak
    }

    fn backend(&mut self, route: &Route) -> Result<PoolName, Finding> {
        let Some((name, wanted)) = &route.service else {
            let message = "a backend that is no Service is not supported; its paths answer 503";
            return Err(Finding::warning(
                reasons::RESOURCE_BACKEND,
                format!("{}.resource", route.backend_field()),
                message,
            ));
        };
        let field = || format!("{}.service.name", route.backend_field());
        let Some(shape) = self.view.backend(name) else {
            let message = format!("Service {name} does not exist; its paths answer 503");
            return Err(Finding::warning(reasons::SERVICE_NOT_FOUND, field(), message));
        };
        let port_field = || format!("{}.service.port", route.backend_field());
        let Some(found) = shape.find(wanted) else {
            let ports: Vec<String> = shape.ports.iter().map(describe).collect();
            let message =
                format!("Service {name} has no TCP port {wanted} (it has: {}); its paths answer 503", ports.join(", "));
            return Err(Finding::warning(reasons::PORT_NOT_FOUND, port_field(), message));
        };
        if found.by_target {
            let message = format!(
                "Service {name} has no port {wanted}; port {} is used, because its target port is {wanted}",
                found.port
            );
            self.say(Finding::note(reasons::PORT_BY_TARGET, port_field(), message));
        }
        self.backends.insert(BackendRef {
            namespace: name.namespace.to_string(),
            service: name.name.to_string(),
            port: found.port,
        });
        if let Some(external) = &shape.external
            && let Some(why) = address::refused_name(external)
        {
            let message =
                format!("Service {name} points to {external:?}, which is refused: {why}; its paths answer 503");
            return Err(Finding::warning(reasons::EXTERNAL_NAME_REFUSED, field(), message));
        }
        self.endpoints(name, shape, found.port, port_field);
        let (namespace, service) = (name.namespace.to_string(), name.name.to_string());
        Ok(PoolName { namespace, service, port: found.port, variant: String::new() })
    }

    fn endpoints(&mut self, name: &NamespacedName, shape: &Shape, port: u16, field: impl Fn() -> String) {
        if let Some(left_out) = shape.left_out.get(&port) {
            let listed: Vec<String> =
                left_out.iter().take(3).map(|(address, why)| format!("{address} ({why})")).collect();
            let more = if left_out.len() > 3 { format!(" and {} more", left_out.len() - 3) } else { String::new() };
            let message = format!("endpoints of Service {name} are left out: {}{more}", listed.join(", "));
            self.say(Finding::warning(reasons::ENDPOINT_REFUSED, field(), message));
        }
        if shape.mismatched.contains(&port) {
            let message = format!(
                "no EndpointSlice of Service {name} has a TCP port with the name of its port {port}; it has no endpoints"
            );
            self.say(Finding::warning(reasons::ENDPOINT_PORT_MISMATCH, field(), message));
        }
    }

    fn finish(mut self) -> Output {
        let fleet = self.parsed.fleet.clone();
        let refused = self.parsed.policy.refusal.is_some() || fleet.is_none();
        let faulty = self.parsed.findings.iter().any(|finding| finding.severity == Severity::Warning);
        let served = match (refused, self.lost || faulty) {
            (true, _) => Served::Refused,
            (false, true) => Served::Partly,
            (false, false) => Served::Full,
        };
        if self.more > 0 {
            let message = format!("{} more findings are not listed; mend the listed ones first", self.more);
            self.findings.push(Finding::warning(reasons::MORE, "", message));
        }
        // Loud ones first; within them the order in which they were found, which is that of the fields.
        self.findings.sort_by_key(|finding| finding.severity);
        debug_assert!(Severity::Warning < Severity::Note);
        let resources = fleet.iter().flat_map(|fleet| self.resources.iter().map(|id| (fleet.clone(), id.clone())));
        let draft = Draft {
            conditions: Vec::new(),
            served,
            fleets: fleet.iter().cloned().collect(),
            resources: resources.collect(),
            findings: self.findings,
        };
        Output {
            fleet,
            fragments: self.fragments.into_values().collect(),
            pools: self.pools.into_iter().collect(),
            backends: self.backends.into_iter().collect(),
            draft: Arc::new(draft),
        }
    }
}

fn describe(port: &crate::objects::ServicePort) -> String {
    let protocol = if port.is_tcp() { "" } else { " (not TCP)" };
    if port.name.is_empty() {
        format!("{}{protocol}", port.port)
    } else {
        format!("{} {}{protocol}", port.name, port.port)
    }
}

/// The longest path above one that cannot be claimed: cut at a slash, so that it covers it.
fn claimable(path: &str) -> String {
    let mut end = path.len().min(CLAIMABLE_BYTES);
    while !path.is_char_boundary(end) {
        end -= 1;
    }
    match path[..end].rfind('/') {
        Some(slash) if slash > 0 && path.starts_with('/') => path[..slash].trim_end_matches('/').to_owned(),
        _ => "/".to_owned(),
    }
}

/// At most 200 characters of a text, for a message.
fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(200).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}
