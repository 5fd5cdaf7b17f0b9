//! `cargo xtask bench`: the measurements of docs/performance.md.

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::command::{self, cargo};
use crate::up;

/// What is measured.
#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// From the rename of a manifest to the first request that sees it
    Route,
    /// One change to the translation of many objects
    Translate,
}

#[derive(Args)]
pub(crate) struct Options {
    what: What,
    /// More arguments for the bench
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let name = match options.what {
        What::Route => {
            // The bench starts the shipped binaries.
            up::build_release()?;
            "route"
        }
        What::Translate => "translate",
    };
    let mut bench = cargo(["run", "--release", "-p", "e2e", "--bin", "bench", "--", name]);
    bench.args(&options.args);
    command::succeed(bench)
}
