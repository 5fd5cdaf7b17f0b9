//! The Gateway API kinds, only the fields that we read or write.
//!
//! Field meanings are those of the Gateway API reference, v1. Names are as there; what is not read is left out, and
//! unknown fields are dropped as an API server would.

mod gateway;
mod grant;
mod route;

use serde::{Deserialize, Deserializer, Serialize};

pub use gateway::{
    AllowedRoutes, GatewayClassSpec, GatewaySpec, Listener, ListenerTls, ParametersReference, RouteNamespaces,
    SecretReference,
};
pub use grant::{BackendTlsPolicySpec, BackendValidation, GrantFrom, GrantTo, PolicyTarget, ReferenceGrantSpec};
pub use route::{
    BackendReference, GrpcMethodMatch, GrpcRouteMatch, GrpcRouteRule, GrpcRouteSpec, HttpPathMatch, HttpRouteMatch,
    HttpRouteRule, HttpRouteSpec, OtherRouteSpec, ParentReference, RouteTimeouts, ValueMatch,
};

/// The API group of all kinds.
pub const GROUP: &str = "gateway.networking.k8s.io";

/// The controller name that a GatewayClass must give to be ours.
pub const GATEWAY_CONTROLLER: &str = "scalws.io/gateway-controller";

/// A condition of a status, as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Its type, such as `Accepted`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// A stable word for programs.
    pub reason: String,
    /// A sentence for people.
    #[serde(default)]
    pub message: String,
    /// The generation of the object that it speaks of.
    #[serde(default)]
    pub observed_generation: i64,
}

/// A null is the same as an absent field everywhere in the Kubernetes API.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
