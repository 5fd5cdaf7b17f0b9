//! What all connections of the proxy share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::access_log::AccessLog;
use crate::metrics::Metrics;
use crate::snapshot::Snapshot;

/// The part of the proxy that requests use.
#[derive(Debug)]
pub struct Proxy {
    /// What is served now.
    pub snapshot: ArcSwap<Snapshot>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The access log.
    pub log: AccessLog,
    open: AtomicUsize,
    changes: watch::Sender<()>,
}

/// One open connection; counted for as long as it, or what it was taken over by, lives.
#[derive(Debug)]
pub struct Open(Arc<Proxy>);

impl Proxy {
    /// A proxy that serves nothing yet.
    pub fn new(metrics: Arc<Metrics>, log: AccessLog) -> Arc<Proxy> {
        let (changes, _) = watch::channel(());
        Arc::new(Proxy { snapshot: ArcSwap::default(), metrics, log, open: AtomicUsize::new(0), changes })
    }

    /// Counts a connection.
    pub fn opened(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.metrics.connections.inc();
        self.metrics.connections_active.inc();
        Open(Arc::clone(self))
    }

    /// Waits until no connection is open.
    pub async fn all_closed(&self) {
        let mut changes = self.changes.subscribe();
        while self.open.load(Ordering::Acquire) > 0 {
            // The sender lives as long as `self`.
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.metrics.connections_active.dec();
        if self.0.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changes.send_replace(());
        }
    }
}
