//! A controller in a pod of a real cluster: with the documented rights and nothing else, with tokens that end, without rights for
//! a while, without an API server for a while, and with definitions that come and go.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::cluster::{Component, ControlPlane, Pod, Settings};
use e2e::process::until;
use e2e::replicas::relay::{Relay, Way};
use fake_apiserver::changes::{NAMESPACE, SAMPLES};
use tokio::runtime::Runtime;

/// The rights that are documented.
const RIGHTS: &str = include_str!("../../docs/reference/controller-rights.yaml");
/// The way of the pod to the API server: an address that the server's certificate names.
const WAY: &str = "127.0.0.1:7443";
/// The API server itself.
const SERVER: &str = "127.0.0.1:6443";
/// Within this anything happens that needs no waiting, on a slow machine.
const SOON: Duration = Duration::from_secs(30);
/// The longest wait between two tries of a watch is 10 s; the rest is for a slow machine.
const TRIED_AGAIN: Duration = Duration::from_secs(25);
/// No server at all is looked for every 2 to 4 s, and one that has just come up may refuse once or twice.
const BACK: Duration = Duration::from_secs(15);
/// A kind that is not served is looked for every 15 to 30 s.
const LOOKED_FOR: Duration = Duration::from_secs(50);
/// A token is read again from its file within this.
const TOKEN_IS_READ: Duration = Duration::from_secs(60);
/// So long the API server may go on taking a token whose Secret is gone: it keeps answers for 10 s, and sees the end of the Secret by a
/// watch of its own, which may be waiting to begin anew after the API server's return.
const TOKEN_ENDS: Duration = Duration::from_secs(120);
/// No objects of a kind that had few are believed when two lists 10 s apart have shown them; the rest is for a slow machine.
const SHOWN_TWICE: Duration = Duration::from_secs(25);
/// How long the API server is away.
const AWAY: Duration = Duration::from_secs(30);

/// The cluster and the controller.
struct Scene {
    pod: Pod,
    relay: Relay,
    plane: ControlPlane,
    began: Instant,
    /// Last, so that what runs on it ends first.
    _runtime: Runtime,
}

impl Scene {
    fn say(&self, what: &str) {
        eprintln!("{:5.1} s  {what}", self.began.elapsed().as_secs_f64());
    }

    /// Waits for something; says how it stands with the controller if it never comes.
    fn until(&self, limit: Duration, what: &str, holds: impl FnMut() -> Result<bool>) -> Result<Duration> {
        let began = Instant::now();
        until(limit, what, holds).with_context(|| format!("{:?}\n{}", self.pod.readyz(), self.pod.log()))?;
        Ok(began.elapsed())
    }

    fn until_known(&self, limit: Duration, name: &str, known: bool) -> Result<Duration> {
        let what = format!("{name} is {}", if known { "known" } else { "gone" });
        self.until(limit, &what, || Ok(self.pod.world()?.contains(name) == known))
    }

    /// Makes or edits an object of a kind. Gives its name in the controller's world.
    fn put(&self, kind: &str, name: &str) -> Result<String> {
        let sample = SAMPLES.iter().find(|sample| sample.kind == kind).context("a kind that is followed")?;
        self.plane.kubectl_reading(&sample.object(name, 1).to_string(), &["apply", "--filename", "-"])?;
        Ok(format!("{kind}/{}/{name}", sample.namespace()))
    }

    /// Ends all connections of the pod with the API server; new ones are free.
    fn cut(&self) {
        self.relay.set(Way::Cut);
        self.relay.set(Way::Open);
    }
}

/// A token of the controller that is good for as long as a Secret of this name is there. The API server gives none for less than
/// ten minutes, so the end of the Secret stands for the end of the time; the answer to the token is the same.
fn token(plane: &ControlPlane, secret: &str) -> Result<String> {
    plane.kubectl(&["create", "secret", "generic", secret, "--namespace", "scalws"])?;
    let bound = ["--bound-object-kind", "Secret", "--bound-object-name", secret, "--duration", "10m"];
    let token =
        plane.kubectl(&[&["create", "token", "scalws-controller", "--namespace", "scalws"], &bound[..]].concat())?;
    Ok(token.trim().to_owned())
}

