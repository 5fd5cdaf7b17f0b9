//! The binary `scalwsctl`.

fn main() -> std::process::ExitCode {
    scalwsctl::main()
}
