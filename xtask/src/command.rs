//! Running other programs: what is run is printed, and a failure names it.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::repository;

/// A cargo command in the root of the repository.
pub(crate) fn cargo<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    program_at_root(program, args)
}

/// Any program, in the root of the repository.
pub(crate) fn program_at_root<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(program);
    command.current_dir(repository::root()).args(args);
    command
}

/// The command as a person would type it.
pub(crate) fn show(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(name).chain(args).collect::<Vec<_>>().join(" ")
}

/// Runs a command with its output passed through; an error unless it exits with 0.
pub(crate) fn succeed(mut command: Command) -> Result<()> {
    let shown = show(&command);
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| format!("starting {shown}"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs a command and returns what it writes to stdout; an error with its stderr unless it exits with 0.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let shown = show(&command);
    let output = command.output().with_context(|| format!("starting {shown}"))?;
    if !output.status.success() {
        bail!("`{shown}` failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("output of {shown}"))
}

/// Whether a program can be started and says that all is well.
pub(crate) fn works(program: impl AsRef<OsStr>, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}
