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
                if !failing {
                    tracing::warn!(namespace, %error, "the pods of a fleet's namespace cannot be followed");
                }
                failing = true;
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
            // 410 most of all.
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
