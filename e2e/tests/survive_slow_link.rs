//! A link between controller and agent that is slow and loses packets: it connects, converges, does not flap; nobody notices.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::http_client::{Connection, get};
use e2e::machine::link::{Conditions, Link};
use e2e::process::{Options, SOON, Up, stderr, until};
use e2e::shop::{Shop, ingress};
use e2e::traffic::scene::{Scene, scaled};
use http::StatusCode;
use serde_json::Value;

/// 200 ms from one end to the other and back, and one packet of twenty is lost in each direction.
const SLOW: Conditions =
    Conditions { delay: Duration::from_millis(100), loss: 0.05, bytes_per_second: None, queue: Duration::from_secs(1) };
const SEED: u64 = 5;

/// What the controller knows of the agent behind the link, and the version that it should run.
async fn behind_the_link(scene: &Scene) -> Result<(Value, String)> {
    let mut connection = Connection::open_unix(&scene.up.file().controller_socket).await?;
    let view: Value = serde_json::from_slice(&connection.get("localhost", "/debug/agents").await?.body)?;
    let fleet = view["fleets"][0].clone();
    let agent = fleet["agents"].as_array().into_iter().flatten().find(|agent| agent["name"] == "replica-0").cloned();
    Ok((agent.context("replica-0 is not known")?, fleet["version"].as_str().unwrap_or_default().to_owned()))
}

/// How often an agent said something.
fn said(up: &Up, replica: u16, what: &str) -> usize {
    let prefix = format!("replica-{replica}/agent");
    up.said().lines().filter(|line| line.contains(&prefix) && line.contains(what)).count()
}

#[test]
fn over_a_slow_and_lossy_link_everything_converges_without_flapping() -> Result<()> {
    let Some(link) = Link::new(SLOW, SEED, "a link with 200 ms and 5 % of loss")? else { return Ok(()) };
    // Everything from here on, traffic too, is in the near network.
    link.near().enter()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let programs = link.behind("replica-0")?;
    let shop = Shop::copy()?;
    let began = Instant::now();
    let up =
        Up::start(&shop.manifests(), &shop.state(), &Options { programs: programs.folder(), ..Options::default() })?;
    up.wait()?;
    let first = began.elapsed();
    let scene = Scene::over(shop, up, |_, _| Vec::new())?;

    let (mut routes, mut members) = (Vec::new(), Vec::new());
    let web = scene.shop.read("shop/web.yaml")?;
    let turns = scaled(4, 200);
    for turn in 0..turns {
        scene.traffic.doing(&format!("a new host, {turn}"));
        let (name, host) = (format!("slow-{turn}"), format!("slow-{turn}.example.com"));
        let began = Instant::now();
        scene.shop.write(&format!("shop/{name}.yaml"), &ingress("shop", &name, &host, "web", 80))?;
        scene.up.wait()?;
        routes.push(began.elapsed());
        scene.traffic.doing(&format!("a member, {turn}"));
        let ready = if turn % 2 == 0 { "{ready: false}" } else { "{ready: true}" };
        let began = Instant::now();
        scene.shop.write("shop/web.yaml", &web.replacen("{ready: true}", ready, 1))?;
        scene.up.wait()?;
        members.push(began.elapsed());
        for _ in 0..8 {
            let answer = runtime.block_on(get(scene.up.file().http, &host, "/"))?;
            ensure!(answer.status == StatusCode::OK, "{host} is said to be live and answers {answer:?}");
            let pod = answer.echo("pod");
            ensure!(ready == "{ready: true}" || pod == "web-b", "{pod} was taken away and got a request");
        }
    }
    for (replica, what) in [(0, "the agent behind the link"), (1, "the agent before it")] {
        let (served, lost) =
            (said(&scene.up, replica, "a controller serves this agent"), said(&scene.up, replica, "the stream"));
        ensure!(
            served == 1 && lost == 0,
            "{what} was served {served} times and lost its stream {lost} times\n{}",
            scene.up.said()
        );
    }
    let worst = |times: &[Duration]| times.iter().max().copied().unwrap_or_default();
    let packets = link.packets();
    let report = scene.end().context("the end")?;
    eprintln!(
        "a link with 200 ms and 5 % of loss: all live {first:?} after the start; {turns} hosts, each live within {:?}; {turns} members, \
         each within {:?}; {packets:?}\n{report}",
        worst(&routes),
        worst(&members)
    );
    ensure!(packets.lost > 0 && packets.crowded == 0, "the link is not what it should be: {packets:?}");
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    assert!(report.closed.is_empty(), "{:#?}", report.closed);
    Ok(())
}

