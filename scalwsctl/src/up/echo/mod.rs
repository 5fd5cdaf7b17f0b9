//! Echo servers behind the loopback endpoints of a folder of manifests, so that there is something to reach.
//!
//! They run on a thread of their own, follow the folder, and end with the process.

pub mod endpoints;
pub mod server;
pub mod websocket;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use notify::{RecursiveMode, Watcher as _};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::log::Log;
use crate::manifests::{self, ManifestFile, text};
use endpoints::Endpoint;

/// How long after a change the folder is read, so that one write of many files is read once.
const SETTLE: Duration = Duration::from_millis(20);
/// How often the folder is read without a notice: the watch is lost when the folder itself is replaced.
const REREAD: Duration = Duration::from_secs(5);

/// Running echo servers. They end when this is dropped.
pub struct Echo {
    stop: Arc<Notify>,
}

impl Echo {
    /// Starts them. It returns when those of the first reading are open.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started. An endpoint that cannot be opened is only said.
    pub fn start(folder: PathBuf, log: Log) -> Result<Echo> {
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (ready, started) = std::sync::mpsc::sync_channel::<()>(1);
        std::thread::Builder::new()
            .name("echo".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    tokio::select! {
                        () = follow(&folder, log, ready) => {}
                        () = stopped.notified() => {}
                    }
                });
            })
            .context("the thread of the echo servers cannot be started")?;
        // An error means that the thread has ended; then there is no echo, which it has said.
        let _ = started.recv_timeout(Duration::from_secs(5));
        Ok(Echo { stop })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.notify_one();
    }
}

async fn follow(folder: &Path, log: Log, ready: std::sync::mpsc::SyncSender<()>) {
    let changed = Arc::new(Notify::new());
    let notice = changed.clone();
    let mut watcher = notify::recommended_watcher(move |_| notice.notify_one()).ok();
    let mut open: BTreeMap<SocketAddr, Server> = BTreeMap::new();
    let mut slices = Slices::default();
    loop {
        if let Some(watcher) = &mut watcher {
            // Again each time: a folder that was taken away and put back is another one. Failing, REREAD finds it.
            let _ = watcher.watch(folder, RecursiveMode::Recursive);
        }
        // Reading a large folder takes a while, which the echo servers on this thread must not be held up by.
        let place = folder.to_owned();
        let read = tokio::task::spawn_blocking(move || {
            let files = manifests::read(&place).ok()?;
            // A folder that went away under way was read in part.
            place.is_dir().then_some(files)
        });
        if let Ok(Some(files)) = read.await {
            arrange(&mut open, slices.take_in(files), log).await;
        }
        let _ = ready.try_send(());
        let _ = tokio::time::timeout(REREAD, changed.notified()).await;
        tokio::time::sleep(SETTLE).await;
    }
}

/// The last good EndpointSlices of each file: the proxies go on sending to them while a file is broken.
#[derive(Debug, Default)]
struct Slices(BTreeMap<PathBuf, Vec<Value>>);

impl Slices {
    /// Takes in all files of the folder and gives the endpoints that are to be open.
    fn take_in(&mut self, files: Vec<ManifestFile>) -> BTreeMap<SocketAddr, Endpoint> {
        let mut before = std::mem::take(&mut self.0);
        for ManifestFile { path, objects } in files {
            let slices = match objects {
                Ok(objects) => objects.into_iter().filter(|o| text(o, "/kind") == "EndpointSlice").collect(),
                Err(_) => before.remove(&path).unwrap_or_default(),
            };
            self.0.insert(path, slices);
        }
        endpoints::of(self.0.values().flatten())
    }
}

struct Server {
    endpoint: Endpoint,
    task: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Closes what is not wanted any more and opens what is new.
async fn arrange(open: &mut BTreeMap<SocketAddr, Server>, wanted: BTreeMap<SocketAddr, Endpoint>, log: Log) {
    open.retain(|address, server| wanted.get(address) == Some(&server.endpoint));
    for (address, endpoint) in wanted {
        if open.get(&address).is_some_and(|s| s.task.is_some()) {
            continue;
        }
        let task = match server::open(address, endpoint.clone()).await {
            Ok(task) => Some(task),
            Err(error) => {
                // Said once; tried again with each reading.
                if !open.contains_key(&address) {
                    log.say(&format!("no echo server on {address} ({endpoint}): {error}"));
                }
                None
            }
        };
        open.insert(address, Server { endpoint, task });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_broken_file_keeps_its_endpoints_and_one_that_is_gone_does_not() {
        let file = |name: &str, objects| ManifestFile { path: PathBuf::from(name), objects };
        let slice = |ip: &str| {
            let endpoints = [json!({ "addresses": [ip] })];
            json!({"kind": "EndpointSlice", "endpoints": endpoints, "ports": [{"port": 80}]})
        };
        let mut slices = Slices::default();
        let mut open = |files| slices.take_in(files).into_keys().map(|a| a.to_string()).collect::<Vec<_>>();
        let (one, two) = (slice("127.0.0.2"), slice("127.0.0.3"));
        assert_eq!(
            open(vec![file("a", Ok(vec![one])), file("b", Ok(vec![two.clone()]))]),
            ["127.0.0.2:80", "127.0.0.3:80"]
        );
        assert_eq!(open(vec![file("a", Err("kind: [".to_owned())), file("b", Ok(vec![two]))]).len(), 2);
        assert_eq!(open(vec![file("a", Err("still".to_owned()))]), ["127.0.0.2:80"]);
        assert_eq!(open(Vec::new()), [""; 0]);
    }
}
