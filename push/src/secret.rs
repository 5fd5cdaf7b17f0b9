//! A secret's bytes: wiped when the last owner lets go, never printed.

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

/// The bytes of a secret file (a private key, a CA bundle, an htpasswd file). Clones share them.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<Zeroizing<Vec<u8>>>);

impl Secret {
    /// Takes the bytes over.
    pub fn new(bytes: Vec<u8>) -> Secret {
        Secret(Arc::new(Zeroizing::new(bytes)))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The BLAKE3 digest that names the secret in bodies and on the volume.
    pub fn digest(&self) -> journal::Digest {
        journal::Digest::of(&self.0)
    }
}

impl From<Arc<Zeroizing<Vec<u8>>>> for Secret {
    fn from(bytes: Arc<Zeroizing<Vec<u8>>>) -> Secret {
        Secret(bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}
