//! The cluster objects that are read, reduced to the fields that count, and their strict decoding.

mod check;
mod decode;
mod definition;
mod gateway;
mod ingress;
mod meta;
mod proxy_fleet;
mod secret;
mod service;

use std::fmt;
use std::sync::Arc;

use config::ObjectRef;

pub use decode::DecodeError;
pub use definition::fleet_definition;
pub use gateway::{GatewayObject, GatewayObjectSpec};
pub use ingress::{
    Backend, ClassParameters, HttpPath, HttpRule, Ingress, IngressClass, IngressClassSpec, IngressSpec, IngressTls,
    PortRef, ResourceBackend, Rule, ServiceBackend,
};
pub use meta::{NO_TIME, NameParts, NamespacedName, ObjectMeta, Texts};
pub use proxy_fleet::{
    FleetCondition, FleetListener, FleetProtocol, GROUP as FLEET_GROUP, ProxyFleet, ProxyFleetSpec, ProxyFleetStatus,
    VERSION as FLEET_VERSION, Workload, WorkloadKind,
};
pub use secret::{ConfigMap, Namespace, Secret, SecretBytes};
pub use service::{
    AddressType, Endpoint, EndpointConditions, EndpointPort, EndpointSlice, IntOrString, Service, ServicePort,
    ServiceSpec, TargetRef,
};

/// One object of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// `networking.k8s.io/v1` Ingress.
    Ingress(Ingress),
    /// `networking.k8s.io/v1` IngressClass.
    IngressClass(IngressClass),
    /// `v1` Service.
    Service(Service),
    /// `discovery.k8s.io/v1` EndpointSlice.
    EndpointSlice(EndpointSlice),
    /// `v1` Secret.
    Secret(Secret),
    /// `v1` ConfigMap.
    ConfigMap(ConfigMap),
    /// `v1` Namespace.
    Namespace(Namespace),
    /// `scalws.io/v1alpha1` ProxyFleet.
    ProxyFleet(ProxyFleet),
    /// Any kind of `gateway.networking.k8s.io`.
    Gateway(GatewayObject),
}

impl Object {
    /// Reads an object as the API server would store it.
    ///
    /// # Errors
    /// [`DecodeError::UnknownKind`] for kinds that are not read; [`DecodeError::Invalid`] for what an API server would
    /// have refused: wrong types, missing required fields, bad names.
    pub fn from_value(value: serde_json::Value) -> Result<Object, DecodeError> {
        decode::decode(value)
    }

    /// Its kind as in the manifest.
    pub fn kind(&self) -> &'static str {
        match self {
            Object::Ingress(_) => "Ingress",
            Object::IngressClass(_) => "IngressClass",
            Object::Service(_) => "Service",
            Object::EndpointSlice(_) => "EndpointSlice",
            Object::Secret(_) => "Secret",
            Object::ConfigMap(_) => "ConfigMap",
            Object::Namespace(_) => "Namespace",
            Object::ProxyFleet(_) => "ProxyFleet",
            Object::Gateway(o) => o.kind(),
        }
    }

    /// Its metadata.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Object::Ingress(o) => &o.metadata,
            Object::IngressClass(o) => &o.metadata,
            Object::Service(o) => &o.metadata,
            Object::EndpointSlice(o) => &o.metadata,
            Object::Secret(o) => &o.metadata,
            Object::ConfigMap(o) => &o.metadata,
            Object::Namespace(o) => &o.metadata,
            Object::ProxyFleet(o) => &o.metadata,
            Object::Gateway(o) => &o.metadata,
        }
    }

    /// Kind, namespace and name.
    pub fn reference(&self) -> ObjectRef {
        self.id().reference()
    }

    /// Kind, namespace and name, as everything that keeps many of them does: without a copy of any text.
    pub fn id(&self) -> ObjectId {
        ObjectId::new(self.kind(), self.key().clone())
    }

    /// Namespace and name.
    pub fn key(&self) -> &NamespacedName {
        &self.metadata().key
    }
}

/// Which object, for whoever keeps many of them: copies share all texts. Its order is that of [`ObjectRef`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    kind: Arc<str>,
    key: NamespacedName,
}

impl ObjectId {
    /// Of a kind, as in the manifest, and a name.
    pub fn new(kind: &str, key: NamespacedName) -> ObjectId {
        ObjectId { kind: decode::shared_kind(kind), key }
    }

    /// Its kind as in the manifest.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Its namespace and name.
    pub fn key(&self) -> &NamespacedName {
        &self.key
    }

    /// The same in texts of its own.
    pub fn reference(&self) -> ObjectRef {
        let (namespace, name) = (self.key.namespace.to_string(), self.key.name.to_string());
        ObjectRef { kind: self.kind.to_string(), namespace, name }
    }
}

impl From<&ObjectRef> for ObjectId {
    fn from(reference: &ObjectRef) -> ObjectId {
        ObjectId::new(&reference.kind, NamespacedName::new(&reference.namespace, &reference.name))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.key)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// An object that many may hold.
pub type SharedObject = Arc<Object>;
