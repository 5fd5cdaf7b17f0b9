//! `bench push`: what one change costs with few and many agents, and few and many routes, over a real controller.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use e2e::swarm::Swarm;
use e2e::swarm::board::Mark;
use e2e::swarm::controller::{Controller, Supervisor};
use e2e::swarm::usage;
use e2e::swarm::world::{Change, World};
use tempfile::TempDir;

use crate::plot::{Plot, Series};
use crate::stats::{Samples, millis};
use crate::{push_churn, push_naive};

/// No change takes so long unless it is lost.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The parts of this bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// An endpoint change and a route change, by number of agents
    Agents,
    /// The same by number of routes, with the controller's CPU time
    Routes,
    /// Member changes at a fixed rate
    Churn,
    /// The whole snapshot for each change, beside ours
    Naive,
}

#[derive(Args)]
pub(crate) struct Options {
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_value = "agents,routes,churn,naive")]
    parts: Vec<Part>,
    /// Numbers of agents
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000,5000")]
    agents: Vec<usize>,
    /// Routes in the world of the agents' part
    #[arg(long, default_value_t = 100)]
    world: usize,
    /// Numbers of routes
    #[arg(long, value_delimiter = ',', default_value = "100,5000,10000,50000")]
    routes: Vec<usize>,
    /// Routes on the world with one host
    #[arg(long, default_value_t = 10_000)]
    one_host: usize,
    /// Interleaved rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Changes of each kind in a round
    #[arg(long, default_value_t = 40)]
    changes: usize,
    #[command(flatten)]
    churn: push_churn::Options,
    /// Agents of the naive part
    #[arg(long, default_value_t = 10)]
    naive_agents: usize,
    /// Numbers of routes of the naive part
    #[arg(long, value_delimiter = ',', default_value = "100,1000,5000")]
    naive_routes: Vec<usize>,
    /// Small sizes, for a few seconds
    #[arg(long)]
    short: bool,
    /// The controller on the first processor, the agents on the second
    #[arg(long)]
    pin: bool,
    /// Where the plots go; none are drawn without it
    #[arg(long)]
    plots: Option<PathBuf>,
}

pub(crate) fn run(options: &mut Options) -> Result<()> {
    if options.short {
        options.agents = vec![1, 10, 50];
        options.routes = vec![20, 100];
        (options.one_host, options.world, options.rounds, options.changes) = (50, 20, 2, 5);
        options.churn.shorten();
        (options.naive_agents, options.naive_routes) = (3, vec![20, 50]);
    }
    let descriptors = usage::raise_descriptors();
    println!("load {}, {} processors, {descriptors} descriptors", usage::load(), usage::processors());
    for part in options.parts.clone() {
        match part {
            Part::Agents => agents(options)?,
            Part::Routes => routes(options)?,
            Part::Churn => push_churn::run(&options.churn, options.pin, options.plots.as_deref())?,
            Part::Naive => {
                push_naive::run(
                    options.naive_agents,
                    &options.naive_routes,
                    options.changes,
                    options.plots.as_deref(),
                )?;
            }
        }
    }
    println!("load {}", usage::load());
    Ok(())
}

/// One controller over one folder with one swarm.
pub(crate) struct System {
    pub(crate) world: World,
    pub(crate) swarm: Swarm,
    pub(crate) controller: Controller,
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) serial: u64,
    pub(crate) folder: TempDir,
}

/// What one kind of change cost.
#[derive(Default)]
struct Cost {
    /// Every change.
    latency: Samples,
    /// Bytes per agent, down and up, of every change.
    down: Vec<u64>,
    up: Vec<u64>,
    /// Controller CPU per change, the mean of each round.
    cpu: Samples,
}

