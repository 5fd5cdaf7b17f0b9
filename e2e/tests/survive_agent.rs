//! An agent dies before each effect of an update, under traffic: the update arrives whole, and leaves no unused key.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::process::{Options, SOON, until};
use e2e::shop::{Shop, ingress_tls, tls_secret};
use e2e::traffic::scene::{Scene, scaled};
use e2e::traffic::{Target, Trusted};

/// The host that is changed.
const HOST: &str = "moving.example.com";
/// Within this an agent that came back has what it missed.
const CONVERGED: Duration = Duration::from_secs(1);
/// No update has more effects than this.
const MANY: u32 = 200;

/// One file, so that certificate, route and members change at the same moment.
fn world(secret: &str, turn: u32, address: &str) -> String {
    let (service, port) = if turn.is_multiple_of(2) { ("web", 80) } else { ("moving", 80) };
    let route = ingress_tls("shop", "moving", HOST, service, port, "moving");
    // Its echo server stays; only its fleet hears of it when the route goes there.
    let service = format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: moving, namespace: shop}}\nspec: {{ports: [{{port: 80, \
         targetPort: 19090}}]}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: moving-1, \
         namespace: shop, labels: {{kubernetes.io/service-name: moving}}}}\naddressType: IPv4\nports: [{{port: \
         19090}}]\nendpoints: [{{addresses: [{address}], conditions: {{ready: true}}}}]\n"
    );
    format!("{secret}---\n{route}{service}")
}

#[test]
fn an_agent_that_dies_before_any_effect_of_an_update_has_it_whole_when_it_is_back() -> Result<()> {
    let shop = Shop::copy()?;
    let web = shop.read("shop/web.yaml")?;
    let address = web.split(['[', ']']).find(|part| part.starts_with("127.")).context("no address")?.to_owned();
    let orders = tempfile::tempdir()?;
    let order = orders.path().join("order");
    let (certificate, text) = tls_secret("shop", "moving", HOST)?;
    let trusted = Trusted::only(&certificate)?;
    shop.write("shop/moving.yaml", &world(&text, 0, &address))?;
    let options = Options {
        replicas: 1,
        variables: vec![("SCALWS_FAULT".to_owned(), format!("kill-by@{}", order.display()))],
        ..Options::default()
    };
    let moving = trusted.clone();
    let scene = Scene::start(shop, &options, |_, https| {
        vec![Target::https(https, HOST, &["shop/web", "shop/moving"], &moving)]
    })?;
    let keys = scene.keys(0)?.len();
    let (mut deaths, mut slowest) = (0, Duration::ZERO);
    // Every second effect in the short form.
    let step = usize::try_from(scaled(2, 1))?;
    for (turn, effect) in (1..=MANY).step_by(step).enumerate() {
        let turn = u32::try_from(turn)? + 1;
        let agent = scene.up.find("scalws-agent", "replica-0")?;
        scene.traffic.doing(&format!("the agent dies before effect {effect}"));
        fs::write(&order, effect.to_string())?;
        let (certificate, text) = tls_secret("shop", "moving", HOST)?;
        trusted.also(&certificate)?;
        scene.shop.write("shop/moving.yaml", &world(&text, turn, &address))?;
        // Either it dies, or the update is done without reaching that effect.
        let mut died = false;
        until(SOON, "the agent dies or is done", || {
            died = !order.exists();
            Ok(died || scene.up.wait_output("200ms")?.status.success())
        })
        .with_context(|| scene.up.said())?;
        // What follows the verdict, as taking old keys away, has effects too.
        died = died || fs::remove_file(&order).is_err();
        if died {
            deaths += 1;
            scene.is_back(&agent, "replica-0")?;
            let back = Instant::now();
            scene.up.wait()?;
            slowest = slowest.max(back.elapsed());
            ensure!(
                back.elapsed() < CONVERGED,
                "{:?} after a death before effect {effect}\n{}",
                back.elapsed(),
                scene.up.said()
            );
        }
        trusted.newest_only();
        scene.answered(8)?;
        let left = scene.keys(0)?;
        ensure!(left.len() == keys, "after a death before effect {effect}: keys {left:?}, where {keys} are used");
        if !died {
            let report = scene.end()?;
            eprintln!(
                "{deaths} deaths in one update of {effect} effects at most; the slowest was current {slowest:?} after its return"
            );
            eprintln!("{report}");
            ensure!(deaths >= 4, "only {deaths} deaths: the order is not obeyed (is the agent built with `faults`?)");
            assert!(report.failed.is_empty(), "{:#?}", report.failed);
            assert!(report.closed.is_empty(), "{:#?}", report.closed);
            return Ok(());
        }
    }
    bail!("an update with more than {MANY} effects")
}
