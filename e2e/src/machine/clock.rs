//! The time of day that programs see, set by a test while they run; the machine's clock is left alone.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use tempfile::TempDir;

use super::native;

/// All programs of an `up`.
pub const PROGRAMS: [&str; 4] = ["scalwsctl", "scalws-controller", "scalws-agent", "scalwsd"];

/// The clocks of the programs that are started with its variables.
#[derive(Debug)]
pub struct Clocks {
    folder: TempDir,
    shim: PathBuf,
}

impl Clocks {
    /// All clocks are right.
    ///
    /// # Errors
    /// When the part in C cannot be built.
    pub fn new() -> Result<Clocks> {
        let folder = tempfile::tempdir()?;
        let shim = native::compile("clock.c", folder.path(), &["-shared", "-fPIC"])?;
        let clocks = Clocks { folder, shim };
        clocks.set(&PROGRAMS, 0)?;
        Ok(clocks)
    }

    /// What programs need in their environment to see these clocks.
    pub fn variables(&self) -> Vec<(String, String)> {
        let folder = self.folder.path().display().to_string();
        vec![("LD_PRELOAD".to_owned(), self.shim.display().to_string()), ("SCALWS_TEST_CLOCKS".to_owned(), folder)]
    }

    /// Sets the clock of programs so many seconds before (negative) or after the right time.
    ///
    /// # Errors
    /// When it cannot be told to them.
    pub fn set(&self, programs: &[&str], seconds: i64) -> Result<()> {
        for program in programs {
            let part = self.folder.path().join("part");
            fs::write(&part, seconds.to_string())?;
            fs::rename(part, self.folder.path().join(program))?;
        }
        Ok(())
    }
}
