//! One bad object hurts only itself: malformed ones, one that the proxies refuse, and one that kills them.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::http_client::get;
use e2e::process::{Options, SOON, Up};
use e2e::shop::{Shop, ingress};
use http::StatusCode;

/// Good Ingresses beside the bad object.
const GOOD: usize = 200;
/// In this time the changes of others must be live, whatever the bad object does.
const OTHERS: Duration = Duration::from_secs(2);

/// The example with many good Ingresses.
fn crowd() -> Result<(Shop, Up)> {
    let shop = Shop::copy()?;
    for number in 0..GOOD {
        let name = format!("good-{number}");
        shop.write(&format!("shop/{name}.yaml"), &ingress("shop", &name, &format!("{name}.example.com"), "web", 80))?;
    }
    let up = Up::start(&shop.manifests(), &shop.state(), &Options::default())?;
    up.wait()?;
    Ok((shop, up))
}

/// Adds an Ingress of somebody else and gives how long it took until a request saw it.
async fn someone_else_changes(shop: &Shop, up: &Up, turn: usize) -> Result<Duration> {
    let (name, host) = (format!("other-{turn}"), format!("other-{turn}.example.com"));
    let start = Instant::now();
    shop.write(&format!("shop/{name}.yaml"), &ingress("shop", &name, &host, "assets", 8080))?;
    // Connections meet both proxies in turn: several answers in a row mean both.
    let mut right = 0;
    while right < 6 {
        // A proxy that is killed takes the request with it that it was about to answer.
        let status = get(up.file().http, &host, "/").await.map(|reply| reply.status);
        right = if matches!(status, Ok(StatusCode::OK)) { right + 1 } else { 0 };
        ensure!(start.elapsed() < SOON, "{host} still answers {status:?}\n{}", up.said());
    }
    Ok(start.elapsed())
}

/// A Service and an Ingress to it, whose name is a trigger in proxies built with the feature `poison`.
fn poisoned(service: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {service}, namespace: shop}}\nspec:\n  ports:\n  - {{port: 80, \
         targetPort: 8080}}\n---\n{}",
        ingress("shop", "poison", "poison.example.com", service, 80)
    )
}

async fn poison_is_set_aside(service: &str, word: &str) -> Result<()> {
    let (shop, up) = crowd()?;
    let before = someone_else_changes(&shop, &up, 0).await?;
    shop.write("shop/poison.yaml", &poisoned(service))?;
    for turn in 1..4 {
        let took = someone_else_changes(&shop, &up, turn).await?;
        ensure!(took < OTHERS, "with the poison others waited {took:?}, without it {before:?}\n{}", up.said());
    }
    up.wait()?;
    let events = up.events("Ingress/shop/poison")?.join("\n");
    ensure!(events.contains("Warning") && events.contains(word), "the owner is told nothing: {events}");
    for _ in 0..6 {
        assert_eq!(get(up.file().http, "poison.example.com", "/").await?.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(get(up.file().http, "good-7.example.com", "/").await?.status, StatusCode::OK);
    }
    for replica in ["replica-0", "replica-1"] {
        let deaths = up.said().matches(&format!("restarted scalwsd of {replica} ")).count();
        let expected = if service == "scalws-test-abort" { 1..=2 } else { 0..=0 };
        ensure!(expected.contains(&deaths), "{replica} died {deaths} times\n{}", up.said());
    }
    shop.write("shop/poison.yaml", &ingress("shop", "poison", "poison.example.com", "web", 80))?;
    up.wait()?;
    for _ in 0..6 {
        assert_eq!(get(up.file().http, "poison.example.com", "/").await?.status, StatusCode::OK, "mending recovers it");
    }
    up.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_proxies_refuse_hurts_only_its_owner() -> Result<()> {
    poison_is_set_aside("scalws-test-refuse", "refused").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_kills_proxies_does_so_twice_at_most_and_hurts_only_its_owner() -> Result<()> {
    poison_is_set_aside("scalws-test-abort", "stopped a proxy").await
}

/// One object of each kind that no API server would admit, by the field that is wrong.
const MALFORMED: [(&str, &str); 7] = [
    (
        "Ingress",
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: bad, namespace: shop}\nspec: {rules: 7}\n",
    ),
    (
        "IngressClass",
        "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: bad}\nspec: {controller: [1]}\n",
    ),
    (
        "Service",
        "apiVersion: v1\nkind: Service\nmetadata: {name: bad, namespace: shop}\nspec: {ports: [{port: many}]}\n",
    ),
    (
        "EndpointSlice",
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: bad, namespace: shop}\naddressType: \
         IPv4\nendpoints: none\n",
    ),
    ("Secret", "apiVersion: v1\nkind: Secret\nmetadata: {name: bad, namespace: shop}\ndata: {tls.crt: '%%%'}\n"),
    ("ConfigMap", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad, namespace: shop}\ndata: [1, 2]\n"),
    ("Namespace", "apiVersion: v1\nkind: Namespace\nmetadata: {name: 'Not A Name'}\n"),
];

#[tokio::test(flavor = "multi_thread")]
async fn malformed_objects_of_every_kind_are_named_and_hold_nobody_up() -> Result<()> {
    let (shop, up) = crowd()?;
    for (kind, text) in MALFORMED {
        shop.write(&format!("shop/bad-{}.yaml", kind.to_lowercase()), text)?;
    }
    let took = someone_else_changes(&shop, &up, 0).await?;
    ensure!(took < OTHERS, "beside malformed objects a change took {took:?}");
    up.wait()?;
    let status = up.status()?.to_string();
    for (kind, _) in MALFORMED {
        let file = format!("bad-{}.yaml", kind.to_lowercase());
        ensure!(status.contains(&file), "the status does not name {file}: {status}");
    }
    ensure!(!up.said().contains("panicked"), "{}", up.said());
    let statuses = fs::read_dir(shop.state().join("status"))?.count();
    ensure!(statuses > 0, "the state directory holds no readable statuses");
    assert_eq!(get(up.file().http, "good-199.example.com", "/").await?.status, StatusCode::OK);
    up.stop()
}
