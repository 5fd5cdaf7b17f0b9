//! Follows the pods in the namespaces of declared fleets: metadata only, one watch for each namespace.

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
use tokio_util::task::AbortOnDropHandle;

use super::declared::Declared;
use super::presence::Presence;

/// How long a list may take.
const LIST: Duration = Duration::from_secs(30);
/// How long one watch lasts at the server, and here when it falls silent.
const WATCH: Duration = Duration::from_secs(290);
/// Between two attempts.
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
    let mut failing = false;
    loop {
        match once(&client, &namespace, &presence).await {
            Ok(()) => failing = false,
            Err(error) => {
                if !failing {
                    tracing::warn!(namespace, %error, "the pods of a fleet's namespace cannot be followed");
                }
                failing = true;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// One list, and a watch until it ends.
async fn once(client: &Client, namespace: &str, presence: &Presence) -> Result<(), Stopped> {
    let path = format!("/api/v1/namespaces/{namespace}/pods?fieldSelector={RUNNING}");
    let list = request(&path, METADATA_LIST)?;
    // Any version will do: what follows brings it up to date.
    let list = tokio::time::timeout(LIST, client.request::<ObjectList<PartialObjectMeta<Pod>>>(list)).await;
    let list = list.map_err(|_| Stopped::Silent)??;
    let version = list.metadata.resource_version.clone().unwrap_or_default();
    presence.listed(namespace, list.items.into_iter().filter_map(|pod| pod.metadata.uid));
    let seconds = WATCH.as_secs();
    let path = format!("{path}&watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}");
    let events = client.request_events::<PartialObjectMeta<Pod>>(request(&path, METADATA)?).await?;
    let mut events = std::pin::pin!(events);
    loop {
        let event = tokio::time::timeout(WATCH + PAUSE, events.try_next()).await.map_err(|_| Stopped::Silent)??;
        let Some(event) = event else { return Ok(()) };
        match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                if let Some(uid) = pod.metadata.uid {
                    presence.came(namespace, uid);
                }
            }
            WatchEvent::Deleted(pod) => {
                if let Some(uid) = pod.metadata.uid {
                    presence.went(namespace, &uid);
                }
            }
            WatchEvent::Bookmark(_) => {}
            // 410 most of all: what happened meanwhile is in a new list.
            WatchEvent::Error(status) => return Err(Stopped::Status(status.code)),
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
