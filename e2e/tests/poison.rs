//! One bad object hurts only itself: malformed ones, one that the proxies refuse, and one that kills them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::http_client::get;
use e2e::process::{Options, SOON, Up, events_in, send, until};
use e2e::shop::{Shop, ingress};
use http::StatusCode;
use rustix::process::Signal;

/// Good Ingresses beside the bad object.
const GOOD: usize = 200;
/// In this time the changes of others must be live, whatever the bad object does.
const OTHERS: Duration = Duration::from_secs(2);

/// The example with many good Ingresses.
fn full_shop() -> Result<Shop> {
    let shop = Shop::copy()?;
    for number in 0..GOOD {
        let name = format!("good-{number}");
        shop.write(&format!("shop/{name}.yaml"), &ingress("shop", &name, &format!("{name}.example.com"), "web", 80))?;
    }
    Ok(shop)
}

/// The same, live.
fn crowd() -> Result<(Shop, Up)> {
    let shop = full_shop()?;
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
        // Who answers counts: before, it is the catch-all of the example.
        let answer = get(up.file().http, &host, "/").await.map(|reply| reply.echo("service"));
        right = if matches!(answer.as_deref(), Ok("shop/assets")) { right + 1 } else { 0 };
        ensure!(start.elapsed() < SOON, "{host} still answers {answer:?}\n{}", up.said());
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

/// Both proxies serve the others and answer 503 for the poison.
async fn is_set_aside(up: &Up) -> Result<()> {
    for _ in 0..6 {
        assert_eq!(get(up.file().http, "poison.example.com", "/").await?.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(get(up.file().http, "good-7.example.com", "/").await?.echo("service"), "shop/web");
    }
    Ok(())
}

/// How often each proxy has died.
fn deaths(up: &Up) -> [usize; 2] {
    ["replica-0", "replica-1"].map(|name| up.said().matches(&format!("restarted scalwsd of {name} ")).count())
}

/// The owner, and nobody else, is told with a Warning that has this word in it.
fn the_owner_is_told(up: &Up, word: &str) -> Result<()> {
    let status = up.status()?;
    let events = events_in(&status, "Ingress/shop/poison")?;
    ensure!(
        events.iter().any(|e| e.starts_with("Warning ") && e.contains(word)),
        "the owner is told nothing of \"{word}\" (are the programs those of `cargo build --workspace --bins`, which \
         have the feature `poison`?): {events:?}"
    );
    for number in 0..GOOD {
        let events = events_in(&status, &format!("Ingress/shop/good-{number}"))?;
        ensure!(events.iter().all(|e| !e.starts_with("Warning ")), "good-{number} is blamed: {events:?}");
    }
    Ok(())
}

/// The median of how long some changes of somebody else took.
async fn usual(shop: &Shop, up: &Up, turns: std::ops::Range<usize>) -> Result<Duration> {
    let mut took = Vec::new();
    for turn in turns {
        took.push(someone_else_changes(shop, up, turn).await?);
    }
    took.sort();
    Ok(took[took.len() / 2])
}

async fn poison_is_set_aside(service: &str, word: &str, most: usize) -> Result<()> {
    let (shop, up) = crowd()?;
    let before = usual(&shop, &up, 0..5).await?;
    shop.write("shop/poison.yaml", &poisoned(service))?;
    for turn in 5..8 {
        let took = someone_else_changes(&shop, &up, turn).await?;
        ensure!(took < OTHERS, "with the poison others waited {took:?}, without it {before:?}\n{}", up.said());
    }
    up.wait()?;
    the_owner_is_told(&up, word)?;
    is_set_aside(&up).await?;
    let died = deaths(&up);
    ensure!(died.iter().all(|died| (most.min(1)..=most).contains(died)), "deaths: {died:?}\n{}", up.said());
    let after = usual(&shop, &up, 8..13).await?;
    ensure!(after < before * 3 + Duration::from_millis(100), "others take {after:?} now, {before:?} before");

    // What is known of it survives whoever knew it.
    for (program, argument) in [("scalws-controller", ""), ("scalws-agent", "replica-0"), ("scalwsd", "/r1")] {
        let victim = up.find(program, argument)?;
        send(victim.pid, Signal::KILL)?;
        until(SOON, &format!("{program} is started again"), || {
            Ok(up.find(program, argument).is_ok_and(|c| c.pid != victim.pid))
        })?;
        up.wait()?;
    }
    someone_else_changes(&shop, &up, 13).await?;
    up.wait()?;
    assert_eq!(deaths(&up), [died[0], died[1] + 1], "the poison killed again\n{}", up.said());
    the_owner_is_told(&up, word)?;
    is_set_aside(&up).await?;

    shop.write("shop/poison.yaml", &ingress("shop", "poison", "poison.example.com", "web", 80))?;
    up.wait()?;
    for _ in 0..6 {
        assert_eq!(
            get(up.file().http, "poison.example.com", "/").await?.echo("service"),
            "shop/web",
            "mending recovers it"
        );
    }
    ensure!(up.events("Ingress/shop/poison")?.iter().all(|e| !e.starts_with("Warning ")), "it is mended and blamed");
    // The one that is asked for by its trigger says that it panicked; nothing else may.
    ensure!(service.ends_with("panic") || !up.said().contains("panicked"), "{}", up.said());
    up.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_proxies_refuse_hurts_only_its_owner() -> Result<()> {
    poison_is_set_aside("scalws-test-refuse", "refused", 0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_kills_proxies_does_so_twice_at_most_and_hurts_only_its_owner() -> Result<()> {
    poison_is_set_aside("scalws-test-abort", "stopped a proxy", 2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_on_which_proxies_panic_is_set_aside_like_one_that_kills_them() -> Result<()> {
    poison_is_set_aside("scalws-test-panic", "stopped a proxy", 2).await
}

/// Waits until both proxies answer requests for a host so.
async fn both_answer(up: &Up, host: &str, status: StatusCode) -> Result<()> {
    let (start, mut right) = (Instant::now(), 0);
    while right < 6 {
        let answer = get(up.file().http, host, "/").await.map(|reply| reply.status);
        right = if answer.as_ref().is_ok_and(|answer| *answer == status) { right + 1 } else { 0 };
        ensure!(start.elapsed() < OTHERS, "{host} answers {answer:?} after {OTHERS:?}\n{}", up.said());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_load_hangs_members_change_and_then_its_body_is_set_aside() -> Result<()> {
    let (shop, limit) = (full_shop()?, "6000".to_owned());
    let options = Options { variables: vec![("SCALWS_TEST_LOAD_LIMIT_MS".to_owned(), limit)], ..Options::default() };
    let up = Up::start(&shop.manifests(), &shop.state(), &options)?;
    up.wait()?;
    someone_else_changes(&shop, &up, 0).await?;
    let ready = shop.read("shop/assets.yaml")?;
    let none = ready.replace("ready: true", "ready: false");
    ensure!(none != ready, "the example has no ready endpoints");
    shop.write("shop/poison.yaml", &poisoned("scalws-test-hang"))?;
    // It hangs for all of this time; requests go to endpoints as they are, and the old configuration serves.
    for _ in 0..2 {
        shop.write("shop/assets.yaml", &none)?;
        both_answer(&up, "other-0.example.com", StatusCode::SERVICE_UNAVAILABLE).await?;
        shop.write("shop/assets.yaml", &ready)?;
        both_answer(&up, "other-0.example.com", StatusCode::OK).await?;
    }
    ensure!(deaths(&up) == [0, 0], "it did not hang for as long as it may: {:?}", deaths(&up));
    // Once the load and two children each came to the end of their time.
    until(Duration::from_secs(60), "the hanging body is set aside", || {
        Ok(events_in(&up.status()?, "Ingress/shop/poison")
            .is_ok_and(|events| events.iter().any(|e| e.contains("stopped a proxy"))))
    })?;
    up.wait()?;
    the_owner_is_told(&up, "stopped a proxy")?;
    is_set_aside(&up).await?;
    let died = deaths(&up);
    ensure!(died.iter().all(|died| *died <= 2) && died != [0, 0], "deaths: {died:?}\n{}", up.said());
    up.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_kills_is_set_aside_even_when_it_is_there_from_the_start() -> Result<()> {
    let shop = full_shop()?;
    shop.write("shop/poison.yaml", &poisoned("scalws-test-abort"))?;
    let up = Up::start(&shop.manifests(), &shop.state(), &Options::default())?;
    up.wait()?;
    the_owner_is_told(&up, "stopped a proxy")?;
    is_set_aside(&up).await?;
    let died = deaths(&up);
    ensure!(died.iter().all(|died| *died <= 2) && died != [0, 0], "deaths: {died:?}\n{}", up.said());
    up.stop()
}

/// One object of each kind, as it should be, and a text in it with another that no API server would admit.
const MALFORMED: [(&str, &str, &str, &str); 7] = [
    (
        "Ingress/shop/bad",
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: bad, namespace: shop}\nspec:\n  \
         ingressClassName: bad\n  rules: [{host: \
         bad.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: bad, port: {number: \
         80}}}}]}}]\n",
        "pathType: Prefix",
        "pathType: [Prefix]",
    ),
    (
        "IngressClass//bad",
        "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: bad}\nspec: {controller: \
         scalws.io/ingress-controller}\n",
        "controller: scalws",
        "controller: 7, x: scalws",
    ),
    (
        "Service/shop/bad",
        "apiVersion: v1\nkind: Service\nmetadata: {name: bad, namespace: shop}\nspec: {ports: [{port: 80, targetPort: \
         19080}]}\n",
        "port: 80",
        "port: many",
    ),
    (
        "EndpointSlice/shop/bad",
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: bad, namespace: shop, labels: \
         {kubernetes.io/service-name: bad}}\naddressType: IPv4\nports: [{port: 19080}]\nendpoints: [{addresses: \
         [ADDRESS]}]\n",
        "endpoints: [",
        "endpoints: none #",
    ),
    (
        "Secret/shop/bad",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: bad, namespace: shop}\ndata: {password: aHVudGVyMg==}\n",
        "aHVudGVyMg==",
        "'%%%'",
    ),
    (
        "ConfigMap/shop/bad",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad, namespace: shop}\ndata: {a: b}\n",
        "data: {a: b}",
        "data: [1, 2]",
    ),
    (
        "Namespace//bad",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: bad, labels: {a: b}}\n",
        "labels: {a: b}",
        "labels: [a]",
    ),
];

