//! The controller is killed, stopped and restarted under traffic: no request notices, and current agents get nothing again.

use anyhow::{Context, Result, ensure};
use e2e::http_client::get;
use e2e::process::{Options, send};
use e2e::shop::{Shop, ingress};
use e2e::traffic::scene::{Scene, scaled};
use rustix::process::Signal;

const SENT: &str = "scalws_controller_sent_bytes_total";
const CONFIGURATION: &str = "lane=\"configuration\"";
const MEMBERS: &str = "lane=\"members\"";

/// Nothing that the agents have already came again from this controller, which has just begun.
async fn nothing_again(scene: &Scene, after: &str) -> Result<()> {
    scene.up.wait()?;
    for lane in [CONFIGURATION, MEMBERS] {
        let bytes = scene.controller_metric(SENT, lane).await?;
        ensure!(
            bytes == 0.0,
            "{bytes} bytes of {lane} were sent again to current agents after {after}\n{}",
            scene.up.said()
        );
    }
    let session = scene.controller_metric(SENT, "lane=\"session\"").await?;
    ensure!(session > 0.0, "after {after} the agents are current without a word, so the count counts nothing");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_dies_hangs_or_restarts_is_not_noticed() -> Result<()> {
    let scene = Scene::start(Shop::copy()?, &Options::default(), |_, _| Vec::new())?;
    let first = scene.controller_metric(SENT, CONFIGURATION).await?;
    ensure!(first > 0.0, "the first controller sent a configuration, which is not counted");

    for turn in 0..scaled(3, 50) {
        scene.traffic.doing(&format!("kill -9 of the controller, {turn}"));
        let (victim, _) = scene.kill("scalws-controller", "")?;
        scene.is_back(&victim, "")?;
        nothing_again(&scene, "kill -9").await?;
    }

    scene.traffic.doing("SIGTERM of the controller");
    let victim = scene.up.find("scalws-controller", "")?;
    send(victim.pid, Signal::TERM)?;
    scene.is_back(&victim, "")?;
    nothing_again(&scene, "a restart").await?;

    // It hangs, with the connections of the agents open. What changes meanwhile comes when it goes on.
    scene.traffic.doing("SIGSTOP of the controller");
    let stopped = scene.up.find("scalws-controller", "")?;
    send(stopped.pid, Signal::STOP)?;
    scene.shop.write("shop/new.yaml", &ingress("shop", "new", "new.example.com", "web", 80))?;
    // 200 a second.
    scene.answered(usize::try_from(scaled(400, 12_000))?)?;
    send(stopped.pid, Signal::CONT)?;
    scene.traffic.doing("after SIGSTOP");
    scene.up.wait()?;
    let service = get(scene.up.file().http, "new.example.com", "/").await?.echo("service");
    assert_eq!(service, "shop/web", "what changed while the controller was stopped is live after it");
    let change = scene.controller_metric(SENT, CONFIGURATION).await?;
    eprintln!("one Ingress after the stop: {change} bytes of configuration to two agents; the whole was {first}");
    ensure!(change < first / 2.0, "{change} bytes for one Ingress; the whole configuration was {first}");
    ensure!(scene.up.find("scalws-controller", "")? == stopped, "it was started again instead of going on");

    // Killed while an agent is away: who comes later is current, too.
    scene.traffic.doing("kill -9 of the controller and of an agent");
    let (agent, _) = scene.kill("scalws-agent", "replica-1")?;
    let (victim, _) = scene.kill("scalws-controller", "")?;
    scene.is_back(&victim, "")?;
    scene.is_back(&agent, "replica-1")?;
    nothing_again(&scene, "the death of both").await?;

    let report = scene.end().context("the end")?;
    eprintln!("{report}");
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    assert!(report.closed.is_empty(), "{:#?}", report.closed);
    Ok(())
}