impl System {
    /// Starts it and waits until every agent is current.
    pub(crate) fn start(routes: usize, one_host: bool, agents: usize, pin: bool) -> Result<System> {
        let folder = tempfile::tempdir()?;
        let world = World::write(&folder.path().join("manifests"), routes, one_host)?;
        let supervisor = Supervisor::new(&folder.path().join("log"))?;
        let controller =
            supervisor.start(world.folder(), &folder.path().join("state"), pin.then_some(0)).context("controller")?;
        let mut swarm = Swarm::new(pin.then_some(1))?;
        swarm.grow(&supervisor, agents)?;
        swarm.settled(1, routes, LIMIT)?;
        Ok(System { world, swarm, controller, supervisor, serial: 0, folder })
    }

    /// Makes one change and waits for the last acknowledgement.
    fn change(&mut self, cost: &mut Cost, mark: Mark, change: Change) -> Result<()> {
        let (board, agents) = (Arc::clone(self.swarm.board()), self.swarm.len());
        board.expect(mark);
        let before = self.swarm.meter().read();
        let began = Instant::now();
        change.make()?;
        let last = board.wait_passed(agents, LIMIT);
        let last = last.with_context(|| format!("{mark:?} did not reach all {agents} agents: {}", board.describe()))?;
        let after = self.swarm.meter().read();
        cost.latency.add(last.saturating_duration_since(began));
        cost.down.push((after.down - before.down) / agents as u64);
        cost.up.push((after.up - before.up) / agents as u64);
        Ok(())
    }

    /// Which route the next change is about: spread over the world.
    fn spread(&mut self) -> usize {
        self.serial += 1;
        usize::try_from(self.serial).unwrap_or(0).wrapping_mul(7_919) % self.world.routes()
    }

    /// So many changes, every third of a route, one after the other.
    pub(crate) fn mixed(&mut self, changes: usize) -> Result<()> {
        let mut cost = Cost::default();
        for _ in 0..changes {
            if (self.serial + 1).is_multiple_of(3) {
                self.route_changes(&mut cost, 1)?;
            } else {
                self.endpoints(&mut cost, 1)?;
            }
        }
        Ok(())
    }

    fn endpoints(&mut self, cost: &mut Cost, changes: usize) -> Result<()> {
        let cpu = self.controller.cpu();
        for _ in 0..changes {
            let number = self.spread();
            let change = self.world.move_endpoint(number, self.serial)?;
            self.change(cost, Mark::Serial(self.serial), change)?;
        }
        cost.cpu.add(per(self.controller.cpu().since(&cpu), changes));
        Ok(())
    }

    fn route_changes(&mut self, cost: &mut Cost, changes: usize) -> Result<()> {
        let cpu = self.controller.cpu();
        for _ in 0..changes {
            let number = self.spread();
            let above = self.swarm.board().generation();
            let change = self.world.change_route(number, self.serial)?;
            self.change(cost, Mark::Above(above), change)?;
        }
        cost.cpu.add(per(self.controller.cpu().since(&cpu), changes));
        Ok(())
    }
}

/// A share of a time.
pub(crate) fn per(time: Duration, count: usize) -> Duration {
    time / u32::try_from(count.max(1)).unwrap_or(u32::MAX)
}

pub(crate) fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// For a plot.
#[allow(clippy::cast_precision_loss, reason = "sizes and milliseconds of a plot")]
pub(crate) fn point(x: usize, y: f64) -> (f64, f64) {
    (x as f64, y)
}

pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// What the agents' part aims at: milliseconds in the median, by agents.
const AIMS: [(usize, f64); 5] = [(1, 0.3), (10, 0.5), (100, 1.2), (1_000, 10.0), (5_000, 60.0)];

