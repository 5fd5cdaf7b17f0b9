//! The resources that do not belong to one Ingress: listeners, hosts, pools and certificates.

use config::{
    Body, CertificateBody, CertificateName, Envelope, HostBody, HostName, HostTls, Kind, ListenerBody, ListenerName,
    ListenerProtocol, MemberSetName, MemberSource, ObjectRef, PoolBody, PoolName, Resource, ResourceId, Transport,
    UnknownName, UpstreamProtocol,
};

use crate::backend::Shape;
use crate::certificate::Certificate;
use crate::claims::HostKey;
use crate::host::HostState;
use crate::output;
use crate::world::FleetSettings;

fn object(kind: &str, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
}

/// The two listeners of a fleet. They are open even while nothing is served.
pub(crate) fn listeners(settings: &FleetSettings) -> Vec<Resource> {
    let ports = [(settings.http_port, ListenerProtocol::Http), (settings.https_port, ListenerProtocol::Tls)];
    let resources = ports.map(|(port, protocol)| {
        let body = ListenerBody { protocol, unknown_name: UnknownName::Default, default_certificate: None, pool: None };
        let id = ResourceId { kind: Kind::Listener, name: ListenerName::tcp(port).to_name() };
        Envelope::with_body(id, Vec::new(), None, &Body::Listener(body))
    });
    resources.into()
}

/// The names of a host's resources, on both listeners.
pub(crate) fn host_ids(key: &HostKey, listeners: &FleetSettings) -> [ResourceId; 2] {
    [listeners.http_port, listeners.https_port].map(|port| {
        let name = HostName { listener: ListenerName::tcp(port), domain: key.domain.clone() };
        ResourceId { kind: Kind::Host, name: name.to_name() }
    })
}

/// A host on both listeners; nothing when its owner claims only the wildcard above it. Over TLS it is reached in any
/// case: without a certificate of its own with the default one, as clients of ingress-nginx know it.
pub(crate) fn host(key: &HostKey, state: &HostState) -> Vec<Resource> {
    let Some(first) = &state.first else { return Vec::new() };
    let mut origin = vec![output::reference(first)];
    origin.extend(state.tls.iter().filter_map(|tls| tls.source.as_ref()).map(output::reference));
    origin.sort();
    origin.dedup();
    let certificates = state.tls.as_ref().map(|tls| tls.certificates.clone()).unwrap_or_default();
    let terminate = HostTls::Terminate { certificates, fallback: UnknownName::Default, client_auth: None };
    let ids = host_ids(key, &state.listeners);
    let resources = ids.into_iter().zip([None, Some(terminate)]).map(|(id, tls)| {
        let body = HostBody { owner: state.namespace().to_owned(), tls };
        Envelope::with_body(id, origin.clone(), None, &Body::Host(body))
    });
    resources.collect()
}

/// The name of the member set behind a pool.
pub(crate) fn set_name(pool: &PoolName) -> MemberSetName {
    MemberSetName {
        namespace: pool.namespace.clone(),
        service: pool.service.clone(),
        port: pool.port,
        transport: Transport::Tcp,
    }
}

/// A pool over the port of a Service.
pub(crate) fn pool(name: &PoolName, shape: &Shape) -> Resource {
    let members = match &shape.external {
        None => MemberSource::Set(set_name(name)),
        Some(host) => MemberSource::Dns { host: host.clone(), port: shape.external_port(name.port) },
    };
    let body = PoolBody { members, protocol: UpstreamProtocol::Http1, tls: None };
    let id = ResourceId { kind: Kind::Pool, name: name.to_name() };
    Envelope::with_body(id, vec![object("Service", &name.namespace, &name.service)], None, &Body::Pool(body))
}

/// A certificate.
pub(crate) fn certificate(name: &CertificateName, certificate: &Certificate) -> Resource {
    let body = CertificateBody { chain: certificate.chain.clone(), key: certificate.digest.clone() };
    let id = ResourceId { kind: Kind::Certificate, name: name.to_name() };
    Envelope::with_body(id, vec![object("Secret", &name.namespace, &name.name)], None, &Body::Certificate(body))
}
