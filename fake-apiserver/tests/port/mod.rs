//! A server on a port, and a client that asks it.

use std::net::SocketAddr;

use fake_apiserver::http::Running;
use fake_apiserver::script::client::{Client, Stream, whole};
use fake_apiserver::{Method, Request, Response, Server};
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// Opens a connection.
pub(crate) async fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    TcpStream::connect(address).await.map_err(|error| error.to_string())
}

/// Starts a server that holds two ConfigMaps, `shop/a` and `shop/b`.
pub(crate) async fn start() -> Running {
    let mut server = Server::default();
    for name in ["a", "b"] {
        server.apply(0, config_map(name, "0")).unwrap();
    }
    Running::start(server).await.unwrap()
}

/// A ConfigMap in the namespace `shop`.
pub(crate) fn config_map(name: &str, x: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": {"x": x}})
}

/// The path of the ConfigMaps.
pub(crate) const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

/// Asks a server; `Err` when no answer comes.
pub(crate) async fn ask(running: &Running, request: Request) -> Result<Response, String> {
    let address = running.address();
    whole(Client::new(|| connect(address), ()).send(&request).await?).await
}

/// Reads a path.
pub(crate) async fn get(running: &Running, path: &str) -> Result<Response, String> {
    ask(running, Request::new(Method::Get, path)).await
}

/// Opens a watch of the ConfigMaps from a version on.
pub(crate) async fn watch(running: &Running, version: u64) -> Stream {
    let address = running.address();
    let request = Request::new(Method::Get, &format!("{MAPS}?watch=1&resourceVersion={version}"));
    let answer = Client::new(|| connect(address), ()).send(&request).await.unwrap();
    assert_eq!(answer.status(), 200, "the watch begins");
    Stream::new(answer.into_body())
}
