//! What a Service offers: its ports, and behind each port the endpoints that may get traffic now.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::address;
use crate::few::Map;
use crate::objects::{
    AddressType, EndpointConditions, EndpointSlice, IntOrString, NamespacedName, PortRef, ServicePort,
};
use crate::outcome::Members;
use crate::view::View;

/// A Service with its endpoints. Endpoints come and go; what the Ingresses of the Service look at changes rarely.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BackendState {
    /// None: there is no such Service.
    pub(crate) shape: Option<Arc<Shape>>,
    /// By number of the Service's port.
    pub(crate) members: Map<u16, Members>,
}

/// What the Ingresses of a Service look at.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    /// For ExternalName: the name.
    pub(crate) external: Option<String>,
    pub(crate) ports: Vec<ServicePort>,
    /// By port: endpoints that must not be reached, and why.
    pub(crate) left_out: BTreeMap<u16, BTreeMap<String, &'static str>>,
    /// Ports that no slice has, though there are slices with endpoints.
    pub(crate) mismatched: BTreeSet<u16>,
}

/// A port that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The Service's port.
    pub(crate) port: u16,
    /// It was found by the port of the pods.
    pub(crate) by_target: bool,
}

impl Shape {
    /// Finds a port by number or name. As in ingress-nginx the port of the pods is accepted too, because many manifests
    /// name that one; a port of the Service itself always wins.
    pub(crate) fn find(&self, wanted: &PortRef) -> Option<Found> {
        let tcp = || self.ports.iter().filter(|port| port.is_tcp());
        let exact = |port: &&ServicePort| {
            if wanted.name.is_empty() { port.port == wanted.number } else { port.name == wanted.name }
        };
        if let Some(port) = tcp().find(exact) {
            return Some(Found { port: port.port, by_target: false });
        }
        let target = |port: &&ServicePort| match &port.target_port {
            Some(IntOrString::Int(n)) => wanted.name.is_empty() && *n == i32::from(wanted.number),
            Some(IntOrString::String(name)) => *name == wanted.to_string(),
            None => false,
        };
        if let Some(port) = tcp().find(target) {
            return Some(Found { port: port.port, by_target: true });
        }
        // The API needs no declared port on an ExternalName Service.
        let undeclared = self.external.is_some() && wanted.name.is_empty();
        undeclared.then_some(Found { port: wanted.number, by_target: false })
    }

    /// The port to connect to at an external name: the target port if it is a number, else the Service's port.
    pub(crate) fn external_port(&self, port: u16) -> u16 {
        let declared = self.ports.iter().find(|p| p.is_tcp() && p.port == port);
        match declared.and_then(|p| p.target_port.as_ref()) {
            Some(IntOrString::Int(n)) => u16::try_from(*n).ok().filter(|n| *n > 0).unwrap_or(port),
            _ => port,
        }
    }
}

/// Reads a Service and its slices.
pub(crate) fn read(view: &View<'_>, key: &NamespacedName) -> BackendState {
    let Some(service) = view.service(key) else { return BackendState::default() };
    let spec = &service.spec;
    let mut shape = Shape {
        external: (spec.kind == "ExternalName").then(|| spec.external_name.trim_end_matches('.').to_ascii_lowercase()),
        ports: spec.ports.clone(),
        left_out: BTreeMap::new(),
        mismatched: BTreeSet::new(),
    };
    let mut members = Map::default();
    if shape.external.is_none() {
        let slices: Vec<&EndpointSlice> =
            view.slices(key).filter(|slice| slice.address_type != AddressType::FQDN).collect();
        for port in spec.ports.iter().filter(|port| port.is_tcp()) {
            let gathered = gather(&slices, port, view.settings().allow_loopback_endpoints);
            if !gathered.left_out.is_empty() {
                shape.left_out.insert(port.port, gathered.left_out);
            }
            if gathered.mismatched {
                shape.mismatched.insert(port.port);
            }
            members.insert(port.port, gathered.members);
        }
    }
    BackendState { shape: Some(Arc::new(shape)), members }
}

struct Gathered {
    members: Members,
    left_out: BTreeMap<String, &'static str>,
    mismatched: bool,
}

/// Whether an endpoint may get traffic, by its conditions (EndpointSlice API reference).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// Starting or broken.
    No,
    /// About to end, and still answering: used only when nothing is ready (as kube-proxy does).
    Draining,
    /// Ready.
    Ready,
}

fn state(conditions: EndpointConditions) -> State {
    let ready = conditions.ready.unwrap_or(true);
    let serving = conditions.serving.unwrap_or(ready);
    match (ready, serving, conditions.terminating.unwrap_or(false)) {
        (true, _, _) => State::Ready,
        (false, true, true) => State::Draining,
        (false, _, _) => State::No,
    }
}

fn gather(slices: &[&EndpointSlice], port: &ServicePort, allow_loopback: bool) -> Gathered {
    let mut best: BTreeMap<SocketAddr, State> = BTreeMap::new();
    let mut left_out = BTreeMap::new();
    let (mut joined, mut endpoints) = (false, false);
    for slice in slices {
        endpoints |= !slice.endpoints.is_empty();
        let numbers = numbers(slice, port);
        joined |= !numbers.is_empty();
        for endpoint in &slice.endpoints {
            let state = state(endpoint.conditions);
            // Each address of an endpoint is as good as the other; taking one keeps the shares of the pods equal.
            let Some(address) = endpoint.addresses.first().and_then(|text| text.parse::<IpAddr>().ok()) else {
                continue;
            };
            for number in &numbers {
                let socket = SocketAddr::new(address, *number);
                match address::refused(address, allow_loopback) {
                    Some(why) => drop(left_out.insert(socket.to_string(), why)),
                    None => {
                        let known = best.entry(socket).or_insert(state);
                        *known = (*known).max(state);
                    }
                }
            }
        }
    }
    let wanted = best.values().max().copied().filter(|best| *best > State::No);
    let chosen = best.iter().filter(|(_, state)| Some(**state) == wanted);
    let members: BTreeSet<Arc<str>> = chosen.map(|(address, _)| address.to_string().into()).collect();
    Gathered { members: members.into_iter().collect(), left_out, mismatched: endpoints && !joined }
}

/// The numbers that a port of the Service has in a slice. Ports are joined by their names.
fn numbers(slice: &EndpointSlice, port: &ServicePort) -> BTreeSet<u16> {
    let target = || match &port.target_port {
        None => Some(port.port),
        Some(IntOrString::Int(n)) => u16::try_from(*n).ok().map(|n| if n == 0 { port.port } else { n }),
        Some(IntOrString::String(_)) => None,
    };
    if slice.ports.is_empty() {
        // Slices written by hand for a headless Service may have no ports; then a numeric target port is meant.
        return target().into_iter().collect();
    }
    let tcp: Vec<_> = slice.ports.iter().filter(|p| p.is_tcp()).collect();
    let mut same: Vec<_> = tcp.iter().filter(|p| p.name == port.name).collect();
    if same.is_empty() && port.name.is_empty() && tcp.len() == 1 {
        // The only port of the Service has no name, so the only port of the slice is meant.
        same.extend(tcp.iter());
    }
    // A port without a number stands for every port.
    same.into_iter().filter_map(|p| p.port.or_else(target)).collect()
}
