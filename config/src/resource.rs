//! A resource as it travels: identity, bytes, and the secrets that its bytes name.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Kind, Name};

/// What tells one resource from all others in a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResourceId {
    /// Its kind.
    pub kind: Kind,
    /// Its name within the kind.
    pub name: Name,
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// The BLAKE3 digest of a secret file's bytes (a private key, for example), in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretDigest(pub Arc<str>);

impl SecretDigest {
    /// Whether the text has the form of a digest: 64 lower-case hexadecimal digits. Nothing else may become a file name.
    pub fn is_well_formed(&self) -> bool {
        self.0.len() == 64 && self.0.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    }
}

impl fmt::Display for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One resource: the bytes are one compact JSON [`crate::Envelope`], exactly as they travel and are hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Kind and name.
    pub id: ResourceId,
    /// The encoded envelope.
    pub bytes: Bytes,
    /// The secrets that the body names, sorted, each once.
    pub secrets: Vec<SecretDigest>,
}
