//! The loopback endpoints of EndpointSlices (discovery.k8s.io/v1), as addresses to listen on.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use translate::objects::EndpointSlice;

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

/// The loopback addresses of EndpointSlices, ready or not. The first slice that names an address has it.
pub fn of<'a>(slices: impl IntoIterator<Item = &'a EndpointSlice>) -> BTreeMap<SocketAddr, Endpoint> {
    let mut out = BTreeMap::new();
    for slice in slices {
        let service = slice.service().map(|service| service.to_string());
        let service = service.unwrap_or_else(|| format!("{}/", slice.metadata.namespace()));
        for (place, endpoint) in slice.endpoints.iter().enumerate() {
            let pod = endpoint.target_ref.as_ref().map(|target| target.name.clone()).filter(|name| !name.is_empty());
            let pod = pod.unwrap_or_else(|| format!("{}-{place}", slice.metadata.name()));
            let addresses = endpoint.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok());
            for ip in addresses.filter(IpAddr::is_loopback) {
                for port in slice.ports.iter().filter(|port| port.is_tcp()).filter_map(|port| port.port) {
                    let who = Endpoint { service: service.clone(), pod: pod.clone() };
                    out.entry(SocketAddr::new(ip, port)).or_insert(who);
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use translate::Object;

    #[test]
    fn only_loopback_addresses_get_an_echo() {
        let slice = |name: &str, family: &str, endpoints: serde_json::Value| {
            let object = Object::from_value(json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
                "addressType": family,
                "endpoints": endpoints,
                "ports": [{"port": 9000}, {"port": 53, "protocol": "UDP"}, {"name": "all"}]
            }));
            let Ok(Object::EndpointSlice(slice)) = object else { panic!("{object:?} is no slice") };
            slice
        };
        let four = json!([
            {"addresses": ["127.0.1.1"], "targetRef": {"kind": "Pod", "name": "web-a"}},
            {"addresses": ["10.0.0.1"]},
            {"addresses": ["127.0.1.2"], "targetRef": null}
        ]);
        let again = json!([{"addresses": ["127.0.1.1"], "targetRef": {"name": "second"}}]);
        let slices =
            [slice("a", "IPv4", four), slice("b", "IPv6", json!([{"addresses": ["::1"]}])), slice("c", "IPv4", again)];
        let shown: Vec<String> = of(&slices).iter().map(|(a, e)| format!("{a} {e}")).collect();
        let wanted =
            ["127.0.1.1:9000 web-a of shop/web", "127.0.1.2:9000 a-2 of shop/web", "[::1]:9000 b-0 of shop/web"];
        assert_eq!(shown, wanted);
    }
}
