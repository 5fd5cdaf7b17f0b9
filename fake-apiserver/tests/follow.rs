//! Clients that list and watch always come to know what the server holds, whatever happens between.

// Outside of test functions clippy does not know that this is a test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use fake_apiserver::{Method, Next, Reply, Request, Response, Server, Settings, WatchId};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
/// A client follows all objects, those with a label, or those of one name.
const SELECTORS: [&str; 3] = ["", "&labelSelector=on%3Dyes", "&fieldSelector=metadata.name%3Db"];

/// What happens.
#[derive(Clone, Debug)]
enum Happening {
    /// An object is written: its name, whether it has the label, and a value.
    Write(usize, bool, u8),
    Delete(usize),
    Compact,
    Cut,
    End,
    Truncate,
    /// Other kinds are written.
    Pass,
    /// A client does the next thing that it has to do.
    Step(usize),
}

/// A client: what it knows, and where it stands.
struct Client {
    selector: &'static str,
    /// Streaming lists, or pages.
    streams: bool,
    known: BTreeMap<String, Value>,
    /// The version up to which it knows everything; None before the first list.
    version: Option<String>,
    /// A list that has more pages.
    page: Option<String>,
    /// Objects of a list that is not whole yet.
    building: BTreeMap<String, Value>,
    watch: Option<WatchId>,
    /// A watch that sends what there is, the end of which has not come.
    initial: bool,
}

fn answer(server: &mut Server, target: &str) -> Result<WatchId, Response> {
    match server.request(0, Request::new(Method::Get, target)) {
        Reply::Watch(id) => Ok(id),
        Reply::Answer(response) => Err(response),
        Reply::Lost => panic!("no fault was set that loses answers"),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Client {
    fn new(selector: &'static str, streams: bool) -> Client {
        let (known, building) = Default::default();
        Client { selector, streams, known, version: None, page: None, building, watch: None, initial: false }
    }

    fn forget_place(&mut self) {
        (self.version, self.page, self.watch, self.initial) = (None, None, None, false);
        self.building.clear();
    }

    /// Does the next thing; says whether there was something to do.
    fn step(&mut self, server: &mut Server) -> bool {
        if let Some(id) = self.watch {
            return self.read(server, id);
        }
        let selector = self.selector;
        match &self.version {
            Some(version) => {
                let target = format!("{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={version}{selector}");
                self.watch = Some(answer(server, &target).unwrap());
            }
            None if self.streams => {
                let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
                self.watch = Some(answer(server, &format!("{MAPS}?watch=1&{initial}{selector}")).unwrap());
                self.initial = true;
            }
            None => self.list(server),
        }
        true
    }

    fn list(&mut self, server: &mut Server) {
        let page = self.page.take().map_or_else(String::new, |token| format!("&continue={token}"));
        let response = answer(server, &format!("{MAPS}?limit=1{page}{}", self.selector)).unwrap_err();
        let list = response.object();
        if response.code == 410 {
            self.forget_place();
            return;
        }
        assert_eq!(response.code, 200, "{list}");
        for item in list["items"].as_array().unwrap() {
            self.building.insert(text(&item["metadata"]["name"]), item.clone());
        }
        match list["metadata"]["continue"].as_str() {
            Some(token) => self.page = Some(token.to_owned()),
            None => {
                self.known = std::mem::take(&mut self.building);
                self.version = Some(text(&list["metadata"]["resourceVersion"]));
            }
        }
    }

    fn read(&mut self, server: &mut Server, id: WatchId) -> bool {
        let line = match server.next(0, id) {
            Next::Bytes(line) => line,
            Next::Wait(_) => return false,
            Next::End | Next::Cut => {
                self.watch = None;
                if self.initial {
                    self.forget_place();
                }
                return true;
            }
        };
        // Half an event is no event: the cut comes next.
        let Ok(event) = serde_json::from_slice::<Value>(&line) else { return true };
        let object = &event["object"];
        let (name, version) = (text(&object["metadata"]["name"]), text(&object["metadata"]["resourceVersion"]));
        let objects = if self.initial { &mut self.building } else { &mut self.known };
        match event["type"].as_str().unwrap() {
            "ADDED" | "MODIFIED" => drop(objects.insert(name, object.clone())),
            "DELETED" => drop(objects.remove(&name)),
            "BOOKMARK" if self.initial => {
                assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
                self.initial = false;
                self.known = std::mem::take(&mut self.building);
            }
            "BOOKMARK" => {}
            _ => {
                assert_eq!(object["code"], 410, "{event}");
                server.close(id);
                self.forget_place();
                return true;
            }
        }
        if !self.initial {
            self.version = Some(version);
        }
        true
    }
}

fn happen(server: &mut Server, clients: &mut [Client], happening: &Happening) {
    let name = |index: usize| ["a", "b", "c", "d"][index];
    match *happening {
        Happening::Write(index, on, x) => {
            let labels = if on { json!({"on": "yes"}) } else { json!({}) };
            let metadata = json!({"name": name(index), "namespace": "shop", "labels": labels});
            let object =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": x.to_string()}});
            server.apply(0, object).unwrap();
        }
        Happening::Delete(index) => {
            server.remove("configmaps", "shop", name(index));
        }
        Happening::Compact => server.compact(),
        Happening::Cut => server.cut_watches(None),
        Happening::End => server.end_watches(None),
        Happening::Truncate => server.truncate_watches("configmaps"),
        Happening::Pass => server.pass_versions(3),
        Happening::Step(client) => {
            clients[client].step(server);
        }
    }
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let happening = prop_oneof![
        6 => (0..4_usize, any::<bool>(), 0..3_u8).prop_map(|(index, on, x)| Happening::Write(index, on, x)),
        2 => (0..4_usize).prop_map(Happening::Delete),
        1 => Just(Happening::Compact),
        1 => Just(Happening::Cut),
        1 => Just(Happening::End),
        1 => Just(Happening::Truncate),
        1 => Just(Happening::Pass),
        12 => (0..6_usize).prop_map(Happening::Step),
    ];
    vec(happening, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_client_comes_to_know_what_the_server_holds(happenings in happenings(), history in 1..12_usize) {
        let mut server = Server::new(Settings { history, ..Settings::default() });
        let mut clients: Vec<_> =
            SELECTORS.iter().flat_map(|selector| [true, false].map(|streams| Client::new(selector, streams))).collect();
        for happening in &happenings {
            happen(&mut server, &mut clients, happening);
        }
        for client in &mut clients {
            // A few steps for each object and watch; many times more than it takes.
            let settled = (0..1000).any(|_| !client.step(&mut server));
            prop_assert!(settled, "a client has always something to do");
            let list = answer(&mut server, &format!("{MAPS}?x{}", client.selector)).unwrap_err().object();
            let strip = |object: &Value| (object["metadata"].clone(), object["data"].clone());
            let held: Vec<_> = list["items"].as_array().unwrap().iter().map(strip).collect();
            let known: Vec<_> = client.known.values().map(strip).collect();
            prop_assert_eq!(known, held, "selector {:?}, streams {}", client.selector, client.streams);
        }
    }
}
