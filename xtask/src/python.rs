//! A Python environment under `target/`, for the tools that come as Python packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{self, program_at_root};
use crate::repository;

/// The `python3` of the search path, if it is new enough for the runner of the cases.
pub(crate) fn interpreter() -> Result<PathBuf> {
    let check = "import sys; sys.exit(sys.version_info < (3, 11))";
    for name in ["python3", "python"] {
        if command::works(name, &["-c", check]) {
            return Ok(name.into());
        }
    }
    bail!("Python 3.11 or newer is not installed")
}

/// The environment with these requirements (lines of a requirements file) installed. Made once, then reused for as long
/// as the requirements are the same.
pub(crate) fn environment(name: &str, requirements: &str) -> Result<PathBuf> {
    let folder = repository::target().join("python").join(name);
    let stamp = folder.join("requirements.installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == requirements) {
        return Ok(folder);
    }
    let python = interpreter()?;
    let make = Command::new(&python);
    make_environment(make, &folder)?;
    let list = folder.join("requirements.txt");
    std::fs::write(&list, requirements).with_context(|| format!("writing {}", list.display()))?;
    let mut install = program_at_root(folder.join("bin/python"), ["-m", "pip", "install", "--quiet"]);
    install.arg("--disable-pip-version-check").arg("-r").arg(&list);
    command::succeed(install)?;
    std::fs::write(&stamp, requirements).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(folder)
}

fn make_environment(mut python: Command, folder: &Path) -> Result<()> {
    python.args(["-m", "venv", "--clear"]).arg(folder);
    command::succeed(python).context("making a Python environment (on Debian it needs the package python3-venv)")
}
