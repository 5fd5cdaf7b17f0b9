//! The naive part of `bench push`: the whole snapshot for each change, beside what we send.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use e2e::swarm::Swarm;
use e2e::swarm::board::Mark;
use e2e::swarm::controller::Supervisor;
use e2e::swarm::usage;
use e2e::swarm::world::World;

use crate::plot::{Plot, Series};
use crate::push::{LIMIT, median, per, point};
use crate::stats::{Samples, millis};

/// The hidden verb that makes this program the naive server.
pub(crate) const VERB: &str = "naive-server";

pub(crate) fn run(agents: usize, routes: &[usize], changes: usize, plots: Option<&Path>) -> Result<()> {
    println!(
        "\n| {agents} agents, routes | endpoint change p50 ms | bytes down per agent | controller CPU us per change |\n| --- | --- | --- | --- |"
    );
    let mut points = Vec::new();
    for routes in routes {
        let folder = tempfile::tempdir()?;
        let world = World::write(&folder.path().join("manifests"), *routes, false)?;
        let supervisor = Supervisor::new(&folder.path().join("log"))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(VERB).arg(world.folder());
        let controller = supervisor.start_command(command, None)?;
        let mut swarm = Swarm::new(None)?;
        let board = std::sync::Arc::clone(swarm.board());
        board.expect(Mark::Serial(0));
        swarm.grow_naive(&supervisor, agents)?;
        board.wait_passed(agents, LIMIT).context("the first snapshot did not come")?;
        let (mut latency, mut down) = (Samples::default(), Vec::new());
        let cpu = controller.cpu();
        for serial in 1..=changes as u64 {
            board.expect(Mark::Serial(serial));
            let before = swarm.meter().read();
            let began = Instant::now();
            controller.tell(&format!("{} {serial}", serial * 7_919 % *routes as u64))?;
            let last = board.wait_passed(agents, LIMIT).context("a snapshot did not come")?;
            latency.add(last.saturating_duration_since(began));
            down.push((swarm.meter().read().down - before.down) / agents as u64);
        }
        let used = per(controller.cpu().since(&cpu), changes);
        #[allow(clippy::cast_precision_loss, reason = "bytes of a plot")]
        points.push(point(*routes, median(&down) as f64));
        println!("| {routes} | {} | {} | {:.0} |", millis(latency.median()), median(&down), used.as_secs_f64() * 1e6);
    }
    println!("(naive: the whole snapshot for each change; load {})", usage::load());
    if let Some(folder) = plots {
        let series = vec![Series::measured("whole snapshot", points)];
        let (title, x) = ("Naive: bytes to an agent for one endpoint change".to_owned(), "routes".to_owned());
        Plot { title, x, y: "bytes".to_owned(), series }.write(folder, "push-naive")?;
    }
    Ok(())
}
