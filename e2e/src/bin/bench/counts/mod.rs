//! `bench counts`: what a single change costs stage by stage: instructions, allocations and CPU time.
//!
//! Instructions are counted by valgrind and hardly depend on the machine; they stand in a file with the commit, so that
//! growth is seen.

mod agent;
mod callgrind;
mod chain;
mod file;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use e2e::swarm::world::World;

use crate::push::per;
use crate::stats::micros;
use chain::{Chain, STAGES};
use file::{Ledger, Row};

/// The hidden verb that makes some changes and ends.
pub(crate) const VERB: &str = "single-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// An endpoint moves
    Endpoint,
    /// A path of an Ingress changes
    Route,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Endpoint => "endpoint",
            Kind::Route => "route",
        }
    }
}

#[derive(Args)]
pub(crate) struct Options {
    /// Numbers of routes for CPU time and allocations
    #[arg(long, value_delimiter = ',', default_value = "1000,50000")]
    routes: Vec<usize>,
    /// Routes for instructions; they are counted at a fiftieth of the speed
    #[arg(long, default_value_t = 1_000)]
    instructions: usize,
    /// Changes that are counted
    #[arg(long, default_value_t = 200)]
    changes: usize,
    /// Fail when a stage needs more instructions or allocations than the last lines of this file say
    #[arg(long)]
    check: Option<PathBuf>,
    /// Add lines to this file
    #[arg(long)]
    record: Option<PathBuf>,
    /// Small sizes, for a few seconds, without instructions
    #[arg(long)]
    short: bool,
}

#[derive(Args)]
pub(crate) struct Single {
    kind: Kind,
    /// Routes of the world
    routes: usize,
    /// Changes to make
    changes: usize,
}

/// Makes changes one after the other, spread over the world.
fn changes(kind: Kind, routes: usize, changes: usize, measured: bool) -> Result<Chain> {
    let folder = tempfile::tempdir()?;
    let world = World::write(folder.path(), routes, false)?;
    let mut chain = Chain::over(&world, measured)?;
    for serial in 1..=changes {
        let number = serial.wrapping_mul(7_919) % routes;
        let change = match kind {
            Kind::Endpoint => world.move_endpoint(number, serial as u64)?,
            Kind::Route => world.change_route(number, serial as u64)?,
        };
        change.make()?;
        let before = chain.sent;
        chain.take()?;
        if chain.sent == before {
            bail!("change {serial} sent nothing");
        }
    }
    Ok(chain)
}

/// What valgrind runs.
pub(crate) fn single(options: &Single) -> Result<()> {
    changes(options.kind, options.routes, options.changes, false).map(drop)
}

pub(crate) fn run(options: &mut Options) -> Result<()> {
    if options.short {
        (options.routes, options.instructions, options.changes) = (vec![50], 0, 20);
    }
    println!("| routes | change | stage | CPU us | allocations |\n| --- | --- | --- | --- | --- |");
    let mut rows = Vec::new();
    for routes in &options.routes {
        for kind in [Kind::Endpoint, Kind::Route] {
            let chain = changes(kind, *routes, options.changes, true)?;
            let count = options.changes as u64;
            let (mut cpu, mut allocations) = (std::time::Duration::ZERO, 0);
            for (stage, cost) in STAGES.iter().zip(chain.costs) {
                let each = cost.allocations / count;
                println!(
                    "| {routes} | {} | {stage} | {} | {each} |",
                    kind.name(),
                    micros(per(cost.cpu, options.changes))
                );
                (cpu, allocations) = (cpu + cost.cpu, allocations + each);
                rows.push(Row::new(*routes, kind.name(), stage, "allocations", each));
            }
            let (cpu, bytes) = (micros(per(cpu, options.changes)), chain.sent / count);
            println!("| {routes} | {} | all, {bytes} bytes sent | {cpu} | {allocations} |", kind.name());
        }
    }
    if options.instructions > 0 {
        rows.extend(instructions(options.instructions, options.changes)?);
    }
    if let Some(path) = &options.check {
        Ledger::read(path)?.check(&rows)?;
    }
    if let Some(path) = &options.record {
        Ledger::record(path, &rows)?;
    }
    Ok(())
}

/// Counts instructions, if there is a valgrind.
fn instructions(routes: usize, changes: usize) -> Result<Vec<Row>> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("instructions are not counted: there is no valgrind");
        return Ok(Vec::new());
    }
    println!("\n| routes | change | stage | instructions |\n| --- | --- | --- | --- |");
    let mut rows = Vec::new();
    for kind in [Kind::Endpoint, Kind::Route] {
        let arguments = [VERB, kind.name(), &routes.to_string(), &changes.to_string()].map(str::to_owned);
        let counts = callgrind::inclusive(&arguments, "stage_")?;
        let mut sum = 0;
        for stage in STAGES {
            let Some((_, count)) = counts.iter().find(|(name, _)| name.contains(&format!("stage_{stage}"))) else {
                bail!("valgrind did not see stage_{stage}: {counts:?}");
            };
            let each = count / changes as u64;
            sum += each;
            println!("| {routes} | {} | {stage} | {each} |", kind.name());
            rows.push(Row::new(routes, kind.name(), stage, "instructions", each));
        }
        println!("| {routes} | {} | all | {sum} |", kind.name());
    }
    Ok(rows)
}
