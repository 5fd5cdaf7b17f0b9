//! `cargo xtask cases`: the cases of e2e/cases, compared with the list of those that must pass.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde::Deserialize;

use crate::command::{self, cargo, program_at_root};
use crate::{python, repository, up};

/// The cases and their runner.
const FOLDER: &str = "e2e/cases";

/// Which binaries the cases run against.
#[derive(Clone, Copy, Default, PartialEq, ValueEnum)]
pub(crate) enum Profile {
    #[default]
    Release,
    Dev,
}

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Case numbers, such as 046; none means all
    ids: Vec<String>,
    /// Build and use these binaries
    #[arg(long, value_enum, default_value_t)]
    profile: Profile,
    /// Only the cases that must pass
    #[arg(long)]
    expected: bool,
    /// Cases at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Keep manifests, state and output of each case, and say where
    #[arg(long)]
    keep: bool,
}

impl Options {
    /// What `ci` runs: the binaries that the tests have built already.
    pub(crate) fn for_ci() -> Options {
        Options { profile: Profile::Dev, jobs: 2, ..Options::default() }
    }
}

/// `e2e/cases/expected.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// Numbers of the cases that must pass.
    pass: BTreeSet<String>,
}

/// The part of the runner's JSON that is read here.
#[derive(Deserialize)]
struct Report {
    cases: Vec<CaseReport>,
    mode_conflicts: Vec<String>,
}

#[derive(Deserialize)]
struct CaseReport {
    id: String,
    name: String,
    passed: bool,
}

/// What the results mean against the list.
#[derive(Debug, Default, PartialEq)]
struct Verdict {
    /// Must pass and do.
    passed: Vec<String>,
    /// Must pass and do not, or contradict each other: the run fails.
    broken: Vec<String>,
    /// Not on the list and do not pass.
    not_yet: Vec<String>,
    /// Not on the list and pass: the list should grow.
    new: Vec<String>,
}

fn judge(report: &Report, expected: &Expected) -> Verdict {
    let mut verdict = Verdict::default();
    for case in &report.cases {
        let list = match (expected.pass.contains(&case.id), case.passed) {
            (true, true) => &mut verdict.passed,
            (true, false) => &mut verdict.broken,
            (false, false) => &mut verdict.not_yet,
            (false, true) => &mut verdict.new,
        };
        list.push(format!("{} {}", case.id, case.name));
    }
    // A case that is not on the list cannot break a run by contradicting another one either.
    for conflict in &report.mode_conflicts {
        let said = format!("modes disagree: {conflict}");
        if conflicting(conflict).all(|id| expected.pass.contains(id)) {
            verdict.broken.push(said);
        } else {
            verdict.not_yet.push(said);
        }
    }
    verdict
}

/// The numbers of the cases that a conflict names: `a in 001 request 2 …, but b in 002 …`.
fn conflicting(conflict: &str) -> impl Iterator<Item = &str> {
    conflict.split(" in ").skip(1).filter_map(|rest| rest.get(..3))
}

/// Root and iproute2, without which no network namespace can be made. In CI a missing iproute2 is installed.
fn prerequisites() -> Result<()> {
    let root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !root {
        bail!("network namespaces need root");
    }
    if !command::works("ip", &["-V"]) {
        if !repository::in_ci() || !command::works("apt-get", &["--version"]) {
            bail!("iproute2 is not installed");
        }
        command::succeed(program_at_root("apt-get", ["update", "-q"]))?;
        command::succeed(program_at_root("apt-get", ["install", "-qy", "--no-install-recommends", "iproute2"]))?;
    }
    python::interpreter().map(|_| ())
}

/// Numbers and names of the chosen cases.
fn chosen(ids: &[String]) -> Result<Vec<String>> {
    let folder = repository::root().join(FOLDER);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let number = name.get(..3).unwrap_or_default();
        if number.bytes().all(|b| b.is_ascii_digit()) && number.len() == 3 {
            names.push(name);
        }
    }
    names.sort();
    for id in ids {
        if !names.iter().any(|name| name == id || name.get(..3) == Some(id)) {
            bail!("there is no case {id} in {FOLDER}");
        }
    }
    names.retain(|name| ids.is_empty() || ids.iter().any(|id| name == id || name.get(..3) == Some(id)));
    Ok(names)
}

