//! Listeners: opened and closed as the configuration says, each with its accept loop.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use config::{ListenerName, Transport};
use journal::admin::codes;
use keeper::KeeperError;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::connection::{self, Arrival};
use crate::handshake;
use crate::not_live::{Fault, Faults};
use crate::proxy::Proxy;
use crate::snapshot::{Snapshot, Speaks};

/// Where sockets come from.
#[derive(Debug)]
pub enum Sockets {
    /// From the keeper.
    Keeper(keeper::client::Client),
    /// Opened here.
    Own,
}

/// All open listeners. One task owns it.
#[derive(Debug)]
pub struct Listeners {
    proxy: Arc<Proxy>,
    sockets: Sockets,
    running: BTreeMap<ListenerName, Running>,
    faults: BTreeMap<ListenerName, Fault>,
}

#[derive(Debug)]
struct Running {
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Listeners {
    /// None yet.
    pub fn new(proxy: Arc<Proxy>, sockets: Sockets) -> Listeners {
        Listeners { proxy, sockets, running: BTreeMap::new(), faults: BTreeMap::new() }
    }

    /// Closes the listeners that a snapshot does not have. Their connections end in order.
    pub async fn close_missing(&mut self, snapshot: &Snapshot) {
        self.faults.retain(|name, _| snapshot.listeners.contains_key(name));
        let gone: Vec<ListenerName> =
            self.running.keys().filter(|name| !snapshot.listeners.contains_key(name)).copied().collect();
        for name in gone {
            self.close(name).await;
        }
    }

    /// Opens the listeners of a snapshot that are not open. What cannot be opened is a fault of the environment.
    pub async fn open_missing(&mut self, snapshot: &Snapshot) {
        for name in snapshot.listeners.keys() {
            if self.running.contains_key(name) {
                continue;
            }
            match self.open(*name).await {
                Ok(running) => {
                    tracing::info!(listener = %name, "listening");
                    self.faults.remove(name);
                    self.running.insert(*name, running);
                }
                Err(error) => {
                    tracing::warn!(listener = %name, %error, "the listener cannot be opened; it is tried again");
                    // Whatever keeps a port from being opened, no object is to blame.
                    self.faults.insert(*name, Fault { code: codes::PORT_TAKEN, message: error.message });
                }
            }
        }
    }

    async fn open(&mut self, name: ListenerName) -> Result<Running, KeeperError> {
        let transport = match name.transport {
            Transport::Tcp => keeper::Transport::Tcp,
            Transport::Udp => keeper::Transport::Udp,
        };
        let of_system = |error: io::Error| KeeperError::of_bind(transport, name.port, &error);
        let socket = match &mut self.sockets {
            Sockets::Keeper(keeper) => keeper.listen(transport, name.port).await?,
            Sockets::Own => keeper::socket::bind(transport, name.port).map_err(of_system)?,
        };
        let listener = TcpListener::from_std(StdListener::from(socket)).map_err(of_system)?;
        let (stop, stopping) = watch::channel(false);
        let accepting = tokio::spawn(accept(Arc::clone(&self.proxy), name, listener, stopping));
        Ok(Running { stop, accepting })
    }

    async fn close(&mut self, name: ListenerName) {
        let Some(running) = self.running.remove(&name) else { return };
        running.stop.send_replace(true);
        // It ends at once: it waits for nothing but this and new connections.
        if let Err(error) = running.accepting.await {
            tracing::error!(listener = %name, %error, "the accept loop had failed");
        }
        tracing::info!(listener = %name, "closed");
        if let Sockets::Keeper(keeper) = &mut self.sockets {
            let transport = keeper::Transport::Tcp;
            if let Err(error) = keeper.release(transport, name.port).await {
                tracing::warn!(listener = %name, %error, "the keeper could not be told that the port is free");
            }
        }
    }

    /// Stops accepting everywhere. Connections end in order.
    pub async fn drain(&mut self) {
        for (_, running) in std::mem::take(&mut self.running) {
            running.stop.send_replace(true);
            // The result only says whether the loop had panicked before.
            let _ended = running.accepting.await;
        }
    }

    /// What could not be opened, by `kind/name`.
    pub fn faults(&self) -> Faults {
        self.faults.iter().map(|(name, fault)| (format!("listener/{name}"), fault.clone())).collect()
    }

    /// Those that accept connections, such as `tcp/443`.
    pub fn listening(&self) -> Vec<String> {
        self.running.iter().filter(|(_, r)| !r.accepting.is_finished()).map(|(name, _)| name.to_string()).collect()
    }
}

async fn accept(proxy: Arc<Proxy>, name: ListenerName, listener: TcpListener, stop: watch::Receiver<bool>) {
    let mut stopping = stop.clone();
    let mut pause = PAUSE_MIN;
    loop {
        let accepted = tokio::select! {
            biased;
            () = connection::stopped(&mut stopping) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, client)) => {
                pause = PAUSE_MIN;
                if stream.set_nodelay(true).is_err() {
                    // The client is gone already.
                    continue;
                }
                let arrival = Arrival { client, listener: name, open: proxy.opened(), stop: stop.clone() };
                let speaks = proxy.snapshot.load().listeners.get(&name).cloned();
                let proxy = Arc::clone(&proxy);
                match speaks.as_deref() {
                    Some(Speaks::Http) => {
                        tokio::spawn(connection::serve_plain(proxy, stream, arrival));
                    }
                    Some(Speaks::Tls { .. }) => {
                        tokio::spawn(handshake::serve(proxy, stream, arrival));
                    }
                    None => {}
                }
            }
            Err(error) if is_connection_error(&error) => {}
            Err(error) => {
                // Descriptors or memory ran out: what is open goes on, and others wait in the queue.
                tracing::warn!(listener = %name, %error, "connections cannot be accepted now");
                proxy.metrics.accept_pauses.inc();
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Errors that concern the one connection which would have been accepted (accept(2)).
fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}
