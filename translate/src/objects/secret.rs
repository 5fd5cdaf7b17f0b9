//! Secret, ConfigMap and Namespace (`v1`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

use super::meta::{ObjectMeta, or_default};

/// Bytes that must not be seen: shared, wiped when the last holder lets go, and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretBytes(Arc<Zeroizing<Vec<u8>>>);

impl SecretBytes {
    /// Takes the bytes.
    pub fn new(bytes: Vec<u8>) -> SecretBytes {
        SecretBytes(Arc::new(Zeroizing::new(bytes)))
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// The bytes for another holder.
    pub fn shared(&self) -> Arc<Zeroizing<Vec<u8>>> {
        Arc::clone(&self.0)
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} bytes)", self.0.len())
    }
}

/// A Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secret {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its type, such as `kubernetes.io/tls`.
    pub kind: String,
    /// The decoded values, of [`Secret::VALUES`] only.
    pub data: BTreeMap<String, SecretBytes>,
}

impl Secret {
    /// The values that translation reads. All others are let go of while they are decoded: most Secrets of a cluster have nothing
    /// to do with us, and those of Helm releases are large.
    pub const VALUES: [&str; 2] = ["tls.crt", "tls.key"];
}

/// A ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ConfigMap {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its values, of [`ConfigMap::VALUES`] only.
    #[serde(default, deserialize_with = "kept")]
    pub data: BTreeMap<String, String>,
}

impl ConfigMap {
    /// The value that translation may read: the certificates that a BackendTLSPolicy trusts (`spec.validation.caCertificateRefs`).
    /// All others are let go of while they are decoded.
    pub const VALUES: [&str; 1] = ["ca.crt"];
}

fn kept<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let mut values: BTreeMap<String, String> = or_default(deserializer)?;
    values.retain(|name, _| ConfigMap::VALUES.contains(&name.as_str()));
    Ok(values)
}

/// A Namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Namespace {
    /// Its metadata.
    pub metadata: ObjectMeta,
}
