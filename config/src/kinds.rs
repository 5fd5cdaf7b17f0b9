//! The bodies: what each kind of resource says. Unknown fields are errors; fields at their default are not written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CertificateName, Kind, MemberSetName, PolicyName, PoolName, SecretDigest};

/// The body of a resource, by kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Of a listener.
    Listener(ListenerBody),
    /// Of a host.
    Host(HostBody),
    /// Of a fragment.
    Fragment(FragmentBody),
    /// Of a pool.
    Pool(PoolBody),
    /// Of a certificate.
    Certificate(CertificateBody),
    /// Of a policy.
    Policy(PolicyBody),
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What speaks on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ListenerProtocol {
    /// HTTP/1.1 and HTTP/2 by prior knowledge, without TLS.
    Http,
    /// TLS; each host says whether it is terminated to HTTP, to a stream, or passed through.
    Tls,
    /// Bytes, forwarded to one pool.
    Raw,
}

/// What a handshake for a name that no host covers gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownName {
    /// The default certificate; the request then answers 404.
    #[default]
    Default,
    /// The handshake is refused (alert `unrecognized_name`, RFC 6066 section 3).
    Refuse,
}

/// A port that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListenerBody {
    /// What speaks on it.
    pub protocol: ListenerProtocol,
    /// For TLS: what an unknown name gets.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unknown_name: UnknownName,
    /// For TLS: the certificate for names without one; the proxy makes one for itself when this is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_certificate: Option<CertificateName>,
    /// For raw listeners: where the bytes go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
}

/// One domain on one listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostBody {
    /// The namespace that owns the domain on this listener.
    pub owner: String,
    /// How TLS is handled; not given on listeners without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<HostTls>,
}

/// How a host handles TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum HostTls {
    /// TLS ends here and HTTP is routed.
    Terminate {
        /// Candidates; the first that is live and that the client can use is served. Empty: the fallback.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        certificates: Vec<CertificateName>,
        /// What is served when no certificate is live.
        #[serde(default, skip_serializing_if = "is_default")]
        fallback: UnknownName,
        /// Client certificates, if they are asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client_auth: Option<ClientAuth>,
    },
    /// TLS ends here and the bytes go to a pool.
    Stream {
        /// As in `terminate`.
        certificates: Vec<CertificateName>,
        /// Where the bytes go.
        pool: PoolName,
    },
    /// The bytes go to a pool as they are; only the ClientHello is read.
    Passthrough {
        /// Where the bytes go.
        pool: PoolName,
    },
}

/// Client certificates (not built yet in `scalwsd`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientAuth {
    /// The digest of the PEM file with the authorities.
    pub authorities: SecretDigest,
    /// Whether a client without a certificate is let in.
    #[serde(default, skip_serializing_if = "is_default")]
    pub optional: bool,
}

/// What the routes of a fragment do: one entry for each match of the claims, in the same order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FragmentBody {
    /// By the number of the match.
    pub actions: Vec<RouteAction>,
}

/// What happens to a request that a match won.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RouteAction {
    /// Forward, redirect or answer.
    pub action: Action,
    /// On a connection without TLS: redirect to https before anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_https: Option<ToHttps>,
    /// Policies that must all be live and agree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyName>,
    /// Changes to the headers of the answer.
    #[serde(default, skip_serializing_if = "is_default")]
    pub response_headers: HeaderChanges,
}

/// The redirect from http to https: the same host and path-and-query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToHttps {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// The port of the https listener; 443 is not written into the location.
    pub port: u16,
}

/// The main thing that a route does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Action {
    /// To a pool.
    Forward(ForwardAction),
    /// To another address.
    Redirect(Redirect),
    /// A fixed answer with this status and no body of ours but its reason.
    Respond(u16),
}

/// Forwarding to weighted shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForwardAction {
    /// At least one. A weight of 0 gets nothing; if all are 0 the answer is 500 (Gateway API, HTTPBackendRef.weight).
    pub shares: Vec<Share>,
    /// A changed path for the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathRewrite>,
    /// Another Host for the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Changes to the headers of the request.
    #[serde(default, skip_serializing_if = "is_default")]
    pub request_headers: HeaderChanges,
    /// How long things may take.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeouts: Timeouts,
    /// How often a request that is safe to repeat is tried again; 2 is not written.
    #[serde(default = "two", skip_serializing_if = "is_two")]
    pub retries: u8,
}

impl ForwardAction {
    /// Forwarding to these shares, with nothing changed and everything else at its default.
    pub fn to(shares: Vec<Share>) -> ForwardAction {
        ForwardAction {
            shares,
            path: None,
            host: None,
            request_headers: HeaderChanges::default(),
            timeouts: Timeouts::default(),
            retries: two(),
        }
    }
}

fn two() -> u8 {
    2
}

fn is_two(n: &u8) -> bool {
    *n == 2
}

