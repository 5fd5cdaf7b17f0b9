//! A pool: what is spoken to which members.

use std::sync::Arc;

use crate::member::{self, Member};
use crate::members::Targets;

/// What is spoken to members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 by prior knowledge.
    Http2,
}

/// A pool that is live.
#[derive(Debug)]
pub struct Pool {
    /// What is spoken.
    pub protocol: Protocol,
    /// Its members now.
    pub targets: Arc<Targets>,
}

impl Pool {
    /// Chooses a member for a request; none if the pool is empty.
    pub fn choose(&self, tried: &[std::net::SocketAddr]) -> Option<Arc<Member>> {
        let members = self.targets.load();
        member::choose(&members, tried, crate::clock::now_ms(), |n| rand::random_range(0..n)).map(Arc::clone)
    }
}
