//! Clocks that are set back and forward while everything runs: no request notices, edits converge, nobody is locked out.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::http_client::{Connection, get};
use e2e::machine::clock::{Clocks, PROGRAMS};
use e2e::process::{Options, until};
use e2e::shop::{Shop, ingress, ingress_tls, tls_secret};
use e2e::traffic::scene::{Scene, scaled};
use http::StatusCode;
use serde_json::Value;

const HOUR: i64 = 3_600;
/// Within this everything works again after a clock was set: a certificate of the controller that is out of its time is replaced
/// within 10 s, and an agent comes again within 10 s.
const WELL: Duration = Duration::from_secs(25);

/// How many agents the controller takes for connected.
async fn connected(scene: &Scene) -> Result<usize> {
    let socket = &scene.up.file().controller_socket;
    // While it is started again, nobody answers.
    let Ok(mut connection) = Connection::open_unix(socket).await else { return Ok(0) };
    let view: Value = serde_json::from_slice(&connection.get("localhost", "/debug/agents").await?.body)?;
    let fleets = view["fleets"].as_array().into_iter().flatten();
    let agents = fleets.filter_map(|fleet| fleet["agents"].as_array()).flatten();
    Ok(agents.filter(|agent| agent["connected"] == true).count())
}

/// An edit with a certificate, which has to be live, and the way back.
async fn edit(scene: &Scene, number: &mut u32) -> Result<()> {
    let host = format!("clock-{number}.example.com");
    scene.shop.write("shop/clock.yaml", &ingress("shop", "clock", &host, "web", 80))?;
    let (_, secret) = tls_secret("shop", "clock-tls", "clock-tls.example.com")?;
    let route = ingress_tls("shop", "clock-tls", "clock-tls.example.com", "web", 80, "clock-tls");
    scene.shop.write("shop/clock-tls.yaml", &format!("{secret}---\n{route}"))?;
    // A file that is emptied first, as some editors do, must be read whatever its time is.
    let path = scene.shop.manifests().join("shop/in-place.yaml");
    std::fs::write(&path, "")?;
    std::fs::write(&path, ingress("shop", "in-place", &format!("in-place-{number}.example.com"), "web", 80))?;
    scene.up.wait()?;
    for host in [host, format!("in-place-{number}.example.com")] {
        let answer = get(scene.up.file().http, &host, "/").await?;
        ensure!(answer.status == StatusCode::OK, "{host} is live: {answer:?}");
    }
    *number += 1;
    Ok(())
}

/// Everything works while clocks are as they are: edits, and every way that a program comes back.
async fn works(scene: &Scene, what: &str, number: &mut u32) -> Result<()> {
    edit(scene, number).await.with_context(|| format!("{what}: an edit"))?;
    for (program, argument) in [("scalws-agent", "replica-0"), ("scalws-controller", ""), ("scalws-agent", "replica-1")]
    {
        scene.traffic.doing(&format!("{what}: {program} {argument} is started again"));
        let began = Instant::now();
        let (victim, _) = scene.kill(program, argument)?;
        scene.is_back(&victim, argument)?;
        let mut seen = 0;
        loop {
            seen = connected(scene).await?.max(seen);
            if seen == 2 {
                break;
            }
            ensure!(
                began.elapsed() < WELL,
                "{what}: {program} {argument} came back, and after {WELL:?} only {seen} agents are connected\n{}",
                scene.up.said()
            );
            // sleep: looks again until both are connected, within the limit.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        edit(scene, number).await.with_context(|| format!("{what}: an edit after {program} {argument} came back"))?;
        eprintln!("{what}: {program} {argument} came back, all connected and live after {:?}", began.elapsed());
    }
    scene.answered(50)
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_that_are_set_while_everything_runs_lock_nobody_out() -> Result<()> {
    let clocks = Clocks::new()?;
    let options = Options { variables: clocks.variables(), ..Options::default() };
    let scene = Scene::start(Shop::copy()?, &options, |_, _| Vec::new())?;
    let mut number = 0;
    let all = PROGRAMS.as_slice();
    let mut steps: Vec<(&str, &[&str], i64)> = vec![
        ("all clocks an hour back", all, -HOUR),
        ("all clocks right again", all, 0),
        ("the controller's clock an hour ahead", &["scalws-controller"], HOUR),
        ("the agents' clock an hour back, the controller's an hour ahead", &["scalws-agent"], -HOUR),
    ];
    if scaled(0, 1) == 1 {
        steps.extend([
            ("all clocks right once more", all, 0),
            ("the agents' clock an hour ahead", &["scalws-agent"], HOUR),
            ("all clocks 30 hours ahead", all, 30 * HOUR),
            ("all clocks right after that", all, 0),
            ("the controller's clock 20 hours back", &["scalws-controller"], -20 * HOUR),
            ("all clocks right at the end", all, 0),
        ]);
    }
    for (what, programs, seconds) in steps {
        scene.traffic.doing(what);
        clocks.set(programs, seconds)?;
        works(&scene, what, &mut number).await?;
    }
    let report = scene.end()?;
    eprintln!("clocks: {report}");
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    assert!(report.closed.is_empty(), "{:#?}", report.closed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_because_of_time_is_said_and_is_well_when_the_clock_is_right() -> Result<()> {
    let clocks = Clocks::new()?;
    let options = Options { variables: clocks.variables(), ..Options::default() };
    let scene = Scene::start(Shop::copy()?, &options, |_, _| Vec::new())?;
    // No certificate of this controller is good for it.
    scene.traffic.doing("the agents' clock is a month ahead");
    clocks.set(&["scalws-agent"], 30 * 24 * HOUR)?;
    let (victim, _) = scene.kill("scalws-agent", "replica-0")?;
    scene.is_back(&victim, "replica-0")?;
    until(WELL, "the agent says that a certificate is out of its time", || {
        Ok(scene.up.said().lines().any(|line| line.contains("replica-0/agent") && line.contains("expired")))
    })
    .with_context(|| scene.up.said())?;
    // The other one keeps its stream, and the proxy of the first goes on.
    scene.answered(200)?;
    scene.traffic.doing("the agents' clock is right");
    clocks.set(&["scalws-agent"], 0)?;
    let mut number = 0;
    edit(&scene, &mut number).await?;

    // The certificates of the agents have ended for it: it says so, and they get new ones.
    scene.traffic.doing("all clocks 30 hours ahead, and another controller");
    clocks.set(&PROGRAMS, 30 * HOUR)?;
    let (victim, _) = scene.kill("scalws-controller", "")?;
    scene.is_back(&victim, "")?;
    edit(&scene, &mut number).await?;
    let said = scene.up.said();
    ensure!(said.contains("refused because of the time"), "the controller does not say whom it refuses\n{said}");
    let report = scene.end()?;
    eprintln!("clocks a month and 30 hours ahead: {report}");
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    assert!(report.closed.is_empty(), "{:#?}", report.closed);
    Ok(())
}
