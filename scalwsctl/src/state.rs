//! The state directory: what stands in it and where.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// `STATEDIR/up.json`: how other commands find a running `up`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpFile {
    /// The process id of `up`.
    pub pid: u32,
    /// The private directory with sockets and volumes.
    pub runtime_dir: PathBuf,
    /// The unix socket of the controller's local API.
    pub controller_socket: PathBuf,
    /// How many proxies there are.
    pub replicas: u16,
    /// The names of their agents.
    pub agents: Vec<String>,
    /// The port for HTTP.
    pub http: u16,
    /// The port for HTTPS.
    pub https: u16,
}

/// The name of `up.json` in a state directory.
pub fn up_file(state: &Path) -> PathBuf {
    state.join("up.json")
}

/// The name of the lock in a state directory.
pub fn lock_file(state: &Path) -> PathBuf {
    state.join("lock")
}

impl UpFile {
    /// Reads the file. `None` if there is none.
    ///
    /// # Errors
    ///
    /// When it cannot be read or is no such document.
    pub fn read(state: &Path) -> io::Result<Option<UpFile>> {
        match fs::read(up_file(state)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts the file in place by rename, so that nobody reads half of it.
    ///
    /// # Errors
    ///
    /// When the state directory cannot be written.
    pub fn write(&self, state: &Path) -> io::Result<()> {
        let part = state.join("up.json.part");
        let mut file = fs::File::create(&part)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.write_all(b"\n")?;
        drop(file);
        fs::rename(part, up_file(state))
    }

    /// Takes the file away. Without one there is nothing to do.
    pub fn remove(state: &Path) {
        let _ = fs::remove_file(up_file(state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_reads_back_and_goes_away() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(UpFile::read(state.path()).unwrap(), None);
        let file = UpFile {
            pid: 7,
            runtime_dir: "/dev/shm/scalws-1".into(),
            controller_socket: "/dev/shm/scalws-1/controller.sock".into(),
            replicas: 2,
            agents: vec!["replica-0".into(), "replica-1".into()],
            http: 80,
            https: 443,
        };
        file.write(state.path()).unwrap();
        assert_eq!(UpFile::read(state.path()).unwrap(), Some(file));
        UpFile::remove(state.path());
        assert_eq!(UpFile::read(state.path()).unwrap(), None);
        fs::write(up_file(state.path()), "{").unwrap();
        assert!(UpFile::read(state.path()).is_err());
    }
}
