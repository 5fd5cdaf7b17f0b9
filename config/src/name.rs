//! Names of resources: typed tuples, encoded so that two different tuples never give the same text.
//!
//! Parts are joined with `/`; in each part every byte except letters, digits and `-._*:` is written `%XX`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Domain, ObjectRef};

/// The kinds of resources that a configuration is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A port that is open. Named by [`ListenerName`].
    Listener,
    /// One domain on one listener: its owner and its TLS. Named by [`HostName`].
    Host,
    /// The routes of one source object for one domain. Named by [`FragmentName`].
    Fragment,
    /// Where requests go: a policy plus the name of a member set. Named by [`PoolName`].
    Pool,
    /// A certificate chain and the digest of its key. Named by [`CertificateName`].
    Certificate,
    /// A policy that several routes share. Named by [`PolicyName`].
    Policy,
}

impl Kind {
    /// Every kind, in the order in which they load: what is named comes before what names it. A listener names the
    /// certificate for names that nobody serves, and a pool when it forwards connections.
    pub const ALL: [Kind; 6] =
        [Kind::Certificate, Kind::Policy, Kind::Pool, Kind::Listener, Kind::Host, Kind::Fragment];

    /// The kind as it travels: lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Listener => "listener",
            Kind::Host => "host",
            Kind::Fragment => "fragment",
            Kind::Pool => "pool",
            Kind::Certificate => "certificate",
            Kind::Policy => "policy",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        Kind::ALL.into_iter().find(|k| k.as_str() == text).ok_or_else(|| NameError(format!("unknown kind {text:?}")))
    }
}

/// A name that cannot be read back into its parts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NameError(pub(crate) String);

/// The name of a resource as it travels: an encoded tuple. Only the typed names make one. Copies share one text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Name(Arc<str>);

impl Name {
    /// The encoded text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Takes a name that came over the wire. It is checked when it is read as a typed name.
    pub fn from_wire(text: impl Into<Arc<str>>) -> Name {
        Name(text.into())
    }

    /// The encoded text, shared.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }

    fn encode(parts: &[&str]) -> Name {
        let mut out = String::new();
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                out.push('/');
            }
            for byte in part.bytes() {
                if byte.is_ascii_alphanumeric() || b"-._*:".contains(&byte) {
                    out.push(char::from(byte));
                } else {
                    out.push_str(&format!("%{byte:02X}"));
                }
            }
        }
        Name(out.into())
    }

    fn decode<const N: usize>(&self) -> Result<[String; N], NameError> {
        let bad = |why: &str| NameError(format!("name {:?}: {why}", self.0));
        let parts = self
            .0
            .split('/')
            .map(|part| decode_part(part).ok_or_else(|| bad("broken escape")))
            .collect::<Result<Vec<_>, _>>()?;
        let decoded: [String; N] = parts.try_into().map_err(|_| bad("wrong number of parts"))?;
        let texts = decoded.each_ref().map(String::as_str);
        if Name::encode(&texts) != *self {
            return Err(bad("not in its canonical form"));
        }
        Ok(decoded)
    }
}

fn decode_part(part: &str) -> Option<String> {
    let mut out = Vec::with_capacity(part.len());
    let mut bytes = part.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            out.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A TCP port.
    Tcp,
    /// A UDP port.
    Udp,
}

impl Transport {
    /// `tcp` or `udp`.
    pub fn as_str(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        }
    }
}

/// Names a listener: `tcp/443`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerName {
    /// TCP or UDP.
    pub transport: Transport,
    /// The port number.
    pub port: u16,
}

/// Names a host: one domain on one listener, `tcp/443/shop.example.com`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName {
    /// The listener it is served on.
    pub listener: ListenerName,
    /// The domain, wildcards included.
    pub domain: Domain,
}

/// Names a fragment: the object it came from and the domain, `Ingress/demo/shop/shop.example.com`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FragmentName {
    /// The object whose routes these are.
    pub source: ObjectRef,
    /// The domain, wildcards included.
    pub domain: Domain,
}

/// Names a pool: `namespace/service/port/variant`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolName {
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub service: String,
    /// The Service's port.
    pub port: u16,
    /// Tells pools apart that draw on one Service port with different policies; empty for the plain one.
    pub variant: String,
}

/// Names a certificate by the Secret it came from: `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CertificateName {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret.
    pub name: String,
}

/// Names a policy by the object that declares it: `namespace/name/variant`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyName {
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// Tells several policies of one object apart.
    pub variant: String,
}

/// Names a member set: `namespace/service:port/protocol` (the port is the Service's).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberSetName {
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub service: String,
    /// The Service's port.
    pub port: u16,
    /// TCP or UDP.
    pub transport: Transport,
}

