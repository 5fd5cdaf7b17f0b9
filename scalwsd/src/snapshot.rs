//! What requests see: one immutable picture of the whole configuration. A request keeps the one it started with.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::ListenerName;

use crate::route::Routes;
use crate::tls::Handshake;

/// Beside each host in the router.
#[derive(Clone, Debug)]
pub enum Host {
    /// It is served. What its handshakes get, if it says something about TLS.
    Live(Option<Handshake>),
    /// Its handshakes are refused, its plain requests answer 503, and nothing else steps in.
    Dead,
}

/// The router of a proxy.
pub type Router = router::Router<Routes, Host>;

/// What speaks on a port.
#[derive(Clone, Debug)]
pub enum Speaks {
    /// HTTP without TLS.
    Http,
    /// TLS with HTTP inside.
    Tls {
        /// What a name that no host covers gets.
        unknown: Handshake,
        /// What [`Handshake::Default`] stands for on this listener.
        default: Handshake,
    },
}

/// The whole configuration at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Hosts and routes.
    pub router: Router,
    /// Listeners that are live.
    pub listeners: BTreeMap<ListenerName, Arc<Speaks>>,
}
