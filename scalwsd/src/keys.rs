//! Secret files by the digest of their bytes: from the volume, or held in memory without one.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use config::SecretDigest;
use journal::Digest;
use zeroize::Zeroizing;

/// The largest secret file that is read, in bytes.
const SECRET_MAX: u64 = 1 << 20;

/// Where secrets come from.
pub enum Keys {
    /// Files in the volume's `keys/`, read only while loading.
    Folder(PathBuf),
    /// Held in memory, because the hand-written configuration named them by path.
    Memory(BTreeMap<SecretDigest, Zeroizing<Vec<u8>>>),
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keys::Folder(path) => f.debug_tuple("Folder").field(path).finish(),
            Keys::Memory(keys) => f.debug_tuple("Memory").field(&keys.len()).finish(),
        }
    }
}

impl Keys {
    /// Reads a secret and checks that its bytes have this digest.
    ///
    /// # Errors
    /// A sentence that never holds any of the bytes.
    pub fn read(&self, digest: &SecretDigest) -> Result<Zeroizing<Vec<u8>>, String> {
        // Only the form of a digest may become a file name.
        if !digest.is_well_formed() {
            return Err("its name is no digest".to_owned());
        }
        let bytes = match self {
            Keys::Folder(folder) => {
                let mut file = File::open(folder.join(&*digest.0)).map_err(|e| e.to_string())?;
                let size = file.metadata().map_err(|e| e.to_string())?.len();
                if size > SECRET_MAX {
                    return Err(format!("{size} bytes are more than {SECRET_MAX}"));
                }
                // Sized at once: a buffer that grows would leave copies behind.
                let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1));
                (&mut file).take(SECRET_MAX).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
                bytes
            }
            Keys::Memory(keys) => keys.get(digest).cloned().ok_or_else(|| "it is not there".to_owned())?,
        };
        if Digest::of(&bytes).to_string() != *digest.0 {
            return Err("its bytes have another digest".to_owned());
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(bytes: &[u8]) -> SecretDigest {
        SecretDigest(Digest::of(bytes).to_string().into())
    }

    #[test]
    fn only_a_file_whose_bytes_have_the_digest_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::Folder(folder.path().to_owned());
        let good = digest(b"secret");
        assert!(keys.read(&good).is_err());
        std::fs::write(folder.path().join(&*good.0), b"secret").unwrap();
        assert_eq!(&**keys.read(&good).unwrap(), b"secret");
        std::fs::write(folder.path().join(&*good.0), b"secret, but changed").unwrap();
        let error = keys.read(&good).unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_name_that_is_no_digest_never_becomes_a_path() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("outside"), b"x").unwrap();
        std::fs::create_dir(folder.path().join("keys")).unwrap();
        let keys = Keys::Folder(folder.path().join("keys"));
        for name in ["../outside", "", "/etc/passwd", &"A".repeat(64)] {
            let error = keys.read(&SecretDigest(name.into())).unwrap_err();
            assert_eq!(error, "its name is no digest");
        }
    }
}
