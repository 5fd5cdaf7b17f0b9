//! `ProxyFleet.status` at the API server: written by whoever leads, only what changed, at its own pace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, header};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use push::server_session::Role;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use translate::FleetName;
use translate::objects::{FLEET_GROUP, FLEET_VERSION, FleetCondition, ProxyFleetStatus};

use super::Report;
use crate::election::Term;
use crate::hub::Hub;

/// The shortest time between two writes about one fleet.
const PAUSE: Duration = Duration::from_secs(1);
/// How long after a write that failed it is tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Whose the fields are (server-side apply).
const MANAGER: &str = "scalws-controller";

impl Report {
    /// What is to be said of every ProxyFleet, without the times of its conditions.
    pub fn proxy_fleets(&self) -> Vec<(FleetName, ProxyFleetStatus)> {
        let statuses = self.proxy_fleets.iter().filter_map(|(id, observed_generation)| {
            let draft = self.drafts.get(id)?;
            let name = FleetName::new(&id.key().namespace, &id.key().name);
            let conditions = draft.conditions.iter().map(|condition| FleetCondition {
                kind: condition.kind.to_owned(),
                status: if condition.status { "True" } else { "False" }.to_owned(),
                reason: condition.reason.to_owned(),
                message: condition.message.clone(),
                observed_generation: *observed_generation,
                last_transition_time: String::new(),
            });
            let mut status = ProxyFleetStatus {
                observed_generation: *observed_generation,
                conditions: conditions.collect(),
                ..ProxyFleetStatus::default()
            };
            // A fleet that is none has neither agents nor a generation.
            if let Some(fleet) = self.fleets.get(&name) {
                let connected = || fleet.agents.values().filter(|agent| agent.connected);
                let not_live: std::collections::BTreeSet<_> =
                    connected().flat_map(|agent| agent.not_live.keys()).collect();
                status.agents = signed(connected().count());
                status.current = signed(connected().filter(|agent| agent.applied == Some(fleet.version)).count());
                status.generation = i64::try_from(fleet.version.generation).unwrap_or(i64::MAX);
                let lag_ms = connected().filter_map(|agent| agent.lag_us).max().unwrap_or(0).div_ceil(1_000);
                status.lag_seconds = u32::try_from(lag_ms).map_or(f64::MAX, |ms| f64::from(ms) / 1_000.0);
                status.not_live = signed(not_live.len());
            }
            Some((name, status))
        });
        statuses.collect()
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Gives the conditions their times: that of before where the status is the same.
fn with_times(mut status: ProxyFleetStatus, before: &ProxyFleetStatus, now: &str) -> ProxyFleetStatus {
    for condition in &mut status.conditions {
        let same = before.conditions.iter().find(|old| old.kind == condition.kind && old.status == condition.status);
        condition.last_transition_time = same.map_or_else(|| now.to_owned(), |old| old.last_transition_time.clone());
    }
    status
}

/// What is known of the status of one ProxyFleet at the API server.
#[derive(Debug)]
struct Known {
    status: Option<ProxyFleetStatus>,
    /// Nothing is asked about it before.
    next: Instant,
    failing: bool,
}

/// Who writes.
struct Writer<'a> {
    client: &'a Client,
    term: &'a Term,
    known: BTreeMap<FleetName, Known>,
}

/// Writes while we lead, until the process ends.
pub(crate) async fn run(hub: Arc<Hub>, mut role: watch::Receiver<Role>, term: Arc<Term>, client: Client) {
    let mut changed = hub.subscribe();
    let mut writer = Writer { client: &client, term: &term, known: BTreeMap::new() };
    loop {
        if *role.borrow_and_update() != Role::Leading {
            // Another one may write meanwhile.
            writer.known.clear();
            if role.changed().await.is_err() {
                return;
            }
            continue;
        }
        changed.mark_unchanged();
        let wanted = hub.read(Report::proxy_fleets);
        let next = writer.round(wanted).await;
        tokio::time::sleep(PAUSE).await;
        tokio::select! {
            changed = role.changed() => if changed.is_err() { return },
            changed = changed.changed() => if changed.is_err() { return },
            () = async { tokio::time::sleep_until(next.unwrap_or_else(Instant::now)).await }, if next.is_some() => {}
        }
    }
}

impl Writer<'_> {
    /// Writes what is another now. Gives when there is more to do even if nothing changes.
    async fn round(&mut self, wanted: Vec<(FleetName, ProxyFleetStatus)>) -> Option<Instant> {
        self.known.retain(|name, _| wanted.iter().any(|(known, _)| known == name));
        let mut later = None;
        for (name, status) in wanted {
            let now = Instant::now();
            let known = self.known.entry(name.clone()).or_insert(Known { status: None, next: now, failing: false });
            if known.next > now {
                later = later.into_iter().chain([known.next]).min();
                continue;
            }
            let before = match known.status.take() {
                Some(before) => Ok(before),
                // Its conditions may be older than we are.
                None => ask(self.client, &name).await,
            };
            let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let done = match before {
                Ok(before) => {
                    let new = with_times(status, &before, &time);
                    if new == before {
                        known.status = Some(before);
                        continue;
                    }
                    if !self.term.holds() {
                        return later;
                    }
                    write(self.client, &name, &new).await.map(|()| new)
                }
                Err(error) => Err(error),
            };
            match done {
                Ok(new) => {
                    *known = Known { status: Some(new), next: Instant::now() + PAUSE, failing: false };
                }
                // It went, and its end is on its way to us.
                Err(Fault::Gone) => known.next = Instant::now() + PAUSE,
                Err(Fault::Other(error)) => {
                    // Once, not at each attempt.
                    if !std::mem::replace(&mut known.failing, true) {
                        tracing::warn!(fleet = %name, error, "the status of the ProxyFleet cannot be written");
                    }
                    known.next = Instant::now() + AGAIN;
                    later = later.into_iter().chain([known.next]).min();
                }
            }
        }
        later
    }
}

