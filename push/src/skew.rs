//! For tests of two releases beside each other: `SCALWS_TEST_SKEW` makes this process one of a later release. Never in an
//! optimised build: one of the whole workspace has the features of its tests.
//!
//! `newer` speaks one protocol version more, `incompatible` only later ones; the `scalwsd` of both knows one schema version more.

use std::sync::LazyLock;

use crate::agent_session::HelloFacts;
use crate::limits::PROTOCOL;

static SKEW: LazyLock<String> = LazyLock::new(|| std::env::var("SCALWS_TEST_SKEW").unwrap_or_default());

/// Whether this process is to be one of a later release.
pub fn is_newer() -> bool {
    !SKEW.is_empty()
}

/// The protocol versions of that release.
pub(crate) fn protocol() -> Option<(u32, u32)> {
    match SKEW.as_str() {
        "newer" => Some((PROTOCOL.0, PROTOCOL.1 + 1)),
        "incompatible" => Some((PROTOCOL.1 + 1, PROTOCOL.1 + 2)),
        _ => None,
    }
}

/// What an agent of that release says of its `scalwsd`.
pub(crate) fn facts(mut facts: HelloFacts) -> HelloFacts {
    facts.schema_version += u32::from(is_newer());
    facts
}
