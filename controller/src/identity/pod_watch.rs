//! Follows the pods in the namespaces of declared fleets: metadata only, one watch for each namespace.
//!
//! A watch says nothing while nothing happens, and so does a dead connection. So each is asked to end soon and goes on where it was: one
//! request in four seconds for each namespace, and whatever does not end in time is given up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use http::Request;
use http::header::ACCEPT;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::WatchEvent;
use kube::core::{ObjectList, PartialObjectMeta};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::declared::Declared;
use super::presence::Presence;

/// How long a list may take.
const LIST: Duration = Duration::from_secs(30);
/// How long one watch lasts at the server. With what follows, and the time between two questions who may stay, a pod that went on a dead
/// connection is missed after less than 10 s.
const WATCH: Duration = Duration::from_secs(4);
/// How much longer it may be silent here.
const BEYOND: Duration = Duration::from_secs(1);
/// Between two attempts, and between two watches that begin: a server that ends each at once is not asked without a rest.
const PAUSE: Duration = Duration::from_secs(1);
/// Pods that have ended are gone for us. The API server tells it as a deletion when a pod comes to be one of them.
const RUNNING: &str = "status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Keeps presence right for every namespace with a fleet whose workload is declared, for ever.
pub(crate) async fn follow(client: Client, mut declared: watch::Receiver<Arc<Declared>>, presence: Arc<Presence>) {
    let mut watches: BTreeMap<String, AbortOnDropHandle<()>> = BTreeMap::new();
    loop {
        let now = Arc::clone(&declared.borrow_and_update());
        let of_pods = now.fleets.iter().filter(|(_, declaration)| declaration.workload.is_some());
        let wanted: BTreeMap<String, ()> = of_pods.map(|(fleet, _)| (fleet.namespace.to_string(), ())).collect();
        watches.retain(|namespace, _| {
            let stays = wanted.contains_key(namespace);
            if !stays {
                presence.forget(namespace);
            }
            stays
        });
        for namespace in wanted.into_keys() {
            watches.entry(namespace.clone()).or_insert_with(|| {
                let task = follow_one(client.clone(), namespace, Arc::clone(&presence));
                AbortOnDropHandle::new(tokio::spawn(task))
            });
        }
        if declared.changed().await.is_err() {
            return;
        }
    }
}

/// What is known stays while the API server does not answer: nobody is cut off because the centre is away.
async fn follow_one(client: Client, namespace: String, presence: Arc<Presence>) {
    let (mut failing, mut version) = (false, None);
    loop {
        let began = Instant::now();
        match once(&client, &namespace, &presence, &mut version).await {
            Ok(()) => failing = false,
            Err(error) => {
                // What happened meanwhile is in a new list.
                version = None;
                let expected = error.is_expired();
                if !failing && !expected {
                    tracing::warn!(namespace, %error, "the pods of a fleet's namespace cannot be followed");
                }
                failing |= !expected;
            }
        }
        tokio::time::sleep_until(began + PAUSE).await;
    }
}

/// A list, unless it is known from which version to go on, and a watch until it ends.
async fn once(
    client: &Client,
    namespace: &str,
    presence: &Presence,
    version: &mut Option<String>,
) -> Result<(), Stopped> {
    let path = format!("/api/v1/namespaces/{namespace}/pods?fieldSelector={RUNNING}");
    let from = match version.take() {
        Some(from) => from,
        None => {
            // Of this moment: what a cache of the server has may be older.
            let asked = std::time::Instant::now();
            let list = client.request::<ObjectList<PartialObjectMeta<Pod>>>(request(&path, METADATA_LIST)?);
            let list = tokio::time::timeout(LIST, list).await.map_err(|_| Stopped::Silent)??;
            presence.listed(namespace, list.items.into_iter().filter_map(|pod| pod.metadata.uid), asked);
            list.metadata.resource_version.unwrap_or_default()
        }
    };
    let from = version.insert(from);
    let seconds = WATCH.as_secs();
    let path = format!("{path}&watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={from}");
    let within = WATCH + BEYOND;
    let events = client.request_events::<PartialObjectMeta<Pod>>(request(&path, METADATA)?);
    let events = tokio::time::timeout(within, events).await.map_err(|_| Stopped::Silent)??;
    let mut events = std::pin::pin!(events);
    loop {
        let event = tokio::time::timeout(within, events.try_next()).await.map_err(|_| Stopped::Silent)??;
        let Some(event) = event else { return Ok(()) };
        let seen = match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                if let Some(uid) = pod.metadata.uid {
                    presence.came(namespace, uid);
                }
                pod.metadata.resource_version
            }
            WatchEvent::Deleted(pod) => {
                if let Some(uid) = pod.metadata.uid {
                    presence.went(namespace, &uid);
                }
                pod.metadata.resource_version
            }
            WatchEvent::Bookmark(bookmark) => Some(bookmark.metadata.resource_version),
            WatchEvent::Error(status) => return Err(Stopped::Status(status.code)),
        };
        if let Some(seen) = seen {
            *from = seen;
        }
    }
}