/// Text conversions that all typed names share.
macro_rules! typed_name {
    ($($name:ident),+) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.to_name().as_str())
            }
        }
        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                $name::from_name(&Name::from_wire(text))
            }
        }
        impl From<&$name> for Name {
            fn from(name: &$name) -> Name {
                name.to_name()
            }
        }
        impl From<$name> for Name {
            fn from(name: $name) -> Name {
                name.to_name()
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.to_name().as_str())
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}
typed_name!(ListenerName, HostName, FragmentName, PoolName, CertificateName, PolicyName, MemberSetName);

fn parse_transport(text: &str) -> Result<Transport, NameError> {
    match text {
        "tcp" => Ok(Transport::Tcp),
        "udp" => Ok(Transport::Udp),
        other => Err(NameError(format!("{other:?} is neither tcp nor udp"))),
    }
}

fn parse_port(text: &str) -> Result<u16, NameError> {
    text.parse()
        .ok()
        .filter(|p: &u16| *p > 0 && p.to_string() == text)
        .ok_or_else(|| NameError(format!("{text:?} is not a port")))
}

/// Reads a domain that must be in its normal form already, so that one host has one name.
fn parse_domain(text: &str) -> Result<Domain, NameError> {
    let domain: Domain = text.parse().map_err(|e| NameError(format!("{e}")))?;
    if domain.as_str() == text { Ok(domain) } else { Err(NameError(format!("{text:?} is not in its normal form"))) }
}

impl ListenerName {
    /// A TCP listener.
    pub fn tcp(port: u16) -> ListenerName {
        ListenerName { transport: Transport::Tcp, port }
    }

    /// The encoded name.
    pub fn to_name(&self) -> Name {
        Name::encode(&[self.transport.as_str(), &self.port.to_string()])
    }

    /// Reads the encoded name.
    pub fn from_name(name: &Name) -> Result<ListenerName, NameError> {
        let [transport, port] = name.decode()?;
        Ok(ListenerName { transport: parse_transport(&transport)?, port: parse_port(&port)? })
    }
}

impl HostName {
    /// The encoded name.
    pub fn to_name(&self) -> Name {
        Name::encode(&[self.listener.transport.as_str(), &self.listener.port.to_string(), self.domain.as_str()])
    }

    /// Reads the encoded name.
    pub fn from_name(name: &Name) -> Result<HostName, NameError> {
        let [transport, port, domain] = name.decode()?;
        let listener = ListenerName { transport: parse_transport(&transport)?, port: parse_port(&port)? };
        Ok(HostName { listener, domain: parse_domain(&domain)? })
    }
}

impl FragmentName {
    /// The encoded name.
    pub fn to_name(&self) -> Name {
        Name::encode(&[&self.source.kind, &self.source.namespace, &self.source.name, self.domain.as_str()])
    }

    /// Reads the encoded name.
    pub fn from_name(name: &Name) -> Result<FragmentName, NameError> {
        let [kind, namespace, object, domain] = name.decode()?;
        let source = ObjectRef { kind, namespace, name: object };
        Ok(FragmentName { source, domain: parse_domain(&domain)? })
    }
}

impl PoolName {
    /// The encoded name.
    pub fn to_name(&self) -> Name {
        Name::encode(&[&self.namespace, &self.service, &self.port.to_string(), &self.variant])
    }

    /// Reads the encoded name.
    pub fn from_name(name: &Name) -> Result<PoolName, NameError> {
        let [namespace, service, port, variant] = name.decode()?;
        Ok(PoolName { namespace, service, port: parse_port(&port)?, variant })
    }
}

impl CertificateName {
    /// The encoded name.
    pub fn to_name(&self) -> Name {
        Name::encode(&[&self.namespace, &self.name])
    }

    /// Reads the encoded name.
    pub fn from_name(name: &Name) -> Result<CertificateName, NameError> {
        let [namespace, secret] = name.decode()?;
        Ok(CertificateName { namespace, name: secret })
    }
}

impl PolicyName {
    /// The encoded name.
    pub fn to_name(&self) -> Name {
        Name::encode(&[&self.namespace, &self.name, &self.variant])
    }

    /// Reads the encoded name.
    pub fn from_name(name: &Name) -> Result<PolicyName, NameError> {
        let [namespace, object, variant] = name.decode()?;
        Ok(PolicyName { namespace, name: object, variant })
    }
}

impl MemberSetName {
    /// The encoded name.
    pub fn to_name(&self) -> Name {
        Name::encode(&[&self.namespace, &format!("{}:{}", self.service, self.port), self.transport.as_str()])
    }

    /// Reads the encoded name.
    pub fn from_name(name: &Name) -> Result<MemberSetName, NameError> {
        let [namespace, service_port, transport] = name.decode()?;
        let (service, port) =
            service_port.rsplit_once(':').ok_or_else(|| NameError(format!("member set {name}: no port")))?;
        Ok(MemberSetName {
            namespace,
            service: service.to_owned(),
            port: parse_port(port)?,
            transport: parse_transport(&transport)?,
        })
    }
}
