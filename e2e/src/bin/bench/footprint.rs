//! `bench footprint`: memory of controller, agent and proxy, and CPU while little happens.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, ValueEnum};
use e2e::swarm::usage::{self, Cpu};

use crate::fleet;
use crate::plot::{Plot, Series};
use crate::push::{LIMIT, System, median, point};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The controller by number of routes
    Controller,
    /// Each connected agent
    Agents,
    /// A real proxy and its agent by number of routes
    Proxy,
    /// CPU time while nothing and while little happens
    Idle,
}

#[derive(Args)]
pub(crate) struct Options {
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_value = "controller,agents,proxy,idle")]
    parts: Vec<Part>,
    /// Numbers of routes of the controller's part
    #[arg(long, value_delimiter = ',', default_value = "1000,5000,50000")]
    routes: Vec<usize>,
    /// Numbers of connected agents
    #[arg(long, value_delimiter = ',', default_value = "1000,5000")]
    agents: Vec<usize>,
    /// Numbers of routes of the proxy's part
    #[arg(long, value_delimiter = ',', default_value = "5000,10000,50000")]
    proxy: Vec<usize>,
    /// Routes of the idle part
    #[arg(long, default_value_t = 5_000)]
    idle: usize,
    /// How long the idle part looks, in seconds, twice in each round
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Small sizes, for a few seconds
    #[arg(long)]
    short: bool,
    /// Where the plots go; none are drawn without it
    #[arg(long)]
    plots: Option<PathBuf>,
}

pub(crate) fn run(options: &mut Options) -> Result<()> {
    if options.short {
        (options.routes, options.agents, options.proxy, options.idle) = (vec![50], vec![20], vec![50], 50);
        (options.seconds, options.rounds) = (1, 1);
    }
    usage::raise_descriptors();
    println!("load {}, {} processors", usage::load(), usage::processors());
    for part in options.parts.clone() {
        match part {
            Part::Controller => controller(options)?,
            Part::Agents => agents(options)?,
            Part::Proxy => proxy(options)?,
            Part::Idle => idle(options)?,
        }
    }
    println!("load {}", usage::load());
    Ok(())
}

/// Memory comes to rest a moment after the last message: buffers go, the status is written.
const REST: Duration = Duration::from_secs(2);

fn rest() {
    // sleep: rest is what is waited for.
    std::thread::sleep(REST);
}

fn controller(options: &Options) -> Result<()> {
    println!(
        "\n| routes | endpoints | controller RSS MiB | peak MiB | after 300 changes MiB |\n| --- | --- | --- | --- | --- |"
    );
    let mut points = Vec::new();
    for routes in &options.routes {
        let (mut resident, mut peak, mut later) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            let mut system = System::start(*routes, false, 1, false)?;
            rest();
            let memory = system.controller.memory()?;
            resident.push(memory.resident);
            peak.push(memory.peak);
            system.mixed(300)?;
            rest();
            later.push(system.controller.memory()?.resident);
        }
        let mib = |values: &[u64]| median(values).div_ceil(1024);
        #[allow(clippy::cast_precision_loss, reason = "MiB of a plot")]
        points.push(point(*routes, mib(&resident) as f64));
        println!("| {routes} | {} | {} | {} | {} |", 2 * routes, mib(&resident), mib(&peak), mib(&later));
    }
    if let Some(folder) = &options.plots {
        let series =
            vec![Series::measured("controller", points), Series::aim("aim", vec![(5_000.0, 40.0), (50_000.0, 300.0)])];
        let title = "Memory of a controller".to_owned();
        Plot { title, x: "routes".to_owned(), y: "MiB".to_owned(), series }.write(folder, "footprint-controller")?;
    }
    Ok(())
}

