//! The binary `scalws-controller`: reads its arguments and runs the library.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    controller::run(&controller::args::Args::parse())
}
