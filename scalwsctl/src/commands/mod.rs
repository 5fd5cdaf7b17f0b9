//! One module per command.

pub mod authority;
pub mod confirm;
pub mod crds;
pub mod join_token;
pub mod lint;
pub mod status;
pub mod table;
pub mod verdict;
pub mod wait;

use std::process::ExitCode;

use crate::cli::{Arguments, Command};
use crate::output::{answer, say};

/// Done.
pub const DONE: u8 = 0;
/// It failed, or the answer is no.
pub const FAILED: u8 = 1;
/// The world is held until `scalwsctl confirm`.
pub const HELD: u8 = 3;

/// Runs one command and gives its exit code.
pub fn run(arguments: Arguments) -> ExitCode {
    let code = match arguments.command {
        Command::Up(arguments) => crate::up::run(&arguments),
        Command::Wait(arguments) => on_runtime(wait::run(&arguments.state, arguments.timeout)),
        Command::Status(arguments) => {
            on_runtime(status::run(&arguments.at.state, arguments.at.socket.as_deref(), arguments.output))
        }
        Command::Lint(arguments) => lint::run(&arguments.manifests, arguments.echo, arguments.output),
        Command::Confirm(arguments) => on_runtime(confirm::run(&arguments.state, arguments.socket.as_deref())),
        Command::Authority(arguments) => authority::run(&arguments),
        Command::JoinToken(arguments) => join_token::run(&arguments),
        Command::Crds => crds::run(),
        Command::Version => {
            answer(&format!("scalwsctl {}", env!("CARGO_PKG_VERSION")));
            DONE
        }
    };
    ExitCode::from(code)
}

/// Drives a small command to its end on this thread.
fn on_runtime(command: impl Future<Output = u8>) -> u8 {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(command),
        Err(error) => {
            say(&format!("cannot start: {error}"));
            FAILED
        }
    }
}
