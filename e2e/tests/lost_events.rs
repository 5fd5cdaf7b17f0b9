//! Lost watch events at a real API server: whatever happens to an object while the way to the server is cut or dead is seen after it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use controller::api_server::ApiServer;
use controller::watch::cluster::{Cluster, KindWatchSettings, Pace, WatchStates};
use e2e::cluster::{ControlPlane, Settings};
use e2e::process::until;
use e2e::replicas::relay::{Relay, Way};
use e2e::traffic::scene::scaled;
use fake_apiserver::changes::{self, Act, Change, SAMPLES, Sample};
use http::{Method, Request};
use kube::Client;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use translate::Object;

/// The way of the controller to the API server: an address that the server's certificate names.
const WAY: &str = "127.0.0.1:7443";
/// The API server itself.
const SERVER: &str = "127.0.0.1:6443";
/// Changes behind each fault of the way.
const BEHIND_EACH: usize = 5;
/// Within this a change is seen after the heal, on a slow machine.
const SEEN: Duration = Duration::from_secs(20);

type Objects = BTreeMap<String, Arc<Object>>;

/// What a controller holds: the shipped watches, and all that came out of them.
struct Follower {
    cluster: Cluster,
    states: Arc<WatchStates>,
    held: Objects,
}

impl Follower {
    fn start(runtime: &Runtime, client: &Client) -> Result<Follower> {
        let _within = runtime.enter();
        // Reconnects at once, and is not helped by a comparison.
        let pace = Pace { first_wait_ms: 2, longest_wait_ms: 200, compare_ms: 3_600_000, ..Pace::default() };
        let settings = KindWatchSettings { pace, ..KindWatchSettings::default() };
        let states = Arc::default();
        Ok(Follower { cluster: Cluster::start(client, &settings, &states)?, states, held: Objects::new() })
    }

    /// Takes in what has come.
    fn step(&mut self) -> Result<()> {
        for batch in self.cluster.step()? {
            ensure!(batch.findings.iter().all(|(_, findings)| findings.is_empty()), "{:?}", batch.findings);
            let listed = batch.listed.map(|listing| listing.changes).unwrap_or_default();
            for change in batch.observed.into_iter().chain(listed) {
                match change {
                    translate::Change::Put(object) => drop(self.held.insert(object.reference().to_string(), object)),
                    translate::Change::Delete(object) => drop(self.held.remove(&object.to_string())),
                    translate::Change::Settings(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Waits until something holds of what it holds.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Follower) -> bool) -> Result<()> {
        let waited = until(SEEN, what, || {
            self.step()?;
            Ok(holds(self))
        });
        waited.with_context(|| self.states.troubles())
    }

    /// Waits until everything has come that the API server has now.
    fn catch_up(&mut self) -> Result<()> {
        let ticket = self.cluster.ask(None);
        self.until("everything that the API server has has come", |follower| follower.cluster.seen() >= ticket)
    }

    /// How often watches ended, for any reason or for this one.
    fn restarts(&self, reason: Option<&str>) -> u64 {
        let all = self.states.all();
        let counts = all.values().flat_map(|state| &state.counts.restarts);
        counts.filter(|(why, _)| reason.is_none_or(|reason| reason == **why)).map(|(_, count)| count).sum()
    }
}

/// Writes to the API server directly.
struct Writer<'a> {
    runtime: &'a Runtime,
    client: Client,
}

impl Writer<'_> {
    fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> Result<Value> {
        let request = Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, kind);
        let request = request.body(serde_json::to_vec(body)?)?;
        self.runtime.block_on(self.client.request(request)).with_context(|| path.to_owned())
    }

    /// Makes or edits an object; gives it as the API server has it now.
    fn put(&self, sample: &Sample, name: &str, object: &Value) -> Result<Arc<Object>> {
        let path = format!("{}/{name}?fieldManager=test&force=true", sample.path());
        Ok(Arc::new(Object::from_value(self.send(Method::PATCH, &path, "application/apply-patch+yaml", object)?)?))
    }