/// So many Ingresses with so many paths of so many bytes are the large configuration: 20 MB.
const LARGE: (usize, usize, usize) = (40, 64, 8_000);
/// Bytes a second that the link lets through while the large configuration is under way.
const NARROW: u64 = 4_000_000;

fn large(number: usize) -> String {
    let (_, paths, length) = LARGE;
    // The first one is everything below the root.
    let rule = |number: usize| {
        let path = if number == 0 { String::new() } else { format!("{number:0length$}") };
        let backend = "{service: {name: assets, port: {number: 8080}}}";
        format!("      - path: /{path}\n        pathType: Prefix\n        backend: {backend}\n")
    };
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: large-{number}, namespace: shop}}\nspec:\n  \
         ingressClassName: nginx\n  rules:\n  - host: large-{number}.example.com\n    http:\n      paths:\n{}",
        (0..paths).map(rule).collect::<String>()
    )
}

/// A change of members while the large configuration was under way.
struct Change {
    acknowledged: Duration,
    served: Duration,
}

#[test]
fn members_change_while_20_mb_of_configuration_are_under_way() -> Result<()> {
    let fast = Conditions { delay: Duration::from_millis(5), ..Conditions::default() };
    let Some(link) = Link::new(fast, SEED, "members while 20 MB of configuration are under way")? else {
        return Ok(());
    };
    link.near().enter()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let programs = link.behind("replica-0")?;
    let options = Options { replicas: 1, programs: programs.folder(), ..Options::default() };
    let scene = Scene::start(Shop::copy()?, &options, |_, _| Vec::new())?;
    scene.shop.write("shop/web-ingress.yaml", &ingress("shop", "web-only", "web.example.com", "web", 80))?;
    scene.up.wait()?;
    let sent = |lane: &str| runtime.block_on(scene.controller_metric("scalws_controller_sent_bytes_total", lane));
    let configuration = "lane=\"configuration\"";

    // A folder that is moved in is one change.
    let (outside, inside) = (scene.shop.state().join("large"), scene.shop.manifests().join("large"));
    std::fs::create_dir(&outside)?;
    let mut bytes = 0;
    for number in 0..LARGE.0 {
        let text = large(number);
        bytes += text.len();
        std::fs::write(outside.join(format!("large-{number}.yaml")), text)?;
    }
    let before = sent(configuration)?;
    link.set(Conditions { bytes_per_second: Some(NARROW), ..fast });
    scene.traffic.doing("20 MB are under way");
    std::fs::rename(outside, inside)?;
    until(SOON, "a large transfer begins", || Ok(sent(configuration)? > before + 1e6))?;
    let began = Instant::now();

    // Each change is made after the transfer began, and counts if it is served before the agent has applied what it should run.
    let web = scene.shop.read("shop/web.yaml")?;
    let [head, between, tail] = web.splitn(3, "{ready: true}").collect::<Vec<_>>()[..] else {
        bail!("other pods: {web}")
    };
    let mut changes = Vec::new();
    let port = scene.up.file().http;
    for turn in 0.. {
        let (gone, text) = if turn % 2 == 0 {
            ("web-a", [head, "{ready: false}", between, "{ready: true}", tail].concat())
        } else {
            ("web-b", [head, "{ready: true}", between, "{ready: false}", tail].concat())
        };
        let members = runtime.block_on(behind_the_link(&scene))?.0["memberVersion"].clone();
        let made = Instant::now();
        scene.shop.write("shop/web.yaml", &text)?;
        let mut now = Value::Null;
        until(SOON, "a change of members is acknowledged", || {
            now = runtime.block_on(behind_the_link(&scene))?.0;
            Ok(now["memberVersion"] != members)
        })
        .with_context(|| scene.up.said())?;
        let acknowledged = made.elapsed();
        for _ in 0..4 {
            let answer = runtime.block_on(get(port, "web.example.com", "/"))?;
            ensure!(
                answer.echo("pod") != gone,
                "{gone} was taken away, and that is acknowledged, and it got a request"
            );
        }
        let served = made.elapsed();
        // Only now it is looked whether the generation was applied meanwhile: what came before was served under way.
        let (agent, version) = runtime.block_on(behind_the_link(&scene))?;
        if agent["applied"] == *version {
            break;
        }
        changes.push(Change { acknowledged, served });
    }
    let under_way = began.elapsed();
    scene.up.wait()?;
    let carried = sent(configuration)? - before;
    let answer = runtime.block_on(get(port, &format!("large-{}.example.com", LARGE.0 - 1), "/"))?;
    ensure!(answer.status == StatusCode::OK, "what was under way is live: {answer:?}");
    let worst = |of: fn(&Change) -> Duration| changes.iter().map(of).max().unwrap_or_default();
    eprintln!(
        "{bytes} bytes of manifests, {carried} bytes of configuration in {under_way:?} over a link of {NARROW} bytes a second; meanwhile \
         {} changes of members, each acknowledged within {:?} and served within {:?}; {:?}",
        changes.len(),
        worst(|change| change.acknowledged),
        worst(|change| change.served),
        link.packets()
    );
    let once = said(&scene.up, 0, "a controller serves this agent");
    ensure!(once == 1, "the agent was served {once} times\n{}", scene.up.said());
    let report = scene.end()?;
    eprintln!("{report}");
    ensure!(carried > 19e6, "only {carried} bytes of configuration went out");
    ensure!(
        changes.len() >= 5,
        "only {} changes of members were served while the configuration was under way",
        changes.len()
    );
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    assert!(report.closed.is_empty(), "{:#?}", report.closed);
    Ok(())
}

