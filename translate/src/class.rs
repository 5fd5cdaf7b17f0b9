//! Whose an Ingress is: from its class to a fleet.

use crate::fleet::FleetState;
use crate::objects::{FLEET_GROUP, Ingress, IngressClass};
use crate::view::View;
use crate::world::{BUILTIN_CLASS, FleetName, Settings, World};

/// The annotation that came before `spec.ingressClassName`.
const LEGACY: &str = "kubernetes.io/ingress.class";

/// Where an Ingress belongs.
pub(crate) enum Class {
    /// To another controller, or to none.
    NotOurs,
    /// To this fleet.
    Fleet(FleetName),
    /// To us, but its class names no fleet that there is.
    NoFleet(String),
}

/// How an Ingress says its class.
pub(crate) enum ClassChoice<'a> {
    /// By name: the field, or else the annotation.
    Named(&'a str),
    /// Not at all: the default class counts.
    Default,
}

/// The field wins over the annotation (Ingress API reference, `ingressClassName`); an empty annotation names no class.
pub(crate) fn choice(ingress: &Ingress) -> ClassChoice<'_> {
    match (ingress.spec.ingress_class_name.as_deref(), ingress.metadata.annotations.get(LEGACY)) {
        (Some(name), _) | (None, Some(name)) => ClassChoice::Named(name),
        (None, None) => ClassChoice::Default,
    }
}

/// The fleet that an Ingress means by its class, given that class. None: it is not ours.
fn meant(
    settings: &Settings,
    choice: &ClassChoice<'_>,
    class: Option<&IngressClass>,
) -> Option<Result<FleetName, String>> {
    match (class, choice) {
        (Some(class), _) if class.spec.controller == settings.ingress_controller => Some(fleet_of(settings, class)),
        (None, ClassChoice::Named(BUILTIN_CLASS)) if settings.builtin_classes => {
            Some(Ok(settings.default_fleet.clone()))
        }
        _ => None,
    }
}

/// The fleet that an Ingress means by its class, whether there is such a fleet or not. This is what it reads of fleets.
pub(crate) fn fleet_meant(world: &World, ingress: &Ingress) -> Option<FleetName> {
    let choice = choice(ingress);
    let class = match choice {
        ClassChoice::Named(name) => world.class(name),
        ClassChoice::Default => world.default_class(),
    };
    meant(world.settings(), &choice, class)?.ok()
}

/// Finds the fleet of an Ingress.
pub(crate) fn resolve(view: &View<'_>, ingress: &Ingress) -> Class {
    let choice = choice(ingress);
    let class = match choice {
        ClassChoice::Named(name) => view.class(name),
        ClassChoice::Default => view.default_class(),
    };
    let name = match meant(view.settings(), &choice, class) {
        None => return Class::NotOurs,
        Some(Err(message)) => return Class::NoFleet(message),
        Some(Ok(name)) => name,
    };
    let why = match view.fleet_state(&name) {
        Some(FleetState::Usable(_)) => return Class::Fleet(name),
        Some(FleetState::Refused) => "which is refused; its own findings say why",
        None => "which does not exist; create it or name another",
    };
    let class = class.map_or(BUILTIN_CLASS, |class| class.metadata.name());
    Class::NoFleet(format!("IngressClass {class} names ProxyFleet {name}, {why}"))
}

/// The fleet that an IngressClass of ours names.
///
/// # Errors
/// Why its parameters name none.
pub(crate) fn fleet_of(settings: &Settings, class: &IngressClass) -> Result<FleetName, String> {
    match &class.spec.parameters {
        None => Ok(settings.default_fleet.clone()),
        Some(p) if p.api_group != FLEET_GROUP || p.kind != "ProxyFleet" || p.scope != "Namespace" => Err(format!(
            "IngressClass {} has parameters that name no ProxyFleet of {FLEET_GROUP} with scope Namespace",
            class.metadata.name()
        )),
        Some(p) => Ok(FleetName::new(&p.namespace, &p.name)),
    }
}
