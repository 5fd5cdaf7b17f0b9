//! A journal file as its one writer sees it: append, cut, and replace as a whole.
//!
//! The volume is memory-backed and dies with the machine, so nothing is synced; the order of writes is what counts, and
//! a file has that by itself.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::compaction::Anew;

/// Appends to one file. Others may read it at the same time.
#[derive(Debug)]
pub struct JournalFile {
    path: PathBuf,
    file: File,
    len: u64,
}

impl JournalFile {
    /// Opens the file, created with mode 0600 where there is none. A new one that was never put in its place is removed.
    ///
    /// # Errors
    /// When that fails.
    pub fn open(path: &Path) -> io::Result<JournalFile> {
        match fs::remove_file(JournalFile::beside(path)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        let len = file.metadata()?.len();
        Ok(JournalFile { path: path.to_owned(), file, len })
    }

    /// Where the file that is to take the place of this one is written.
    pub fn beside(path: &Path) -> PathBuf {
        let mut beside = path.to_owned().into_os_string();
        beside.push(".new");
        beside.into()
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

    /// The work of writing it anew as the journal `id`, from what stands before the offset `settled`. Nothing may be
    /// written to it until that is done and [`JournalFile::adopt`]ed.
    pub fn compaction(&self, id: &str, settled: u64) -> Compaction {
        Compaction { path: self.path.clone(), id: id.to_owned(), settled }
    }

    /// Puts a file that was written anew in the place of this one, and goes on in it. Gives the old one: the last who
    /// closes it waits until its memory is free.
    ///
    /// # Errors
    /// When that fails; the old file stays.
    pub fn adopt(&mut self, compacted: Compacted) -> io::Result<File> {
        fs::rename(JournalFile::beside(&self.path), &self.path)?;
        self.len = compacted.len;
        Ok(std::mem::replace(&mut self.file, compacted.file))
    }

    /// Puts a new file in the place of this one; complete before its name appears.
    ///
    /// # Errors
    /// When that fails; the old file stays.
    pub fn replace(&mut self, content: &[u8]) -> io::Result<()> {
        let written = write_beside(&self.path, content.len() as u64, |out| out.write_all(content))?;
        self.adopt(written).map(drop)
    }
}

/// A journal that is to be written anew. It takes as long as the journal is large, so do it on a thread of its own.
#[derive(Debug)]
pub struct Compaction {
    path: PathBuf,
    id: String,
    settled: u64,
}

/// A journal that was written anew, beside the old one.
#[derive(Debug)]
pub struct Compacted {
    file: File,
    len: u64,
}

impl Compaction {
    /// Reads the old file and writes the new one beside it.
    ///
    /// # Errors
    /// When the old one is damaged or there is no room for the new one, for example; then nothing is left of it.
    pub fn run(&self) -> io::Result<Compacted> {
        let mut text = Vec::new();
        File::open(&self.path)?.take(self.settled).read_to_end(&mut text)?;
        if text.len() as u64 != self.settled {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the journal is shorter than what settled in it"));
        }
        let anew = Anew::of(&text, &self.id)?;
        write_beside(&self.path, anew.len(), |out| anew.write_to(out))
    }
}

impl Compacted {
    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Writes a file of `len` bytes beside `path`, whole or not at all.
fn write_beside(
    path: &Path,
    len: u64,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<Compacted> {
    let beside = JournalFile::beside(path);
    let written =
        OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&beside).and_then(|file| {
            reserve(&file, len)?;
            let mut out = BufWriter::with_capacity(1 << 18, file);
            write(&mut out)?;
            let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            Ok(Compacted { file, len })
        });
    if written.is_err() {
        // The error that matters is the one that stopped it; a left-over is removed at the next start.
        let _ignored = fs::remove_file(&beside);
    }
    written
}

/// Takes the room at once or not at all: whoever else writes meanwhile shall not find a volume that is full only until
/// this gives up.
fn reserve(file: &File, len: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
        // Not every file system can; then the writes say it.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) | Ok(()) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
