//! Releases beside each other: what the older one does not know fails closed for that resource only, and everything else goes on.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use e2e::http_client::get;
use e2e::machine::programs::Programs;
use e2e::process::{Options, SOON, Up, stderr, until};
use e2e::shop::{Shop, ingress};
use e2e::traffic::scene::{Scene, scaled};
use http::StatusCode;
use tempfile::TempDir;

/// Programs that are of another release once they are started again while a file says so. One file for each program, or, for
/// agents, for each replica.
struct Releases {
    folder: TempDir,
    programs: Programs,
}

impl Releases {
    fn new() -> Result<Releases> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().display();
        let read = |file: &str| format!("SCALWS_TEST_SKEW=$(cat '{path}/{file}' 2>/dev/null); export SCALWS_TEST_SKEW");
        let which = "case \"$*\" in *replica-0*) replica=agent-0;; *) replica=agent-1;; esac";
        let agent = format!("{which}\nSCALWS_TEST_SKEW=$(cat '{path}/'$replica 2>/dev/null); export SCALWS_TEST_SKEW");
        let programs = Programs::new(&[("scalws-controller", &read("controller")), ("scalws-agent", &agent)])?;
        Ok(Releases { folder, programs })
    }

    fn start(&self) -> Result<Scene> {
        let options = Options { programs: self.programs.folder(), ..Options::default() };
        Scene::start(Shop::copy()?, &options, |_, _| Vec::new())
    }

    fn file(&self, which: &str) -> PathBuf {
        self.folder.path().join(which)
    }

    /// The next start of this program is of that release; of ours when it is empty.
    fn set(&self, which: &str, release: &str) -> Result<()> {
        Ok(fs::write(self.file(which), release)?)
    }
}

/// The status of answers of both proxies: connections are spread over them.
async fn answers(up: &Up, host: &str) -> Result<StatusCode> {
    let first = get(up.file().http, host, "/").await?.status;
    for _ in 0..7 {
        let next = get(up.file().http, host, "/").await?.status;
        ensure!(next == first, "{host} answers {first} and {next}");
    }
    Ok(first)
}

/// What the agents reported as not live, `resource: code`, each once.
fn refused(up: &Up) -> Result<Vec<String>> {
    let status = up.status()?;
    let fleets = status["fleets"].as_array().context("no fleets")?;
    let agents = fleets.iter().filter_map(|fleet| fleet["agents"].as_array()).flatten();
    let entries = agents.filter_map(|agent| agent["refused"].as_array()).flatten();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut all: Vec<String> =
        entries.map(|entry| format!("{}: {}", text(&entry["resource"]), text(&entry["code"]))).collect();
    all.sort();
    all.dedup();
    Ok(all)
}

async fn restart(scene: &Scene, program: &str, argument: &str) -> Result<()> {
    let (victim, _) = scene.kill(program, argument)?;
    scene.is_back(&victim, argument)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_controller_is_served_by_old_agents_and_proxies_but_for_what_only_it_knows() -> Result<()> {
    let releases = Releases::new()?;
    let scene = releases.start()?;
    for name in ["newer-field", "newer-kind", "same"] {
        scene
            .shop
            .write(&format!("shop/{name}.yaml"), &ingress("shop", name, &format!("{name}.example.com"), "web", 80))?;
    }
    scene.up.wait()?;
    for turn in 0..scaled(1, 20) {
        scene.traffic.doing(&format!("a newer controller, {turn}"));
        releases.set("controller", "newer")?;
        restart(&scene, "scalws-controller", "").await?;
        scene.up.wait()?;
        let known = refused(&scene.up)?;
        ensure!(
            known.len() == 2 && known.iter().all(|entry| entry.contains("newer-") && entry.ends_with(": unsupported")),
            "not live: {known:?}"
        );
        let (field, kind) =
            (answers(&scene.up, "newer-field.example.com").await?, answers(&scene.up, "newer-kind.example.com").await?);
        ensure!(field == StatusCode::SERVICE_UNAVAILABLE, "a body with an unknown field answers {field}");
        ensure!(kind == StatusCode::OK, "an unknown resource takes its neighbour with it: {kind}");
        // The owner is told, and what is not concerned goes on and changes.
        let events = scene.up.events("Ingress/shop/newer-field")?;
        ensure!(events.iter().any(|event| event.contains("newer than 1")), "the owner is not told: {events:?}");
        let (name, host) = (format!("later-{turn}"), format!("later-{turn}.example.com"));
        scene.shop.write(&format!("shop/{name}.yaml"), &ingress("shop", &name, &host, "web", 80))?;
        scene.up.wait()?;
        ensure!(answers(&scene.up, &host).await? == StatusCode::OK, "{host} is live");

        // Back to the older release: everything is live, on the same streams of the same agents.
        scene.traffic.doing(&format!("the controller as before, {turn}"));
        releases.set("controller", "")?;
        restart(&scene, "scalws-controller", "").await?;
        scene.up.wait()?;
        ensure!(refused(&scene.up)?.is_empty(), "left over: {:?}", refused(&scene.up)?);
        ensure!(answers(&scene.up, "newer-field.example.com").await? == StatusCode::OK, "it is live again");
    }
    let broken = scene.up.said().lines().filter(|line| line.contains("closed the stream")).count();
    ensure!(broken == 0, "agents closed {broken} streams\n{}", scene.up.said());
    let report = scene.end()?;
    eprintln!("a newer controller: {report}");
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    assert!(report.closed.is_empty(), "{:#?}", report.closed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_agent_works_and_one_that_shares_no_protocol_is_told_so_and_its_proxy_goes_on() -> Result<()> {
    let releases = Releases::new()?;
    let scene = releases.start()?;
    scene.traffic.doing("a newer agent");
    releases.set("agent-0", "newer")?;
    restart(&scene, "scalws-agent", "replica-0").await?;
    scene.shop.write("shop/first.yaml", &ingress("shop", "first", "first.example.com", "web", 80))?;
    scene.up.wait()?;
    ensure!(answers(&scene.up, "first.example.com").await? == StatusCode::OK, "it is live on both");

    scene.traffic.doing("an agent that shares no protocol");
    releases.set("agent-0", "incompatible")?;
    restart(&scene, "scalws-agent", "replica-0").await?;
    let told = "Unsupported { what: \"protocol\" }";
    until(SOON, "the agent is told that its protocol is not supported", || Ok(scene.up.said().contains(told)))
        .with_context(|| scene.up.said())?;
    scene.shop.write("shop/second.yaml", &ingress("shop", "second", "second.example.com", "web", 80))?;
    let waited = scene.up.wait_output("2s")?;
    ensure!(waited.status.code() == Some(1) && stderr(&waited).contains("replica-0"), "{}", stderr(&waited));
    // The other one has it, and this one serves what it had.
    let mut seen = Vec::new();
    for _ in 0..24 {
        seen.push(get(scene.up.file().http, "second.example.com", "/").await?.status);
    }
    ensure!(seen.contains(&StatusCode::OK), "the other agent waits for the one that cannot: {seen:?}");
    ensure!(answers(&scene.up, "first.example.com").await? == StatusCode::OK, "what was live stays live on both");

    scene.traffic.doing("an agent as before");
    releases.set("agent-0", "")?;
    restart(&scene, "scalws-agent", "replica-0").await?;
    scene.up.wait()?;
    ensure!(answers(&scene.up, "second.example.com").await? == StatusCode::OK, "it catches up");
    let report = scene.end()?;
    eprintln!("newer agents: {report}");
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    assert!(report.closed.is_empty(), "{:#?}", report.closed);
    Ok(())
}
