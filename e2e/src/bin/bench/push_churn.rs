//! The churn part of `bench push`: member changes at a fixed rate, and how old what the agents acknowledge is.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use e2e::swarm::usage;

use crate::plot::{Plot, Series};
use crate::push::{System, ms, point};
use crate::stats::millis;

#[derive(Args)]
#[group(id = "churn")]
pub(crate) struct Options {
    /// Numbers of agents in the churn part
    #[arg(long, value_delimiter = ',', default_value = "100,1000")]
    churn_agents: Vec<usize>,
    /// Member changes per second
    #[arg(long, value_delimiter = ',', default_value = "100,500,1000,2000,5000")]
    churn_rates: Vec<u32>,
    /// Seconds of each rate
    #[arg(long, default_value_t = 5)]
    churn_seconds: u32,
    /// Services that take turns in changing
    #[arg(long, default_value_t = 100)]
    churn_sets: usize,
}

impl Options {
    pub(crate) fn shorten(&mut self) {
        (self.churn_agents, self.churn_rates) = (vec![5], vec![100]);
        (self.churn_seconds, self.churn_sets) = (1, 10);
    }
}

/// The staleness that a rate may have to count as sustained.
const FRESH: Duration = Duration::from_millis(100);

pub(crate) fn run(options: &Options, pin: bool, plots: Option<&Path>) -> Result<()> {
    let mut rows = Vec::new();
    let mut series = Vec::new();
    for agents in &options.churn_agents {
        let mut system = System::start(options.churn_sets, false, *agents, pin)?;
        let mut points = Vec::new();
        for rate in &options.churn_rates {
            let row = churn(&mut system, *rate, options.churn_seconds)?;
            points.push(point(usize::try_from(*rate).unwrap_or(0), ms(row.p99)));
            println!("{agents} agents, {rate}/s: staleness p99 {} ms (load {})", millis(row.p99), usage::load());
            rows.push((*agents, *rate, row));
        }
        series.push(Series::measured(format!("{agents} agents"), points));
    }
    println!(
        "\n| agents | changes/s asked | made | messages/s | per change and agent | staleness p50 ms | p99 ms | controller cores | sustained |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for (agents, rate, row) in &rows {
        #[allow(clippy::cast_precision_loss, reason = "counts of a table")]
        let share = row.messages as f64 / (row.made.max(1) as f64 * *agents as f64);
        println!(
            "| {agents} | {rate} | {:.0} | {:.0} | {share:.2} | {} | {} | {:.2} | {} |",
            row.per_second(row.made),
            row.per_second(row.messages),
            millis(row.p50),
            millis(row.p99),
            row.cpu.as_secs_f64() / row.took.as_secs_f64(),
            if row.p99 <= FRESH && row.cpu <= row.took && row.kept_up(*rate) { "yes" } else { "no" }
        );
    }
    if let Some(folder) = plots {
        let (title, x) = ("Age of what agents acknowledge under churn".to_owned(), "member changes/s".to_owned());
        Plot { title, x, y: "p99 ms".to_owned(), series }.write(folder, "push-churn")?;
    }
    Ok(())
}

struct Row {
    made: u64,
    messages: u64,
    took: Duration,
    cpu: Duration,
    p50: Duration,
    p99: Duration,
}

impl Row {
    #[allow(clippy::cast_precision_loss, reason = "counts of a table")]
    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.took.as_secs_f64()
    }

    /// Whether the changes were made at this rate, so that it was measured at all.
    fn kept_up(&self, rate: u32) -> bool {
        self.per_second(self.made) >= 0.95 * f64::from(rate)
    }
}

fn churn(system: &mut System, rate: u32, seconds: u32) -> Result<Row> {
    let board = std::sync::Arc::clone(system.swarm.board());
    let sets = system.world.routes();
    board.measure_staleness(system.serial + 1, sets as u64);
    let (messages, cpu, began) = (board.counts().members, system.controller.cpu(), Instant::now());
    let end = began + Duration::from_secs(seconds.into());
    let mut made: u32 = 0;
    while Instant::now() < end {
        let due = began + Duration::from_secs_f64(f64::from(made) / f64::from(rate));
        let wait = due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            // sleep: the rate is what is asked for.
            std::thread::sleep(wait);
        }
        system.serial += 1;
        let number = usize::try_from(system.serial).unwrap_or(0) % sets;
        let change = system.world.move_endpoint(number, system.serial)?;
        board.written();
        change.make()?;
        made += 1;
    }
    let (took, cpu) = (began.elapsed(), system.controller.cpu().since(&cpu));
    // What is still on its way counts too.
    let newest = e2e::swarm::board::Mark::Serial(system.serial);
    board.expect(newest);
    let messages = board.counts().members - messages;
    system.swarm.drained(crate::push::LIMIT)?;
    let [p50, p99] = board.staleness(&[0.5, 0.99])[..] else { anyhow::bail!("no staleness was measured") };
    Ok(Row { made: made.into(), messages, took, cpu, p50, p99 })
}
