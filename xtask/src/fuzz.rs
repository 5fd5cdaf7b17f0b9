//! `cargo xtask fuzz`: coverage-guided random input for a bounded time, with stable Rust and libFuzzer.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::command::{self, cargo};
use crate::repository;

/// One folder of first inputs for each target; the targets themselves are in fuzz/src.
const SEEDS: &str = "fuzz/seeds";
/// A single input that takes longer than this many seconds is a finding.
const INPUT_SECONDS_MAX: u64 = 5;
/// A target that takes more memory than this is a finding.
const MEMORY_MIB_MAX: u64 = 1024;
/// How many lines of the log are shown after a failure.
const LOG_LINES: usize = 40;

#[derive(Args, Default)]
pub(crate) struct Options {
    /// One target; none means all
    target: Option<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Targets at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

impl Options {
    /// Short enough for every change.
    pub(crate) fn for_ci() -> Options {
        Options { target: None, seconds: 8, jobs: 2 }
    }
}

/// Names of all targets, sorted.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(repository::root().join(SEEDS)).context(SEEDS)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn build() -> Result<PathBuf> {
    let mut build = cargo(["build", "-p", "fuzz", "--features", "libfuzzer"]);
    build.env("RUSTC_WORKSPACE_WRAPPER", repository::root().join("fuzz/instrument.sh"));
    command::succeed(build).context("building the fuzz targets (they need a C++ compiler)")?;
    Ok(repository::target().join("debug/scalws-fuzz"))
}

/// Runs one target; gives what libFuzzer says at the end.
fn run_one(binary: &Path, name: &str, seconds: u64) -> Result<String> {
    let folder = repository::target().join("fuzz");
    let corpus = folder.join("corpus").join(name);
    std::fs::create_dir_all(&corpus).with_context(|| format!("making {}", corpus.display()))?;
    let log = folder.join(format!("{name}.log"));
    let output = File::create(&log).with_context(|| format!("making {}", log.display()))?;
    let mut fuzzer = Command::new(binary);
    fuzzer.env("SCALWS_FUZZ_TARGET", name).current_dir(&folder);
    fuzzer.arg(format!("-max_total_time={seconds}")).arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    fuzzer.arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}")).arg(format!("-artifact_prefix={}/{name}-", folder.display()));
    fuzzer.arg(&corpus).arg(repository::root().join(SEEDS).join(name));
    fuzzer.stdout(output.try_clone().context("the log")?).stderr(output);
    let status = fuzzer.status().with_context(|| format!("starting {}", binary.display()))?;
    let text = String::from_utf8_lossy(&std::fs::read(&log).context("reading the log")?).into_owned();
    if !status.success() {
        let lines: Vec<&str> = text.lines().collect();
        let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        let keep = format!("keep the input as a test: copy it to {SEEDS}/{name}/ under a name that says what it is");
        bail!("{name} failed ({status}):\n{end}\n{keep}; the whole log is {}", log.display());
    }
    Ok(text.lines().rfind(|line| line.starts_with("Done ")).unwrap_or("no summary").to_owned())
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut names = targets()?;
    if let Some(wanted) = &options.target {
        if !names.contains(wanted) {
            bail!("there is no target {wanted}; there are {}", names.join(", "));
        }
        names.retain(|name| name == wanted);
    }
    let binary = build()?;
    let todo = Mutex::new(names.into_iter());
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                // A statement of its own, so that the lock is held only while the next name is taken.
                loop {
                    let next = todo.lock().ok().and_then(|mut names| names.next());
                    let Some(name) = next else { break };
                    match run_one(&binary, &name, options.seconds) {
                        Ok(summary) => eprintln!("fuzz {name}: {summary}"),
                        Err(error) => {
                            eprintln!("fuzz {name}: FAILED\n{error:#}");
                            failures.lock().unwrap_or_else(|e| e.into_inner()).push(name);
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_else(|e| e.into_inner());
    if !failures.is_empty() {
        bail!("fuzz targets failed: {}", failures.join(", "));
    }
    Ok(())
}