fn request(path: &str, accept: &str) -> Result<Request<Vec<u8>>, http::Error> {
    Request::get(path).header(ACCEPT, accept).body(Vec::new())
}

/// Why a watch has to begin anew.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("no answer in time")]
    Silent,
    #[error("the API server ended the watch with status {0}")]
    Status(u16),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl Stopped {
    /// Whether the API server only knows the version no more: no event of a quiet namespace brought a later one.
    fn is_expired(&self) -> bool {
        match self {
            Stopped::Status(code) => *code == 410,
            Stopped::Api(kube::Error::Api(status)) => status.code == 410,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::Config;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// An API server that says these things one after the other, each with its status; gives what it was asked.
    async fn server(script: Vec<(u16, String)>) -> (Client, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = tokio::spawn(async move {
            let mut asked = Vec::new();
            for (status, body) in script {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                asked.push(String::from_utf8(head).unwrap().split(' ').nth(1).unwrap().to_owned());
                let kind = "content-type: application/json\r\nconnection: close";
                let answer = format!("HTTP/1.1 {status} X\r\n{kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            asked
        });
        let config = Config::new(format!("http://{address}").parse().unwrap());
        (Client::try_from(config).unwrap(), asked)
    }

    fn pod(uid: &str, version: u32) -> String {
        format!(
            r#"{{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{{"name":"{uid}","uid":"{uid}","resourceVersion":"{version}"}}}}"#
        )
    }

    fn list(uids: &[&str], version: u32) -> (u16, String) {
        let items: Vec<_> = uids.iter().map(|uid| pod(uid, 1)).collect();
        let items = items.join(",");
        let kind = r#""apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList""#;
        (200, format!(r#"{{{kind},"metadata":{{"resourceVersion":"{version}"}},"items":[{items}]}}"#))
    }

    fn event(what: &str, object: &str) -> String {
        format!("{{\"type\":\"{what}\",\"object\":{object}}}\n")
    }

    #[tokio::test]
    async fn it_goes_on_where_it_was_and_lists_anew_when_that_is_forgotten() {
        let expired = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}"#;
        let events = event("ADDED", &pod("u-2", 8)) + &event("DELETED", &pod("u-1", 9));
        let (client, asked) = server(vec![
            list(&["u-1"], 5),
            (200, events),
            (200, event("ERROR", expired)),
            list(&["u-3"], 20),
            (410, expired.to_owned()),
            list(&["u-4"], 30),
            (200, String::new()),
            (500, expired.replace("410", "500")),
        ])
        .await;
        let (presence, mut version, mut there) = (Presence::default(), None, Vec::new());
        let mut ends = Vec::new();
        for _ in 0..5 {
            let end = once(&client, "proxies", &presence, &mut version).await;
            ends.push(end.as_ref().err().map(Stopped::is_expired));
            if end.is_err() {
                version = None;
            }
            let now = std::time::Instant::now();
            let uids = ["u-1", "u-2", "u-3", "u-4"].into_iter();
            there.push(uids.filter(|uid| presence.is_there("proxies", uid, now)).collect::<Vec<_>>().join(" "));
            if ends.len() == 4 {
                // It ended in time and nothing happened.
                assert_eq!(version.as_deref(), Some("30"));
            }
        }
        assert_eq!(ends, [None, Some(true), Some(true), None, Some(false)]);
        assert_eq!(there, ["u-2", "u-2", "u-3", "u-4", "u-4"], "what is known stays while there is no answer");
        let asked = asked.await.unwrap();
        let from = |target: &String| {
            assert!(target.starts_with("/api/v1/namespaces/proxies/pods?fieldSelector="), "{target}");
            target.split_once("&resourceVersion=").map(|(_, version)| version.to_owned()).unwrap_or_default()
        };
        let from: Vec<String> = asked.iter().map(from).collect();
        assert_eq!(from, ["", "5", "9", "", "20", "", "30", "30"], "lists have no version");
    }
}
