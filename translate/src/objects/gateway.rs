//! Objects of the Gateway API.

use gateway_types::{
    BackendTlsPolicySpec, GatewayClassSpec, GatewaySpec, GrpcRouteSpec, HttpRouteSpec, OtherRouteSpec, ParentReference,
    ReferenceGrantSpec,
};
use serde::Deserialize;

use super::meta::ObjectMeta;

/// An object of the Gateway API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayObject {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it asks for.
    pub spec: GatewayObjectSpec,
}

/// The spec of an object of the Gateway API, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayObjectSpec {
    /// Of a GatewayClass.
    GatewayClass(GatewayClassSpec),
    /// Of a Gateway.
    Gateway(GatewaySpec),
    /// Of an HTTPRoute.
    HttpRoute(HttpRouteSpec),
    /// Of a GRPCRoute.
    GrpcRoute(GrpcRouteSpec),
    /// Of a TLSRoute.
    TlsRoute(OtherRouteSpec),
    /// Of a TCPRoute.
    TcpRoute(OtherRouteSpec),
    /// Of a UDPRoute.
    UdpRoute(OtherRouteSpec),
    /// Of a ReferenceGrant.
    ReferenceGrant(ReferenceGrantSpec),
    /// Of a BackendTLSPolicy.
    BackendTlsPolicy(BackendTlsPolicySpec),
}

impl GatewayObject {
    /// Its kind as in the manifest.
    pub fn kind(&self) -> &'static str {
        match &self.spec {
            GatewayObjectSpec::GatewayClass(_) => "GatewayClass",
            GatewayObjectSpec::Gateway(_) => "Gateway",
            GatewayObjectSpec::HttpRoute(_) => "HTTPRoute",
            GatewayObjectSpec::GrpcRoute(_) => "GRPCRoute",
            GatewayObjectSpec::TlsRoute(_) => "TLSRoute",
            GatewayObjectSpec::TcpRoute(_) => "TCPRoute",
            GatewayObjectSpec::UdpRoute(_) => "UDPRoute",
            GatewayObjectSpec::ReferenceGrant(_) => "ReferenceGrant",
            GatewayObjectSpec::BackendTlsPolicy(_) => "BackendTLSPolicy",
        }
    }

    /// For routes: where they want to attach.
    pub fn parents(&self) -> Option<&[ParentReference]> {
        match &self.spec {
            GatewayObjectSpec::HttpRoute(spec) => Some(&spec.parent_refs),
            GatewayObjectSpec::GrpcRoute(spec) => Some(&spec.parent_refs),
            GatewayObjectSpec::TlsRoute(spec)
            | GatewayObjectSpec::TcpRoute(spec)
            | GatewayObjectSpec::UdpRoute(spec) => Some(&spec.parent_refs),
            _ => None,
        }
    }
}

/// The form that all kinds share in JSON.
#[derive(Deserialize)]
pub(super) struct Whole<S> {
    metadata: ObjectMeta,
    spec: S,
}

impl<S> Whole<S> {
    pub(super) fn object(self, wrap: fn(S) -> GatewayObjectSpec) -> GatewayObject {
        GatewayObject { metadata: self.metadata, spec: wrap(self.spec) }
    }
}