#[test]
fn a_configuration_that_takes_long_over_a_lossy_link_is_live_in_the_end_and_sent_once() -> Result<()> {
    let Some(link) = Link::new(SLOW, SEED, "a large configuration over a link with loss")? else { return Ok(()) };
    // Loss is what this one takes for congestion: it is as slow as it gets.
    link.near().set("ipv4/tcp_congestion_control", "reno")?;
    link.near().enter()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let programs = link.behind("replica-0")?;
    let options = Options { replicas: 1, programs: programs.folder(), ..Options::default() };
    let scene = Scene::start(Shop::copy()?, &options, |_, _| Vec::new())?;
    let sent =
        || runtime.block_on(scene.controller_metric("scalws_controller_sent_bytes_total", "lane=\"configuration\""));
    let before = sent()?;
    let began = Instant::now();
    let objects = scaled(1, 8);
    for number in 0..objects {
        scene.shop.write(&format!("shop/large-{number}.yaml"), &large(number as usize))?;
    }
    let waited = scene.up.wait_output("280s")?;
    let (took, carried) = (began.elapsed(), sent()? - before);
    ensure!(waited.status.success(), "after {took:?} and {carried} bytes: {}\n{}", stderr(&waited), scene.up.said());
    let report = scene.end()?;
    eprintln!(
        "{objects} objects of 0.5 MB over a link with loss: {carried} bytes in {took:?}; {:?}\n{report}",
        link.packets()
    );
    // Nothing was begun again.
    ensure!(carried < f64::from(objects) * 530_000.0, "{carried} bytes were sent for {objects} objects of 512,000");
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    assert!(report.closed.is_empty(), "{:#?}", report.closed);
    Ok(())
}
