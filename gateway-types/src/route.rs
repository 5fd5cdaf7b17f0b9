//! The routes: HTTPRoute, GRPCRoute, and of the others what all routes share.

use serde::Deserialize;

use crate::or_default;

/// `spec.parentRefs[]` of every route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentReference {
    /// The API group; that of the Gateway API when not given.
    #[serde(default)]
    pub group: Option<String>,
    /// The kind; `Gateway` when not given.
    #[serde(default)]
    pub kind: Option<String>,
    /// The namespace; that of the route when not given.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The listener; every one when not given.
    #[serde(default)]
    pub section_name: Option<String>,
    /// The port of the listeners; every one when not given.
    #[serde(default)]
    pub port: Option<u16>,
}

/// `spec.rules[].backendRefs[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct BackendReference {
    /// The API group; empty when not given.
    #[serde(default, deserialize_with = "or_default")]
    pub group: String,
    /// The kind; `Service` when not given.
    #[serde(default)]
    pub kind: Option<String>,
    /// The namespace; that of the route when not given.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The port of the Service.
    #[serde(default)]
    pub port: Option<u16>,
    /// Its share; 1 when not given.
    #[serde(default)]
    pub weight: Option<u32>,
}

/// `HTTPRoute.spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteSpec {
    /// Where it wants to attach.
    #[serde(default, deserialize_with = "or_default")]
    pub parent_refs: Vec<ParentReference>,
    /// Its hosts; every one when there is none.
    #[serde(default, deserialize_with = "or_default")]
    pub hostnames: Vec<String>,
    /// Its rules.
    #[serde(default, deserialize_with = "or_default")]
    pub rules: Vec<HttpRouteRule>,
}

/// `HTTPRoute.spec.rules[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteRule {
    /// Any of these; every request when there is none.
    #[serde(default, deserialize_with = "or_default")]
    pub matches: Vec<HttpRouteMatch>,
    /// Where requests go.
    #[serde(default, deserialize_with = "or_default")]
    pub backend_refs: Vec<BackendReference>,
    /// How long things may take.
    #[serde(default, deserialize_with = "or_default")]
    pub timeouts: RouteTimeouts,
}

/// `timeouts` of a rule, as durations of GEP-2257.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteTimeouts {
    /// For the whole request.
    #[serde(default)]
    pub request: Option<String>,
    /// For one try at a backend.
    #[serde(default)]
    pub backend_request: Option<String>,
}

/// `HTTPRoute.spec.rules[].matches[]`: all parts must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteMatch {
    /// The path; the prefix `/` when not given.
    #[serde(default)]
    pub path: Option<HttpPathMatch>,
    /// The method.
    #[serde(default)]
    pub method: Option<String>,
    /// Headers.
    #[serde(default, deserialize_with = "or_default")]
    pub headers: Vec<ValueMatch>,
    /// Query parameters.
    #[serde(default, deserialize_with = "or_default")]
    pub query_params: Vec<ValueMatch>,
}

/// A path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct HttpPathMatch {
    /// `Exact`, `PathPrefix` (also when not given) or `RegularExpression`.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// Its text; `/` when not given.
    #[serde(default)]
    pub value: Option<String>,
}

/// A header or a query parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ValueMatch {
    /// `Exact` (also when not given) or `RegularExpression`.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// `GRPCRoute.spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcRouteSpec {
    /// Where it wants to attach.
    #[serde(default, deserialize_with = "or_default")]
    pub parent_refs: Vec<ParentReference>,
    /// Its hosts; every one when there is none.
    #[serde(default, deserialize_with = "or_default")]
    pub hostnames: Vec<String>,
    /// Its rules.
    #[serde(default, deserialize_with = "or_default")]
    pub rules: Vec<GrpcRouteRule>,
}

/// `GRPCRoute.spec.rules[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcRouteRule {
    /// Any of these; every request when there is none.
    #[serde(default, deserialize_with = "or_default")]
    pub matches: Vec<GrpcRouteMatch>,
    /// Where requests go.
    #[serde(default, deserialize_with = "or_default")]
    pub backend_refs: Vec<BackendReference>,
}

/// `GRPCRoute.spec.rules[].matches[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct GrpcRouteMatch {
    /// Service and method.
    #[serde(default)]
    pub method: Option<GrpcMethodMatch>,
    /// Headers.
    #[serde(default, deserialize_with = "or_default")]
    pub headers: Vec<ValueMatch>,
}

/// A gRPC service, a method, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct GrpcMethodMatch {
    /// `Exact` (also when not given) or `RegularExpression`.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// The service with its package.
    #[serde(default)]
    pub service: Option<String>,
    /// The method.
    #[serde(default)]
    pub method: Option<String>,
}

/// What TLSRoute, TCPRoute and UDPRoute share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherRouteSpec {
    /// Where it wants to attach.
    #[serde(default, deserialize_with = "or_default")]
    pub parent_refs: Vec<ParentReference>,
}
