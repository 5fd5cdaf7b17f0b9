//! `scalws.yaml`: a whole configuration in one file, for a proxy without an agent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    HeaderChanges, HeaderMatch, ListenerProtocol, PathMatch, PathRewrite, QueryMatch, Redirect, Timeouts, ToHttps,
    Transport, UnknownName,
};

/// Everything that a proxy serves. One error anywhere refuses the whole file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StandaloneFile {
    /// The ports that are open.
    pub listeners: Vec<FileListener>,
    /// Certificates, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<FileCertificate>,
    /// Where requests go, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<FilePool>,
    /// What is served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<FileHost>,
}

/// A port that is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileListener {
    /// The port number.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// TCP when not given.
    #[serde(default = "tcp")]
    pub transport: Transport,
    /// `http` when not given.
    #[serde(default = "http")]
    pub protocol: ListenerProtocol,
    /// For `tls`: what a name gets that no host covers.
    #[serde(default)]
    pub unknown_name: UnknownName,
    /// For `tls`: the name of the certificate for names without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_certificate: Option<String>,
    /// For `raw`: the name of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// A certificate and where its key lies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileCertificate {
    /// What hosts call it.
    pub name: String,
    /// The chain in PEM, leaf first: the path of a file, or the text itself.
    pub chain: String,
    /// The path of the PEM file with the private key.
    pub key: String,
}

/// Servers that share requests. Either `members` or `dns` is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FilePool {
    /// What routes call it.
    pub name: String,
    /// `address:port`, IPv6 in brackets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<String>>,
    /// A name that the proxy resolves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<FileDns>,
    /// What they speak; `http1` when not given.
    #[serde(default)]
    pub protocol: crate::UpstreamProtocol,
}

/// A name that the proxy resolves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileDns {
    /// The name.
    pub host: String,
    /// The port.
    #[schemars(range(min = 1))]
    pub port: u16,
}

/// A domain and its routes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileHost {
    /// The domain; `*` for every name that no other host covers.
    pub domain: String,
    /// The ports it is served on; every `http` and `tls` listener when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listeners: Option<Vec<u16>>,
    /// Names of certificates; the first that a client can use is served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<String>,
    /// The name of a pool that gets the TLS connection as it is. Then there are no routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passthrough: Option<String>,
    /// Whether requests without TLS are redirected to the first `tls` listener.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redirect_to_https: bool,
    /// The routes. Exact paths are tried first, then regular expressions in the order of the file, then the longest prefix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<FileRoute>,
}

/// A route: which requests, and what happens to them. Exactly one of `forward`, `redirect` and `respond` is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileRoute {
    /// Which paths; all when not given.
    #[serde(default)]
    pub path: FilePath,
    /// The method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Headers that must be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderMatch>,
    /// Query parameters that must be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<QueryMatch>,
    /// The pool that answers, or several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<FileForward>,
    /// Another address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<Redirect>,
    /// A fixed status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub respond: Option<u16>,
    /// On a connection without TLS: redirect to https before anything else. Set for all routes by `redirectToHttps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_https: Option<ToHttps>,
    /// A changed path for the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<PathRewrite>,
    /// Another Host for the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Changes to the headers of the request.
    #[serde(default)]
    pub request_headers: HeaderChanges,
    /// Changes to the headers of the answer.
    #[serde(default)]
    pub response_headers: HeaderChanges,
    /// How long things may take.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// How often a request that is safe to repeat is tried again; 2 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u8>,
}

/// Which paths a route matches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FilePath {
    /// A path and all below it, by element.
    Prefix(String),
    /// Any form of match.
    Match(PathMatch),
}

impl Default for FilePath {
    fn default() -> FilePath {
        FilePath::Prefix("/".to_owned())
    }
}

/// Where a route forwards to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FileForward {
    /// The name of a pool.
    One(String),
    /// Several pools by weight.
    Many(Vec<FileShare>),
}

/// A pool and its share of the requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileShare {
    /// The name of the pool.
    pub pool: String,
    /// Its weight among the shares.
    pub weight: u32,
}

fn tcp() -> Transport {
    Transport::Tcp
}

fn http() -> ListenerProtocol {
    ListenerProtocol::Http
}
