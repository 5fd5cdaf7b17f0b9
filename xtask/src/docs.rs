//! `cargo xtask docs`: pages that are written from the code, and whether they are fresh.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{self, cargo};
use crate::repository;

/// The page about command lines.
const CLI_PAGE: &str = "docs/reference/cli.md";
/// The chart's copy of the definition of ProxyFleet.
const DEFINITION: &str = "charts/scalws-crds/templates/proxyfleets.yaml";
/// Every program, in the order of the page.
const PROGRAMS: [&str; 4] = ["scalwsctl", "scalwsd", "scalws-controller", "scalws-agent"];
/// What stands before the generated part.
const CLI_HEAD: &str = "\
# Command lines

Written by `cargo xtask docs` from what each program says with `--help`. `scalwsctl` is for people, and `scalwsd` can be used
by itself with a hand-written configuration. The other two are started by `scalwsctl up`.
";

/// What a program says with `--help`, the same on every machine.
fn help(binary: &Path, subcommand: Option<&str>) -> Result<String> {
    let mut command = Command::new(binary);
    command.args(subcommand).arg("--help").env("COLUMNS", "100").env("NO_COLOR", "1");
    command::output(command)
}

/// The subcommands that a help text lists.
fn subcommands(help: &str) -> Vec<&str> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let named = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

/// A section of the page; Markdown shows indented text as it is.
fn section(title: &str, help: &str) -> String {
    let mut out = format!("\n## {title}\n\n");
    for line in help.trim_end().lines() {
        out += format!("    {line}").trim_end();
        out.push('\n');
    }
    out
}

fn cli_page() -> Result<String> {
    // The whole workspace, with the features that tests choose: another choice here would build everything twice.
    command::succeed(cargo(["build", "--workspace", "--bins"]))?;
    let mut page = CLI_HEAD.to_owned();
    for program in PROGRAMS {
        let binary = repository::target().join("debug").join(program);
        let text = help(&binary, None)?;
        page += &section(program, &text);
        for subcommand in subcommands(&text) {
            page += &section(&format!("{program} {subcommand}"), &help(&binary, Some(subcommand))?);
        }
    }
    Ok(page)
}

/// Every generated page: where it is and what its source says now.
fn pages() -> Result<Vec<(PathBuf, String)>> {
    let cli_page = cli_page()?;
    // The page before has built it.
    let mut crds = Command::new(repository::target().join("debug").join("scalwsctl"));
    crds.arg("crds");
    Ok(vec![(CLI_PAGE.into(), cli_page), (DEFINITION.into(), command::output(crds)?)])
}

pub(crate) fn run() -> Result<()> {
    // A test of `config` holds its page and schema to the types, and writes them when told to.
    let mut config = cargo(["test", "--quiet", "-p", "config", "--test", "docs"]);
    config.env("UPDATE_DOCS", "1");
    command::succeed(config)?;
    for (page, text) in pages()? {
        let path = repository::root().join(&page);
        if std::fs::read_to_string(&path).is_ok_and(|now| now == text) {
            eprintln!("{}: fresh", page.display());
            continue;
        }
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(&path, text).with_context(|| format!("writing {}", page.display()))?;
        eprintln!("{}: written", page.display());
    }
    Ok(())
}

/// Generated pages that differ from what their source says now, relative to the root.
pub(crate) fn stale() -> Result<Vec<PathBuf>> {
    let is_fresh = |(page, text): &(PathBuf, String)| {
        std::fs::read_to_string(repository::root().join(page)).is_ok_and(|now| now == *text)
    };
    let pages = pages()?.into_iter().filter(|page| !is_fresh(page));
    Ok(pages.map(|(page, _)| page).collect())
}

#[cfg(test)]
mod tests {
    use super::{section, subcommands};

    const HELP: &str = "\
Serve a folder

Usage: scalwsctl <COMMAND>

Commands:
  up      Serve the manifests
  status  Show what is live, and a long line that goes
            on here
  help    Print this message

Options:
  -h, --help  Print help
";

    #[test]
    fn every_command_of_a_help_text_is_found_once() {
        assert_eq!(subcommands(HELP), ["up", "status"]);
        assert_eq!(subcommands("Usage: scalws-agent [OPTIONS]\n"), [] as [&str; 0]);
    }

    #[test]
    fn help_is_shown_as_it_is_without_white_space_at_the_ends() {
        assert_eq!(section("x", "a\n\n  b\n\n"), "\n## x\n\n    a\n\n      b\n");
    }
}
