//! Builds the small parts in C (`e2e/native`) that tests need where Rust would take `unsafe`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Compiles one file into a folder, with the C compiler that building the programs needs too. Gives the path of the result.
///
/// # Errors
/// When there is no C compiler, or it says no.
pub fn compile(source: &str, into: &Path, options: &[&str]) -> Result<PathBuf> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("native").join(source);
    let built = into.join(Path::new(source).with_extension("built"));
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(&compiler);
    command.args(["-O1", "-Wall", "-Werror", "-o"]).arg(&built).arg(&file).args(options);
    let output = command.output().with_context(|| format!("the C compiler {}", compiler.display()))?;
    ensure!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    Ok(built)
}
