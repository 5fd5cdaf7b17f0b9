//! A journal file as its one writer sees it: append, cut, and replace as a whole.
//!
//! The volume is memory-backed and dies with the machine, so nothing is synced; the order of writes is what counts, and
//! a file has that by itself.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Appends to one file. Others may read it at the same time.
#[derive(Debug)]
pub struct JournalFile {
    path: PathBuf,
    file: File,
    len: u64,
}

impl JournalFile {
    /// Opens the file, created with mode 0600 where there is none.
    ///
    /// # Errors
    /// When that fails.
    pub fn open(path: &Path) -> io::Result<JournalFile> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        let len = file.metadata()?.len();
        Ok(JournalFile { path: path.to_owned(), file, len })
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends whole lines with as few writes as the system allows.
    ///
    /// # Errors
    /// When the volume is full, for example. Then a part may stand there: cut it.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.len))?;
        self.file.write_all(lines)?;
        self.len += lines.len() as u64;
        Ok(())
    }

    /// Cuts everything behind an offset.
    ///
    /// # Errors
    /// When that fails.
    pub fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        self.len = len;
        Ok(())
    }

    /// Puts a new file in the place of this one; complete before its name appears.
    ///
    /// # Errors
    /// When that fails; the old file stays.
    pub fn replace(&mut self, content: &[u8]) -> io::Result<()> {
        let mut temporary = self.path.clone().into_os_string();
        temporary.push(".new");
        let temporary = PathBuf::from(temporary);
        let written = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| file.write_all(content).map(|()| file))
            .and_then(|file| fs::rename(&temporary, &self.path).map(|()| file));
        match written {
            Ok(file) => {
                self.file = file;
                self.len = content.len() as u64;
                Ok(())
            }
            Err(e) => {
                // The error that matters is the one that stopped it; a left-over is overwritten by the next attempt.
                let _ignored = fs::remove_file(&temporary);
                Err(e)
            }
        }
    }
}
