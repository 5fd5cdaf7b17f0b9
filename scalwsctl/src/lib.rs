//! What people type: `up`, `lint`, `status`, `wait`, `confirm`.
//!
//! `scalwsctl up DIR` is also the supervisor of everything that runs without a cluster: it starts the controller and the
//! proxies, holds their listening sockets, the local certificate authority and the controller's addresses in memory,
//! starts again what dies, and ends everything with itself.

pub mod cli;
pub mod client;
pub mod commands;
pub mod manifests;
pub mod output;
pub mod state;
pub mod up;

use clap::Parser as _;
use std::process::ExitCode;

/// Runs the command that the arguments of this process name, and gives its exit code.
///
/// 0: done. 1: it failed, or the answer is no. 2: wrong arguments. 3: a held world waits for `scalwsctl confirm`.
pub fn main() -> ExitCode {
    let arguments = match cli::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are "errors" of clap with the exit code 0.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    commands::run(arguments)
}
