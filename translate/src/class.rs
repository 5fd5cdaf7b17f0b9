//! Whose an Ingress is: from its class to a fleet.

use crate::objects::{Ingress, IngressClass};
use crate::view::View;
use crate::world::{BUILTIN_CLASS, FleetName};

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

/// Finds the fleet of an Ingress.
pub(crate) fn resolve(view: &View<'_>, ingress: &Ingress) -> Class {
    let settings = view.settings();
    let class = match choice(ingress) {
        ClassChoice::Named(name) => match view.class(name) {
            Some(class) => class,
            None if name == BUILTIN_CLASS && settings.builtin_classes => {
                return Class::Fleet(settings.default_fleet.clone());
            }
            None => return Class::NotOurs,
        },
        ClassChoice::Default => match view.default_class() {
            Some(class) => class,
            None => return Class::NotOurs,
        },
    };
    if class.spec.controller != settings.ingress_controller {
        return Class::NotOurs;
    }
    fleet(view, class)
}

fn fleet(view: &View<'_>, class: &IngressClass) -> Class {
    let settings = view.settings();
    let name = match &class.spec.parameters {
        None => settings.default_fleet.clone(),
        Some(p) if p.api_group != "scalws.io" || p.kind != "ProxyFleet" || p.scope != "Namespace" => {
            return Class::NoFleet(format!(
                "IngressClass {} has parameters that name no ProxyFleet of scalws.io with scope Namespace",
                class.metadata.name()
            ));
        }
        Some(p) => FleetName::new(&p.namespace, &p.name),
    };
    if settings.fleets.contains_key(&name) {
        return Class::Fleet(name);
    }
    Class::NoFleet(format!(
        "IngressClass {} names ProxyFleet {name}, which does not exist; create it or name another",
        class.metadata.name()
    ))
}
