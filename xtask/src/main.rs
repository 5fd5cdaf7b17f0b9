//! The one door to everything a developer does: `cargo xtask <verb>`.

mod bench;
mod cases;
mod ci;
mod cluster;
mod command;
mod deny;
mod docs;
mod fuzz;
mod nightly;
mod python;
mod repository;
mod test;
mod tidy;
mod up;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

use crate::command::cargo;

/// Everything a developer does in this repository. Without a verb: this list.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
}

// The first line of each comment is the line that the list of verbs shows.
#[derive(Subcommand)]
enum Verb {
    /// Build in release mode and serve a folder of manifests, examples/shop if none is named
    Up(up::Options),
    /// Run every test of the workspace and say how long they took
    Test(test::Options),
    /// Run the cases of e2e/cases against the product, in network namespaces of their own
    Cases(cases::Options),
    /// A real Kubernetes on this machine: build, up, down, enter
    Cluster(cluster::Options),
    /// Check layers, file headers and sizes, names, links, generated pages
    Tidy,
    /// Check licences, banned crates and sources of dependencies
    Deny,
    /// Format every crate; with --check only look
    Fmt {
        /// Change nothing, fail if something is not formatted
        #[arg(long)]
        check: bool,
    },
    /// Run clippy over everything, warnings are errors
    Clippy,
    /// Write the generated pages of docs/ again
    Docs,
    /// Feed coverage-guided random input to decoders and router for a bounded time
    Fuzz(fuzz::Options),
    /// Measure: route (manifest to request) or translate (one change among many objects)
    Bench(bench::Options),
    /// Run for long: survive (every fault under traffic) or soak (all at once), with counts and slopes
    Nightly(nightly::Options),
    /// All that must pass before a change lands: fmt, clippy, tidy, deny, cluster, test, cases, fuzz
    Ci(ci::Options),
}

fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Up(options) => up::run(&options),
        Verb::Test(options) => test::run(&options),
        Verb::Cases(options) => cases::run(&options),
        Verb::Cluster(options) => cluster::run(&options),
        Verb::Tidy => tidy::run(),
        Verb::Deny => deny::run(),
        Verb::Fmt { check } => fmt(check),
        Verb::Clippy => clippy(),
        Verb::Docs => docs::run(),
        Verb::Fuzz(options) => fuzz::run(&options),
        Verb::Bench(options) => bench::run(&options),
        Verb::Nightly(options) => nightly::run(&options),
        Verb::Ci(options) => ci::run(&options),
    }
}

/// Formats, or checks the format of, every crate.
fn fmt(check: bool) -> Result<()> {
    let mut command = cargo(["fmt", "--all"]);
    if check {
        command.arg("--check");
    }
    command::succeed(command)
}

/// Clippy over every target of every crate.
fn clippy() -> Result<()> {
    command::succeed(cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn main() -> ExitCode {
    let Some(verb) = Cli::parse().verb else {
        let help = Cli::command().render_help().ansi().to_string();
        eprintln!("{}", help.trim_end());
        return ExitCode::SUCCESS;
    };
    match run(verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
