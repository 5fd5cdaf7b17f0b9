//! Who an agent is: the SPIFFE ID in its certificate, and nothing else.

use std::fmt;
use std::str::FromStr;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The trust domain of every identity that this project issues.
pub const TRUST_DOMAIN: &str = "scalws.local";

/// A fleet: namespace and name of its ProxyFleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FleetId {
    /// The namespace, a DNS label.
    pub namespace: String,
    /// The name, a DNS subdomain.
    pub name: String,
}

impl FleetId {
    /// Of these two, unchecked; [`AgentIdentity::new`] checks.
    pub fn new(namespace: &str, name: &str) -> FleetId {
        FleetId { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for FleetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An agent: a pod of a fleet. The certificate proves fleet and UID; the pod's name is for people and stays empty when
/// only a certificate is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentIdentity {
    /// Its fleet.
    pub fleet: FleetId,
    /// The pod's name, or empty.
    pub pod: String,
    /// The pod's UID.
    pub uid: String,
}

/// Why something is no identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Not `spiffe://<trust domain>/fleet/<namespace>/<name>/pod/<uid>` of our trust domain.
    #[error("not a SPIFFE ID of an agent of this trust domain")]
    Form,
    /// A part is empty, too long, or holds a character that the names of Kubernetes objects do not have.
    #[error("a part of the SPIFFE ID is not a valid name")]
    Name,
    /// The certificate cannot be read.
    #[error("not an X.509 certificate")]
    Certificate,
    /// A certificate of an agent has exactly one subject alternative name, a URI.
    #[error("the certificate does not have exactly one subject alternative name")]
    Names,
}

impl AgentIdentity {
    /// Checks every part.
    pub fn new(fleet: FleetId, pod: &str, uid: &str) -> Result<AgentIdentity, IdentityError> {
        let parts = [(&*fleet.namespace, 63), (&*fleet.name, 253), (uid, 253)];
        if !parts.iter().all(|(part, longest)| is_name(part, *longest)) || !(pod.is_empty() || is_name(pod, 253)) {
            return Err(IdentityError::Name);
        }
        Ok(AgentIdentity { fleet, pod: pod.to_owned(), uid: uid.to_owned() })
    }

    /// The SPIFFE ID.
    pub fn spiffe_id(&self) -> String {
        format!("spiffe://{TRUST_DOMAIN}/fleet/{}/{}/pod/{}", self.fleet.namespace, self.fleet.name, self.uid)
    }

    /// Reads the leaf certificate of a verified chain. Strict: one subject alternative name, of our form.
    pub fn from_certificate(der: &[u8]) -> Result<AgentIdentity, IdentityError> {
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| IdentityError::Certificate)?;
        if !rest.is_empty() {
            return Err(IdentityError::Certificate);
        }
        let names = certificate.subject_alternative_name().map_err(|_| IdentityError::Names)?;
        match names.map(|names| &*names.value.general_names) {
            Some([GeneralName::URI(uri)]) => uri.parse(),
            _ => Err(IdentityError::Names),
        }
    }
}

impl FromStr for AgentIdentity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<AgentIdentity, IdentityError> {
        let path = text.strip_prefix("spiffe://").and_then(|text| text.strip_prefix(TRUST_DOMAIN));
        let path = path.and_then(|path| path.strip_prefix("/fleet/")).ok_or(IdentityError::Form)?;
        let parts: Vec<&str> = path.split('/').collect();
        match parts[..] {
            [namespace, name, "pod", uid] => AgentIdentity::new(FleetId::new(namespace, name), "", uid),
            _ => Err(IdentityError::Form),
        }
    }
}

/// Lower-case letters, digits, `-` and `.`; no other text can smuggle in a separator, an escape or another case.
/// Stricter checks of Kubernetes names (RFC 1123) are the API server's.
fn is_name(text: &str, longest: usize) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    bytes.len() <= longest && bytes.iter().all(|b| inner(*b)) && edge(bytes.first()) && edge(bytes.last())
}