fn build(profile: Profile) -> Result<&'static str> {
    match profile {
        Profile::Dev => command::succeed(cargo(["build", "--workspace", "--bins"]))?,
        Profile::Release => up::build_release()?,
    }
    Ok(match profile {
        Profile::Dev => "debug",
        Profile::Release => "release",
    })
}

fn read_report(path: &Path) -> Result<Report> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let root = repository::root();
    let list = root.join(FOLDER).join("expected.toml");
    let text = std::fs::read_to_string(&list).with_context(|| format!("reading {}", list.display()))?;
    let expected: Expected = toml::from_str(&text).with_context(|| format!("reading {}", list.display()))?;
    let unknown: Vec<_> = expected.pass.iter().cloned().collect();
    chosen(&unknown).context("expected.toml")?;
    let ids = if options.expected && options.ids.is_empty() { unknown } else { options.ids.clone() };
    let names = chosen(&ids)?;
    if let Err(why) = prerequisites() {
        if repository::in_ci() {
            return Err(why.context("the cases cannot run"));
        }
        eprintln!("cases not run: {why:#}");
        names.iter().for_each(|name| eprintln!("  not run: {name}"));
        return Ok(());
    }
    let binaries = build(options.profile)?;
    let requirements =
        std::fs::read_to_string(root.join(FOLDER).join("requirements.txt")).context("requirements.txt")?;
    let environment = python::environment("cases", &requirements)?;
    let json = repository::target().join("cases.json");
    let product = repository::target().join(binaries).join("scalwsctl");
    let mut runner = program_at_root(environment.join("bin/python"), ["-B"]);
    runner.arg(root.join(FOLDER).join("run.py")).arg("--product").arg(&product).arg("--json").arg(&json);
    runner.arg("--jobs").arg(options.jobs.to_string());
    names.iter().for_each(|name| _ = runner.arg("--case").arg(name));
    if options.keep {
        runner.arg("--keep");
    }
    if json.exists() {
        std::fs::remove_file(&json).with_context(|| format!("removing {}", json.display()))?;
    }
    eprintln!("$ {}", command::show(&runner));
    // The runner's own exit code speaks of all cases; the list decides.
    runner.status().context("starting the runner of the cases")?;
    let verdict = judge(&read_report(&json).context("the runner left no results")?, &expected);
    print(&verdict);
    if !verdict.broken.is_empty() {
        bail!("{} of the cases that must pass did not", verdict.broken.len());
    }
    Ok(())
}

fn print(verdict: &Verdict) {
    let Verdict { passed, broken, not_yet, new } = verdict;
    eprintln!("\ncases: {} pass as they must, {} broken, {} not yet", passed.len(), broken.len(), not_yet.len());
    broken.iter().for_each(|name| eprintln!("  BROKEN   {name}"));
    not_yet.iter().for_each(|name| eprintln!("  not yet  {name}"));
    new.iter().for_each(|name| eprintln!("  NEW      {name} passes: add it to {FOLDER}/expected.toml"));
}

#[cfg(test)]
mod tests {
    use super::{CaseReport, Expected, Report, judge};

    #[test]
    fn only_a_case_on_the_list_can_break_a_run() {
        let case = |id: &str, passed| CaseReport { id: id.to_owned(), name: "x".to_owned(), passed };
        let cases = vec![case("001", true), case("002", false), case("003", true), case("004", false)];
        let expected = Expected { pass: ["001", "002"].map(str::to_owned).into() };
        let verdict = judge(&Report { cases, mode_conflicts: Vec::new() }, &expected);
        assert_eq!(verdict.passed, ["001 x"]);
        assert_eq!(verdict.broken, ["002 x"]);
        assert_eq!(verdict.new, ["003 x"]);
        assert_eq!(verdict.not_yet, ["004 x"]);
    }

    #[test]
    fn cases_on_the_list_that_contradict_each_other_break_a_run() {
        let conflict = "clean in 001 request 2, but compat in 002 request 1".to_owned();
        let report = Report { cases: Vec::new(), mode_conflicts: vec![conflict.clone()] };
        let said = format!("modes disagree: {conflict}");
        let both = judge(&report, &Expected { pass: ["001", "002"].map(str::to_owned).into() });
        assert_eq!((both.broken, both.not_yet), (vec![said.clone()], vec![]));
        let one = judge(&report, &Expected { pass: ["001"].map(str::to_owned).into() });
        assert_eq!((one.broken, one.not_yet), (vec![], vec![said]));
    }
}
