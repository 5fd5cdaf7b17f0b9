//! Writing a small file so that a reader sees the old one or the new one, never a part.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces a file by rename. With `durable`, the file and its folder are on the disk when this returns.
///
/// # Errors
/// When the folder cannot be written; the old file is then still there.
pub(crate) fn replace(path: &Path, bytes: &[u8], durable: bool) -> io::Result<()> {
    replace_with(path, durable, |file| file.write_all(bytes))
}

/// As [`replace`], with what is written while it is made.
///
/// # Errors
/// When the folder cannot be written, or `write` gives up; the old file is then still there.
pub(crate) fn replace_with(
    path: &Path,
    durable: bool,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = folder.join(name);
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&new)?;
    let mut buffer = BufWriter::with_capacity(64 * 1024, file);
    write(&mut buffer)?;
    let file = buffer.into_inner().map_err(io::IntoInnerError::into_error)?;
    if durable {
        file.sync_all()?;
    }
    drop(file);
    fs::rename(&new, path)?;
    if durable {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}
