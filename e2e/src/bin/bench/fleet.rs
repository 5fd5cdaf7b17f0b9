//! `bench fleet`: a controller that died with its fleet connected, a cold start, and a proxy that comes back.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use e2e::http_client::Connection;
use e2e::process;
use e2e::swarm::controller::Supervisor;
use e2e::swarm::world::World;
use e2e::swarm::{Swarm, usage};
use rustix::process::Signal;

use crate::handshake;
use crate::plot::{Plot, Series};
use crate::push::{LIMIT, System, ms, per, point};
use crate::stats::{Samples, millis};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The controller is killed with all agents connected
    Storm,
    /// From the start of a controller until every agent runs all of it
    Cold,
    /// Agent and proxy are killed and come back
    Replay,
}

#[derive(Args)]
pub(crate) struct Options {
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_value = "storm,cold,replay")]
    parts: Vec<Part>,
    /// Numbers of agents that lose their controller
    #[arg(long, value_delimiter = ',', default_value = "1000,5000")]
    agents: Vec<usize>,
    /// Routes of the world in the storm
    #[arg(long, default_value_t = 100)]
    world: usize,
    /// Numbers of Ingresses of a cold start
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,50000")]
    cold: Vec<usize>,
    /// Agents of a cold start
    #[arg(long, default_value_t = 2)]
    cold_agents: usize,
    /// Numbers of Ingresses of the replay
    #[arg(long, value_delimiter = ',', default_value = "50000")]
    replay: Vec<usize>,
    /// Interleaved rounds
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
        (options.agents, options.world, options.cold, options.replay) = (vec![20], 20, vec![50], vec![50]);
        options.rounds = 1;
    }
    usage::raise_descriptors();
    println!("load {}, {} processors", usage::load(), usage::processors());
    for part in options.parts.clone() {
        match part {
            Part::Storm => storm(options)?,
            Part::Cold => cold(options)?,
            Part::Replay => replay(options)?,
        }
    }
    println!("load {}", usage::load());
    Ok(())
}

/// What one storm cost.
#[derive(Default)]
struct Storm {
    agents: usize,
    listening: Samples,
    all: Samples,
    cpu: Samples,
    payload: u64,
    messages: u64,
    transfers: u64,
}

fn storm(options: &Options) -> Result<()> {
    let mut systems = Vec::new();
    for agents in &options.agents {
        let system = System::start(options.world, false, *agents, false)?;
        let storm = Storm { agents: *agents, ..Storm::default() };
        systems.push((Some(system), storm, 1));
        println!("{agents} agents are connected (load {})", usage::load());
    }
    let floor = handshake::floor(&Supervisor::new(Path::new("/dev/null"))?.authority()?, 300)?;
    for round in 0..options.rounds {
        for (slot, storm, epoch) in &mut systems {
            let Some(System { world, swarm, controller, supervisor, serial, folder }) = slot.take() else {
                bail!("a system is lost")
            };
            *epoch += 1;
            let alone = alone(&world)?;
            let before = swarm.board().counts();
            controller.kill();
            let controller = supervisor.start(world.folder(), &folder.path().join("state"), None)?;
            let listening = controller.began().elapsed();
            swarm.settled(*epoch, world.routes(), LIMIT)?;
            let cpu = controller.cpu().total().saturating_sub(alone);
            let all = swarm.board().reached_at().context("nobody came back")?;
            storm.listening.add(listening);
            storm.all.add(all.saturating_duration_since(controller.began()));
            storm.cpu.add(per(cpu, storm.agents));
            let after = swarm.board().counts();
            storm.payload += after.payload - before.payload;
            storm.messages += after.members - before.members;
            storm.transfers += after.transfers - before.transfers;
            *slot = Some(System { world, swarm, controller, supervisor, serial, folder });
        }
        println!("round {} of {} done (load {})", round + 1, options.rounds, usage::load());
    }
    println!(
        "\n| agents | controller listens after ms | all current after ms | handshake floor ms | times the floor | controller CPU us per agent | handshake CPU us (server, client) | configuration bytes | transfers | member messages |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    let (mut took, mut floors) = (Vec::new(), Vec::new());
    for (_, storm, _) in &systems {
        let least = floor.time(storm.agents, usage::processors());
        let all = storm.all.median();
        took.push(point(storm.agents, ms(all)));
        floors.push(point(storm.agents, ms(least)));
        println!(
            "| {} | {} | {} | {} | {:.2} | {:.0} | {:.0}, {:.0} | {} | {} | {} |",
            storm.agents,
            millis(storm.listening.median()),
            millis(all),
            millis(least),
            all.as_secs_f64() / least.as_secs_f64(),
            storm.cpu.median().as_secs_f64() * 1e6,
            floor.server.as_secs_f64() * 1e6,
            floor.client.as_secs_f64() * 1e6,
            storm.payload,
            storm.transfers,
            storm.messages
        );
    }
    if let Some(folder) = &options.plots {
        let series = vec![Series::measured("all current", took), Series::measured("handshakes alone", floors)];
        let title = "After the death of a controller".to_owned();
        Plot { title, x: "agents".to_owned(), y: "ms".to_owned(), series }.write(folder, "fleet-storm")?;
    }
    Ok(())
}

/// The CPU time of a controller that starts on this world and that nobody connects to.
fn alone(world: &World) -> Result<Duration> {
    let folder = tempfile::tempdir()?;
    let supervisor = Supervisor::new(&folder.path().join("log"))?;
    let controller = supervisor.start(world.folder(), &folder.path().join("state"), None)?;
    let mut seen = controller.cpu().total();
    loop {
        // sleep: a start has ended when nothing is done any more.
        std::thread::sleep(Duration::from_millis(300));
        let now = controller.cpu().total();
        if now.saturating_sub(seen) < Duration::from_millis(2) {
            return Ok(now);
        }
        seen = now;
    }
}

fn cold(options: &Options) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut worlds = Vec::new();
    for size in &options.cold {
        let world = World::write(&folder.path().join(size.to_string()), *size, false)?;
        worlds.push((world, Samples::default(), Samples::default(), Vec::new()));
    }
    for round in 0..options.rounds {
        for (world, took, cpu, peak) in &mut worlds {
            let state = tempfile::tempdir()?;
            let supervisor = Supervisor::new(&state.path().join("log"))?;
            let controller = supervisor.start(world.folder(), &state.path().join("state"), None)?;
            let mut swarm = Swarm::new(None)?;
            swarm.grow(&supervisor, options.cold_agents)?;
            swarm.settled(1, world.routes(), LIMIT)?;
            let all = swarm.board().reached_at().context("nobody came")?;
            took.add(all.saturating_duration_since(controller.began()));
            cpu.add(controller.cpu().total());
            peak.push(controller.memory()?.peak);
        }
        println!("cold start: round {} of {} done (load {})", round + 1, options.rounds, usage::load());
    }
    println!(
        "\n| Ingresses | agents | every agent current after s | controller CPU s | controller peak MiB |\n| --- | --- | --- | --- | --- |"
    );
    let mut points = Vec::new();
    for (world, took, cpu, peak) in &worlds {
        let all = took.median();
        points.push(point(world.routes(), all.as_secs_f64()));
        println!(
            "| {} | {} | {:.2} | {:.2} | {} |",
            world.routes(),
            options.cold_agents,
            all.as_secs_f64(),
            cpu.median().as_secs_f64(),
            crate::push::median(peak) / 1024
        );
    }
    if let Some(folder) = &options.plots {
        let aims = [(1_000, 0.2), (10_000, 0.7), (50_000, 3.0)].map(|(size, s)| point(size, s)).to_vec();
        let series = vec![Series::measured("every agent current", points), Series::aim("aim", aims)];
        let title = "From the start of a controller until every agent is current".to_owned();
        Plot { title, x: "Ingresses".to_owned(), y: "s".to_owned(), series }.write(folder, "fleet-cold")?;
    }
    Ok(())
}

