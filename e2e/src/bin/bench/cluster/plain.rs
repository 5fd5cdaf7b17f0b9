//! A plain client that watches one resource, over a relay as the controllers do: the floor of any controller's latency.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use controller::api_server::ApiServer;
use e2e::replicas::ground::Ground;
use e2e::replicas::relay::Relay;
use e2e::swarm::world::serial_of;
use futures_util::TryStreamExt;
use http::Request;
use kube::Client;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What is changed and watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The endpoints of an EndpointSlice.
    Endpoints,
    /// A path of an Ingress.
    Path,
}

impl What {
    /// For people.
    pub(super) fn name(self) -> &'static str {
        match self {
            What::Endpoints => "endpoint of a slice",
            What::Path => "path of an Ingress",
        }
    }

    fn resource(self) -> &'static str {
        match self {
            What::Endpoints => "/apis/discovery.k8s.io/v1/endpointslices",
            What::Path => "/apis/networking.k8s.io/v1/ingresses",
        }
    }

    /// The serial that an object says.
    fn serial(self, object: &Value) -> Option<u64> {
        match self {
            What::Endpoints => {
                let endpoints = object["endpoints"].as_array()?;
                let address = endpoints.last()?["addresses"][0].as_str()?;
                serial_of(&format!("{address}:0"))
            }
            What::Path => {
                let paths = object["spec"]["rules"][0]["http"]["paths"].as_array()?;
                paths.last()?["path"].as_str()?.strip_prefix("/v")?.parse().ok()
            }
        }
    }
}

/// A watch.
pub(super) struct Plain {
    events: mpsc::UnboundedReceiver<(u64, Instant)>,
    task: JoinHandle<()>,
    _relay: Relay,
}

impl Plain {
    /// Begins to watch from now on.
    pub(super) async fn start(ground: &Ground, number: u8, what: What) -> Result<Plain> {
        let from = SocketAddr::new(Ipv4Addr::new(127, 0, 3, number).into(), 7443);
        let (client, relay) = through_a_relay(ground, from).await?;
        let list: Value =
            client.request(Request::get(format!("{}?limit=1", what.resource())).body(Vec::new())?).await?;
        let version = list["metadata"]["resourceVersion"].as_str().context("a list without a resourceVersion")?;
        let watch = format!("{}?watch=1&resourceVersion={version}", what.resource());
        let request = Request::get(watch).body(Vec::new())?;
        let stream = client.request_events::<Value>(request).await.context("no watch")?;
        let (tell, events) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let mut stream = pin!(stream);
            while let Ok(Some(event)) = stream.try_next().await {
                let at = Instant::now();
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event
                    && let Some(serial) = what.serial(&object)
                    && tell.send((serial, at)).is_err()
                {
                    return;
                }
            }
        });
        Ok(Plain { events, task, _relay: relay })
    }

    /// When this serial was seen.
    pub(super) async fn seen(&mut self, wanted: u64) -> Result<Instant> {
        while let Some((serial, at)) = self.events.recv().await {
            if serial == wanted {
                return Ok(at);
            }
        }
        bail!("the plain watch ended")
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A client whose bytes go the same way as those of the controllers.
async fn through_a_relay(ground: &Ground, from: SocketAddr) -> Result<(Client, Relay)> {
    let relay = Relay::start_here(from, ground.common.api).await?;
    let kubeconfig = ground.folder.path().join("plain-kubeconfig");
    ground.common.kubeconfig_through(from, &kubeconfig)?;
    let api_server = ApiServer { kubeconfig: Some(kubeconfig), context: None };
    Ok((api_server.client().await?, relay))
}
