//! `cargo xtask nightly`: the full length of what `cargo xtask test` runs in short: faults under traffic, and all at once.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::command::{self, cargo, program_at_root};
use crate::{cluster, repository};

/// What is run.
#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Every fault under traffic, in its full length
    Survive,
    /// All faults at once for a long time, with slopes of memory, descriptors, tasks and journals
    Soak,
}

#[derive(Args)]
pub(crate) struct Options {
    what: What,
    /// How much of the full length, 0 (as in `cargo xtask test`) to 1
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// How long the soak takes
    #[arg(long, default_value_t = 60)]
    minutes: u32,
}

/// The test binaries of e2e whose names begin with this, ...
const PREFIX: &str = "survive_";
/// ... and those at a real API server that have a longer form: several controllers, and lost events.
const AT_AN_API_SERVER: [&str; 2] = ["failover", "lost_events"];
/// The one that mixes all.
const SOAK: &str = "survive_soak";

/// The names of the fault tests, sorted.
fn suites() -> Result<Vec<String>> {
    let folder = repository::root().join("e2e/tests");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(name) =
            name.strip_suffix(".rs").filter(|name| name.starts_with(PREFIX) || AT_AN_API_SERVER.contains(name))
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The commit, and whether something else than the commit is run.
fn commit() -> Result<String> {
    let git = |args: &[&str]| command::output(program_at_root("git", args));
    let (commit, changed) = (git(&["rev-parse", "HEAD"])?, git(&["status", "--porcelain", "--untracked-files=no"])?);
    let changed = changed.lines().count();
    let clean = if changed == 0 { String::new() } else { format!(", with {changed} changed files") };
    Ok(format!("{}{clean}", commit.trim()))
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if !(0.0..=1.0).contains(&options.scale) {
        bail!("--scale is between 0 and 1, not {}", options.scale);
    }
    eprintln!("commit {}", commit()?);
    if matches!(options.what, What::Survive) {
        // Some need an API server; without one they are named as not run.
        cluster::build_for_tests()?;
    }
    command::succeed(cargo(["build", "--workspace", "--bins"]))?;
    // Only the bare names: the binaries are those that `cargo xtask test` runs.
    let mut test = cargo(["test", "--workspace", "--no-fail-fast"]);
    for suite in suites()?.iter().filter(|name| (*name == SOAK) == matches!(options.what, What::Soak)) {
        test.args(["--test", suite]);
    }
    match options.what {
        What::Survive => test.env("SCALWS_SURVIVE", options.scale.to_string()),
        What::Soak => test.env("SCALWS_SOAK_SECONDS", (options.minutes * 60).to_string()),
    };
    // One at a time, so that none is measured beside another.
    test.args(["--", "--nocapture", "--test-threads=1"]);
    command::succeed(test)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_soak_is_one_of_the_suites() {
        let suites = super::suites().unwrap();
        assert!(super::AT_AN_API_SERVER.iter().all(|name| suites.iter().any(|suite| suite == name)), "{suites:?}");
        assert!(suites.len() > 3 && suites.iter().any(|name| name == super::SOAK), "{suites:?}");
    }
}
