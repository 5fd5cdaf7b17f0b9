//! The command line of `scalws-controller`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// The central controller: reads manifests, works out what every proxy must do, and pushes what changed.
#[derive(Clone, Debug, Parser)]
#[command(name = "scalws-controller", version)]
pub struct Args {
    /// Run under a supervisor: authority and tokens come over standard input, and its end is the end of the controller.
    #[arg(long)]
    pub supervised: bool,
    /// The folder of manifests.
    #[arg(long, value_name = "DIR")]
    pub manifests: PathBuf,
    /// The state directory: epoch and readable statuses; never a key.
    #[arg(long, value_name = "DIR")]
    pub state: PathBuf,
    /// The unix socket of the local API.
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    /// The port that proxies serve HTTP on.
    #[arg(long, value_name = "PORT", default_value_t = 80, value_parser = clap::value_parser!(u16).range(1..))]
    pub http: u16,
    /// The port that proxies serve HTTPS on.
    #[arg(long, value_name = "PORT", default_value_t = 443, value_parser = clap::value_parser!(u16).range(1..))]
    pub https: u16,
    /// Let endpoints on loopback addresses have traffic.
    #[arg(long)]
    pub allow_loopback_endpoints: bool,
    /// An empty folder is meant, even while proxies serve something.
    #[arg(long)]
    pub allow_empty: bool,
    /// How log lines are written to standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log: LogFormat,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
