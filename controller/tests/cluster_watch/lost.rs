//! Lost watch events: whatever no watch told is found, and while everything else changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use controller::watch::cluster::{KINDS, Pace};
use fake_apiserver::Server;
use fake_apiserver::changes::{self, Act, Change, SAMPLES};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use translate::Object;

use super::controller::{Controller, config_map, now, settings};

/// What is in force must be what the API server has: names, uids and generations. Where there is no generation the uid stands for
/// all.
fn truth(server: &mut Server) -> BTreeMap<String, String> {
    let mut truth = BTreeMap::new();
    for sample in &SAMPLES {
        for object in server.objects(&sample.resource()) {
            let metadata = &object["metadata"];
            let (namespace, name) =
                (metadata["namespace"].as_str().unwrap_or_default(), metadata["name"].as_str().unwrap());
            let state =
                format!("{} {}", metadata["uid"].as_str().unwrap(), metadata["generation"].as_i64().unwrap_or(0));
            truth.insert(format!("{}/{namespace}/{name}", sample.kind), state);
        }
    }
    truth
}

async fn in_force(controller: &Controller) -> BTreeMap<String, String> {
    let world = controller.worker.debug(controller::pipeline::Debug::World).await.unwrap();
    let objects = world["objects"].as_array().unwrap().iter().map(|object| {
        let state = format!("{} {}", object["uid"].as_str().unwrap(), object["generation"].as_i64().unwrap_or(0));
        (object["ref"].as_str().unwrap().to_owned(), state)
    });
    objects.collect()
}

/// Changes a random object: makes, edits, removes, or removes and makes it again. Of each kind some stay, since a list that shows
/// none of a kind is held.
fn change(server: &mut Server, random: &mut StdRng, number: u64) {
    let Change { sample, name, act } = changes::change(random.random(), number);
    let resource = sample.resource();
    match act {
        Act::Remove if server.objects(&resource).count() > 2 => {
            server.remove(&resource, sample.namespace(), &name);
        }
        Act::Remove => {}
        Act::Put(object) => server.apply(now(), object).unwrap(),
        Act::Replace(object) => {
            server.remove(&resource, sample.namespace(), &name);
            server.apply(now(), object).unwrap();
        }
    }
}

/// A server that has all kinds and nothing else.
fn server() -> Server {
    let mut server = Server::default();
    SAMPLES.iter().filter(|sample| sample.is_custom()).for_each(|sample| server.define(sample.custom_kind()));
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_changes_that_no_watch_told_are_all_found() {
    let mut server = server();
    for name in ["o0", "o1", "o2", "o3"] {
        SAMPLES.iter().for_each(|sample| server.apply(now(), sample.object(name, 0)).unwrap());
    }
    let mut settings = settings();
    settings.pace.differ_ms = 20;
    settings.pace.first_wait_ms = 2;
    let controller = Controller::start(server, &settings).await;
    controller.ready().await;
    let mut random = StdRng::seed_from_u64(0x5ca1ab1e);
    for number in 0..1_000 {
        let truth = controller.api.with(|server| {
            match random.random_range(0..4) {
                // Behind a cut watch: the next one goes on from where it was.
                0 => server.cut_watches(None),
                // And has to list anew, since that is forgotten.
                1 => {
                    server.cut_watches(None);
                    change(server, &mut random, 100_000 + number);
                    server.compact();
                }
                // Open watches do not hear of it.
                _ => SAMPLES.iter().for_each(|sample| server.lose_events(&sample.resource(), u64::MAX / 2)),
            }
            change(server, &mut random, number);
            SAMPLES.iter().for_each(|sample| server.hear_events(&sample.resource()));
            truth(server)
        });
        controller.caught_up().await;
        assert_eq!(in_force(&controller).await, truth, "round {number}");
    }
    let differed: u64 = SAMPLES.iter().map(|sample| controller.restarts(sample.kind, "differs")).sum();
    assert!(differed > 100, "only {differed} rounds lost an event, so this shows little");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_being_asked_a_lost_event_is_found_by_the_comparison_in_time() {
    let mut server = Server::default();
    ["a", "b"].into_iter().for_each(|name| server.apply(now(), config_map(name, "1")).unwrap());
    let mut settings = settings();
    settings.pace = Pace { compare_ms: 300, differ_ms: 20, ..settings.pace };
    let controller = Controller::start(server, &settings).await;
    controller.ready().await;
    controller.api.with(|server| server.lose_events("configmaps", 1));
    controller.remove("configmaps", "a");
    controller.until("the removal was found", async |c| !c.has("ConfigMap/shop/a").await).await;
    assert!(controller.restarts("ConfigMap", "differs") > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn catching_up_ends_while_objects_change_all_the_time() {
    let mut server = server();
    let mut random = StdRng::seed_from_u64(7);
    for number in 0..200 {
        change(&mut server, &mut random, number);
    }
    let controller = Controller::start(server, &settings()).await;
    controller.ready().await;
    let shared = controller.api.shared().clone();
    let churn = tokio::spawn(async move {
        for number in 0.. {
            shared.with(|server| change(server, &mut random, number));
            // sleep: the pace of the changes; nothing is waited for.
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    });
    for round in 0..20 {
        let name = format!("mark{round}");
        controller.apply(config_map(&name, "1"));
        controller.caught_up().await;
        assert!(controller.has(&format!("ConfigMap/shop/{name}")).await, "round {round}");
    }
    churn.abort();
    let lists: u64 = SAMPLES.iter().map(|sample| controller.watch(sample.kind).counts.lists).sum();
    assert_eq!(lists, SAMPLES.len() as u64, "nothing had to be listed anew for it");
}

#[test]
fn every_kind_that_is_followed_changes_and_every_edit_can_be_seen() {
    for sample in &SAMPLES {
        let [one, other] = [1, 2].map(|number| Object::from_value(sample.object("a", number)).unwrap());
        assert_eq!(one.kind(), sample.kind);
        assert_ne!(one, other, "an edit of a {} has to be seen", sample.kind);
    }
    let followed: BTreeSet<_> = KINDS.iter().map(|kind| kind.name).collect();
    assert_eq!(
        SAMPLES.iter().map(|sample| sample.kind).collect::<BTreeSet<_>>(),
        followed,
        "all kinds that are followed"
    );
}
