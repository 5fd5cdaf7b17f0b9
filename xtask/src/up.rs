//! `cargo xtask up`: release binaries, then `scalwsctl up` in place of this process.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::command::{self, cargo};
use crate::repository;

/// What `up` serves when no folder is named, relative to the root of the repository.
const DEFAULT_DIR: &str = "examples/shop";

#[derive(Args)]
pub(crate) struct Options {
    /// A folder of manifests (examples/shop if none is named), then flags of `scalwsctl up`. --echo is given unless
    /// --no-echo is
    #[arg(value_name = "DIR] [FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// The arguments of `scalwsctl up`: the user's, with a folder and `--echo` where they are not there.
fn arguments(user: &[String], default_dir: &str) -> Vec<String> {
    let (dir, flags) = match user.split_first() {
        Some((first, rest)) if !first.starts_with('-') => (first.as_str(), rest),
        _ => (default_dir, user),
    };
    let mut out = vec!["up".to_owned(), dir.to_owned()];
    if !flags.iter().any(|flag| flag == "--echo" || flag == "--no-echo") {
        out.push("--echo".to_owned());
    }
    out.extend(flags.iter().filter(|flag| *flag != "--no-echo").cloned());
    out
}

/// The binaries that serve.
pub(crate) fn build_release() -> Result<()> {
    let mut build = cargo(["build", "--release"]);
    build.args(["-p", "controller", "-p", "agent", "-p", "scalwsd", "-p", "scalwsctl"]);
    command::succeed(build)
}

pub(crate) fn run(options: &Options) -> Result<()> {
    build_release()?;
    let binary = repository::target().join("release/scalwsctl");
    // Paths are those of the person who types, who may be in a sub-folder.
    let shop = repository::root().join(DEFAULT_DIR);
    let default_dir = if Path::new(DEFAULT_DIR).is_dir() { DEFAULT_DIR.into() } else { shop.to_string_lossy() };
    let mut up = Command::new(&binary);
    up.args(arguments(&options.args, &default_dir));
    eprintln!("$ {}", command::show(&up));
    Err(up.exec()).with_context(|| format!("starting {}", binary.display()))
}

#[cfg(test)]
mod tests {
    use super::arguments;

    fn check(user: &str, want: &str) {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(arguments(&words(user), "examples/shop"), words(want));
    }

    #[test]
    fn without_arguments_the_shop_is_served_with_echo() {
        check("", "up examples/shop --echo");
    }

    #[test]
    fn flags_go_through_and_echo_is_given_once() {
        check("my/dir --http 80 --https=443", "up my/dir --echo --http 80 --https=443");
        check("my/dir --echo", "up my/dir --echo");
    }

    #[test]
    fn flags_alone_keep_the_default_folder() {
        check("--no-echo --replicas 3", "up examples/shop --replicas 3");
    }
}
