//! What is counted and measured. The names are in docs/reference/metrics.md.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use push::grpc::server::Lane;

use crate::report::Report;
use crate::watch::cluster::{WatchMetrics, WatchStates};

/// Upper bounds of the lag's buckets, in seconds.
const LAG_BUCKETS: [f64; 14] = [0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AgentLabels {
    fleet: String,
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FleetLabels {
    fleet: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LaneLabels {
    lane: &'static str,
}

/// Counters of what went to agents. Taken out of their family once: counting a message takes no lock.
#[derive(Debug)]
struct Sent {
    configuration: Counter,
    members: Counter,
    session: Counter,
}

impl Sent {
    fn new(family: &Family<LaneLabels, Counter>) -> Sent {
        let of = |lane| family.get_or_create_owned(&LaneLabels { lane });
        Sent { configuration: of("configuration"), members: of("members"), session: of("session") }
    }
}

fn since_1970(at: SystemTime) -> i64 {
    let seconds = at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// The controller's metrics. Labels never hold what a tenant wrote: kinds and reasons are fixed words.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    agents: Family<AgentLabels, Gauge>,
    generation: Family<FleetLabels, Gauge<u64, AtomicU64>>,
    epoch: Family<FleetLabels, Gauge<u64, AtomicU64>>,
    objects: Family<KindLabels, Gauge>,
    findings: Family<ReasonLabels, Gauge>,
    held: Gauge,
    changes: Counter,
    coalesced: Counter,
    enrolments: Family<ResultLabels, Counter>,
    state_failures: Counter,
    leader: Gauge,
    authority_ends: Gauge,
    certificate_ends: Gauge,
    sent: Sent,
    lag: Histogram,
    watches: WatchMetrics,
    watch_states: Arc<WatchStates>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let sent = Family::default();
        let metrics = Metrics {
            registry: Mutex::new(Registry::with_prefix("scalws_controller")),
            agents: Family::default(),
            generation: Family::default(),
            epoch: Family::default(),
            objects: Family::default(),
            findings: Family::default(),
            held: Gauge::default(),
            changes: Counter::default(),
            coalesced: Counter::default(),
            enrolments: Family::default(),
            state_failures: Counter::default(),
            leader: Gauge::default(),
            authority_ends: Gauge::default(),
            certificate_ends: Gauge::default(),
            sent: Sent::new(&sent),
            lag: Histogram::new(LAG_BUCKETS),
            watches: WatchMetrics::default(),
            watch_states: Arc::default(),
        };
        let mut registry = metrics.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register("agents", "Agents by state", metrics.agents.clone());
        registry.register("generation", "Generation of the desired configuration", metrics.generation.clone());
        registry.register("epoch", "Epoch of the desired configuration", metrics.epoch.clone());
        registry.register("objects", "Objects in force by kind", metrics.objects.clone());
        registry.register("findings", "Findings about objects and files by reason", metrics.findings.clone());
        registry.register("held", "1 while the world, or a part of it, is held back", metrics.held.clone());
        registry.register("changes", "Changes of objects that came into force", metrics.changes.clone());
        registry.register(
            "changes_coalesced",
            "Changes that went out together with another one",
            metrics.coalesced.clone(),
        );
        registry.register("enrolments", "Enrolments of agents by result", metrics.enrolments.clone());
        registry.register(
            "state_write_failures",
            "Writes of the state directory that failed",
            metrics.state_failures.clone(),
        );
        registry.register("leader", "1 while this controller leads", metrics.leader.clone());
        registry.register(
            "authority_expiration_timestamp_seconds",
            "When the certificate that signs agents ends, since 1970; 0 while it is not known",
            metrics.authority_ends.clone(),
        );
        registry.register(
            "certificate_expiration_timestamp_seconds",
            "When the certificate that the controller shows to agents ends, since 1970",
            metrics.certificate_ends.clone(),
        );
        registry.register("sent_bytes", "Bytes of messages to agents by lane, before gRPC and TLS", sent);
        registry.register_with_unit(
            "push_lag",
            "From the publication of a generation to an agent's verdict that it runs it",
            Unit::Seconds,
            metrics.lag.clone(),
        );
        metrics.watches.register(&mut registry);
        drop(registry);
        metrics
    }
}

impl Metrics {
    /// Notes changes that came into force together.
    pub fn changes(&self, count: usize) {
        let count = count as u64;
        self.changes.inc_by(count);
        self.coalesced.inc_by(count.saturating_sub(1));
    }

    /// Notes a message to an agent.
    pub fn sent(&self, lane: Lane, bytes: usize) {
        let counter = match lane {
            Lane::Configuration => &self.sent.configuration,
            Lane::Members => &self.sent.members,
            Lane::Session => &self.sent.session,
        };
        counter.inc_by(bytes as u64);
    }

    /// Notes how long a generation took to one agent.
    pub fn lag(&self, lag: Duration) {
        self.lag.observe(lag.as_secs_f64());
    }

    /// Notes an enrolment.
    pub fn enrolment(&self, result: &'static str) {
        self.enrolments.get_or_create(&ResultLabels { result }).inc();
    }

    /// Notes that something could not be written into the state directory.
    pub fn state_not_written(&self) {
        self.state_failures.inc();
    }

    /// Notes when the certificate that signs agents ends.
    pub fn authority_ends(&self, at: SystemTime) {
        self.authority_ends.set(since_1970(at));
    }

    /// Notes when the certificate that we show to agents ends.
    pub fn certificate_ends(&self, at: SystemTime) {
        self.certificate_ends.set(since_1970(at));
    }

    /// Notes whether this controller leads.
    pub fn leading(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// How it stands with the watches of an API server; a folder has none.
    pub fn watch_states(&self) -> &Arc<WatchStates> {
        &self.watch_states
    }

    /// Everything in the OpenMetrics text format, with the figures of a report.
    pub fn text(&self, report: &Report) -> String {
        let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.objects.clear();
        for (kind, count) in report.objects_by_kind() {
            self.objects.get_or_create(&KindLabels { kind: kind.clone() }).set(signed(*count));
        }
        self.findings.clear();
        for (reason, count) in report.findings_by_reason() {
            self.findings.get_or_create(&ReasonLabels { reason }).set(signed(count));
        }
        self.held.set(i64::from(report.held().is_some()));
        self.generation.clear();
        self.epoch.clear();
        self.agents.clear();
        for (name, fleet) in report.fleets() {
            let fleet_name = name.to_string();
            let labels = FleetLabels { fleet: fleet_name.clone() };
            self.generation.get_or_create(&labels).set(fleet.version.generation);
            self.epoch.get_or_create(&labels).set(fleet.version.epoch);
            let count = |which: &dyn Fn(&crate::report::Agent) -> bool| {
                signed(fleet.agents.values().filter(|agent| which(agent)).count())
            };
            let states: [(&'static str, i64); 4] = [
                ("current", count(&|a| a.connected && a.applied == Some(fleet.version))),
                ("behind", count(&|a| a.connected && a.applied != Some(fleet.version))),
                ("disconnected", count(&|a| !a.connected)),
                ("refusing", count(&|a| a.refused.is_some() || !a.not_live.is_empty())),
            ];
            for (state, count) in states {
                self.agents.get_or_create(&AgentLabels { fleet: fleet_name.clone(), state }).set(count);
            }
        }
        self.watches.update(&self.watch_states);
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        match encode(&mut text, &registry) {
            Ok(()) => text,
            Err(error) => {
                tracing::error!(%error, "metrics cannot be written");
                String::new()
            }
        }
    }
}