/// Starts everything; gives the token that the controller has, too.
fn start(what: &str) -> Result<Option<(Scene, String)>> {
    let Some(plane) = ControlPlane::start(what, &Settings::default())? else { return Ok(None) };
    plane.enter()?;
    // After the move, so that its threads are there too.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    plane.kubectl_reading(RIGHTS, &["apply", "--filename", "-"])?;
    plane.kubectl(&["create", "namespace", NAMESPACE])?;
    let token = token(&plane, "first")?;
    let relay = Relay::start(runtime.handle(), WAY.parse()?, SERVER.parse()?)?;
    let pod = Pod::start(runtime.handle(), &plane, WAY.parse()?, &token, &[])?;
    Ok(Some((Scene { pod, relay, plane, began: Instant::now(), _runtime: runtime }, token)))
}

/// The documented rights are enough: everything is followed, and the Lease is taken.
fn has_all_that_it_needs(scene: &Scene) -> Result<()> {
    let names = ["Ingress", "IngressClass", "Service", "EndpointSlice", "Secret", "ConfigMap", "Namespace"];
    let names = names.iter().map(|kind| scene.put(kind, "first")).collect::<Result<Vec<_>>>()?;
    scene.until(SOON, "the controller is ready", || Ok(scene.pod.is_well()))?;
    for name in names {
        scene.until_known(SOON, &name, true)?;
    }
    scene.until(SOON, "it leads", || Ok(scene.pod.metric("scalws_controller_leader", "")? == 1.0))?;
    ensure!(!scene.pod.log().contains("the kind is not followed"), "{}", scene.pod.log());
    scene.say("ready and leading with the documented rights");
    Ok(())
}

/// Without the right to one kind the others go on, and it is said; with it again everything is well without a restart.
fn loses_a_right_and_gets_it_again(scene: &Scene) -> Result<()> {
    let fewer = RIGHTS.replace("services, secrets, configmaps", "services, configmaps");
    ensure!(fewer != RIGHTS, "the rights name Secrets in another way");
    scene.plane.kubectl_reading(&fewer, &["apply", "--filename", "-"])?;
    // A watch that is open stays; the next one is refused.
    scene.cut();
    let said = "Secret is not followed; what was known stays in force: HTTP 403";
    scene.until(SOON, "the refusal is told", || {
        let (status, text) = scene.pod.readyz()?;
        ensure!(status == 200, "it has what it needs to serve, and is not ready: {text}");
        Ok(text.contains(said) && text.lines().count() == 2)
    })?;
    let metric = |name: &str, labels: &str| scene.pod.metric(name, labels);
    scene.until(SOON, "the refusal is counted", || {
        Ok(metric("scalws_controller_watch_restarts_total", "kind=\"Secret\",reason=\"forbidden\"")? > 1.0)
    })?;
    ensure!(
        metric("scalws_controller_watches", "kind=\"Ingress\",state=\"watching\"")? == 1.0,
        "Ingresses are followed: {:?}",
        scene.pod.readyz()
    );
    let log = scene.pod.log();
    let named = ["the kind is not followed", "\"Secret\"", "HTTP 403"];
    let line = log.lines().find(|line| named.iter().all(|part| line.contains(part)));
    ensure!(line.is_some(), "the log does not name the kind and the reason\n{log}");
    let hidden = scene.put("Secret", "hidden")?;
    let other = scene.put("Ingress", "other")?;
    scene.until_known(SOON, &other, true)?;
    let world = scene.pod.world()?;
    ensure!(world.contains("Secret/shop/first") && !world.contains(&hidden), "what was known stays: {world:?}");
    scene.plane.kubectl_reading(RIGHTS, &["apply", "--filename", "-"])?;
    let time = scene.until_known(TRIED_AGAIN, &hidden, true)?;
    scene.until(SOON, "it is well again", || Ok(scene.pod.is_well()))?;
    scene.say(&format!("allowed again: known after {:.1} s", time.as_secs_f64()));
    Ok(())
}