/// One share of a route's traffic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Share {
    /// To a pool.
    Pool {
        /// Its name. If it is not live, this share answers 503.
        name: PoolName,
        /// Its weight among the shares, 0 to 1,000,000 (Gateway API, BackendRef.weight).
        weight: u32,
    },
    /// A fixed answer.
    Status {
        /// The status.
        status: u16,
        /// Its weight among the shares.
        weight: u32,
    },
}

/// How the path changes before it is forwarded. The query stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum PathRewrite {
    /// The whole path.
    Full(String),
    /// The part that the prefix match covered.
    Prefix(String),
    /// A template with `$1` to `$9` for the groups of the regular expression that matched.
    Template(String),
}

/// A redirect. Parts that are not given stay as in the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// `http` or `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// The host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<RedirectPath>,
}

/// The path of a redirect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum RedirectPath {
    /// The whole path; the query is kept.
    Full(String),
    /// The part that the prefix match covered; the query is kept.
    Prefix(String),
}

/// Changes to headers, in this order: remove, set, add. Names are lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeaderChanges {
    /// Names to remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// Names and the one value they have afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<(String, String)>,
    /// Names and a value to add to those that are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<(String, String)>,
}

/// Times in milliseconds; 0 means without limit, not given means the proxy's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Timeouts {
    /// To a connection with the upstream (default 5,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_ms: Option<u64>,
    /// Between two reads or writes while a request is under way (default 60,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// From the whole request head to the whole answer (default: without limit).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_ms: Option<u64>,
}

/// What is spoken to the members of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, without TLS by prior knowledge (RFC 9113 section 3.3).
    H2,
    /// Bytes.
    Raw,
}

/// Where the members of a pool come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum MemberSource {
    /// A member set of the member lane.
    Set(MemberSetName),
    /// A name that `scalwsd` resolves (ExternalName); the resolved addresses pass its deny list.
    Dns {
        /// The name.
        host: String,
        /// The port.
        port: u16,
    },
}

/// TLS towards the members of a pool. The certificate is always verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackendTls {
    /// The name that the certificate must cover, and the SNI.
    pub server_name: String,
    /// The digest of the PEM file with the authorities; the system's when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorities: Option<SecretDigest>,
}

/// A policy over a member set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolBody {
    /// Where the members come from.
    pub members: MemberSource,
    /// What is spoken to them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub protocol: UpstreamProtocol,
    /// TLS towards them (not built yet in `scalwsd`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<BackendTls>,
}

/// A certificate and the digest of its private key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CertificateBody {
    /// The chain in PEM, leaf first.
    pub chain: String,
    /// The digest of the PEM file with the private key.
    pub key: SecretDigest,
}

/// A policy that several routes share. No kind of policy is built yet, so every one fails closed in `scalwsd`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyBody {
    /// Addresses that are let in, as CIDR; all others get 403.
    pub allow: Vec<String>,
}

impl Body {
    /// The kind that this body belongs to.
    pub fn kind(&self) -> Kind {
        match self {
            Body::Listener(_) => Kind::Listener,
            Body::Host(_) => Kind::Host,
            Body::Fragment(_) => Kind::Fragment,
            Body::Pool(_) => Kind::Pool,
            Body::Certificate(_) => Kind::Certificate,
            Body::Policy(_) => Kind::Policy,
        }
    }

    /// The lowest schema version that can express this body.
    pub fn version(&self) -> u32 {
        1
    }

    /// One compact JSON value without bytes below 0x20.
    pub fn to_json(&self) -> String {
        let text = match self {
            Body::Listener(body) => serde_json::to_string(body),
            Body::Host(body) => serde_json::to_string(body),
            Body::Fragment(body) => serde_json::to_string(body),
            Body::Pool(body) => serde_json::to_string(body),
            Body::Certificate(body) => serde_json::to_string(body),
            Body::Policy(body) => serde_json::to_string(body),
        };
        text.expect("bodies have only string keys")
    }

    /// Reads a body of this kind, strictly.
    ///
    /// # Errors
    /// The sentence says what is unknown or wrong.
    pub fn from_json(kind: Kind, text: &str) -> Result<Body, String> {
        let body = match kind {
            Kind::Listener => serde_json::from_str(text).map(Body::Listener),
            Kind::Host => serde_json::from_str(text).map(Body::Host),
            Kind::Fragment => serde_json::from_str(text).map(Body::Fragment),
            Kind::Pool => serde_json::from_str(text).map(Body::Pool),
            Kind::Certificate => serde_json::from_str(text).map(Body::Certificate),
            Kind::Policy => serde_json::from_str(text).map(Body::Policy),
        };
        body.map_err(|e| e.to_string())
    }

    /// The secrets that this body names, sorted, each once.
    pub fn secrets(&self) -> Vec<SecretDigest> {
        match self {
            Body::Certificate(body) => vec![body.key.clone()],
            Body::Host(HostBody { tls: Some(HostTls::Terminate { client_auth: Some(auth), .. }), .. }) => {
                vec![auth.authorities.clone()]
            }
            Body::Pool(PoolBody { tls: Some(BackendTls { authorities: Some(digest), .. }), .. }) => {
                vec![digest.clone()]
            }
            _ => Vec::new(),
        }
    }
}
