//! The cluster objects that are read, reduced to the fields that count, and their strict decoding.

mod check;
mod decode;
mod gateway;
mod ingress;
mod meta;
mod secret;
mod service;

use std::sync::Arc;

use config::ObjectRef;

pub use decode::DecodeError;
pub use gateway::{GatewayObject, GatewayObjectSpec};
pub use ingress::{
    Backend, ClassParameters, HttpPath, HttpRule, Ingress, IngressClass, IngressClassSpec, IngressSpec, IngressTls,
    PortRef, ResourceBackend, Rule, ServiceBackend,
};
pub use meta::{NO_TIME, NamespacedName, ObjectMeta};
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
            Object::Gateway(o) => &o.metadata,
        }
    }

    /// Kind, namespace and name.
    pub fn reference(&self) -> ObjectRef {
        let meta = self.metadata();
        ObjectRef { kind: self.kind().to_owned(), namespace: meta.namespace.clone(), name: meta.name.clone() }
    }

    /// Namespace and name.
    pub fn key(&self) -> NamespacedName {
        self.metadata().key()
    }
}

/// An object that many may hold.
pub type SharedObject = Arc<Object>;
