//! Third stage: who owns a host, and how it does TLS.

use config::{CertificateName, Domain};

use crate::claims::{Claimant, HostKey};
use crate::objects::NamespacedName;
use crate::view::View;
use crate::world::FleetSettings;

/// The state of a host that somebody claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostState {
    /// The listeners that it is on.
    pub(crate) listeners: FleetSettings,
    /// The claim that decides. Its namespace owns the host.
    pub(crate) owner: Claimant,
    /// The wildcard that the deciding claim is for, if it is not for this host itself.
    pub(crate) covered_by: Option<Domain>,
    /// The best claim of the owning namespace to this very host. None: nothing is served here.
    pub(crate) first: Option<NamespacedName>,
    /// None: no TLS of its own; it is served over TLS with the default certificate.
    pub(crate) tls: Option<HostTlsChoice>,
}

/// How a host with TLS does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostTlsChoice {
    /// The Ingress that brings the certificates. None: nobody does.
    pub(crate) source: Option<NamespacedName>,
    pub(crate) certificates: Vec<CertificateName>,
    /// The wildcard host that it is taken over from.
    pub(crate) inherited: Option<Domain>,
}

impl HostState {
    /// The namespace that owns the host.
    pub(crate) fn namespace(&self) -> &str {
        &self.owner.ingress.namespace
    }
}

/// The oldest claim decides, be it for the host itself or for the wildcard that covers it; all others of its namespace
/// share the host. Ingresses that are not served count: refusing one must never hand its host to somebody else.
/// The catch-all covers nothing, it is only what is left.
pub(crate) fn decide(view: &View<'_>, key: &HostKey) -> Option<HostState> {
    let listeners = *view.fleet(&key.fleet)?;
    let claims = view.claims(key)?;
    let own = claims.first()?;
    let parent_key = key.parent();
    let parent = parent_key.as_ref().and_then(|parent| view.host(parent));
    let (owner, covered_by) = match parent {
        Some(parent) if parent.owner < *own && parent.namespace() != &*own.ingress.namespace => {
            (parent.owner.clone(), parent_key.as_ref().map(|key| key.domain.clone()))
        }
        _ => (own.clone(), None),
    };
    let namespace = &owner.ingress.namespace;
    let first = claims.first_of(namespace).map(|claimant| claimant.ingress.clone());
    let tls = match claims.certified(namespace) {
        Some((claimant, certificates)) => Some(HostTlsChoice {
            source: Some(claimant.ingress.clone()),
            certificates: certificates.clone(),
            inherited: None,
        }),
        None if claims.has_tls(namespace) => {
            Some(HostTlsChoice { source: None, certificates: Vec::new(), inherited: None })
        }
        // As clients of ingress-nginx know it: a host without TLS under a wildcard with TLS uses that. Here only
        // within one namespace, so that nobody changes how another's host is reached.
        None => parent.filter(|parent| parent.namespace() == &**namespace).and_then(|parent| {
            let tls = parent.tls.clone()?;
            Some(HostTlsChoice { inherited: parent_key.map(|key| key.domain), ..tls })
        }),
    };
    Some(HostState { listeners, owner, covered_by, first, tls })
}
