//! The `scalws-agent` executable.

fn main() -> std::process::ExitCode {
    agent::cli::main()
}
