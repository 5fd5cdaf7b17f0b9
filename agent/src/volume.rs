//! The volume as files: reads it at start, and does the core's effects on it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use journal::mutants::{self, Mutant};
use journal::{Anew, CONFIG_FILE, Compacted, Compaction, Digest, JournalFile, KEYS_FOLDER, MEMBERS_FILE};
use zeroize::Zeroizing;

use crate::core::{Effect, File, VolumeImage};

/// `statfs(2)`: file systems that live in memory.
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// A volume that this agent alone writes.
#[derive(Debug)]
pub struct Volume {
    keys: PathBuf,
    config: JournalFile,
    members: JournalFile,
}

impl Volume {
    /// Opens a folder as a volume and reads what it holds. What is no secret file in `keys/` is removed.
    ///
    /// # Errors
    /// When the folder cannot be read or written.
    pub fn open(folder: &Path) -> io::Result<(Volume, VolumeImage)> {
        let keys = folder.join(KEYS_FOLDER);
        match DirBuilder::new().mode(0o700).create(&keys) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let (config, members) = (folder.join(CONFIG_FILE), folder.join(MEMBERS_FILE));
        let image =
            VolumeImage { config: read_or_empty(&config)?, members: read_or_empty(&members)?, keys: read_keys(&keys)? };
        let volume = Volume { keys, config: JournalFile::open(&config)?, members: JournalFile::open(&members)? };
        Ok((volume, image))
    }

    /// Does one effect, if it is one on files: `None` when it is not.
    ///
    /// # Errors
    /// When the volume is full, for example.
    pub fn perform(&mut self, effect: &Effect) -> Option<io::Result<()>> {
        Some(match effect {
            Effect::WriteKey { digest, bytes } => self.write_key(digest, bytes.bytes()),
            Effect::UnlinkKeys(digests) => self.unlink_keys(digests),
            Effect::Append { file, lines } => self.file(*file).append(lines),
            Effect::Cut { file, len } => self.file(*file).cut(*len),
            Effect::Replace { file, content } => self.file(*file).replace(content),
            _ => return None,
        })
    }

    /// The work of [`Effect::Compact`], to be done on a thread of its own.
    pub fn compaction(&self, journal: &str, settled: u64) -> Compaction {
        self.config.compaction(journal, settled)
    }

    /// Puts the configuration journal that was written anew in its place, and goes on in it. Gives the old one, which is
    /// best closed elsewhere.
    ///
    /// # Errors
    /// When that fails; the old one stays.
    pub fn adopt(&mut self, compacted: Compacted) -> io::Result<fs::File> {
        self.config.adopt(compacted)
    }

    fn file(&mut self, file: File) -> &mut JournalFile {
        match file {
            File::Config => &mut self.config,
            File::Members => &mut self.members,
        }
    }

    fn write_key(&self, digest: &Digest, bytes: &[u8]) -> io::Result<()> {
        if Digest::of(bytes) != *digest {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a secret does not have the digest that names it"));
        }
        // A digest is 64 hexadecimal digits: no text from outside becomes a file name.
        let text = mutants::active(Mutant::TextBecomesAFileName).then(|| String::from_utf8_lossy(bytes).into_owned());
        let path = self.keys.join(text.unwrap_or_else(|| digest.to_string()));
        let temporary = self.keys.join(format!("{digest}.new"));
        let written = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            // The first error is the one that counts; the next start removes what may be left.
            let _ignored = fs::remove_file(&temporary);
        }
        written
    }

    fn unlink_keys(&self, digests: &[Digest]) -> io::Result<()> {
        for digest in digests {
            match fs::remove_file(self.keys.join(digest.to_string())) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Writes the configuration journal anew as of no epoch, so that the next start takes what any controller gives and until then goes on
/// with what is there. Member sets and keys belong to no epoch.
///
/// # Errors
/// When the journal cannot be read or written, or is damaged. It stays as it was.
pub fn forget_epoch(folder: &Path) -> io::Result<()> {
    let path = folder.join(CONFIG_FILE);
    let text = read_or_empty(&path)?;
    let mut anew = Vec::new();
    Anew::without_epoch(&text, &format!("{:032x}-forgot", rand::random::<u128>()))?.write_to(&mut anew)?;
    JournalFile::open(&path)?.replace(&anew)
}

/// Whether a folder lives in memory only.
///
/// # Errors
/// When it cannot be looked at.
pub fn is_in_memory(folder: &Path) -> io::Result<bool> {
    let kind = rustix::fs::statfs(folder)?.f_type;
    // The type of the field differs between architectures; the magic numbers have 32 bits.
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
    let kind = kind as u64 & 0xffff_ffff;
    Ok(kind == TMPFS_MAGIC || kind == RAMFS_MAGIC)
}

fn read_or_empty(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// The secrets whose files are right. Others are removed: they are left-overs of a write that was cut short, or damaged.
fn read_keys(folder: &Path) -> io::Result<BTreeSet<Digest>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let named: Option<Digest> = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let is_file = entry.file_type()?.is_file();
        let right = match named {
            Some(digest) if is_file => {
                let bytes = Zeroizing::new(fs::read(entry.path())?);
                (Digest::of(&bytes) == digest).then_some(digest)
            }
            _ => None,
        };
        match right {
            Some(digest) => {
                found.insert(digest);
            }
            None if is_file => fs::remove_file(entry.path())?,
            None => {}
        }
    }
    Ok(found)
}
