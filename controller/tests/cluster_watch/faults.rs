//! One fault each: the old world keeps serving, the state is visible, and it recovers without a restart.

use std::time::Duration;

use controller::watch::cluster::{KindWatchSettings, Standing};
use fake_apiserver::{Fault, Server, Verb, What};

use super::controller::{Controller, config_map, gateway, gateway_kinds, ingress, route, settings, shop};

const INGRESSES: &str = "ingresses.networking.k8s.io";

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_listed_once_and_then_only_followed() {
    let controller = Controller::start(shop(), &settings()).await;
    controller.ready().await;
    let world = controller.world().await;
    for name in [
        "Ingress/shop/i0",
        "Service/shop/s2",
        "ConfigMap/shop/m1",
        "Gateway/shop/gate",
        "HTTPRoute/shop/r0",
        "Namespace//shop",
    ] {
        assert!(world.contains(name), "{name} is missing in {world:?}");
    }
    controller.apply(ingress("new"));
    controller.until_has("Ingress/shop/new").await;
    controller.remove(INGRESSES, "i0");
    controller.until("i0 is gone", async |c| !c.has("Ingress/shop/i0").await).await;
    let counts = controller.api.with(|server| server.counts.clone());
    assert_eq!((counts.of(Verb::Watch, INGRESSES), counts.of(Verb::List, INGRESSES)), (1, 0), "one streaming list");
    assert_eq!(controller.watch("TCPRoute").standing, Standing::Absent);
    assert_eq!(controller.watch("TLSRoute").standing, Standing::Watching, "it is served in an old version only");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_streaming_lists_gives_pages() {
    let server = shop();
    let mut settings = settings();
    settings.pace.page = 2;
    // The real one refuses it like this.
    let api = fake_apiserver::http::Running::start(server).await.unwrap();
    api.with(|server| {
        server.faults.add(Fault { times: Some(1), ..Fault::of(INGRESSES, What::Refuse(422, None)).verb(Verb::Watch) })
    });
    let controller = Controller::over(api, tempfile::tempdir().unwrap(), &settings);
    controller.ready().await;
    assert!(controller.has("Ingress/shop/i2").await);
    controller.apply(ingress("new"));
    controller.until_has("Ingress/shop/new").await;
    let counts = controller.api.with(|server| server.counts.clone());
    assert_eq!(
        (counts.of(Verb::List, INGRESSES), counts.of(Verb::Watch, INGRESSES)),
        (2, 2),
        "three objects are two pages"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_published_before_every_kind_has_listed() {
    let api = fake_apiserver::http::Running::start(shop()).await.unwrap();
    let fault = api.with(|server| server.faults.add(Fault::of("secrets", What::Refuse(403, None))));
    let controller = Controller::over(api, tempfile::tempdir().unwrap(), &settings());
    controller
        .until("Secrets wait and Ingresses are there", async |c| {
            c.watch("Secret").standing == Standing::Waiting && c.watch("Ingress").standing == Standing::Watching
        })
        .await;
    assert!(!controller.hub.is_published());
    let troubles = controller.hub.metrics().watch_states().troubles();
    assert!(troubles.contains("Secret has not been listed: HTTP 403"), "{troubles}");
    controller.api.with(|server| server.faults.remove(fault));
    controller.ready().await;
    assert!(controller.has("Ingress/shop/i0").await);
    assert_eq!(controller.hub.metrics().watch_states().troubles(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_whose_definition_comes_later_is_seen_and_one_that_goes_is_followed() {
    let controller = Controller::start(Server::default(), &settings()).await;
    controller.ready().await;
    assert_eq!(controller.watch("HTTPRoute").standing, Standing::Absent);
    controller.api.with(|server| gateway_kinds().into_iter().for_each(|kind| server.define(kind)));
    controller.apply(gateway("late"));
    controller.apply(route("late"));
    controller.until_has("Gateway/shop/late").await;
    controller.until_has("HTTPRoute/shop/late").await;
    controller.api.with(|server| server.undefine("httproutes.gateway.networking.k8s.io"));
    controller.until("the route is gone with its kind", async |c| !c.has("HTTPRoute/shop/late").await).await;
    controller.until("its absence is told", async |c| c.watch("HTTPRoute").standing == Standing::Absent).await;
    assert!(controller.has("Gateway/shop/late").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_was_asked_for_is_read() {
    let some = KindWatchSettings {
        namespaces: vec!["other".to_owned(), "shop".to_owned()],
        config_maps: Some("app=web".into()),
        ..settings()
    };
    let mut server = shop();
    let mut labelled = config_map("labelled", "1");
    labelled["metadata"]["labels"]["app"] = "web".into();
    server.apply(0, labelled).unwrap();
    let mut elsewhere = ingress("elsewhere");
    elsewhere["metadata"]["namespace"] = "third".into();
    server.apply(0, elsewhere).unwrap();
    let controller = Controller::start(server, &some).await;
    controller.ready().await;
    let world = controller.world().await;
    assert!(world.contains("ConfigMap/shop/labelled") && world.contains("Ingress/shop/i0"), "{world:?}");
    assert!(!world.contains("ConfigMap/shop/m0") && !world.contains("Ingress/third/elsewhere"), "{world:?}");
    assert!(world.contains("Namespace//third"), "kinds without namespaces are read as a whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_version_is_answered_with_a_list_that_shows_what_was_missed() {
    let controller = Controller::start(shop(), &settings()).await;
    controller.ready().await;
    let fault = controller.api.with(|server| {
        let fault = server.faults.add(Fault::of("configmaps", What::Refuse(500, None)).verb(Verb::Watch));
        server.cut_watches(Some("configmaps"));
        fault
    });
    controller.until("the cut is noticed", async |c| c.watch("ConfigMap").standing == Standing::Waiting).await;
    controller.remove("configmaps", "m0");
    controller.apply(config_map("m1", "2"));
    controller.apply(ingress("meanwhile"));
    controller.until_has("Ingress/shop/meanwhile").await;
    assert!(controller.has("ConfigMap/shop/m0").await, "what is not known stays");
    controller.api.with(|server| {
        server.compact();
        server.faults.remove(fault);
    });
    controller.until("the removal was found", async |c| !c.has("ConfigMap/shop/m0").await).await;
    assert_eq!(controller.watch("ConfigMap").standing, Standing::Watching);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_in_the_middle_of_an_event_loses_nothing() {
    let controller = Controller::start(shop(), &settings()).await;
    controller.ready().await;
    for round in 0..5 {
        controller.api.with(|server| server.truncate_watches(INGRESSES));
        let name = format!("cut{round}");
        controller.apply(ingress(&name));
        controller.until_has(&format!("Ingress/shop/{name}")).await;
    }
    assert_eq!(controller.restarts("Ingress", "broken"), 5);
    assert_eq!(controller.watch("Ingress").counts.lists, 1, "it was enough to go on from the last version");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_away_takes_nothing_with_it() {
    let mut controller = Controller::start(shop(), &settings()).await;
    controller.ready().await;
    let before = controller.world().await;
    controller.api.stop().await;
    controller.until("it is noticed", async |c| c.watch("Ingress").standing == Standing::Waiting).await;
    assert_eq!(controller.world().await, before);
    assert!(controller.hub.is_published());
    assert!(controller.hub.metrics().watch_states().troubles().contains("Ingress is not followed"));
    controller.apply(ingress("meanwhile"));
    controller.remove(INGRESSES, "i1");
    controller.api.start_again().await.unwrap();
    controller.until_has("Ingress/shop/meanwhile").await;
    controller.until("i1 is gone", async |c| !c.has("Ingress/shop/i1").await).await;
    controller.caught_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_answer_after_an_outage_empties_nothing() {
    let controller = Controller::start(shop(), &settings()).await;
    controller.ready().await;
    let before = controller.world().await;
    let fault = controller.api.with(|server| {
        // Lists come in pages then, and are empty.
        server.faults.add(Fault::of(INGRESSES, What::Refuse(422, None)).verb(Verb::Watch));
        server.cut_watches(Some(INGRESSES));
        server.faults.add(Fault::of(INGRESSES, What::EmptyList))
    });
    controller.until("an empty list was taken for what it is", async |c| c.hub.read(|r| r.held().is_some())).await;
    assert_eq!(controller.world().await, before);
    let held = controller.hub.read(|report| report.held().unwrap().to_owned());
    assert!(held.contains("the API server has no Ingress any more"), "{held}");
    controller.api.with(|server| {
        server.faults.remove(fault);
        server.faults.clear();
    });
    assert_eq!(controller.held().await, None, "the answer was wrong, and is forgotten");
    assert_eq!(controller.world().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_is_forbidden_later_keeps_what_it_had() {
    let controller = Controller::start(shop(), &settings()).await;
    controller.ready().await;
    let fault = controller.api.with(|server| {
        let fault = server.faults.add(Fault::of(INGRESSES, What::Refuse(403, None)));
        server.cut_watches(Some(INGRESSES));
        fault
    });
    controller.until("it is told", async |c| c.restarts("Ingress", "forbidden") > 1).await;
    assert!(controller.has("Ingress/shop/i0").await);
    let troubles = controller.hub.metrics().watch_states().troubles();
    assert!(troubles.starts_with("Ingress is not followed; what was known stays in force: HTTP 403"), "{troubles}");
    controller.apply(ingress("late"));
    controller.apply(config_map("other", "1"));
    controller.until_has("ConfigMap/shop/other").await;
    controller.api.with(|server| server.faults.remove(fault));
    controller.until_has("Ingress/shop/late").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nobody_knows_us_any_more_everything_stays_and_is_followed_again_afterwards() {
    let controller = Controller::start(shop(), &settings()).await;
    controller.ready().await;
    let before = controller.world().await;
    // As with a token that ended before its file was read again.
    controller.api.with(|server| {
        server.faults.add(Fault::of_all(What::Refuse(401, None)));
        server.cut_watches(None);
    });
    controller.until("it is told", async |c| c.restarts("Ingress", "refused") > 4).await;
    controller.apply(ingress("late"));
    assert_eq!(controller.world().await, before);
    let troubles = controller.hub.metrics().watch_states().troubles();
    assert!(troubles.contains("Secret is not followed; what was known stays in force: HTTP 401"), "{troubles}");
    controller.api.with(|server| server.faults.clear());
    controller.until_has("Ingress/shop/late").await;
    controller.caught_up().await;
    assert_eq!(controller.hub.metrics().watch_states().troubles(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_busy_is_asked_when_it_said() {
    let api = fake_apiserver::http::Running::start(shop()).await.unwrap();
    api.with(|server| server.faults.add(Fault { times: Some(1), ..Fault::of(INGRESSES, What::Refuse(429, Some(1))) }));
    let begun = tokio::time::Instant::now();
    let controller = Controller::over(api, tempfile::tempdir().unwrap(), &settings());
    controller.ready().await;
    assert!(begun.elapsed() >= Duration::from_secs(1), "it was asked again after {:?}", begun.elapsed());
    assert_eq!(controller.restarts("Ingress", "busy"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn bookmarks_spare_a_list_after_a_quiet_time() {
    let controller = Controller::start(shop(), &settings()).await;
    controller.ready().await;
    controller.api.with(|server| {
        server.pass_versions(1_000);
        server.send_bookmarks();
    });
    controller.apply(ingress("after"));
    controller.until_has("Ingress/shop/after").await;
    let heard = controller.watch("ConfigMap").heard;
    controller.until("bookmarks came", async |c| c.watch("ConfigMap").heard >= heard).await;
    controller.api.with(|server| {
        server.send_bookmarks();
        server.end_watches(None);
    });
    controller.until("watches began anew", async |c| c.restarts("ConfigMap", "ended") == 1).await;
    controller.api.with(Server::compact);
    controller.apply(config_map("new", "1"));
    controller.until_has("ConfigMap/shop/new").await;
    assert_eq!(controller.watch("ConfigMap").counts.lists, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_read_keeps_its_last_good_version_and_is_named() {
    let controller = Controller::start(shop(), &settings()).await;
    controller.ready().await;
    let mut bad = ingress("i0");
    bad["spec"]["rules"] = "none".into();
    controller.apply(bad);
    controller.apply(ingress("after"));
    controller.until_has("Ingress/shop/after").await;
    assert!(controller.has("Ingress/shop/i0").await);
    let status = || serde_json::to_string(&controller.hub.status()).unwrap();
    assert!(status().contains("ObjectUnreadable"), "{}", status());
    let mut mended = ingress("i0");
    mended["metadata"]["labels"]["mended"] = "yes".into();
    controller.apply(mended);
    controller
        .until("it is mended", async |c| !serde_json::to_string(&c.hub.status()).unwrap().contains("ObjectUnreadable"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_a_world_that_shrank_too_much_waits_for_somebody() {
    let mut server = shop();
    (0..20).for_each(|number| server.apply(0, config_map(&format!("n{number}"), "1")).unwrap());
    let controller = Controller::start(server, &settings()).await;
    controller.ready().await;
    (0..20).for_each(|number| controller.remove("configmaps", &format!("n{number}")));
    let controller = controller.again(&settings());
    controller.until("it is held", async |c| c.hub.read(|report| report.held().is_some())).await;
    assert!(!controller.hub.is_published());
    let held = controller.worker.catch_up().await.unwrap_err();
    assert!(held.contains("the API server has only 3 objects of kind ConfigMap of 23"), "{held}");
    controller.worker.confirm().await.unwrap();
    controller.ready().await;
    assert!(controller.has("Ingress/shop/i0").await);
}
