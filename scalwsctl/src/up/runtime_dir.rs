//! The private, memory-backed directory with the sockets and the volumes of one `up`.
//!
//! Keys come to stand in the volumes, so a disk is never taken. What a killed `up` left behind is removed by the next one.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::Rng as _;
use rustix::fs::FlockOperation;

/// Directories of ours start with this.
const PREFIX: &str = "scalws-";
/// Locked by the living supervisor; a directory whose lock is free is stale.
const ALIVE: &str = "alive";
/// A directory without a lock file is taken for stale only when it is older than this: it may just be made.
const YOUNG: Duration = Duration::from_secs(60);
/// tmpfs, from linux/magic.h.
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// ramfs, from linux/magic.h.
const RAMFS_MAGIC: i64 = 0x8584_58f6;

/// The directory. It is removed with [`RuntimeDir::remove`], or by the next `up`.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    _alive: File,
}

impl RuntimeDir {
    /// Makes a fresh one (mode 0700) in the first memory-backed place: `/dev/shm`, else `$XDG_RUNTIME_DIR`.
    ///
    /// # Errors
    ///
    /// When there is no memory-backed place that can be written.
    pub fn create() -> io::Result<RuntimeDir> {
        let mut places = vec![PathBuf::from("/dev/shm")];
        places.extend(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute()));
        let mut reasons = Vec::new();
        for place in places {
            match RuntimeDir::create_in(&place) {
                Ok(made) => {
                    remove_stale(&place);
                    return Ok(made);
                }
                Err(error) => reasons.push(format!("{}: {error}", place.display())),
            }
        }
        Err(io::Error::other(format!(
            "there is no memory-backed place for keys and sockets ({}); mount a tmpfs on /dev/shm or set XDG_RUNTIME_DIR to one",
            reasons.join("; ")
        )))
    }

    fn create_in(place: &Path) -> io::Result<RuntimeDir> {
        if !is_memory_backed(place)? {
            return Err(io::Error::other("not a tmpfs"));
        }
        let mut random = rand::rng();
        for _ in 0..16 {
            let path = place.join(format!("{PREFIX}{:08x}", random.random::<u32>()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            // Locked before it has its name: nobody finds it free in between and takes the directory for stale.
            let part = path.join("alive.part");
            let alive = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
            rustix::fs::flock(&alive, FlockOperation::NonBlockingLockExclusive)?;
            fs::rename(part, path.join(ALIVE))?;
            return Ok(RuntimeDir { path, _alive: alive });
        }
        Err(io::Error::other("no free name"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the volume of a replica, `r<i>/`, with mode 0700.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn volume(&self, replica: u16) -> io::Result<PathBuf> {
        let path = self.path.join(format!("r{replica}"));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(path)
    }

    /// Removes it with all that is in it.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(&self.path)
    }
}

fn is_memory_backed(place: &Path) -> io::Result<bool> {
    // The type of the field differs between architectures.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    let kind = rustix::fs::statfs(place)?.f_type as i64;
    Ok(kind == TMPFS_MAGIC || kind == RAMFS_MAGIC)
}

/// Removes directories of ours whose supervisor is dead. What cannot be removed stays; it harms nothing but space.
fn remove_stale(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let ours = name.to_str().and_then(|n| n.strip_prefix(PREFIX)).is_some_and(|rest| {
            rest.len() == 8 && rest.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        });
        let Ok(data) = entry.metadata() else { continue };
        if !ours || !data.is_dir() || data.uid() != rustix::process::geteuid().as_raw() {
            continue;
        }
        let stale = match File::open(entry.path().join(ALIVE)) {
            Ok(file) => rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok(),
            Err(_) => data.modified().ok().and_then(|m| m.elapsed().ok()).is_some_and(|age| age > YOUNG),
        };
        if stale {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_private_and_goes_away() {
        let dir = RuntimeDir::create().unwrap();
        let path = dir.path().to_owned();
        let volume = dir.volume(0).unwrap();
        for p in [&path, &volume] {
            assert_eq!(fs::metadata(p).unwrap().mode() & 0o777, 0o700);
        }
        dir.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_a_dead_supervisor_left_is_removed_and_what_a_live_one_has_stays() {
        let live = RuntimeDir::create().unwrap();
        let dead = RuntimeDir::create().unwrap();
        let left = dead.path().to_owned();
        drop(dead);
        let next = RuntimeDir::create().unwrap();
        assert!(!left.exists());
        assert!(live.path().exists());
        next.remove().unwrap();
        live.remove().unwrap();
    }

    #[test]
    fn a_disk_is_not_taken() {
        assert!(!is_memory_backed(Path::new("/proc")).unwrap());
    }
}
