//! `bench cluster`: controllers at a real API server with many objects. How long until ready, what they hold and ask for, and how
//! long a write takes to its acknowledgement, beside a plain client's watch.

mod load;
mod plain;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use e2e::process::until;
use e2e::replicas::controller::Replica;
use e2e::replicas::crowd::Crowd;
use e2e::replicas::ground::Ground;
use e2e::replicas::world::World;
use e2e::swarm::board::Mark;
use e2e::swarm::usage::{self, Cpu};
use load::Load;
use plain::{Plain, What};

use crate::stats::{Samples, millis};

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(180);
/// Where the Ingress that nobody changes leads.
const STILL: &str = "198.51.100.20";

#[derive(Args)]
pub(crate) struct Options {
    /// Ingresses, each with a Service and an EndpointSlice
    #[arg(long, default_value_t = 10_000)]
    routes: u64,
    /// Endpoints of each
    #[arg(long, default_value_t = 5)]
    endpoints: u64,
    /// Secrets that nothing refers to
    #[arg(long, default_value_t = 1_000)]
    secrets: u64,
    /// Bytes of each
    #[arg(long, default_value_t = 20_000)]
    secret_bytes: usize,
    /// Replicas of the controller
    #[arg(long, default_value_t = 3)]
    replicas: u8,
    /// Agents of the second half
    #[arg(long, default_value_t = 50)]
    agents: usize,
    /// Changes of each kind
    #[arg(long, default_value_t = 300)]
    changes: u64,
    /// How long requests are counted while nothing changes, in seconds
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Small sizes, for a few seconds
    #[arg(long)]
    short: bool,
}

pub(crate) fn run(options: &mut Options) -> Result<()> {
    if options.short {
        (options.routes, options.secrets, options.agents, options.changes, options.seconds) = (20, 5, 3, 5, 2);
    }
    println!("load {}, {} processors", usage::load(), usage::processors());
    let times = ["15s", "10s", "2s"];
    let Some(ground) = Ground::start("bench cluster", options.agents, times)? else { return Ok(()) };
    let client = ground.client.clone();
    let began = Instant::now();
    let world = ground.runtime.block_on(World::create(client, options.routes, options.endpoints, STILL))?;
    ground.runtime.block_on(world.add_secrets(options.secrets, options.secret_bytes))?;
    println!(
        "{} Ingresses with a Service and a slice each, {} endpoints, {} Secrets of {} bytes; written in {:.1} s",
        options.routes,
        options.routes * options.endpoints,
        options.secrets,
        options.secret_bytes,
        began.elapsed().as_secs_f64()
    );

    let replicas = replicas(options, &ground)?;
    let mut load = Vec::new();
    let mut crowd = None;
    for agents in [0, 1, options.agents] {
        // The old crowd first: an agent has one stream.
        drop(crowd.take());
        let joined = Crowd::start(ground.runtime.handle(), options.replicas, &ground.trust, &ground.tokens[..agents])?;
        served(&joined)?;
        load.push((agents, quiet(options, &ground)?));
        if agents == 1 {
            latency(options, &ground, &world, &joined)?;
        }
        crowd = Some(joined);
    }
    println!("\n| agents | watches | requests per minute, by verb and resource |\n| --- | --- | --- |");
    for (agents, (watches, requests)) in load {
        println!("| {agents} | {watches} | {requests} |");
    }
    drop(crowd);
    drop(replicas);
    println!("load {}", usage::load());
    Ok(())
}

/// Starts one replica after the other, each when the one before is ready.
fn replicas(options: &Options, ground: &Ground) -> Result<Vec<Replica>> {
    println!(
        "\n| replica | until ready s | CPU s | RSS MiB (peak) | watches | requests until ready, by verb and resource |\n| --- | --- | --- | --- | --- | --- |"
    );
    let mut replicas = Vec::new();
    for number in 1..=options.replicas {
        let before = Load::read(ground)?;
        let began = Instant::now();
        let replica = Replica::start(ground.runtime.handle(), number, &ground.common)?;
        until(LIMIT, "the controller is ready", || Ok(ground.runtime.block_on(replica.is_ready())))
            .with_context(|| replica.said())?;
        let ready = began.elapsed();
        let (cpu, memory) = (Cpu::of(replica.process()?).total(), usage::memory(replica.process()?)?);
        let since = Load::read(ground)?.since(&before);
        println!(
            "| {number} | {:.2} | {:.2} | {} ({}) | {} | {} |",
            ready.as_secs_f64(),
            cpu.as_secs_f64(),
            memory.resident.div_ceil(1024),
            memory.peak.div_ceil(1024),
            since.watches(),
            since.requests(1.0)
        );
        replicas.push(replica);
    }
    Ok(replicas)
}

/// Waits until every agent is served and has what it is told to have.
fn served(crowd: &Crowd) -> Result<()> {
    let board = crowd.board();
    let all = board.wait_current(1, usize::from(crowd.len() > 0), crowd.len(), LIMIT);
    all.then_some(()).with_context(|| format!("not all agents are current: {}", board.describe()))
}

/// Watches open now, and what was asked for while nothing changed.
fn quiet(options: &Options, ground: &Ground) -> Result<(String, String)> {
    let before = Load::read(ground)?;
    // sleep: the time that is looked at.
    std::thread::sleep(Duration::from_secs(options.seconds));
    let after = Load::read(ground)?;
    #[allow(clippy::cast_precision_loss, reason = "seconds")]
    let minutes = options.seconds as f64 / 60.0;
    Ok((after.watches(), after.since(&before).requests(minutes)))
}

/// From the write at the API server to the acknowledgement of one agent, and to the event at a plain client.
fn latency(options: &Options, ground: &Ground, world: &World, crowd: &Crowd) -> Result<()> {
    println!(
        "\n| change | plain watch p50 / p99 ms | acknowledged p50 / p99 ms | above the plain watch p50 / p99 ms |\n| --- | --- | --- | --- |"
    );
    let board = Arc::clone(crowd.board());
    for (what, number) in [What::Endpoints, What::Path].into_iter().zip(options.replicas + 1..) {
        let mut plain = ground.runtime.block_on(Plain::start(ground, number, what))?;
        let (mut raw, mut acknowledged, mut above) = (Samples::default(), Samples::default(), Samples::default());
        for change in 1..=options.changes {
            let (number, serial) = (change * 7_919 % options.routes, change);
            board.expect(match what {
                What::Endpoints => Mark::Serial(serial),
                What::Path => Mark::Above(board.generation()),
            });
            let began = Instant::now();
            ground.runtime.block_on(async {
                match what {
                    What::Endpoints => world.move_endpoint(number, serial).await,
                    What::Path => world.change_path(number, serial).await,
                }
            })?;
            let answered = board.wait_passed(1, LIMIT).context("not acknowledged")?.saturating_duration_since(began);
            let seen = ground.runtime.block_on(plain.seen(serial))?.saturating_duration_since(began);
            raw.add(seen);
            acknowledged.add(answered);
            above.add(answered.saturating_sub(seen));
        }
        let both = |samples: &Samples| format!("{} / {}", millis(samples.median()), millis(samples.percentile(0.99)));
        println!("| {} | {} | {} | {} |", what.name(), both(&raw), both(&acknowledged), both(&above));
    }
    Ok(())
}
