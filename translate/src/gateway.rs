//! What is said about objects of the Gateway API: honestly, that they are not served yet.

use std::sync::Arc;

use crate::objects::{GatewayObject, GatewayObjectSpec, Object};
use crate::outcome::{Condition, Draft, Finding, Served, reasons};

const REASON: &str = "NotSupportedYet";
const MESSAGE: &str = "the Gateway API is not served yet; use an Ingress";

/// The draft of a Gateway or a route; none for all other objects. It depends on the object alone.
pub(crate) fn draft(object: &Object) -> Option<Arc<Draft>> {
    let Object::Gateway(object) = object else { return None };
    let conditions = match (&object.spec, object.parents()) {
        (GatewayObjectSpec::Gateway(_), _) => vec![refused(None)],
        (_, Some(parents)) => parents.iter().map(|parent| refused(Some(name(object, parent)))).collect(),
        _ => return None,
    };
    // A route without a parent has no place for a condition: it must not look as if it were served.
    let finding = || Finding::warning(reasons::REJECTED, "kind", MESSAGE);
    let findings = if conditions.is_empty() { vec![finding()] } else { Vec::new() };
    Some(Arc::new(Draft { findings, conditions, served: Served::Refused, fleets: Vec::new(), resources: Vec::new() }))
}

fn refused(parent: Option<String>) -> Condition {
    Condition { kind: "Accepted", status: false, reason: REASON, message: MESSAGE.to_owned(), parent }
}

/// `namespace/gateway#section`.
fn name(route: &GatewayObject, parent: &gateway_types::ParentReference) -> String {
    let namespace = parent.namespace.as_deref().unwrap_or(route.metadata.namespace());
    let section = parent.section_name.as_ref().map_or(String::new(), |section| format!("#{section}"));
    format!("{namespace}/{}{section}", parent.name)
}
