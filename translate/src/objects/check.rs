//! The checks of an API server that matter here (Kubernetes API reference; `pkg/apis/*/validation`).

use super::decode::Fault;
use super::{AddressType, Backend, EndpointSlice, Ingress, IngressClass, NamespacedName, ProxyFleet, Service};

fn fault(field: impl Into<String>, value: impl Into<String>, why: &str) -> Result<(), Fault> {
    Err((field.into(), format!("{:?}", value.into()), why.to_owned()))
}

/// RFC 1123 label: lower-case letters, digits and `-`, at most 63.
fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// RFC 1123 subdomain: labels (of any length) joined by dots, at most 253.
fn is_subdomain(text: &str) -> bool {
    (1..=253).contains(&text.len())
        && text.split('.').all(|part| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !part.starts_with('-')
                && !part.ends_with('-')
        })
}

/// The name of a port: at most 15 of lower-case letters, digits and `-`, at least one letter.
fn is_port_name(text: &str) -> bool {
    (1..=15).contains(&text.len())
        && is_label(text)
        && !text.contains("--")
        && text.bytes().any(|b| b.is_ascii_lowercase())
}

pub(super) fn metadata(kind: &str, namespaced: bool, name: &NamespacedName) -> Result<(), Fault> {
    let right = match kind {
        "Service" | "Namespace" => is_label(&name.name),
        _ => is_subdomain(&name.name),
    };
    if !right {
        let why = "must be a name of lower-case letters, digits, '-' and '.' (RFC 1123)";
        return fault("metadata.name", &*name.name, why);
    }
    if namespaced && !is_label(&name.namespace) {
        return fault("metadata.namespace", &*name.namespace, "must be a label of lower-case letters, digits and '-'");
    }
    Ok(())
}

fn host(field: String, text: &str) -> Result<(), Fault> {
    if text.parse::<std::net::IpAddr>().is_ok() {
        return fault(field, text, "must be a DNS name, not an address");
    }
    let right = match text.strip_prefix("*.") {
        Some(rest) => is_subdomain(rest),
        None => is_subdomain(text),
    };
    if right {
        return Ok(());
    }
    fault(
        field,
        text,
        "must be a DNS name of lower-case letters, digits, '-' and '.', with '*' only as its first label",
    )
}

pub(super) fn ingress(object: &Ingress) -> Result<(), Fault> {
    let spec = &object.spec;
    if spec.rules.is_empty() && spec.default_backend.is_none() {
        return fault("spec", "", "either defaultBackend or rules must be given");
    }
    if let Some(class) = &spec.ingress_class_name
        && !is_subdomain(class)
    {
        return fault("spec.ingressClassName", class, "must be the name of an IngressClass");
    }
    if let Some(default) = &spec.default_backend {
        backend("spec.defaultBackend", default)?;
    }
    for (i, tls) in spec.tls.iter().enumerate() {
        for (j, name) in tls.hosts.iter().enumerate() {
            host(format!("spec.tls[{i}].hosts[{j}]"), name)?;
        }
        if let Some(secret) = tls.secret_name.as_deref().filter(|s| !s.is_empty())
            && !is_subdomain(secret)
        {
            return fault(format!("spec.tls[{i}].secretName"), secret, "must be the name of a Secret");
        }
    }
    for (i, rule) in spec.rules.iter().enumerate() {
        if let Some(name) = rule.host.as_deref().filter(|h| !h.is_empty()) {
            host(format!("spec.rules[{i}].host"), name)?;
        }
        let Some(http) = &rule.http else { continue };
        if http.paths.is_empty() {
            return fault(format!("spec.rules[{i}].http.paths"), "", "must have at least one path");
        }
        for (j, path) in http.paths.iter().enumerate() {
            let at = format!("spec.rules[{i}].http.paths[{j}]");
            let text = path.path.as_deref().unwrap_or_default();
            match path.path_type.as_str() {
                "Exact" | "Prefix" => {
                    if !text.starts_with('/') {
                        return fault(format!("{at}.path"), text, "must start with '/'");
                    }
                    let bad = ["//", "/./", "/../", "%2f", "%2F"].iter().any(|part| text.contains(part));
                    if bad || text.ends_with("/..") || text.ends_with("/.") {
                        return fault(format!("{at}.path"), text, "must not contain '//', '/.', '/..' or '%2F'");
                    }
                }
                "ImplementationSpecific" => {
                    if !text.is_empty() && !text.starts_with('/') {
                        return fault(format!("{at}.path"), text, "must start with '/'");
                    }
                }
                other => {
                    let why = "must be Exact, Prefix or ImplementationSpecific";
                    return fault(format!("{at}.pathType"), other, why);
                }
            }
            backend(&format!("{at}.backend"), &path.backend)?;
        }
    }
    Ok(())
}

