//! `cargo xtask fuzz`: coverage-guided random input for a bounded time.

use anyhow::Result;
use clap::Args;

#[derive(Args, Default)]
pub(crate) struct Options {
    /// One target; none means all
    target: Option<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

impl Options {
    pub(crate) fn for_ci() -> Options {
        Options { target: None, seconds: 10 }
    }
}

pub(crate) fn run(_options: &Options) -> Result<()> {
    Ok(())
}
