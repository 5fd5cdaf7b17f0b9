//! The loopback endpoints of EndpointSlices (discovery.k8s.io/v1), as addresses to listen on.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use crate::manifests::{list, namespace, text};

/// Who answers at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `namespace/service`.
    pub service: String,
    /// The name of the pod, or of the slice and the endpoint's place in it.
    pub pod: String,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.pod, self.service)
    }
}

/// The loopback addresses among all objects, ready or not. The first slice that names an address has it.
pub fn of<'a>(objects: impl IntoIterator<Item = &'a Value>) -> BTreeMap<SocketAddr, Endpoint> {
    let mut out = BTreeMap::new();
    for slice in objects.into_iter().filter(|o| text(o, "/kind") == "EndpointSlice") {
        let service = format!("{}/{}", namespace(slice), text(slice, "/metadata/labels/kubernetes.io~1service-name"));
        for (place, endpoint) in list(slice, "/endpoints").iter().enumerate() {
            let pod = match text(endpoint, "/targetRef/name") {
                "" => format!("{}-{place}", text(slice, "/metadata/name")),
                name => name.to_owned(),
            };
            let addresses = list(endpoint, "/addresses").iter().filter_map(Value::as_str);
            for ip in addresses.filter_map(|a| a.parse::<IpAddr>().ok()).filter(IpAddr::is_loopback) {
                for port in tcp_ports(slice) {
                    let who = Endpoint { service: service.clone(), pod: pod.clone() };
                    out.entry(SocketAddr::new(ip, port)).or_insert(who);
                }
            }
        }
    }
    out
}

fn tcp_ports(slice: &Value) -> impl Iterator<Item = u16> {
    list(slice, "/ports")
        .iter()
        .filter(|p| matches!(text(p, "/protocol"), "" | "TCP"))
        .filter_map(|p| p.get("port")?.as_u64())
        .filter_map(|p| u16::try_from(p).ok())
        .filter(|p| *p != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_loopback_addresses_get_an_echo() {
        let slice = json!({
            "kind": "EndpointSlice",
            "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
            "endpoints": [
                {"addresses": ["127.0.1.1"], "targetRef": {"name": "web-a"}},
                {"addresses": ["10.0.0.1", "::1", "not an address"]}
            ],
            "ports": [{"port": 9000}, {"port": 53, "protocol": "UDP"}, {"port": 99999}, {"port": "x"}]
        });
        let other = json!({"kind": "Service", "endpoints": [{"addresses": ["127.0.0.9"]}], "ports": [{"port": 1}]});
        let found = of(&[slice, other, json!(null), json!("text")]);
        let shown: Vec<String> = found.iter().map(|(a, e)| format!("{a} {e}")).collect();
        assert_eq!(shown, ["127.0.1.1:9000 web-a of shop/web", "[::1]:9000 web-1-1 of shop/web"]);
    }
}
