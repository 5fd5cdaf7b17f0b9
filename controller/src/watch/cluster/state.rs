//! How it stands with every watch, for `/readyz`, metrics and people.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::kind::KindWatch;
use super::talk::{Counts, Standing};

/// How it stands with one watch.
#[derive(Clone, Debug)]
pub struct WatchState {
    /// Where it stands.
    pub standing: Standing,
    /// Why it waits.
    pub trouble: Option<String>,
    /// Whether a list was read to its end, or the server does not know the kind.
    pub listed: bool,
    /// How many objects there are.
    pub objects: usize,
    /// What is counted.
    pub counts: Counts,
    /// When the server said something last.
    pub heard: Instant,
}

/// Which kind, and in which namespace; empty for the whole cluster.
pub type Place = (&'static str, String);

/// All watches.
#[derive(Debug, Default)]
pub struct WatchStates(Mutex<BTreeMap<Place, WatchState>>);

impl WatchStates {
    /// There will be a watch: until it says something of itself, nothing was listed.
    pub(super) fn begin(&self, place: Place) {
        let state = WatchState {
            standing: Standing::Listing,
            trouble: None,
            listed: false,
            objects: 0,
            counts: Counts::default(),
            heard: Instant::now(),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(place, state);
    }

    pub(super) fn set(&self, place: &Place, watch: &KindWatch, heard: Instant) {
        let state = WatchState {
            standing: watch.standing(),
            trouble: watch.trouble().map(ToString::to_string),
            listed: watch.has_listed(),
            objects: watch.objects(),
            counts: watch.counts().clone(),
            heard,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(place.clone(), state);
    }

    /// All of them as they are now; none for a source without watches.
    pub fn all(&self) -> BTreeMap<Place, WatchState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A line for each watch that has not listed, or that waits, with the reason.
    pub fn troubles(&self) -> String {
        let mut text = String::new();
        for ((kind, namespace), state) in self.all() {
            let place = if namespace.is_empty() { kind.to_owned() } else { format!("{kind} in {namespace}") };
            let what = match (state.listed, state.standing) {
                (true, Standing::Waiting) => "is not followed; what was known stays in force",
                (true, _) => continue,
                (false, _) => "has not been listed",
            };
            let why = state.trouble.as_deref().unwrap_or("no answer yet");
            // Writing to a text cannot fail.
            let _ = writeln!(text, "{place} {what}: {why}");
        }
        text
    }
}
