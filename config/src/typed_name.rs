//! The name of any resource, read back into its parts.

use crate::{
    CertificateName, FragmentName, HostName, Kind, ListenerName, NameError, PolicyName, PoolName, ResourceId,
    limits::NAME_BYTES_MAX,
};

/// The typed name of a resource, by kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TypedName {
    /// Of a listener.
    Listener(ListenerName),
    /// Of a host.
    Host(HostName),
    /// Of a fragment.
    Fragment(FragmentName),
    /// Of a pool.
    Pool(PoolName),
    /// Of a certificate.
    Certificate(CertificateName),
    /// Of a policy.
    Policy(PolicyName),
}

impl TypedName {
    /// Reads the name of a resource.
    ///
    /// # Errors
    /// When the name is not one of its kind in its canonical form, or is longer than [`NAME_BYTES_MAX`].
    pub fn of(id: &ResourceId) -> Result<TypedName, NameError> {
        let name = &id.name;
        if name.as_str().len() > NAME_BYTES_MAX {
            return Err(NameError(format!("the name of a {} is longer than {NAME_BYTES_MAX} bytes", id.kind)));
        }
        Ok(match id.kind {
            Kind::Listener => TypedName::Listener(ListenerName::from_name(name)?),
            Kind::Host => TypedName::Host(HostName::from_name(name)?),
            Kind::Fragment => TypedName::Fragment(FragmentName::from_name(name)?),
            Kind::Pool => TypedName::Pool(PoolName::from_name(name)?),
            Kind::Certificate => TypedName::Certificate(CertificateName::from_name(name)?),
            Kind::Policy => TypedName::Policy(PolicyName::from_name(name)?),
        })
    }

    /// The kind that it names.
    pub fn kind(&self) -> Kind {
        match self {
            TypedName::Listener(_) => Kind::Listener,
            TypedName::Host(_) => Kind::Host,
            TypedName::Fragment(_) => Kind::Fragment,
            TypedName::Pool(_) => Kind::Pool,
            TypedName::Certificate(_) => Kind::Certificate,
            TypedName::Policy(_) => Kind::Policy,
        }
    }
}
