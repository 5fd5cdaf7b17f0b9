//! The stage before all others: what a fleet is like, and what is said about the ProxyFleet that declares it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::class;
use crate::emit;
use crate::objects::{FleetListener, FleetProtocol, GatewayObject, GatewayObjectSpec, Object, ProxyFleet};
use crate::outcome::{Condition, Draft, Finding, Served, reasons};
use crate::view::{Key, View};
use crate::world::{BUILTIN_CLASS, FleetName, FleetSettings, Settings, World};

/// The ports of a ProxyFleet that gives none.
const DEFAULT: FleetSettings = FleetSettings { http_port: 80, https_port: 443 };

/// What is known of a fleet that somebody declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FleetState {
    /// It is one.
    Usable(FleetSettings),
    /// Its ProxyFleet is refused: it is none.
    Refused,
}

impl FleetState {
    pub(crate) fn settings(&self) -> Option<&FleetSettings> {
        match self {
            FleetState::Usable(settings) => Some(settings),
            FleetState::Refused => None,
        }
    }
}

/// What a ProxyFleet says of its listeners.
///
/// A fleet has exactly one listener for HTTP and one for HTTPS, on two ports: an Ingress is served on both. The API server
/// refuses all else, but an older definition or a folder may let it through.
pub(crate) fn settings(fleet: &ProxyFleet) -> Result<FleetSettings, Finding> {
    let Some(listeners) = &fleet.spec.listeners else { return Ok(DEFAULT) };
    let refuse = |message: String| Err(Finding::warning(reasons::REJECTED, "spec.listeners", message));
    let ports = |protocol| {
        let of = listeners.iter().filter(move |listener: &&FleetListener| listener.protocol == protocol);
        of.map(|listener| listener.port).collect::<Vec<_>>()
    };
    match (ports(FleetProtocol::Http).as_slice(), ports(FleetProtocol::Https).as_slice()) {
        ([http], [https]) if http == https => {
            refuse(format!("both listeners have port {http}; every listener must have a port of its own"))
        }
        (&[0], _) | (_, &[0]) => refuse("port 0 is none; a port is between 1 and 65535".to_owned()),
        (&[http_port], &[https_port]) => Ok(FleetSettings { http_port, https_port }),
        (http, https) => refuse(format!(
            "there must be one listener with protocol HTTP and one with protocol HTTPS, and no other; here are {} and {}; \
             leave `listeners` out for 80 and 443",
            http.len(),
            https.len()
        )),
    }
}

/// What a fleet is like, given what the command line says of it and its ProxyFleet.
pub(crate) fn state(world: &Settings, name: &FleetName, object: Option<&ProxyFleet>) -> Option<FleetState> {
    let fixed = world.fleets.get(name).copied();
    match (object, fixed) {
        (Some(_), Some(fixed)) if world.fleets_are_fixed => Some(FleetState::Usable(fixed)),
        (Some(object), _) => Some(settings(object).map_or(FleetState::Refused, FleetState::Usable)),
        (None, Some(fixed)) => Some(FleetState::Usable(fixed)),
        (None, None) => None,
    }
}

