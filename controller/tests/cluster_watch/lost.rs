//! Lost watch events: whatever no watch told is found, and while everything else changes.

use std::collections::BTreeMap;
use std::time::Duration;

use controller::watch::cluster::Pace;
use fake_apiserver::Server;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use translate::Object;

use super::controller::{Controller, config_map, gateway_kinds, ingress, now, route, service, settings};

/// A kind, its resource, and how an object of it is made.
type Changing = (&'static str, &'static str, fn(&str) -> Value);

/// The kinds that change.
const KINDS: [Changing; 4] = [
    ("Ingress", "ingresses.networking.k8s.io", ingress),
    ("Service", "services", service),
    ("ConfigMap", "configmaps", |name| config_map(name, "1")),
    ("HTTPRoute", "httproutes.gateway.networking.k8s.io", route),
];

/// What is in force must be what the API server has: names, uids and generations. Of ConfigMaps the uid stands for all.
fn truth(server: &mut Server) -> BTreeMap<String, String> {
    let mut truth = BTreeMap::new();
    for (kind, resource, _) in KINDS {
        for object in server.objects(resource) {
            let metadata = &object["metadata"];
            let name = metadata["name"].as_str().unwrap();
            let state =
                format!("{} {}", metadata["uid"].as_str().unwrap(), metadata["generation"].as_i64().unwrap_or(0));
            truth.insert(format!("{kind}/shop/{name}"), state);
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
    objects.filter(|(name, _)| KINDS.iter().any(|(kind, _, _)| name.starts_with(&format!("{kind}/shop/")))).collect()
}

/// Changes a random object: makes, edits, removes, or removes and makes it again.
fn change(server: &mut Server, random: &mut StdRng, number: usize) -> &'static str {
    let (_, resource, make) = *KINDS.choose(random).unwrap();
    let name = format!("o{}", random.random_range(0..6));
    let mut object = make(&name);
    // Every edit is one of the spec, so that the generation tells it.
    match resource {
        "ingresses.networking.k8s.io" => object["spec"]["rules"][0]["host"] = format!("h{number}.example").into(),
        "services" => object["spec"]["ports"][0]["targetPort"] = (1000 + number).into(),
        "configmaps" => object["data"]["value"] = number.to_string().into(),
        _ => object["spec"]["hostnames"] = serde_json::json!([format!("h{number}.example")]),
    }
    match random.random_range(0..4) {
        0 if server.objects(resource).count() > 2 => {
            server.remove(resource, "shop", &name);
        }
        1 => {
            server.remove(resource, "shop", &name);
            server.apply(now(), object).unwrap();
        }
        _ => server.apply(now(), object).unwrap(),
    }
    resource
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_changes_that_no_watch_told_are_all_found() {
    let mut server = Server::default();
    gateway_kinds().into_iter().for_each(|kind| server.define(kind));
    for name in ["o0", "o1", "o2", "o3"] {
        KINDS.iter().for_each(|(_, _, make)| server.apply(now(), make(name)).unwrap());
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
                _ => KINDS.iter().for_each(|(_, resource, _)| server.lose_events(resource, u64::MAX / 2)),
            }
            change(server, &mut random, number);
            KINDS.iter().for_each(|(_, resource, _)| server.hear_events(resource));
            truth(server)
        });
        controller.caught_up().await;
        assert_eq!(in_force(&controller).await, truth, "round {number}");
    }
    let differed: u64 = KINDS.iter().map(|(kind, _, _)| controller.restarts(kind, "differs")).sum();
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
    let mut server = Server::default();
    gateway_kinds().into_iter().for_each(|kind| server.define(kind));
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
    let lists: u64 = KINDS.iter().map(|(kind, _, _)| controller.watch(kind).counts.lists).sum();
    assert_eq!(lists, KINDS.len() as u64, "nothing had to be listed anew for it");
}

#[test]
fn the_objects_of_these_tests_can_be_read() {
    for (kind, _, make) in KINDS {
        assert_eq!(Object::from_value(make("a")).unwrap().kind(), kind);
    }
}