    fn remove(&self, sample: &Sample, name: &str) -> Result<()> {
        let path = format!("{}/{name}", sample.path());
        let gone = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 404);
        match self.send(Method::DELETE, &path, "application/json", &json!({})) {
            Ok(namespace) if sample.kind == "Namespace" => {
                // What a controller of namespaces does when everything in one is gone; there is none here.
                let mut namespace = namespace;
                namespace["spec"]["finalizers"] = json!([]);
                self.send(Method::PUT, &format!("{path}/finalize"), "application/json", &namespace).map(drop)
            }
            Err(error) if !gone(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Does a change; gives what must be known of the object then.
    fn act(&self, Change { sample, name, act }: &Change) -> Result<(String, Option<Arc<Object>>)> {
        let object = match act {
            Act::Put(object) => Some(self.put(sample, name, object)?),
            Act::Remove => {
                self.remove(sample, name)?;
                None
            }
            Act::Replace(object) => {
                self.remove(sample, name)?;
                Some(self.put(sample, name, object)?)
            }
        };
        Ok((format!("{}/{}/{name}", sample.kind, sample.namespace()), object))
    }

    /// Everything that the API server has of the kinds that are followed.
    fn all(&self) -> Result<Objects> {
        let mut objects = Objects::new();
        for sample in &SAMPLES {
            // In all namespaces.
            let path = sample.path().replace(&format!("/namespaces/{}", changes::NAMESPACE), "");
            let list = self.send(Method::GET, &path, "application/json", &Value::Null)?;
            for item in list["items"].as_array().with_context(|| format!("{path} gave no list"))? {
                let mut item = item.clone();
                (item["apiVersion"], item["kind"]) = (sample.api_version().into(), sample.kind.into());
                let object = Arc::new(Object::from_value(item)?);
                objects.insert(object.reference().to_string(), object);
            }
        }
        Ok(objects)
    }
}

/// What the first differences are; nothing when there is none.
fn differences(held: &Objects, truth: &Objects) -> Vec<String> {
    let names = truth.keys().chain(held.keys().filter(|name| !truth.contains_key(*name)));
    let differ = names.filter(|name| held.get(*name) != truth.get(*name));
    differ.map(|name| format!("{name}: held {:?}, the API server has {:?}", held.get(name), truth.get(name))).collect()
}

#[test]
fn what_happens_behind_a_cut_or_dead_way_to_a_real_api_server_is_always_seen() -> Result<()> {
    let what = "changes behind cut watches of a real API server";
    let Some(plane) = ControlPlane::start(what, &Settings::default())? else { return Ok(()) };
    plane.enter()?;
    // After the move, so that its threads are there too.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let text = std::fs::read_to_string(plane.kubeconfig())?.replace("192.0.2.10:6443", WAY);
    ensure!(text.contains(WAY), "the kubeconfig names another server: {text}");
    let over_the_way = folder.path().join("kubeconfig");
    std::fs::write(&over_the_way, text)?;
    let client = |kubeconfig| runtime.block_on(ApiServer { kubeconfig: Some(kubeconfig), context: None }.client());
    let writer = Writer { runtime: &runtime, client: client(plane.kubeconfig())? };
    plane.kubectl(&["create", "namespace", changes::NAMESPACE])?;
    let definitions: Vec<String> =
        SAMPLES.iter().filter(|sample| sample.is_custom()).map(|sample| sample.definition().to_string()).collect();
    plane.kubectl_reading(&definitions.join("\n---\n"), &["apply", "--filename", "-"])?;
    plane.kubectl(&["wait", "--for=condition=Established", "--all", "customresourcedefinitions", "--timeout=30s"])?;

    let relay = Relay::start(runtime.handle(), WAY.parse()?, SERVER.parse()?)?;
    let mut follower = Follower::start(&runtime, &client(over_the_way)?)?;
    follower.catch_up()?;
    let mut random = StdRng::seed_from_u64(0x5ca1ab1e);
    let rounds = scaled(200, 2_000);
    let (began, before) = (Instant::now(), follower.restarts(None));
    let (mut number, mut longest) = (0, Duration::ZERO);
    for round in 0..rounds {
        // Cut: connections end, and new ones too. Silent: nothing comes through; what was sent meanwhile comes late, or never
        // when the connections end as well.
        let (during, lost) = *[(Way::Cut, true), (Way::Silent, true), (Way::Silent, false)]
            .get(random.random_range(0..3))
            .context("one of three")?;
        relay.set(during);
        let mut expected = BTreeMap::new();
        for _ in 0..BEHIND_EACH {
            number += 1;
            let change = changes::change(random.random(), number);
            let (name, object) = writer.act(&change).with_context(|| format!("{change:?}"))?;
            expected.insert(name, object);
        }
        if round % 100 == 50 {
            // The version to go on from is one that nobody knows any more.
            plane.forget()?;
        }
        if lost {
            relay.set(Way::Cut);
        }
        let healed = Instant::now();
        relay.set(Way::Open);
        let seen = follower.until("the changes are seen", |follower| {
            expected.iter().all(|(name, object)| follower.held.get(name) == object.as_ref())
        });
        seen.with_context(|| format!("round {round}: {during:?}, lost {lost}: {expected:?}"))?;
        longest = longest.max(healed.elapsed());
        if round % 20 == 19 {
            follower.catch_up()?;
            let differences = differences(&follower.held, &writer.all()?);
            ensure!(differences.is_empty(), "round {round}: {}", differences.join("\n"));
        }
    }
    let (restarts, expired) = (follower.restarts(None) - before, follower.restarts(Some("expired")));
    ensure!(restarts > u64::from(rounds), "watches ended only {restarts} times, so this shows little");
    ensure!(expired > 0, "no watch had to begin anew, so this shows less than it could");
    eprintln!(
        "{number} changes behind {rounds} faults in {:.0} s, {restarts} watches ended, {expired} had to list anew, none lost; seen \
         within {} ms after the heal",
        began.elapsed().as_secs_f64(),
        longest.as_millis()
    );
    Ok(())
}
