//! `cargo xtask ci`: every check, one after the other, with a table of what passed and how long it took.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use crate::{Verb, cases, cluster, fuzz, run as run_verb, test};

#[derive(Args)]
pub(crate) struct Options {
    /// Stop at the first check that fails
    #[arg(long)]
    fail_fast: bool,
}

/// One line of the table.
struct Step {
    name: &'static str,
    took: Duration,
    failure: Option<String>,
}

/// The checks, the quick ones first.
fn steps() -> Vec<(&'static str, Verb)> {
    vec![
        ("fmt", Verb::Fmt { check: true }),
        ("tidy", Verb::Tidy),
        ("deny", Verb::Deny),
        ("clippy", Verb::Clippy),
        ("cluster", Verb::Cluster(cluster::Options::for_tests())),
        ("test", Verb::Test(test::Options::default())),
        ("cases", Verb::Cases(cases::Options::for_ci())),
        ("fuzz", Verb::Fuzz(fuzz::Options::for_ci())),
    ]
}

fn table(steps: &[Step]) -> String {
    let mut out = String::from("\n  check    result   seconds\n");
    for step in steps {
        let result = if step.failure.is_some() { "FAILED" } else { "ok" };
        out += &format!("  {:<8} {result:<8} {:>7.1}\n", step.name, step.took.as_secs_f64());
    }
    let total: Duration = steps.iter().map(|step| step.took).sum();
    out + &format!("  {:<17} {:>7.1}\n", "together", total.as_secs_f64())
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut done: Vec<Step> = Vec::new();
    for (name, verb) in steps() {
        eprintln!("\n==== {name}");
        let start = Instant::now();
        let failure = run_verb(verb).err().map(|error| format!("{error:#}"));
        if let Some(why) = &failure {
            eprintln!("{name}: {why}");
        }
        let failed = failure.is_some();
        done.push(Step { name, took: start.elapsed(), failure });
        if failed && options.fail_fast {
            break;
        }
    }
    eprint!("{}", table(&done));
    let failures: Vec<_> = done.iter().filter_map(|step| Some((step.name, step.failure.as_ref()?))).collect();
    failures.iter().for_each(|(name, why)| eprintln!("  {name}: {why}"));
    if !failures.is_empty() {
        bail!("{} of {} checks failed", failures.len(), done.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Step, table};

    #[test]
    fn the_table_shows_each_check_and_the_sum() {
        let step = |name, seconds, failure: Option<&str>| Step {
            name,
            took: Duration::from_secs(seconds),
            failure: failure.map(str::to_owned),
        };
        let text = table(&[step("fmt", 1, None), step("test", 60, Some("two tests"))]);
        assert!(text.contains("fmt      ok           1.0"), "{text}");
        assert!(text.contains("test     FAILED      60.0"), "{text}");
        assert!(text.contains("61.0"), "{text}");
    }
}