fn agents(options: &Options) -> Result<()> {
    println!("\n| agents | controller RSS MiB | KiB per agent |\n| --- | --- | --- |");
    for agents in &options.agents {
        let (mut resident, mut each) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            let mut system = System::start(100, false, 1, false)?;
            rest();
            let before = system.controller.memory()?.resident;
            system.swarm.grow(&system.supervisor, agents + 1)?;
            system.swarm.settled(1, 100, LIMIT)?;
            rest();
            let after = system.controller.memory()?.resident;
            resident.push(after);
            each.push(after.saturating_sub(before) / *agents as u64);
        }
        println!("| {agents} | {} | {} |", median(&resident).div_ceil(1024), median(&each));
    }
    Ok(())
}

fn proxy(options: &Options) -> Result<()> {
    println!(
        "\n| routes | scalwsd RSS MiB (peak) | agent RSS MiB (peak) | both MiB | controller RSS MiB |\n| --- | --- | --- | --- | --- |"
    );
    let mut points = Vec::new();
    for routes in &options.proxy {
        let mut columns = [const { Vec::new() }; 5];
        for _ in 0..options.rounds {
            let folder = tempfile::tempdir()?;
            let up = fleet::up(folder.path(), *routes)?;
            rest();
            let memory = |program: &str| {
                let pid = up.find(program, "")?.pid;
                usage::memory(u32::try_from(pid)?)
            };
            let (scalwsd, agent, controller) =
                (memory("scalwsd")?, memory("scalws-agent")?, memory("scalws-controller")?);
            let figures = [scalwsd.resident, scalwsd.peak, agent.resident, agent.peak, controller.resident];
            columns.iter_mut().zip(figures).for_each(|(column, figure)| column.push(figure.div_ceil(1024)));
            up.stop()?;
        }
        let [scalwsd, scalwsd_peak, agent, agent_peak, controller] = columns.map(|column| median(&column));
        #[allow(clippy::cast_precision_loss, reason = "MiB of a plot")]
        points.push(point(*routes, (scalwsd + agent) as f64));
        println!(
            "| {routes} | {scalwsd} ({scalwsd_peak}) | {agent} ({agent_peak}) | {} | {controller} |",
            scalwsd + agent
        );
    }
    if let Some(folder) = &options.plots {
        let aims = vec![(5_000.0, 25.0), (10_000.0, 45.0), (50_000.0, 200.0)];
        let series = vec![Series::measured("proxy and agent", points), Series::aim("aim", aims)];
        let title = "Memory of a proxy with its agent".to_owned();
        Plot { title, x: "routes".to_owned(), y: "MiB".to_owned(), series }.write(folder, "footprint-proxy")?;
    }
    Ok(())
}

/// Changes per second while little happens, of which every third is a route's.
const STEADY: f64 = 1.5;

fn idle(options: &Options) -> Result<()> {
    let mut system = System::start(options.idle, false, 1, false)?;
    rest();
    let (mut still, mut steady) = (Vec::new(), Vec::new());
    let look = Duration::from_secs(options.seconds);
    for _ in 0..options.rounds {
        let (cpu, began) = (system.controller.cpu(), Instant::now());
        // sleep: the time that is looked at.
        std::thread::sleep(look);
        still.push(micro_cores(&cpu, system.controller.pid(), began));
        let (cpu, began) = (system.controller.cpu(), Instant::now());
        while began.elapsed() < look {
            system.mixed(1)?;
            // sleep: the rate is what is asked for.
            std::thread::sleep(Duration::from_secs_f64(1.0 / STEADY));
        }
        steady.push(micro_cores(&cpu, system.controller.pid(), began));
    }
    println!("\n| routes | idle cores | cores at {STEADY} changes/s |\n| --- | --- | --- |");
    let cores = |values: &[u64]| {
        #[allow(clippy::cast_precision_loss, reason = "millionths of a core")]
        let cores = median(values) as f64 / 1e6;
        cores
    };
    println!("| {} | {:.4} | {:.4} |", options.idle, cores(&still), cores(&steady));
    Ok(())
}

/// Millionths of a core since an earlier look.
fn micro_cores(before: &Cpu, pid: u32, began: Instant) -> u64 {
    let share = Cpu::of(pid).since(before).as_secs_f64() / began.elapsed().as_secs_f64();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a few cores")]
    let millionths = (share * 1e6) as u64;
    millionths
}
