//! The benches of scale in their short form: they run, and what does not depend on the machine is as it should be.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs a bench and gives what it printed.
fn bench(arguments: &[&str]) -> Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_bench")).args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "bench {arguments:?}: {said}\n{}", String::from_utf8_lossy(&output.stderr));
    eprintln!("{said}");
    Ok(said)
}

/// The rows of the table with this first column, below the head, as cells.
fn rows(said: &str, first: &str) -> Result<Vec<Vec<String>>> {
    let head = said.find(&format!("| {first} |")).with_context(|| format!("no table with {first}: {said}"))?;
    let lines = said[head..].lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    let rows: Vec<Vec<String>> = lines.map(cells).collect();
    ensure!(!rows.is_empty(), "the table with {first} is empty: {said}");
    Ok(rows)
}

/// The largest number in a column of the rows that have `word` in their second.
fn most(rows: &[Vec<String>], word: &str, column: usize) -> Result<u64> {
    let cells = rows.iter().filter(|row| row.get(1).is_some_and(|cell| cell == word));
    let numbers: Vec<u64> = cells.map(|row| row[column].parse().context("not a number")).collect::<Result<_>>()?;
    numbers.into_iter().max().with_context(|| format!("no row for {word}"))
}

/// Bytes to an agent for one change, with all frames and TLS: what docs/performance.md says, and a little.
const ENDPOINT_BYTES: u64 = 100;
const ROUTE_BYTES: u64 = 400;

#[test]
fn a_change_costs_few_bytes_for_few_and_many_agents_and_routes() -> Result<()> {
    let said = bench(&["push", "--short"])?;
    for (first, column) in [("agents", 5), ("routes", 2)] {
        let rows = rows(&said, first)?;
        let (endpoint, route) = (most(&rows, "endpoint", column)?, most(&rows, "route", column)?);
        ensure!(endpoint <= ENDPOINT_BYTES, "{endpoint} bytes for an endpoint change, by {first}");
        ensure!(route <= ROUTE_BYTES, "{route} bytes for a route change, by {first}");
    }
    Ok(())
}

#[test]
fn agents_that_are_current_are_sent_nothing_after_the_death_of_a_controller() -> Result<()> {
    let said = bench(&["fleet", "--short"])?;
    for row in rows(&said, "agents")?.iter().filter(|row| row.len() > 8) {
        let (sent, all) = (&row[row.len() - 3..], row.join(" "));
        ensure!(sent.iter().all(|count| count == "0"), "bytes, transfers and member messages are 0: {all}");
    }
    rows(&said, "Ingresses")?;
    Ok(())
}

#[test]
fn memory_and_processor_time_are_measured() -> Result<()> {
    let said = bench(&["footprint", "--short"])?;
    for first in ["routes", "agents"] {
        rows(&said, first)?;
    }
    Ok(())
}

#[test]
fn a_single_change_costs_no_more_than_the_counts_on_record_stage_by_stage() -> Result<()> {
    let counts = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/counts.tsv");
    let said = bench(&["counts", "--routes", "1000", "--instructions", "200", "--check", counts])?;
    for stage in ["read", "translate", "publish", "encode", "apply"] {
        ensure!(said.contains(&format!("| {stage} |")), "{stage} is missing");
    }
    Ok(())
}
