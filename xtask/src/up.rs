//! `cargo xtask up`: release binaries, then `scalwsctl up` in place of this process.

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};
use clap::Args;

use crate::command::{self, cargo, program_at_root};
use crate::repository;

/// What `up` serves when no folder is named.
const DEFAULT_DIR: &str = "examples/shop";
/// Flags that are given unless the user gives them, with their values.
const DEFAULTS: [(&str, Option<&str>); 4] =
    [("--http", Some("8080")), ("--https", Some("8443")), ("--state", Some(".scalws/state")), ("--echo", None)];

#[derive(Args)]
pub(crate) struct Options {
    /// Flags of `scalwsctl up` come after the folder; defaults: --http 8080 --https 8443 --state .scalws/state --echo
    #[arg(value_name = "DIR] [FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// The arguments of `scalwsctl up`: the user's, and a default for what is not there. `--no-echo` takes `--echo` away.
fn arguments(user: &[String]) -> Vec<String> {
    let (dir, flags) = match user.split_first() {
        Some((first, rest)) if !first.starts_with('-') => (first.as_str(), rest),
        _ => (DEFAULT_DIR, user),
    };
    let given = |flag: &str| flags.iter().any(|arg| arg == flag || arg.starts_with(&format!("{flag}=")));
    let mut out = vec!["up".to_owned(), dir.to_owned()];
    for (flag, value) in DEFAULTS {
        if given(flag) || (flag == "--echo" && given("--no-echo")) {
            continue;
        }
        out.push(flag.to_owned());
        out.extend(value.map(str::to_owned));
    }
    out.extend(flags.iter().filter(|arg| *arg != "--no-echo").cloned());
    out
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut build = cargo(["build", "--release"]);
    build.args(["-p", "controller", "-p", "agent", "-p", "scalwsd", "-p", "scalwsctl"]);
    command::succeed(build)?;
    let binary = repository::target().join("release/scalwsctl");
    let mut up = program_at_root(&binary, arguments(&options.args));
    eprintln!("$ {}", command::show(&up));
    Err(up.exec()).with_context(|| format!("starting {}", binary.display()))
}

#[cfg(test)]
mod tests {
    use super::arguments;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn without_arguments_the_shop_is_served_with_echo() {
        let want = "up examples/shop --http 8080 --https 8443 --state .scalws/state --echo";
        assert_eq!(arguments(&[]), words(want));
    }

    #[test]
    fn what_the_user_gives_replaces_the_default() {
        let got = arguments(&words("my/dir --http 80 --https=443 --replicas 3"));
        assert_eq!(got, words("up my/dir --state .scalws/state --echo --http 80 --https=443 --replicas 3"));
    }

    #[test]
    fn flags_alone_keep_the_default_folder() {
        let got = arguments(&words("--no-echo --state s"));
        assert_eq!(got, words("up examples/shop --http 8080 --https 8443 --state s"));
    }
}
