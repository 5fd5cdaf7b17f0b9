//! Faults as a client over HTTP meets them.

// Outside of test functions clippy does not know that this is a test.
#![allow(clippy::unwrap_used)]

mod port;

use std::time::Duration;

use fake_apiserver::http::Running;
use fake_apiserver::{Fault, Method, Request, Server, Verb, What};
use port::{MAPS, ask, config_map, get, start, watch};
use serde_json::json;

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);

/// Waits until the server says so.
async fn until(running: &Running, what: &str, holds: impl Fn(&mut Server) -> bool) {
    let wait = async {
        while !running.with(&holds) {
            // sleep: the server tells nobody what it counts.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(SOON, wait).await.is_ok(), "not in time: {what}");
}

fn name(event: &serde_json::Value) -> String {
    format!("{} {}", event["type"].as_str().unwrap(), event["object"]["metadata"]["name"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn a_refusal_meets_one_kind_and_says_when_to_come_again() {
    let running = start().await;
    for (code, retry_after, reason) in
        [(403, None, "Forbidden"), (429, Some(7), "TooManyRequests"), (500, None, "InternalError")]
    {
        let id = running.with(|server| server.faults.add(Fault::of("configmaps", What::Refuse(code, retry_after))));
        let answer = get(&running, MAPS).await.unwrap();
        assert_eq!((answer.code, answer.retry_after), (code, retry_after));
        assert_eq!(answer.object()["reason"], reason);
        assert_eq!(get(&running, "/api/v1/secrets").await.unwrap().code, 200, "other kinds are served");
        running.with(|server| server.faults.remove(id));
        assert_eq!(get(&running, MAPS).await.unwrap().code, 200, "the fault is gone");
    }
}

#[tokio::test]
async fn a_request_that_hangs_is_answered_when_the_fault_goes() {
    let running = start().await;
    running.with(|server| server.faults.add(Fault::of("configmaps", What::Hang)));
    let hangs = async { get(&running, MAPS).await.unwrap().code };
    let meanwhile = async {
        until(&running, "the request came", |server| server.counts.of(Verb::List, "configmaps") == 1).await;
        let other = get(&running, "/api/v1/secrets").await.unwrap().code;
        running.with(|server| server.faults.clear());
        other
    };
    assert_eq!(tokio::join!(hangs, meanwhile), (200, 200));
}

#[tokio::test]
async fn a_delay_comes_before_the_request_does_anything() {
    let running = start().await;
    running.with(|server| server.faults.add(Fault::of("configmaps", What::Delay(1)).once()));
    let request = Request::new(Method::Delete, &format!("{MAPS}/a"));
    assert_eq!(ask(&running, request).await.unwrap().code, 200);
    running.with(|server| server.faults.add(Fault::of("configmaps", What::Delay(3_600_000))));
    let request = Request::new(Method::Delete, &format!("{MAPS}/b"));
    tokio::select! {
        answer = ask(&running, request) => panic!("a request that waits an hour is answered: {answer:?}"),
        () = until(&running, "it came", |server| server.counts.of(Verb::Delete, "configmaps") == 2) => {}
    }
    assert!(running.with(|server| server.object("configmaps", "shop", "b").is_some()), "it has done nothing yet");
}

#[tokio::test]
async fn an_empty_list_comes_once_and_with_the_present_version() {
    let running = start().await;
    running.with(|server| server.faults.add(Fault::of("configmaps", What::EmptyList).once()));
    assert_eq!(get(&running, &format!("{MAPS}/a")).await.unwrap().code, 200, "only lists are empty");
    let answer = get(&running, MAPS).await.unwrap().object();
    assert_eq!(answer["items"], json!([]));
    assert_eq!(answer["metadata"]["resourceVersion"], running.with(|server| server.version().to_string()));
    assert_eq!(get(&running, MAPS).await.unwrap().object()["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_lost_answer_was_done_all_the_same() {
    let running = start().await;
    running.with(|server| server.faults.add(Fault::of("configmaps", What::LoseAnswer).verb(Verb::Create).once()));
    let create = || Request::new(Method::Post, MAPS).with("application/json", &config_map("c", "0"));
    let lost = ask(&running, create()).await;
    assert!(lost.is_err(), "the answer came: {lost:?}");
    assert_eq!(ask(&running, create()).await.unwrap().object()["reason"], "AlreadyExists");
}

#[tokio::test]
async fn a_cut_breaks_open_watches_and_no_others() {
    let running = start().await;
    let version = running.with(|server| server.version());
    let mut maps = watch(&running, version).await;
    running.with(|server| server.cut_watches(Some("secrets")));
    running.with(|server| server.apply(1, config_map("a", "1"))).unwrap();
    assert_eq!(name(&maps.event().await.unwrap().unwrap()), "MODIFIED a");
    running.with(|server| server.cut_watches(None));
    let cut = maps.event().await;
    assert!(cut.is_err(), "the stream ended properly or went on: {cut:?}");
    assert_eq!(running.with(|server| server.open_watches(None)), 0);
    // The next watch goes on where this one was.
    running.with(|server| server.apply(1, config_map("b", "1"))).unwrap();
    let mut maps = watch(&running, version + 1).await;
    assert_eq!(name(&maps.event().await.unwrap().unwrap()), "MODIFIED b");
}

#[tokio::test]
async fn a_truncated_stream_ends_in_the_middle_of_an_event() {
    let running = start().await;
    let mut maps = watch(&running, running.with(|server| server.version())).await;
    running.with(|server| server.truncate_watches("configmaps"));
    running.with(|server| server.apply(1, config_map("a", "1"))).unwrap();
    let event = maps.event().await;
    assert!(event.is_err(), "a whole event came: {event:?}");
}

#[tokio::test]
async fn a_lost_event_is_lost_for_open_watches_only() {
    let running = start().await;
    let version = running.with(|server| server.version());
    let mut maps = watch(&running, version).await;
    running.with(|server| {
        server.lose_events("configmaps", 1);
        server.apply(1, config_map("a", "1")).unwrap();
        server.apply(1, config_map("b", "1")).unwrap();
    });
    assert_eq!(name(&maps.event().await.unwrap().unwrap()), "MODIFIED b");
    let mut again = watch(&running, version).await;
    assert_eq!(name(&again.event().await.unwrap().unwrap()), "MODIFIED a");
}

#[tokio::test]
async fn a_watch_from_before_a_compaction_is_told_so_and_a_current_one_goes_on() {
    let running = start().await;
    let version = running.with(|server| server.version());
    let mut current = watch(&running, version).await;
    running.with(|server| server.apply(1, config_map("a", "1"))).unwrap();
    assert_eq!(name(&current.event().await.unwrap().unwrap()), "MODIFIED a");
    running.with(Server::compact);
    let mut old = watch(&running, version).await;
    let error = old.event().await.unwrap().unwrap();
    assert_eq!(error["type"], "ERROR");
    assert_eq!((&error["object"]["code"], &error["object"]["reason"]), (&json!(410), &json!("Expired")));
    assert_eq!(old.event().await.unwrap(), None, "the stream ends after the error");
    running.with(|server| server.apply(1, config_map("b", "1"))).unwrap();
    assert_eq!(name(&current.event().await.unwrap().unwrap()), "MODIFIED b");
}

#[tokio::test]
async fn a_pause_holds_requests_and_watches_and_loses_nothing() {
    let running = start().await;
    let mut maps = watch(&running, running.with(|server| server.version())).await;
    running.with(|server| server.faults.pause());
    running.with(|server| server.apply(1, config_map("a", "1"))).unwrap();
    let held = async { get(&running, MAPS).await.unwrap().code };
    let resume = async {
        until(&running, "the request came", |server| server.counts.of(Verb::List, "configmaps") == 1).await;
        tokio::select! {
            biased;
            event = maps.event() => panic!("a paused server sends {event:?}"),
            () = std::future::ready(()) => {}
        }
        running.with(|server| server.faults.resume());
        name(&maps.event().await.unwrap().unwrap())
    };
    assert_eq!(tokio::join!(held, resume), (200, "MODIFIED a".to_owned()));
}

#[tokio::test]
async fn a_server_that_went_away_comes_back_on_its_port_with_its_objects() {
    let mut running = start().await;
    let mut maps = watch(&running, running.with(|server| server.version())).await;
    running.stop().await;
    assert!(maps.event().await.is_err(), "its watches break");
    assert!(get(&running, MAPS).await.is_err(), "nobody answers");
    until(&running, "its watches are closed", |server| server.open_watches(None) == 0).await;
    running.start_again().await.unwrap();
    assert_eq!(get(&running, MAPS).await.unwrap().object()["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_watch_whose_client_goes_is_closed_and_all_requests_were_counted() {
    let running = start().await;
    let version = running.with(|server| server.version());
    let watches = [watch(&running, version).await, watch(&running, version).await];
    get(&running, MAPS).await.unwrap();
    get(&running, "/version").await.unwrap();
    running.with(|server| {
        assert_eq!(server.open_watches(Some("configmaps")), 2);
        assert_eq!(server.open_watches(Some("secrets")), 0);
        let counts: Vec<_> = server.counts.all().collect();
        assert_eq!(counts, [(Verb::List, "configmaps", 1), (Verb::Watch, "configmaps", 2), (Verb::Other, "", 1)]);
    });
    drop(watches);
    until(&running, "both watches are closed", |server| server.open_watches(None) == 0).await;
}
