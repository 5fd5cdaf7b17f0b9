//! `scalwsctl up` as a user meets it: real processes, real sockets, the example shop.

use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::http_client::{Connection, get};
use e2e::process::{Options, SOON, STOP, Up, lives, scalwsctl, send, stderr, until};
use e2e::shop::{Shop, ingress};
use http::StatusCode;
use rustix::process::Signal;

fn start(shop: &Shop) -> Result<Up> {
    let up = Up::start(&shop.manifests(), &shop.state(), &Options::default())?;
    up.wait()?;
    Ok(up)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shop_is_served_over_http_and_https() -> Result<()> {
    let shop = Shop::copy()?;
    let up = start(&shop)?;
    let (http, https) = (up.file().http, up.file().https);

    let reply = get(http, "assets.example.com", "/logo.svg").await?;
    assert_eq!((reply.status, reply.echo("service")), (StatusCode::OK, "shop/assets".to_owned()));
    assert_eq!(reply.echo("path"), "/logo.svg");

    let trusted = shop.certificate("shop/certificate.yaml")?;
    let mut connection = Connection::open_tls(https, "shop.example.com", &trusted).await?;
    assert_eq!(connection.get("shop.example.com", "/api/orders").await?.echo("service"), "shop/api");
    assert_eq!(connection.get("shop.example.com", "/api/health").await?.echo("service"), "shop/web");

    let redirect = get(http, "shop.example.com", "/cart").await?;
    assert!(redirect.status.is_redirection(), "{redirect:?}");
    assert!(redirect.headers["location"].to_str()?.starts_with("https://shop.example.com"), "{redirect:?}");
    assert_eq!(get(http, "nobody.example.org", "/").await?.echo("service"), "blog/lost-and-found");

    until(SOON, "the banner is printed", || Ok(up.said().contains("Stop with Ctrl-C")))?;
    assert!(up.said().contains("curl -k --resolve shop.example.com") || up.said().contains("curl -k --resolve"));
    up.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_is_live_after_wait_and_no_connection_drops() -> Result<()> {
    let shop = Shop::copy()?;
    let up = start(&shop)?;
    let mut kept = Connection::open(up.file().http).await?;
    for turn in 0..10 {
        let (service, port) = if turn % 2 == 0 { ("web", 80) } else { ("assets", 8080) };
        shop.write("shop/new.yaml", &ingress("shop", "new", "new.example.com", service, port))?;
        up.wait()?;
        // The same connection all the time, and a fresh one, which may meet the other proxy.
        assert_eq!(kept.get("new.example.com", "/").await?.echo("service"), format!("shop/{service}"));
        let fresh = get(up.file().http, "new.example.com", "/").await?;
        assert_eq!(fresh.echo("service"), format!("shop/{service}"));
    }
    shop.remove("shop/new.yaml")?;
    up.wait()?;
    assert_eq!(kept.get("new.example.com", "/").await?.echo("service"), "blog/lost-and-found");
    up.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_manifest_hurts_only_its_object_and_the_status_names_it() -> Result<()> {
    let shop = Shop::copy()?;
    let up = start(&shop)?;
    let http = up.file().http;
    let good = shop.read("shop/assets-ingress.yaml")?;

    // What an API server would admit is translated: the claim stays and answers 503, the owner is told.
    shop.write("shop/assets-ingress.yaml", &good.replace("name: assets, port", "name: missing, port"))?;
    up.wait()?;
    assert_eq!(get(http, "assets.example.com", "/").await?.status, StatusCode::SERVICE_UNAVAILABLE);
    let events = up.events("Ingress/shop/assets")?;
    assert!(events.iter().any(|e| e.starts_with("Warning") && e.contains("missing")), "{events:?}");
    assert!(up.events("Ingress/shop/storefront")?.iter().all(|e| !e.starts_with("Warning")));
    assert_eq!(get(http, "nobody.example.org", "/").await?.status, StatusCode::OK);

    // What an API server would refuse leaves what was there.
    shop.write("shop/assets-ingress.yaml", &good)?;
    up.wait()?;
    shop.write("shop/assets-ingress.yaml", "kind: [")?;
    up.wait()?;
    assert_eq!(get(http, "assets.example.com", "/").await?.echo("service"), "shop/assets");
    let status = up.status()?.to_string();
    assert!(status.contains("assets-ingress.yaml"), "{status}");

    shop.write("shop/assets-ingress.yaml", &good)?;
    up.wait()?;
    assert!(up.events("Ingress/shop/assets")?.iter().all(|e| !e.starts_with("Warning")));
    up.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_killed_is_started_again_and_traffic_goes_on() -> Result<()> {
    let shop = Shop::copy()?;
    let up = start(&shop)?;
    let http = up.file().http;
    let victims = [
        ("scalws-agent", "replica-0", "agent of replica-0"),
        ("scalws-agent", "replica-1", "agent of replica-1"),
        ("scalws-controller", "", "controller"),
        ("scalwsd", "/r0", "scalwsd of replica-0"),
        ("scalwsd", "/r1", "scalwsd of replica-1"),
    ];
    for (program, argument, name) in victims {
        let victim = up.find(program, argument)?;
        send(victim.pid, Signal::KILL)?;
        until(SOON, &format!("the {name} is started again"), || {
            Ok(up.find(program, argument).is_ok_and(|c| c.pid != victim.pid))
        })
        .with_context(|| up.said())?;
        // The listening socket is the keeper's: even a connection that is made now is answered.
        // Who answered, not only that somebody did: the catch-all of the example answers for every host.
        let service = get(http, "assets.example.com", "/").await?.echo("service");
        assert_eq!(service, "shop/assets", "after the {name}");
        let said = format!("restarted {name} (killed by signal 9)");
        until(SOON, &said, || Ok(up.said().contains(&said)))?;
        up.wait()?;
    }
    // A change reaches both proxies after all that.
    shop.write("shop/new.yaml", &ingress("shop", "new", "new.example.com", "web", 80))?;
    up.wait()?;
    for _ in 0..8 {
        assert_eq!(get(http, "new.example.com", "/").await?.echo("service"), "shop/web");
    }
    up.stop()
}

/// A terminal that is held, a pipe that nobody empties.
#[test]
fn a_log_that_nobody_reads_stops_no_change_and_no_restart() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let shop = Shop::copy()?;
    // Every line that there is fills the pipe soon.
    let options = Options { replicas: 1, log: Some("trace".to_owned()), ..Options::default() };
    let up = Up::start(&shop.manifests(), &shop.state(), &options)?;
    up.wait()?;
    let unread = up.unread();
    for turn in 0..40 {
        let (service, port) = if turn % 2 == 0 { ("web", 80) } else { ("assets", 8080) };
        shop.write("shop/new.yaml", &ingress("shop", "new", "new.example.com", service, port))?;
        let waited = up.wait_output("30s")?;
        ensure!(waited.status.success(), "edit {turn} is not live: {}", stderr(&waited));
    }
    for program in ["scalwsd", "scalws-agent", "scalws-controller"] {
        let killed = up.find(program, "")?.pid;
        send(killed, Signal::KILL)?;
        until(SOON, "it is started again", || Ok(up.find(program, "").is_ok_and(|now| now.pid != killed)))?;
    }
    let waited = up.wait_output("30s")?;
    ensure!(waited.status.success(), "after the deaths: {}", stderr(&waited));
    let answer = runtime.block_on(get(up.file().http, "new.example.com", "/"))?;
    assert_eq!(answer.echo("service"), "shop/assets");
    drop(unread);
    // It was full, and it says how much is missing.
    until(SOON, "the reader is told of lines that are left out", || Ok(up.said().contains("are left out")))?;
    up.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_connection_does_not_hold_up_the_end() -> Result<()> {
    let shop = Shop::copy()?;
    let up = start(&shop)?;
    let mut idle = Connection::open(up.file().http).await?;
    assert_eq!(idle.get("assets.example.com", "/").await?.status, StatusCode::OK);
    let children = up.children();
    assert_eq!(children.len(), 5, "{children:?}");
    up.signal(Signal::INT)?;
    let (status, said) = up.ended(STOP)?;
    assert!(status.success(), "{status} {said}");
    assert!(!said.contains("is killed"), "{said}");
    assert!(!children.iter().any(lives), "{children:?}");
    let wait = scalwsctl(["status", "--state", &shop.state().display().to_string()])?;
    assert_eq!(wait.status.code(), Some(1));
    Ok(())
}

#[test]
fn children_end_with_an_up_that_is_killed_and_the_next_one_starts_clean() -> Result<()> {
    let shop = Shop::copy()?;
    let up = start(&shop)?;
    let children = up.children();
    let runtime = up.file().runtime_dir.clone();
    up.signal(Signal::KILL)?;
    up.ended(STOP)?;
    until(SOON, "all children have ended", || Ok(!children.iter().any(lives)))?;

    // Its up.json is still there, and nobody answers.
    let state = shop.state().display().to_string();
    assert!(shop.state().join("up.json").exists());
    let status = scalwsctl(["status", "--state", &state])?;
    assert_eq!(status.status.code(), Some(1));
    assert!(stderr(&status).contains("no live"), "{}", stderr(&status));
    let begin = Instant::now();
    let wait = scalwsctl(["wait", "--state", &state, "--timeout", "300ms"])?;
    assert_eq!(wait.status.code(), Some(1));
    assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
    assert!(stderr(&wait).contains("no live"), "{}", stderr(&wait));

    let next = start(&shop)?;
    assert!(!runtime.exists(), "the runtime directory of the killed one is still there");
    next.stop()
}

#[test]
fn what_cannot_start_says_why() -> Result<()> {
    let shop = Shop::copy()?;
    let state = shop.state().display().to_string();
    let up = |folder: &str, http: &str| scalwsctl(["up", folder, "--state", &state, "--http", http, "--https", "0"]);

    let missing = up("/nonexistent/shop", "0")?;
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("/nonexistent/shop"), "{}", stderr(&missing));

    let taken = TcpListener::bind("0.0.0.0:0")?;
    let port = taken.local_addr()?.port().to_string();
    let manifests = shop.manifests().display().to_string();
    let refused = up(&manifests, &port)?;
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains(&port) && stderr(&refused).contains("taken"), "{}", stderr(&refused));
    assert_eq!(stderr(&refused).lines().count(), 1, "{}", stderr(&refused));

    let first = start(&shop)?;
    let second = up(&manifests, "0")?;
    assert_eq!(second.status.code(), Some(1));
    let said = stderr(&second);
    assert!(said.contains("another `scalwsctl up`") && said.contains(&first.file().pid.to_string()), "{said}");
    // The first one is not disturbed.
    first.wait()?;
    first.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_world_that_vanishes_is_held_until_it_is_confirmed() -> Result<()> {
    let shop = Shop::copy()?;
    let up = start(&shop)?;
    let http = up.file().http;
    let away = shop.manifests().with_extension("away");
    fs::rename(shop.manifests(), &away)?;
    let held = up.wait_output("20s")?;
    assert_eq!(held.status.code(), Some(3), "{}", stderr(&held));
    assert!(stderr(&held).contains("scalwsctl confirm --state"), "{}", stderr(&held));
    assert_eq!(get(http, "assets.example.com", "/").await?.echo("service"), "shop/assets");

    // By its socket, as with a controller that no `up` started.
    let socket = up.file().controller_socket.display().to_string();
    let status = scalwsctl(["status", "--socket", &socket])?;
    ensure!(status.status.success(), "{}", stderr(&status));
    let nobody = scalwsctl(["status", "--socket", &format!("{socket}.not")])?;
    assert_eq!(nobody.status.code(), Some(1));
    assert!(stderr(&nobody).contains("controller.sock.not does not answer"), "{}", stderr(&nobody));
    let confirmed = scalwsctl(["confirm", "--socket", &socket])?;
    ensure!(confirmed.status.success(), "{}", stderr(&confirmed));
    up.wait()?;
    assert_eq!(get(http, "assets.example.com", "/").await?.status, StatusCode::NOT_FOUND);

    fs::rename(&away, shop.manifests())?;
    up.wait()?;
    assert_eq!(get(http, "assets.example.com", "/").await?.echo("service"), "shop/assets");
    up.stop()
}

#[test]
fn no_key_or_token_is_in_arguments_state_or_log() -> Result<()> {
    let shop = Shop::copy()?;
    let up = start(&shop)?;
    let certificate = shop.read("shop/certificate.yaml")?;
    let key = certificate.split("PRIVATE KEY-----\n").nth(1).context("no key")?;
    let canary = key.lines().next().context("no key")?.trim().to_owned();
    let arguments: Vec<String> = up.children().into_iter().flat_map(|c| c.command).collect();
    let state = shop.state();
    let said = up.said();
    let status = up.status()?.to_string();
    up.stop()?;
    let mut texts = vec![arguments.join(" "), said, status];
    read_all(&state, &mut texts)?;
    assert!(texts.len() > 4, "the state directory is empty");
    for text in texts {
        assert!(!text.contains(&canary) && !text.contains("PRIVATE KEY"), "{text}");
    }
    Ok(())
}

fn read_all(folder: &std::path::Path, out: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read_all(&path, out)?;
        } else {
            out.push(String::from_utf8_lossy(&fs::read(path)?).into_owned());
        }
    }
    Ok(())
}