fn backend(at: &str, backend: &Backend) -> Result<(), Fault> {
    match (&backend.service, &backend.resource) {
        (None, None) => fault(at, "", "must name a service or a resource"),
        (Some(_), Some(_)) => fault(at, "", "must not name both a service and a resource"),
        (None, Some(_)) => Ok(()),
        (Some(service), None) => {
            if !is_label(&service.name) {
                return fault(format!("{at}.service.name"), &service.name, "must be the name of a Service");
            }
            match (service.port.name.is_empty(), service.port.number) {
                (true, 0) => fault(format!("{at}.service.port"), "", "must have a name or a number"),
                (false, 1..) => fault(format!("{at}.service.port"), "", "must not have both a name and a number"),
                (false, 0) if !is_port_name(&service.port.name) => {
                    fault(format!("{at}.service.port.name"), &service.port.name, "must be the name of a port")
                }
                _ => Ok(()),
            }
        }
    }
}

pub(super) fn ingress_class(object: &IngressClass) -> Result<(), Fault> {
    if object.spec.controller.is_empty() {
        return fault("spec.controller", "", "must name a controller");
    }
    Ok(())
}

pub(super) fn service(object: &Service) -> Result<(), Fault> {
    let spec = &object.spec;
    if !matches!(spec.kind.as_str(), "" | "ClusterIP" | "NodePort" | "LoadBalancer" | "ExternalName") {
        return fault("spec.type", &spec.kind, "must be ClusterIP, NodePort, LoadBalancer or ExternalName");
    }
    if spec.kind == "ExternalName" && spec.external_name.is_empty() {
        return fault("spec.externalName", "", "must be given for this type");
    }
    for (i, port) in spec.ports.iter().enumerate() {
        if port.port == 0 {
            return fault(format!("spec.ports[{i}].port"), "0", "must be between 1 and 65535");
        }
        if !matches!(port.protocol.as_str(), "" | "TCP" | "UDP" | "SCTP") {
            return fault(format!("spec.ports[{i}].protocol"), &port.protocol, "must be TCP, UDP or SCTP");
        }
        if spec.ports.len() > 1 && port.name.is_empty() {
            return fault(format!("spec.ports[{i}].name"), "", "must be given when there are several ports");
        }
        if spec.ports.iter().take(i).any(|other| other.name == port.name) {
            return fault(format!("spec.ports[{i}].name"), &port.name, "must not be given twice");
        }
    }
    Ok(())
}

pub(super) fn endpoint_slice(object: &EndpointSlice) -> Result<(), Fault> {
    for (i, endpoint) in object.endpoints.iter().enumerate() {
        if endpoint.addresses.is_empty() {
            return fault(format!("endpoints[{i}].addresses"), "", "must have at least one address");
        }
        for (j, address) in endpoint.addresses.iter().enumerate() {
            let (right, why) = match object.address_type {
                AddressType::IPv4 => (address.parse::<std::net::Ipv4Addr>().is_ok(), "must be an IPv4 address"),
                AddressType::IPv6 => (address.parse::<std::net::Ipv6Addr>().is_ok(), "must be an IPv6 address"),
                AddressType::FQDN => (true, ""),
            };
            if !right {
                return fault(format!("endpoints[{i}].addresses[{j}]"), address, why);
            }
        }
    }
    for (i, port) in object.ports.iter().enumerate() {
        if port.port == Some(0) {
            return fault(format!("ports[{i}].port"), "0", "must be between 1 and 65535");
        }
    }
    Ok(())
}

/// What its definition refuses, save for the listeners: about those there is a finding, and the fleet is none
/// ([`crate::fleet::settings`]).
pub(super) fn proxy_fleet(object: &ProxyFleet) -> Result<(), Fault> {
    let workload = &object.spec.workload;
    if !is_label(&workload.name) {
        let why = "must be a DNS label: at most 63 of a-z, 0-9 and '-', which neither begins nor ends it";
        return fault("spec.workload.name", &workload.name, why);
    }
    Ok(())
}