/// Why a request led to nothing.
enum Fault {
    Gone,
    Other(String),
}

async fn ask(client: &Client, name: &FleetName) -> Result<ProxyFleetStatus, Fault> {
    let object = send(client, Method::GET, path(name), Vec::new()).await?;
    // One that somebody mangled is written anew.
    Ok(serde_json::from_value(object["status"].clone()).unwrap_or_default())
}

async fn write(client: &Client, name: &FleetName, status: &ProxyFleetStatus) -> Result<(), Fault> {
    let body = json!({
        "apiVersion": format!("{FLEET_GROUP}/{FLEET_VERSION}"),
        "kind": "ProxyFleet",
        "metadata": { "namespace": &*name.namespace, "name": &*name.name },
        "status": status,
    });
    let path = format!("{}/status?fieldManager={MANAGER}&force=true", path(name));
    send(client, Method::PATCH, path, body.to_string().into_bytes()).await.map(drop)
}

fn path(name: &FleetName) -> String {
    format!("/apis/{FLEET_GROUP}/{FLEET_VERSION}/namespaces/{}/proxyfleets/{}", name.namespace, name.name)
}

async fn send(client: &Client, method: Method, path: String, body: Vec<u8>) -> Result<Value, Fault> {
    let kind = if method == Method::PATCH { "application/apply-patch+yaml" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind).body(body);
    let request = request.map_err(|error| Fault::Other(error.to_string()))?;
    match tokio::time::timeout(TIMEOUT, client.request::<Value>(request)).await {
        Ok(Ok(object)) => Ok(object),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(Fault::Gone),
        Ok(Err(error)) => Err(Fault::Other(error.to_string())),
        Err(_) => Err(Fault::Other(format!("no answer within {TIMEOUT:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(kind: &str, status: &str, time: &str) -> FleetCondition {
        FleetCondition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            last_transition_time: time.to_owned(),
            ..FleetCondition::default()
        }
    }

    #[test]
    fn a_condition_keeps_the_time_at_which_its_status_became_this_one() {
        let of = |conditions: Vec<FleetCondition>| ProxyFleetStatus { conditions, ..ProxyFleetStatus::default() };
        let before = of(vec![condition("Accepted", "True", "then"), condition("Consented", "False", "then")]);
        let wanted = of(vec![
            condition("Accepted", "True", ""),
            condition("Consented", "True", ""),
            condition("New", "False", ""),
        ]);
        let new = with_times(wanted.clone(), &before, "now");
        let times: Vec<_> = new.conditions.iter().map(|condition| condition.last_transition_time.as_str()).collect();
        assert_eq!(times, ["then", "now", "now"]);
        assert_eq!(with_times(wanted, &new, "later"), new, "nothing changed, so nothing is written");
    }

    #[test]
    fn a_status_that_was_written_is_read_as_the_same() {
        let status = ProxyFleetStatus {
            agents: 3,
            lag_seconds: 0.017,
            conditions: vec![condition("Accepted", "True", "2026-12-01T12:00:00Z")],
            ..ProxyFleetStatus::default()
        };
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<ProxyFleetStatus>(&text).unwrap(), status);
    }
}
