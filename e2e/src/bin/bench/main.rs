//! The measurements of docs/performance.md, which `cargo xtask bench` runs.
#![allow(clippy::print_stdout, reason = "a bench prints its table")]

mod cluster;
mod counts;
mod fleet;
mod footprint;
mod handshake;
mod plot;
mod push;
mod push_churn;
mod push_naive;
mod route;
mod stats;
mod translation;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Measures the running system and its parts", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// From the rename of a manifest to the first request that sees it, over the shipped programs
    Route(route::Options),
    /// One change to the translation of many objects
    Translate(translation::Options),
    /// One change to many agents and many routes, over a real controller
    Push(push::Options),
    /// A fleet that loses its controller, a cold start, and a proxy that comes back
    Fleet(fleet::Options),
    /// Memory, and CPU while little happens
    Footprint(footprint::Options),
    /// Controllers at a real API server: time to ready, memory, requests, and the way from a write to its acknowledgement
    Cluster(cluster::Options),
    /// Instructions, allocations and CPU time of a single change, stage by stage
    Counts(counts::Options),
    /// What `counts` looks at
    #[command(hide = true, name = counts::VERB)]
    Single(counts::Single),
    /// The server that `push` compares with
    #[command(hide = true, name = push_naive::VERB)]
    Naive {
        /// The folder of manifests.
        manifests: std::path::PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().what {
        What::Route(options) => route::run(&options),
        What::Translate(options) => translation::run(&options),
        What::Push(mut options) => push::run(&mut options),
        What::Fleet(mut options) => fleet::run(&mut options),
        What::Footprint(mut options) => footprint::run(&mut options),
        What::Cluster(mut options) => cluster::run(&mut options),
        What::Counts(mut options) => counts::run(&mut options),
        What::Single(options) => counts::single(&options),
        What::Naive { manifests } => e2e::swarm::naive::serve(&manifests),
    }
}
