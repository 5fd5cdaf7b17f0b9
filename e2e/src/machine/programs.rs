//! A folder with our programs in which some are started in another way: in another network, with other variables.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::process::program;

/// The folder, until it is dropped.
#[derive(Debug)]
pub struct Programs(TempDir);

impl Programs {
    /// The programs as they were built, and in the place of some of them a script: the lines given, and then the program, which
    /// the script becomes (`exec`). The lines find its path in `$program`, and its arguments in `"$@"`.
    ///
    /// # Errors
    /// When a program has not been built, or the folder cannot be written.
    pub fn new(scripts: &[(&str, &str)]) -> Result<Programs> {
        let first = program("scalwsctl")?;
        // On the file system of the programs: `up` looks for the others beside its own file, which a symbolic link would lead
        // away from here.
        let folder = TempDir::with_prefix_in("e2e-", first.parent().context("no folder")?)?;
        fs::hard_link(&first, folder.path().join("scalwsctl"))?;
        for name in ["scalws-controller", "scalws-agent", "scalwsd"] {
            let (built, here) = (program(name)?, folder.path().join(name));
            match scripts.iter().find(|(of, _)| *of == name) {
                None => symlink(built, here)?,
                Some((_, lines)) => {
                    let built = built.display();
                    fs::write(&here, format!("#!/bin/sh\nprogram='{built}'\n{lines}\nexec \"$program\" \"$@\"\n"))?;
                    fs::set_permissions(&here, fs::Permissions::from_mode(0o755))?;
                }
            }
        }
        Ok(Programs(folder))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The same as a value of `process::Options`.
    pub fn folder(&self) -> Option<PathBuf> {
        Some(self.path().to_owned())
    }
}