/// A route that needs no server behind it: its Service has no endpoints, which is answered at once.
const PROBE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: probe}\nspec:\n  ports:\n  - {port: 80, targetPort: 8080}\n---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: probe}\nspec:\n  ingressClassName: nginx\n  rules:\n  - host: probe.example.com\n    http:\n      paths:\n      - path: /\n        pathType: Prefix\n        backend: {service: {name: probe, port: {number: 80}}}\n";
const PROBE_HOST: &str = "probe.example.com";
/// What an agent logs once a controller serves it.
const SERVED: &str = "a controller serves this agent";

/// Starts the shipped programs over a world with a probe in it, with one proxy, and waits until all is live.
pub(crate) fn up(folder: &Path, routes: usize) -> Result<process::Up> {
    let world = World::write(&folder.join("manifests"), routes, false)?;
    std::fs::write(world.folder().join("probe.yaml"), PROBE)?;
    let options = process::Options { replicas: 1, more: Vec::new(), ..process::Options::default() };
    let up = process::Up::start(world.folder(), &folder.join("state"), &options)?;
    let output = up.wait_output("180s")?;
    if !output.status.success() {
        bail!("{}", process::stderr(&output));
    }
    Ok(up)
}

fn replay(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("\n| Ingresses | first right answer after s | agent served again after s |\n| --- | --- | --- |");
    for size in &options.replay {
        let folder = tempfile::tempdir()?;
        let up = up(folder.path(), *size)?;
        let (mut answers, mut agents) = (Samples::default(), Samples::default());
        let right = runtime.block_on(answer(&up))?;
        for _ in 0..options.rounds {
            let served = up.said().matches(SERVED).count();
            let began = Instant::now();
            for program in ["scalwsd", "scalws-agent"] {
                process::send(up.find(program, "")?.pid, Signal::KILL)?;
            }
            process::until(LIMIT, "the proxy answers as before", || {
                // A connection that it was killed on is no answer.
                Ok(runtime.block_on(answer(&up)).is_ok_and(|now| now == right))
            })?;
            answers.add(began.elapsed());
            process::until(LIMIT, "the agent is served again", || Ok(up.said().matches(SERVED).count() > served))?;
            agents.add(began.elapsed());
            // sleep: a child that lives for a second is started at once the next time.
            std::thread::sleep(Duration::from_secs(2));
        }
        println!("| {size} | {:.2} | {:.2} |", answers.median().as_secs_f64(), agents.median().as_secs_f64());
        up.stop()?;
    }
    Ok(())
}

/// The status of a host that is known and of one that is not.
async fn answer(up: &process::Up) -> Result<[u16; 2]> {
    let mut connection = Connection::open(up.file().http).await?;
    let known = connection.get(PROBE_HOST, "/").await?.status.as_u16();
    let unknown = connection.get("nobody.example.com", "/").await?.status.as_u16();
    if known == unknown {
        bail!("the probe is answered like a host that is not known");
    }
    Ok([known, unknown])
}