/// Gives the API server the definitions of the Gateway API.
fn define(scene: &Scene) -> Result<()> {
    let definitions: Vec<String> =
        SAMPLES.iter().filter(|sample| sample.is_custom()).map(|sample| sample.definition().to_string()).collect();
    scene.plane.kubectl_reading(&definitions.join("\n---\n"), &["apply", "--filename", "-"])?;
    let established = ["wait", "--for=condition=Established", "--all", "customresourcedefinitions", "--timeout=30s"];
    scene.plane.kubectl(&established).map(drop)
}

/// Kinds whose definitions came after the start are followed; when one goes, its objects do, and that is said.
fn definitions_come_and_go(scene: &Scene, defined: Instant) -> Result<()> {
    let (gateway, route) = (scene.put("Gateway", "late")?, scene.put("HTTPRoute", "late")?);
    scene.until_known(LOOKED_FOR, &gateway, true)?;
    scene.until_known(LOOKED_FOR, &route, true)?;
    scene.say(&format!("kinds defined {:.0} s ago are followed", defined.elapsed().as_secs_f64()));
    scene.plane.kubectl(&["delete", "customresourcedefinition", "httproutes.gateway.networking.k8s.io"])?;
    scene.until_known(SOON, &route, false)?;
    scene.until(SOON, "it is told that the kind is absent", || {
        let absent = "kind=\"HTTPRoute\",state=\"absent\"";
        Ok(scene.pod.metric("scalws_controller_watches", absent)? == 1.0)
    })?;
    let log = scene.pod.log();
    let absent = |line: &str| line.contains("does not serve this kind") && line.contains("\"HTTPRoute\"");
    ensure!(log.lines().filter(|line| absent(line)).count() >= 2, "before it came and after it went\n{log}");
    // Other kinds may be refused for a moment while the API server arranges itself anew.
    scene.until(SOON, "the other kinds are followed", || Ok(scene.pod.is_well()))?;
    ensure!(scene.pod.world()?.contains(&gateway), "a definition went, and took an object of another kind with it");
    scene.say("a definition went, and its objects with it");
    Ok(())
}

/// While there is no API server the world stays, and it is said; when it is back everything is followed within seconds. It has
/// forgotten the past, so everything is listed anew, and the one Gateway that went unseen goes when two lists have shown it.
fn api_server_goes_away_and_comes_back(scene: &Scene) -> Result<()> {
    let before = scene.pod.world()?;
    scene.relay.set(Way::Cut);
    scene.plane.kubectl(&["delete", "gateway", "late", "--namespace", NAMESPACE])?;
    scene.plane.compact()?;
    scene.plane.stop(Component::ApiServer)?;
    scene.relay.set(Way::Open);
    let gone = Instant::now();
    let waiting = || scene.pod.metric("scalws_controller_watches", "state=\"waiting\"");
    scene.until(SOON, "it is told that nothing is followed", || {
        let (status, text) = scene.pod.readyz()?;
        ensure!(status == 200, "it is not ready without an API server: {text}");
        Ok(text.contains("Ingress is not followed; what was known stays in force: ") && waiting()? >= 8.0)
    })?;
    // sleep: how long it is away is the input of the test.
    std::thread::sleep(AWAY.saturating_sub(gone.elapsed()));
    ensure!(scene.pod.world()? == before, "the world changed although there was nobody to say so");
    let silence = scene.pod.metric("scalws_controller_watch_silence_seconds", "kind=\"Ingress\"")?;
    let lines = scene.pod.log().lines().filter(|line| line.contains("\"ERROR\"")).count();
    ensure!(lines == 0, "{lines} lines of errors although everything is said once\n{}", scene.pod.log());
    ensure!(silence >= AWAY.as_secs_f64() / 2.0, "silent for {silence} s");
    scene.plane.start_again(Component::ApiServer)?;
    scene.plane.wait_ready()?;
    let meanwhile = scene.put("ConfigMap", "meanwhile")?;
    let time = scene.until(BACK, "everything is followed again", || {
        Ok(scene.pod.readyz().is_ok_and(|(status, text)| status == 200 && !text.contains("is not followed")))
    })?;
    scene.until_known(BACK, &meanwhile, true)?;
    scene.say(&format!(
        "away for {:.0} s, all followed {:.1} s after the return",
        AWAY.as_secs_f64(),
        time.as_secs_f64()
    ));
    let time = scene.until_known(SHOWN_TWICE, &format!("Gateway/{NAMESPACE}/late"), false)?;
    scene.until(SOON, "it is well again", || Ok(scene.pod.is_well()))?;
    scene.say(&format!("the last Gateway, which went unseen, was gone {:.1} s later", time.as_secs_f64()));
    let after: Vec<_> = before.difference(&scene.pod.world()?).cloned().collect();
    ensure!(after == [format!("Gateway/{NAMESPACE}/late")], "nothing else went: {after:?}");
    Ok(())
}

