//! `scalwsd` is killed, and kills itself while it loads, under traffic: connections wait for the next one and are served.

use anyhow::{Context, Result, ensure};
use e2e::http_client::get;
use e2e::process::{Options, SOON, send, until};
use e2e::shop::{Shop, ingress};
use e2e::traffic::Report;
use e2e::traffic::deaths::{Death, Deaths};
use e2e::traffic::scene::{Scene, scaled};
use http::StatusCode;
use rustix::process::Signal;

/// Every failed request was under way when a proxy died, on a connection of that proxy; says how many each death took.
fn explained(report: &Report, deaths: &[Death]) {
    let rest = report.unexplained(|failed| deaths.iter().any(|death| death.explains(failed)));
    assert!(rest.is_empty(), "failed, and was not under way at a death ({deaths:?}): {rest:#?}");
    let cut = |death: &Death| report.failed.iter().filter(|failed| death.explains(failed)).count();
    let most = deaths.iter().map(cut).max().unwrap_or_default();
    let cut = report.failed.len();
    eprintln!("{report}; {} deaths cut {cut} requests that were under way, at most {most} at one", deaths.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_wait_for_a_killed_proxy_and_it_comes_back_without_the_controller() -> Result<()> {
    let options = Options { replicas: 1, ..Options::default() };
    let scene = Scene::start(Shop::copy()?, &options, |_, _| Vec::new())?;
    let deaths = Deaths::watch(scene.up.file().pid, "scalwsd", scene.traffic.began());
    let mut killed = 0;
    for turn in 0..scaled(5, 100) {
        scene.traffic.doing(&format!("kill -9 of scalwsd, {turn}"));
        let (victim, _) = scene.kill("scalwsd", "/r0")?;
        killed += 1;
        // It waits in the queue of the listening socket, which the supervisor holds.
        let service = get(scene.up.file().http, "assets.example.com", "/").await?.echo("service");
        assert_eq!(service, "shop/assets");
        scene.is_back(&victim, "/r0")?;
        scene.up.wait()?;
        // What waited is served before the next one dies. The supervisor pauses for up to 2 s after many deaths in a row,
        // and 200 requests a second come meanwhile.
        scene.answered(scaled(60, 460) as usize)?;
    }

    // The members change, and then nobody can tell the next one: it reads what was accepted last.
    scene.shop.write("shop/new.yaml", &ingress("shop", "web", "web.example.com", "web", 80))?;
    let web = scene.shop.read("shop/web.yaml")?;
    scene.shop.write("shop/web.yaml", &web.replacen("{ready: true}", "{ready: false}", 1))?;
    scene.up.wait()?;
    let quiet = [scene.up.find("scalws-controller", "")?, scene.up.find("scalws-agent", "replica-0")?];
    for process in &quiet {
        send(process.pid, Signal::STOP)?;
    }
    scene.traffic.doing("kill -9 of scalwsd while controller and agent are stopped");
    scene.kill("scalwsd", "/r0")?;
    killed += 1;
    for _ in 0..8 {
        let answer = get(scene.up.file().http, "assets.example.com", "/").await?;
        assert_eq!(answer.echo("service"), "shop/assets", "the last accepted state is served without the controller");
        let answer = get(scene.up.file().http, "web.example.com", "/").await?;
        assert_eq!(answer.echo("pod"), "web-b", "the member that was not ready got a request after the death");
    }
    scene.answered(200)?;
    for process in &quiet {
        send(process.pid, Signal::CONT)?;
    }
    scene.up.wait()?;
    let deaths = deaths.stop()?;
    let report = scene.end()?;
    ensure!(deaths.len() == killed, "{killed} were killed, {} deaths were seen", deaths.len());
    explained(&report, &deaths);
    Ok(())
}

/// A Service and an Ingress to it that ends proxies which load it (they are built with the feature `poison`).
fn deadly(number: u32) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: scalws-test-abort, namespace: shop}}\nspec: {{ports: [{{port: 80, \
         targetPort: 8080}}]}}\n---\n{}",
        ingress("shop", &format!("deadly-{number}"), &format!("deadly-{number}.example.com"), "scalws-test-abort", 80)
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_that_die_while_they_load_again_and_again_keep_serving_the_others() -> Result<()> {
    let scene = Scene::start(Shop::copy()?, &Options::default(), |_, _| Vec::new())?;
    let died = |text: &str| text.matches("restarted scalwsd of").count();
    let seen = Deaths::watch(scene.up.file().pid, "scalwsd", scene.traffic.began());
    let rounds = scaled(3, 40);
    for round in 0..rounds {
        scene.traffic.doing(&format!("a body that kills proxies, {round}"));
        scene.shop.write(&format!("shop/deadly-{round}.yaml"), &deadly(round))?;
        scene.up.wait()?;
        for number in 0..=round {
            let host = format!("deadly-{number}.example.com");
            let status = get(scene.up.file().http, &host, "/").await?.status;
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{host} is claims only, on every proxy");
        }
        let events = scene.up.events(&format!("Ingress/shop/deadly-{round}"))?;
        ensure!(events.iter().any(|e| e.contains("stopped a proxy")), "the owner is not told: {events:?}");
    }
    let deaths = died(&scene.up.said());
    let most = usize::try_from(rounds)? * 4;
    ensure!((1..=most).contains(&deaths), "{deaths} deaths for {rounds} bodies, each may kill each proxy twice");
    // A newcomer is not killed by what is known.
    scene.traffic.doing("kill -9 of scalwsd after that");
    let (victim, _) = scene.kill("scalwsd", "/r1")?;
    scene.is_back(&victim, "/r1")?;
    scene.up.wait()?;
    until(SOON, "the restart is said", || Ok(died(&scene.up.said()) > deaths)).context("restart")?;
    scene.answered(100)?;
    let after = died(&scene.up.said());
    ensure!(after == deaths + 1, "what is known killed again: {deaths} deaths, then {after}");
    let seen = seen.stop()?;
    let report = scene.end()?;
    ensure!(seen.len() == after, "{after} deaths were said, {} were seen", seen.len());
    explained(&report, &seen);
    Ok(())
}