/// The file of one of them.
fn file_of(reference: &str) -> String {
    format!("shop/bad-{}.yaml", reference.split('/').next().unwrap_or_default().to_lowercase())
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_objects_of_every_kind_are_named_hold_nobody_up_and_recover() -> Result<()> {
    let (shop, up) = crowd()?;
    let assets = shop.read("shop/assets.yaml")?;
    let address = assets.split(['[', ']']).find(|part| part.starts_with("127.")).context("no address")?;
    let good = |text: &str| text.replace("ADDRESS", address);
    let before = usual(&shop, &up, 0..5).await?;
    // First as they are when they come malformed, then as good ones that go bad: those stay as they were.
    for round in 0..2_usize {
        for (reference, text, word, wrong) in MALFORMED {
            ensure!(text.contains(word), "{reference}");
            shop.write(&file_of(reference), &good(text).replace(word, wrong))?;
        }
        let turns = 5 + 10 * round..10 + 10 * round;
        let took = usual(&shop, &up, turns).await?;
        ensure!(took < OTHERS && took < before * 3 + Duration::from_millis(100), "{took:?}, without them {before:?}");
        up.wait()?;
        let status = up.status()?;
        for (reference, ..) in MALFORMED {
            for place in [reference.to_owned(), format!("File//{}", file_of(reference))] {
                let events = events_in(&status, &place)?;
                let told = events.iter().any(|e| e.starts_with("Warning ") && e.contains(reference));
                ensure!(told, "{place}: {events:?}");
            }
        }
        // Without a last good version its host belongs to nobody, and the catch-all of the example answers.
        let expected = if round == 0 { "blog/lost-and-found" } else { "shop/assets" };
        assert_eq!(get(up.file().http, "bad.example.com", "/").await?.echo("service"), expected);
        assert_eq!(get(up.file().http, "good-199.example.com", "/").await?.echo("service"), "shop/web");

        for (reference, text, ..) in MALFORMED {
            shop.write(&file_of(reference), &good(text))?;
        }
        up.wait()?;
        let status = up.status()?;
        for (reference, ..) in MALFORMED {
            ensure!(events_in(&status, &format!("File//{}", file_of(reference))).is_err(), "{reference} is mended");
        }
        assert_eq!(get(up.file().http, "bad.example.com", "/").await?.echo("service"), "shop/assets", "mended");
    }
    ensure!(!up.said().contains("panicked"), "{}", up.said());
    up.stop()
}