/// The token that it began with ends, and it goes on with the one that took its place.
fn goes_on_with_another_token(scene: &Scene, replaced: Instant, first: &str) -> Result<()> {
    let wait = TOKEN_IS_READ.saturating_sub(replaced.elapsed());
    scene.say(&format!("waiting for {:.0} s more until the file was read again", wait.as_secs_f64()));
    // sleep: the client reads the file by its own clock and tells nobody.
    std::thread::sleep(wait);
    scene.plane.kubectl(&["delete", "secret", "first", "--namespace", "scalws"])?;
    let token = format!("--token={first}");
    let nobody = ["--kubeconfig=/dev/null", "--server=https://127.0.0.1:6443", "--insecure-skip-tls-verify", &token];
    let mut last = String::new();
    let refused = scene.until(TOKEN_ENDS, "the first token is refused", || {
        let asked = scene.plane.kubectl(&[&nobody[..], &["get", "ingresses", "--all-namespaces"]].concat());
        last = asked.unwrap_or_else(|error| format!("{error:#}"));
        // What it says depends on whether it remembers which kinds the server has.
        Ok(["Unauthorized", "asked for the client to provide credentials"].iter().any(|word| last.contains(word)))
    });
    let time = refused.with_context(|| format!("the last answer was {last:?}"))?;
    scene.say(&format!("the first token is refused after {:.1} s", time.as_secs_f64()));
    scene.cut();
    let after = scene.put("Service", "after")?;
    scene.until_known(SOON, &after, true)?;
    scene.until(SOON, "everything is followed", || Ok(scene.pod.is_well()))?;
    ensure!(!scene.pod.log().contains("HTTP 401"), "{}", scene.pod.log());
    scene.say("the first token is refused, and the controller has the second");
    Ok(())
}

#[test]
fn a_controller_in_a_pod_serves_on_whatever_happens_to_its_rights_its_token_and_its_api_server() -> Result<()> {
    let what = "a controller in a pod of a real cluster";
    let Some((mut scene, first)) = start(what)? else { return Ok(()) };
    has_all_that_it_needs(&scene)?;
    let second = token(&scene.plane, "second")?;
    scene.pod.give_token(&second)?;
    let replaced = Instant::now();
    define(&scene)?;
    let defined = Instant::now();
    loses_a_right_and_gets_it_again(&scene)?;
    definitions_come_and_go(&scene, defined)?;
    api_server_goes_away_and_comes_back(&scene)?;
    goes_on_with_another_token(&scene, replaced, &first)?;
    scene.pod.is_unharmed()
}
