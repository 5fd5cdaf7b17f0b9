//! `cargo xtask test`: every test of the workspace, offline, with a table of how long each binary took.

use std::io::{BufRead, BufReader, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::cluster;
use crate::command::{self, cargo};

/// How many of the slowest test binaries are listed.
const SLOWEST: usize = 10;

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Leave out e2e (simulation and process tests) and examples in documentation
    #[arg(long)]
    quick: bool,
    /// Only tests whose names contain this
    filter: Vec<String>,
}

/// What one test binary reported.
#[derive(Debug, PartialEq)]
struct Suite {
    name: String,
    passed: u64,
    failed: u64,
    seconds: f64,
}

/// Follows the output of `cargo test` and keeps the results of its test binaries.
#[derive(Default)]
struct Results {
    running: String,
    suites: Vec<Suite>,
    /// What tests say that this machine cannot do.
    not_run: Vec<String>,
}

impl Results {
    fn line(&mut self, line: &str) {
        let line = line.trim_start();
        // With one thread a test's name stands before what it says.
        if let Some((before, what)) = line.split_once("not run: ")
            && (before.is_empty() || before.starts_with("test "))
        {
            self.not_run.push(what.to_owned());
        } else if let Some(rest) = line.strip_prefix("Running ") {
            self.running = suite_name(rest);
        } else if let Some(krate) = line.strip_prefix("Doc-tests ") {
            self.running = format!("{krate}, documentation");
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            let number = |word: &str| {
                let mut parts = rest.split(['.', ';']).map(str::trim).filter_map(|part| part.strip_suffix(word));
                parts.find_map(|text| text.trim().parse().ok()).unwrap_or(0)
            };
            let time = rest.rsplit("finished in ").next().and_then(|text| text.trim_end_matches('s').parse().ok());
            let (passed, failed) = (number("passed"), number("failed"));
            self.suites.push(Suite { name: self.running.clone(), passed, failed, seconds: time.unwrap_or(0.0) });
        }
    }

    /// The totals, and the slowest binaries first.
    fn summary(&self, wall: Duration) -> String {
        let mut suites: Vec<&Suite> = self.suites.iter().filter(|suite| suite.passed + suite.failed > 0).collect();
        suites.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.name.cmp(&b.name)));
        let (passed, failed) = suites.iter().fold((0, 0), |(p, f), suite| (p + suite.passed, f + suite.failed));
        let mut out = format!("\nslowest test binaries of {}:\n", suites.len());
        for suite in suites.iter().take(SLOWEST) {
            out += &format!("{:>9.2} s  {:>5} tests  {}\n", suite.seconds, suite.passed + suite.failed, suite.name);
        }
        for what in &self.not_run {
            out += &format!("not run: {what}\n");
        }
        out + &format!("{passed} passed, {failed} failed, {:.1} s with building\n", wall.as_secs_f64())
    }
}

/// `unittests src/lib.rs (target/debug/deps/config-0123)` is `config src/lib.rs`.
fn suite_name(running: &str) -> String {
    let (source, binary) = running.split_once(" (").unwrap_or((running, ""));
    let file = binary.trim_end_matches(')').rsplit('/').next().unwrap_or_default();
    let krate = file.rsplit_once('-').map_or(file, |(name, _hash)| name);
    format!("{krate} {}", source.trim_start_matches("unittests "))
}

/// Runs a command with stdout and stderr in one pipe, printing each line and showing it to `see`.
fn follow(mut command: Command, mut see: impl FnMut(&str)) -> Result<()> {
    let shown = command::show(&command);
    eprintln!("$ {shown}");
    let (reader, writer) = std::io::pipe().context("making a pipe")?;
    command.stdout(writer.try_clone().context("making a pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("starting {shown}"))?;
    // The command holds the write ends; without this the reader would never see the end.
    drop(command);
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.context("reading its output")?;
        let text = String::from_utf8_lossy(&line);
        writeln!(std::io::stdout().lock(), "{text}").context("writing its output")?;
        see(&text);
    }
    let status = child.wait().with_context(|| format!("waiting for {shown}"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let start = Instant::now();
    let selection: &[&str] = if options.quick { &["--workspace", "--exclude", "e2e"] } else { &["--workspace"] };
    if !options.quick {
        // Process tests start the binaries from the folder that their own executable is in.
        command::succeed(cargo(["build", "--workspace", "--bins"]))?;
        cluster::build_for_tests()?;
    }
    let mut test = cargo(["test", "--no-fail-fast"]);
    test.args(selection);
    if options.quick {
        test.args(["--lib", "--bins", "--tests"]);
    }
    test.arg("--").args(&options.filter);
    let mut results = Results::default();
    let outcome = follow(test, |line| results.line(line));
    eprint!("{}", results.summary(start.elapsed()));
    outcome
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Results, Suite};

    const OUTPUT: &str = "\
     Running unittests src/lib.rs (target/debug/deps/config-0a1b2c)
running 2 tests
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.05s
     Running tests/volume.rs (target/debug/deps/volume-77)
test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.50s
   Doc-tests journal
test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn what_this_machine_cannot_do_is_named_again_at_the_end() {
        let mut results = results();
        results.line("not run: a cut link (it needs root)");
        results.line("test a_link ... not run: a slow link (it needs root)");
        let summary = results.summary(Duration::from_secs(3));
        for what in ["\nnot run: a cut link (it needs root)\n", "\nnot run: a slow link (it needs root)\n"] {
            assert!(summary.contains(what), "{summary}");
        }
    }

    fn results() -> Results {
        let mut results = Results::default();
        OUTPUT.lines().for_each(|line| results.line(line));
        results
    }

    #[test]
    fn every_test_binary_is_counted_under_its_name() {
        let suite = |name: &str, passed, failed, seconds| Suite { name: name.to_owned(), passed, failed, seconds };
        let want = [
            suite("config src/lib.rs", 2, 0, 0.05),
            suite("volume tests/volume.rs", 3, 1, 1.5),
            suite("journal, documentation", 0, 0, 0.0),
        ];
        assert_eq!(results().suites, want);
    }

    #[test]
    fn the_summary_adds_up_and_lists_the_slowest_first() {
        let summary = results().summary(Duration::from_secs(3));
        assert!(summary.contains("5 passed, 1 failed, 3.0 s"), "{summary}");
        assert!(summary.find("volume tests").unwrap() < summary.find("config src").unwrap(), "{summary}");
    }
}