/// What is to be said about a ProxyFleet; nothing about fleets that only the command line declares.
pub(crate) fn draft(view: &View<'_>, name: &FleetName) -> Option<Arc<Draft>> {
    let object = view.proxy_fleet(name)?;
    let consented = view.is_named_by_a_class(name);
    let mut findings = Vec::new();
    let declared = settings(object);
    let state = state(view.settings(), name, Some(object));
    match (&declared, state.as_ref().and_then(FleetState::settings)) {
        // Whoever runs the proxies here has opened their ports already.
        (Ok(declared), Some(fixed)) if declared != fixed => findings.push(Finding::note(
            reasons::LISTENERS_FIXED,
            "spec.listeners",
            format!(
                "here the proxies listen on ports {} and {}, as the command line says; those of the ProxyFleet do not count",
                fixed.http_port, fixed.https_port
            ),
        )),
        (Err(finding), _) => findings.push(finding.clone()),
        _ => {}
    }
    let usable = state.as_ref().and_then(FleetState::settings);
    if usable.is_some() && !consented {
        findings.push(Finding::note(
            reasons::NO_CLASS,
            "metadata.name",
            format!(
                "no IngressClass or GatewayClass of ours names this fleet in its parameters, so it serves nothing; set \
                 spec.parameters of one to apiGroup {group}, kind ProxyFleet, scope Namespace, namespace {}, name {}",
                name.namespace,
                name.name,
                group = crate::objects::FLEET_GROUP,
            ),
        ));
    }
    let refused = declared.as_ref().err().filter(|_| usable.is_none()).map(|finding| finding.message.clone());
    let accepted = match refused {
        None => condition("Accepted", true, "Accepted", "the fleet is declared".to_owned()),
        Some(message) => condition("Accepted", false, "InvalidListeners", message),
    };
    let named = if consented {
        condition("Consented", true, "NamedByClass", "a class names the fleet".to_owned())
    } else {
        condition("Consented", false, reasons::NO_CLASS, "no class names the fleet; it serves nothing".to_owned())
    };
    let resources = usable.iter().flat_map(|settings| emit::listeners(settings));
    let mut resources: Vec<_> = resources.map(|listener| (name.clone(), listener.id)).collect();
    resources.sort();
    Some(Arc::new(Draft {
        findings,
        conditions: vec![accepted, named],
        served: if usable.is_some() { Served::Full } else { Served::Refused },
        fleets: usable.iter().map(|_| name.clone()).collect(),
        resources,
    }))
}

fn condition(kind: &'static str, status: bool, reason: &'static str, message: String) -> Condition {
    Condition { kind, status, reason, message, parent: None }
}

/// The fleet that a class means: an IngressClass or GatewayClass of ours. Other objects mean none.
pub(crate) fn named_by(settings: &Settings, object: &Object) -> Option<FleetName> {
    match object {
        Object::IngressClass(class) if class.spec.controller == settings.ingress_controller => {
            class::fleet_of(settings, class).ok()
        }
        Object::Gateway(GatewayObject { spec: GatewayObjectSpec::GatewayClass(class), .. })
            if class.controller_name == gateway_types::GATEWAY_CONTROLLER =>
        {
            match &class.parameters_ref {
                None => Some(settings.default_fleet.clone()),
                Some(p) if p.group == crate::objects::FLEET_GROUP && p.kind == "ProxyFleet" => {
                    p.namespace.as_ref().map(|namespace| FleetName::new(namespace, &p.name))
                }
                Some(_) => None,
            }
        }
        _ => None,
    }
}

/// Every fleet that some class means. A name here makes no fleet.
pub(crate) fn named_by_classes(world: &World) -> BTreeSet<FleetName> {
    let settings = world.settings();
    let mut names: BTreeSet<FleetName> = world.classes().filter_map(|class| named_by(settings, class)).collect();
    if settings.builtin_classes && world.class(BUILTIN_CLASS).is_none() {
        names.insert(settings.default_fleet.clone());
    }
    names
}

/// How Ingresses read the classes that mean a fleet.
pub(crate) fn class_keys(world: &World, name: &FleetName) -> Vec<Key> {
    let settings = world.settings();
    let classes = world.classes().filter(|class| matches!(class, Object::IngressClass(_)));
    let named = classes.filter(|class| named_by(settings, class).as_ref() == Some(name));
    let mut keys: Vec<Key> = named.map(|class| Key::Class(class.key().name.clone())).collect();
    let default = world.default_class().map(|class| Key::Class(class.metadata.name().into()));
    if default.is_some_and(|default| keys.contains(&default)) {
        keys.push(Key::DefaultClass);
    }
    if settings.builtin_classes && *name == settings.default_fleet && world.class(BUILTIN_CLASS).is_none() {
        keys.push(Key::Class(BUILTIN_CLASS.into()));
    }
    keys
}
