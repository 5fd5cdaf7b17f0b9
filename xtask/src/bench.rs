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
    /// One change to many agents and many routes, over a real controller
    Push,
    /// A fleet that loses its controller, a cold start, and a proxy that comes back
    Fleet,
    /// Memory, and CPU while little happens
    Footprint,
    /// Controllers at a real API server: time to ready, memory, requests, and the way from a write to its acknowledgement
    Cluster,
    /// Instructions, allocations and CPU time of a single change, stage by stage
    Counts,
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
        What::Route => "route",
        What::Translate => "translate",
        What::Push => "push",
        What::Fleet => "fleet",
        What::Footprint => "footprint",
        What::Cluster => "cluster",
        What::Counts => "counts",
    };
    if !matches!(options.what, What::Translate | What::Counts) {
        // The bench starts the shipped binaries.
        up::build_release()?;
    }
    let mut bench = cargo(["run", "--release", "-p", "e2e", "--bin", "bench", "--", name]);
    bench.args(&options.args);
    command::succeed(bench)
}
