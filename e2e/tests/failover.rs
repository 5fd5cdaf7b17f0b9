//! Three controllers at a real API server, fifty agents and a proxy under traffic: whatever happens to the leader or to the API
//! server, no request fails, no change is lost, nobody goes back, and current agents get no configuration again.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::cluster::Component;
use e2e::replicas::relay::Way;
use e2e::replicas::{Scene, Size, Times};
use e2e::traffic::scene::scaled;
use rustix::process::Signal;

/// Between two changes of endpoints.
const CHURN: Duration = Duration::from_millis(50);

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The leader is killed.
    Killed,
    /// The leader stops for longer than its lease, and goes on.
    Stopped,
    /// The leader cannot reach the API server.
    CutFromApi,
    /// No agent can reach the leader.
    CutFromAgents,
    /// The leader is asked to end.
    Ended,
    /// All controllers are replaced, one after the other.
    Rolled,
    /// kube-apiserver is killed, and comes back.
    ApiServer,
    /// etcd is killed, and comes back.
    Store,
}

const FAULTS: [Fault; 8] = [
    Fault::Killed,
    Fault::Stopped,
    Fault::CutFromApi,
    Fault::CutFromAgents,
    Fault::Ended,
    Fault::Rolled,
    Fault::ApiServer,
    Fault::Store,
];

impl Fault {
    /// Whether another controller leads afterwards, whatever else goes well.
    fn moves_the_lead(self) -> bool {
        !matches!(self, Fault::ApiServer | Fault::Store)
    }
}

/// Does it to the leader, and gives how long it took until all agents were served by another; heals it afterwards.
fn strike(scene: &mut Scene, fault: Fault, leader: usize, epoch: u64) -> Result<Duration> {
    let began = Instant::now();
    let served = |scene: &Scene| Ok::<_, anyhow::Error>(scene.served_above(epoch)?.duration_since(began));
    match fault {
        Fault::Killed => {
            scene.replicas[leader].kill()?;
            let time = served(scene)?;
            scene.replicas[leader].start_again()?;
            Ok(time)
        }
        Fault::Stopped => {
            scene.replicas[leader].send(Signal::STOP)?;
            let time = served(scene)?;
            scene.replicas[leader].send(Signal::CONT)?;
            Ok(time)
        }
        Fault::CutFromApi => {
            scene.replicas[leader].api.set(Way::Silent);
            let time = served(scene)?;
            scene.replicas[leader].api.set(Way::Open);
            Ok(time)
        }
        Fault::CutFromAgents => {
            scene.replicas[leader].set_agents(Way::Silent);
            let time = served(scene)?;
            scene.replicas[leader].set_agents(Way::Open);
            Ok(time)
        }
        Fault::Ended => {
            scene.replicas[leader].end()?;
            let time = served(scene)?;
            scene.replicas[leader].start_again()?;
            Ok(time)
        }
        Fault::Rolled => {
            let mut longest = Duration::ZERO;
            for at in 0..scene.replicas.len() {
                let (epoch, led) = (scene.epoch(), scene.leader()? == at);
                let began = Instant::now();
                scene.replicas[at].end()?;
                if led {
                    longest = longest.max(scene.served_above(epoch)?.duration_since(began));
                }
                scene.replicas[at].start_again()?;
                scene.all_ready()?;
            }
            Ok(longest)
        }
        Fault::ApiServer | Fault::Store => {
            let component = if fault == Fault::Store { Component::Etcd } else { Component::ApiServer };
            scene.plane.kill(component)?;
            scene.plane.wait_ready()?;
            scene.leader()?;
            scene.served_above(epoch - 1)?;
            Ok(began.elapsed())
        }
    }
}

#[test]
fn the_lead_moves_and_nobody_notices() -> Result<()> {
    let size = Size { agents: 49, routes: 20, times: ["3s", "2s", "500ms"] };
    let Some(mut scene) = Scene::start("three controllers at a real API server, whose leader fails", &size)? else {
        return Ok(());
    };
    let mut serial = 0;
    for fault in FAULTS {
        let (mut times, mut changes) = (Times::default(), 0);
        for round in 0..scaled(5, 50) {
            scene.traffic.doing(&format!("{fault:?}, round {round}"));
            scene.all_ready()?;
            let (leader, epoch) = (scene.leader()?, scene.epoch());
            // Every other time nothing changes, so that agents that are current stay so.
            let quiet = round % 2 == 1;
            let before = scene.transfers();
            let churn = (!quiet).then(|| scene.world.churn(scene.runtime.handle(), CHURN, serial));
            times.add(strike(&mut scene, fault, leader, epoch).with_context(|| format!("{fault:?}, round {round}"))?);
            if let Some(churn) = churn {
                let last = scene.runtime.block_on(churn.end())?;
                changes += last - serial;
                serial = last;
            }
            scene.agree().with_context(|| format!("after {fault:?}, round {round}"))?;
            let sent = scene.transfers() - before;
            ensure!(
                !quiet || sent == 0,
                "{sent} configurations were sent to current agents by {fault:?}, round {round}"
            );
            ensure!(
                !fault.moves_the_lead() || scene.epoch() > epoch,
                "{fault:?}: still epoch {epoch}\n{}",
                scene.said()
            );
        }
        eprintln!(
            "{fault:?}: until all agents were served: {}; {changes} changes meanwhile, none lost",
            times.histogram()
        );
    }
    let answered = scene.end()?;
    eprintln!("{answered} requests answered, none failed");
    Ok(())
}
