//! The authority as two files in a folder, for controllers and people that have no supervisor to get it from.
//!
//! Both the controller and `scalwsctl` read it, and what makes a key file acceptable must not differ between them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use zeroize::Zeroizing;

use crate::authority::{Authority, AuthorityError};

/// The certificate, PEM. Further ones in it are trusted too; the first one signs.
pub const CERTIFICATE: &str = "ca.crt";
/// Its key, PKCS#8 in PEM.
pub const KEY: &str = "ca.key";
/// The longest file that is read, in bytes. A bundle of a few certificates has some KiB.
const LONGEST: u64 = 256 * 1024;

/// Why an authority cannot be read or made.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file cannot be read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Others may read the key.
    #[error("{} has mode {mode:04o}, so others than its owner can get at the key; run: chmod 600 {}", path.display(), path.display())]
    Open {
        /// The key file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file is longer than an authority is.
    #[error("{} is longer than {LONGEST} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// There is one already.
    #[error("{} exists already; an authority is never overwritten: choose another folder, or move the two files away", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// What the files hold cannot be used.
    #[error("{}: {cause}", path.display())]
    Authority {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        cause: AuthorityError,
    },
}

/// Reads the authority in this folder.
///
/// # Errors
/// When a file is missing, cannot be used, or the key is open to others.
pub fn read(folder: &Path) -> Result<Authority, FolderError> {
    let certificates = read_file(&folder.join(CERTIFICATE), false)?;
    let key = read_file(&folder.join(KEY), true)?;
    Authority::from_pem(&certificates, &key).map_err(|cause| FolderError::Authority { path: folder.to_owned(), cause })
}

/// Makes a new authority and writes its two files. The folder is made if it is missing, for its owner only.
///
/// # Errors
/// When one of the files exists, or cannot be written. No half of an authority is left behind.
pub fn make(folder: &Path, name: &str, now: SystemTime, lifetime: Duration) -> Result<(), FolderError> {
    let io = |path: &Path, cause: io::Error| match cause.kind() {
        io::ErrorKind::AlreadyExists => FolderError::Exists { path: path.to_owned() },
        _ => FolderError::Io { path: path.to_owned(), cause },
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|cause| io(folder, cause))?;
    let minted = Authority::mint(name, now, lifetime)
        .map_err(|cause| FolderError::Authority { path: folder.to_owned(), cause })?;
    let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
    write_new(&certificate, minted.certificate_pem.as_bytes()).map_err(|cause| io(&certificate, cause))?;
    write_new(&key, minted.key_pem.as_bytes()).map_err(|cause| {
        // It is ours, made a moment ago; the first error is the one to tell.
        let _ = std::fs::remove_file(&certificate);
        io(&key, cause)
    })
}

/// Writes a file that did not exist, for its owner only. What could not be written whole is removed.
fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content).and_then(|()| file.sync_all()).inspect_err(|_| {
        // The error that led here is the one to tell.
        let _ = std::fs::remove_file(path);
    })
}

fn read_file(path: &Path, secret: bool) -> Result<Zeroizing<String>, FolderError> {
    let io = |cause| FolderError::Io { path: path.to_owned(), cause };
    let file = File::open(path).map_err(io)?;
    let about = file.metadata().map_err(io)?;
    let mode = about.mode() & 0o7777;
    if secret && is_open(mode, about.uid() == rustix::process::geteuid().as_raw()) {
        return Err(FolderError::Open { path: path.to_owned(), mode });
    }
    if about.len() > LONGEST {
        return Err(FolderError::TooLong { path: path.to_owned() });
    }
    // With room for all of it from the start: text that moves leaves a copy behind.
    let mut text = Zeroizing::new(String::with_capacity(LONGEST as usize + 1));
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(io)?;
    if text.len() as u64 > LONGEST { Err(FolderError::TooLong { path: path.to_owned() }) } else { Ok(text) }
}

/// Whether others get at a key file with these permissions. A file of somebody else's may let a group read it: that is how a
/// kubelet gives a Secret to a process that is not root (`fsGroup`).
fn is_open(mode: u32, ours: bool) -> bool {
    mode & if ours { 0o077 } else { 0o037 } != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_for_its_owner_or_for_the_group_that_a_kubelet_gave_it() {
        for (mode, ours, open) in [
            (0o600, true, false),
            (0o400, true, false),
            (0o440, true, true),
            (0o644, true, true),
            (0o604, true, true),
            (0o440, false, false),
            (0o640, false, false),
            (0o660, false, true),
            (0o644, false, true),
        ] {
            assert_eq!(is_open(mode, ours), open, "{mode:o}, ours: {ours}");
        }
    }
}
