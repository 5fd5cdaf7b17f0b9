//! Echo servers behind the loopback endpoints of a folder of manifests, so that there is something to reach.
//!
//! They run on a thread of their own, follow the folder, and end with the process.

pub mod endpoints;
mod folder;
pub mod server;
mod watch;
pub mod websocket;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::log::Log;
use endpoints::Endpoint;
use folder::Folder;
use server::Owner;
use watch::{Look, Watch};

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

async fn follow(root: &Path, log: Log, ready: std::sync::mpsc::SyncSender<()>) {
    let mut watch = Watch::new(root);
    let mut folder = Folder::new(root);
    let mut open = Servers::default();
    let mut look = Look::Everything;
    loop {
        let whole = look == Look::Everything;
        if whole {
            // Before the look, so that nothing falls in between.
            watch.renew();
        }
        // Reading a large folder takes a while, which the echo servers on this thread must not be held up by.
        let looked = tokio::task::spawn_blocking(move || {
            let changed = folder.look(&look);
            // What could not be opened is tried again with each look at everything.
            let wanted = (changed || whole).then(|| endpoints::of(folder.slices()));
            (folder, wanted)
        });
        let whole = match looked.await {
            Ok((back, wanted)) => {
                folder = back;
                if let Some(wanted) = wanted {
                    open.arrange(wanted, log).await;
                }
                None
            }
            Err(error) => {
                // What is open stays open until the whole folder was read anew.
                log.say(&format!("the echo servers cannot follow {}: {error}", root.display()));
                folder = Folder::new(root);
                Some(Look::Everything)
            }
        };
        let _ = ready.try_send(());
        let next = watch.next().await;
        look = whole.unwrap_or(next);
    }
}

/// The echo servers that are wanted.
#[derive(Default)]
struct Servers(BTreeMap<SocketAddr, Server>);

struct Server {
    owner: Owner,
    /// Nothing when the address could not be opened.
    task: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Servers {
    /// Closes what is not wanted any more and opens what is new. An address that goes over to another owner stays open:
    /// only the name in its answers changes.
    async fn arrange(&mut self, wanted: BTreeMap<SocketAddr, Endpoint>, log: Log) {
        let unwanted: Vec<SocketAddr> = self.0.keys().filter(|a| !wanted.contains_key(a)).copied().collect();
        for address in unwanted {
            if let Some(task) = self.0.remove(&address).and_then(|mut server| server.task.take()) {
                task.abort();
                // The address is free only when the task is gone. Its result is that it was stopped.
                let _ = task.await;
            }
        }
        for (address, endpoint) in wanted {
            let known = self.0.get(&address);
            if let Some(server) = known {
                server.owner.set(endpoint.clone());
            }
            if known.is_some_and(|server| server.task.is_some()) {
                continue;
            }
            let owner = known.map_or_else(|| Owner::new(endpoint.clone()), |server| server.owner.clone());
            let task = match server::open(address, owner.clone()).await {
                Ok(task) => Some(task),
                Err(error) => {
                    // Said once.
                    if known.is_none() {
                        log.say(&format!("no echo server on {address} ({endpoint}): {error}"));
                    }
                    None
                }
            };
            self.0.insert(address, Server { owner, task });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    fn endpoint(pod: &str) -> Endpoint {
        Endpoint { service: "shop/web".to_owned(), pod: pod.to_owned() }
    }

    /// An address that nobody listens on now.
    fn free() -> SocketAddr {
        let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.local_addr().unwrap()
    }

    /// Asks on a connection and gives the answer when the pod's name is in it.
    async fn answer(stream: &mut TcpStream) -> String {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut text = Vec::new();
        while !text.ends_with(b"}\n") {
            assert_ne!(stream.read_buf(&mut text).await.unwrap(), 0, "the connection was closed");
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn an_address_with_another_owner_stays_open_and_names_it() {
        let (address, mut servers) = (free(), Servers::default());
        servers.arrange(BTreeMap::from([(address, endpoint("first"))]), Log::new(crate::cli::LogFormat::Text)).await;
        let mut kept = TcpStream::connect(address).await.unwrap();
        assert!(answer(&mut kept).await.contains(r#""pod": "first""#));
        servers.arrange(BTreeMap::from([(address, endpoint("second"))]), Log::new(crate::cli::LogFormat::Text)).await;
        assert!(answer(&mut kept).await.contains(r#""pod": "second""#), "a kept connection names the old owner");
        let mut new = TcpStream::connect(address).await.expect("the address is closed");
        assert!(answer(&mut new).await.contains(r#""pod": "second""#));
    }

    #[tokio::test]
    async fn what_is_not_wanted_is_closed_and_what_could_not_be_opened_is_tried_again() {
        let (gone, taken, mut servers) = (free(), free(), Servers::default());
        let other = std::net::TcpListener::bind(taken).unwrap();
        servers
            .arrange(
                BTreeMap::from([(gone, endpoint("a")), (taken, endpoint("b"))]),
                Log::new(crate::cli::LogFormat::Text),
            )
            .await;
        let mut kept = TcpStream::connect(gone).await.unwrap();
        drop(other);
        servers.arrange(BTreeMap::from([(taken, endpoint("c"))]), Log::new(crate::cli::LogFormat::Text)).await;
        assert_eq!(kept.read(&mut [0]).await.unwrap_or(0), 0, "a connection of a closed server stays open");
        assert!(TcpStream::connect(gone).await.is_err(), "it still listens");
        let mut opened = TcpStream::connect(taken).await.expect("it was not tried again");
        assert!(answer(&mut opened).await.contains(r#""pod": "c""#));
    }

    #[tokio::test]
    async fn an_address_that_was_closed_can_be_opened_again_at_once() {
        let (address, mut servers) = (free(), Servers::default());
        let wanted = BTreeMap::from([(address, endpoint("a"))]);
        servers.arrange(wanted.clone(), Log::new(crate::cli::LogFormat::Text)).await;
        servers.arrange(BTreeMap::new(), Log::new(crate::cli::LogFormat::Text)).await;
        servers.arrange(wanted, Log::new(crate::cli::LogFormat::Text)).await;
        assert!(TcpStream::connect(address).await.is_ok(), "it is closed until the next look");
    }
}
