//! The measurements of docs/performance.md: `cargo xtask bench route` and `cargo xtask bench translate`.
#![allow(clippy::print_stdout, reason = "a bench prints its table")]

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
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().what {
        What::Route(options) => route::run(&options),
        What::Translate(options) => translation::run(&options),
    }
}