fn agents(options: &Options) -> Result<()> {
    let mut systems = Vec::new();
    for count in &options.agents {
        systems.push((System::start(options.world, false, *count, options.pin)?, Cost::default(), Cost::default()));
        println!("{count} agents are connected (load {})", usage::load());
    }
    for round in 0..options.rounds {
        for (system, endpoint, route) in &mut systems {
            system.endpoints(endpoint, options.changes)?;
            system.route_changes(route, options.changes)?;
        }
        println!("round {} of {} done (load {})", round + 1, options.rounds, usage::load());
    }
    println!(
        "\n| agents | change | p50 ms | p90 ms | p99 ms | bytes down | bytes up | controller CPU us per change | per agent |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    let mut lines = [const { Vec::new() }; 4];
    for (system, endpoint, route) in &systems {
        let count = system.swarm.len();
        for (index, (kind, cost)) in [("endpoint", endpoint), ("route", route)].into_iter().enumerate() {
            let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| cost.latency.percentile(share));
            lines[2 * index].push(point(count, ms(p50)));
            lines[2 * index + 1].push(point(count, ms(p99)));
            let cpu = cost.cpu.median();
            println!(
                "| {count} | {kind} | {} | {} | {} | {} | {} | {:.0} | {:.1} |",
                millis(p50),
                millis(p90),
                millis(p99),
                median(&cost.down),
                median(&cost.up),
                cpu.as_secs_f64() * 1e6,
                per(cpu, count).as_secs_f64() * 1e6
            );
        }
    }
    if let Some(folder) = &options.plots {
        let names = ["endpoint p50", "endpoint p99", "route p50", "route p99"];
        let mut series: Vec<Series> =
            names.into_iter().zip(lines).map(|(name, points)| Series::measured(name, points)).collect();
        series.push(Series::aim("aim (endpoint p50)", AIMS.iter().map(|(count, ms)| point(*count, *ms)).collect()));
        let title = "From the rename of a manifest to the last acknowledgement".to_owned();
        Plot { title, x: "agents".to_owned(), y: "ms".to_owned(), series }.write(folder, "push-agents")?;
    }
    Ok(())
}

fn routes(options: &Options) -> Result<()> {
    let mut systems = Vec::new();
    let worlds = options.routes.iter().map(|routes| (*routes, false)).chain([(options.one_host, true)]);
    for (routes, one_host) in worlds {
        let system = System::start(routes, one_host, 1, options.pin)?;
        systems.push((one_host, system, Cost::default(), Cost::default()));
        println!("{routes} routes are live (load {})", usage::load());
    }
    for round in 0..options.rounds {
        for (_, system, endpoint, route) in &mut systems {
            system.endpoints(endpoint, options.changes)?;
            system.route_changes(route, options.changes)?;
        }
        println!("round {} of {} done (load {})", round + 1, options.rounds, usage::load());
    }
    println!(
        "\n| routes | change | bytes down | bytes up | controller CPU us per change | p50 ms | p99 ms |\n| --- | --- | --- | --- | --- | --- | --- |"
    );
    let (mut bytes, mut cpu) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for (one_host, system, endpoint, route) in &systems {
        let name = format!("{}{}", system.world.routes(), if *one_host { " on one host" } else { "" });
        for (index, (kind, cost)) in [("endpoint", endpoint), ("route", route)].into_iter().enumerate() {
            let used = cost.cpu.median().as_secs_f64() * 1e6;
            if !one_host {
                #[allow(clippy::cast_precision_loss, reason = "a few hundred bytes")]
                bytes[index].push(point(system.world.routes(), median(&cost.down) as f64));
                cpu[index].push(point(system.world.routes(), used));
            }
            let [p50, p99] = [0.5, 0.99].map(|share| millis(cost.latency.percentile(share)));
            println!("| {name} | {kind} | {} | {} | {used:.0} | {p50} | {p99} |", median(&cost.down), median(&cost.up));
        }
    }
    if let Some(folder) = &options.plots {
        let x = "routes".to_owned();
        let named = |points: [Vec<(f64, f64)>; 2]| {
            ["endpoint change", "route change"]
                .into_iter()
                .zip(points)
                .map(|(name, points)| Series::measured(name, points))
                .collect()
        };
        let (title, y) = ("Bytes to an agent for one change".to_owned(), "bytes".to_owned());
        Plot { title, x: x.clone(), y, series: named(bytes) }.write(folder, "push-bytes")?;
        let (title, y) = ("Controller CPU time for one change".to_owned(), "microseconds".to_owned());
        Plot { title, x, y, series: named(cpu) }.write(folder, "push-cpu")?;
    }
    Ok(())
}
