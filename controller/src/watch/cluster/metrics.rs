//! What is measured of the watches. Labels are kinds and fixed words.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::state::{WatchState, WatchStates};
use super::talk::Standing;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    kind: &'static str,
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    kind: &'static str,
    reason: &'static str,
}

/// The metrics of all watches.
#[derive(Debug, Default)]
pub struct WatchMetrics {
    watches: Family<StateLabels, Gauge>,
    objects: Family<KindLabels, Gauge>,
    lists: Family<KindLabels, Counter>,
    comparisons: Family<KindLabels, Counter>,
    restarts: Family<ReasonLabels, Counter>,
    silence: Family<KindLabels, Gauge<f64, AtomicU64>>,
}

/// What the watches of one kind come to.
#[derive(Default)]
struct Sum {
    standings: BTreeMap<Standing, i64>,
    objects: usize,
    lists: u64,
    agreements: u64,
    restarts: BTreeMap<&'static str, u64>,
    silence: f64,
}

impl Sum {
    fn add(&mut self, state: &WatchState, now: Instant) {
        *self.standings.entry(state.standing).or_default() += 1;
        self.objects += state.objects;
        self.lists += state.counts.lists;
        self.agreements += state.counts.agreements;
        for (reason, count) in &state.counts.restarts {
            *self.restarts.entry(reason).or_default() += count;
        }
        self.silence = self.silence.max(now.saturating_duration_since(state.heard).as_secs_f64());
    }
}

/// Brings a counter to a figure that only grows.
fn raise(counter: &Counter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}

impl WatchMetrics {
    /// Registers them.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("watches", "Watches of the API server by state", self.watches.clone());
        registry.register("watch_objects", "Objects that the API server has", self.objects.clone());
        registry.register("watch_lists", "Lists that were read to their end", self.lists.clone());
        registry.register(
            "watch_comparisons",
            "Comparisons of uids and versions with the API server that found no difference",
            self.comparisons.clone(),
        );
        registry.register("watch_restarts", "Watches and lists that ended, by reason", self.restarts.clone());
        registry.register_with_unit(
            "watch_silence",
            "Since the API server said something last, of the most silent watch",
            Unit::Seconds,
            self.silence.clone(),
        );
    }

    /// Brings them to what is now.
    pub fn update(&self, states: &WatchStates) {
        let now = Instant::now();
        let mut kinds: BTreeMap<&'static str, Sum> = BTreeMap::new();
        for ((kind, _), state) in &states.all() {
            kinds.entry(kind).or_default().add(state, now);
        }
        for (kind, sum) in kinds {
            for standing in Standing::ALL {
                let count = sum.standings.get(&standing).copied().unwrap_or(0);
                self.watches.get_or_create(&StateLabels { kind, state: standing.as_str() }).set(count);
            }
            let labels = KindLabels { kind };
            self.objects.get_or_create(&labels).set(i64::try_from(sum.objects).unwrap_or(i64::MAX));
            raise(&self.lists.get_or_create(&labels), sum.lists);
            raise(&self.comparisons.get_or_create(&labels), sum.agreements);
            self.silence.get_or_create(&labels).set(sum.silence);
            for (reason, count) in sum.restarts {
                raise(&self.restarts.get_or_create(&ReasonLabels { kind, reason }), count);
            }
        }
    }
}
