//! What the proxy counts about itself. No series per host, route or pool: their number would be the tenants' to choose.

use std::fmt::Write;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Class {
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

/// All handles are taken out of their families once: counting a request takes no lock.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    by_class: [Counter; 5],
    /// Seconds from a request's head to the end of its answer.
    pub duration: Histogram,
    /// Requests under way.
    pub requests_active: Gauge,
    /// Connections that were accepted.
    pub connections: Counter,
    /// Connections that are open.
    pub connections_active: Gauge,
    /// Handshakes that did not end in a connection.
    pub handshakes_failed: Counter,
    /// Times that accepting had to pause, because descriptors or memory ran out.
    pub accept_pauses: Counter,
    /// Requests that were refused because they could mean two things.
    pub rejected: Counter,
    /// Tries beyond the first.
    pub retries: Counter,
    /// Connections to members that could not be made.
    pub connect_errors: Counter,
    /// Answers that members began and did not end.
    pub answers_cut: Counter,
    /// Lines of the access log that were lost because its reader was too slow.
    pub log_lines_lost: Counter,
    /// Reloads that were done.
    pub reloads: Counter,
    /// Reloads that were refused as a whole.
    pub reloads_refused: Counter,
    /// Seconds that a reload took.
    pub reload_duration: Histogram,
    /// Resources that are loaded.
    pub resources: Gauge,
    /// Resources that are loaded and not live.
    pub not_live: Gauge,
    /// Changes of member sets.
    pub member_updates: Counter,
    /// Connections taken over by WebSocket that are open.
    pub tunnels_active: Gauge,
    /// Bytes of answers.
    pub bytes_sent: Counter,
    /// Bytes of request bodies.
    pub bytes_received: Counter,
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// Everything at 0.
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("scalwsd");
        let requests = Family::<Class, Counter>::default();
        registry.register("requests", "Requests that were answered, by class of status.", requests.clone());
        let by_class = CLASSES.map(|code| requests.get_or_create_owned(&Class { code }));
        let reload_results = Family::<Result, Counter>::default();
        registry.register("reloads", "Reloads of the configuration.", reload_results.clone());
        let histogram = |registry: &mut Registry, name, help, first| {
            let histogram = Histogram::new(exponential_buckets(first, 2.0, 16));
            registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
            histogram
        };
        let duration =
            histogram(&mut registry, "request_duration", "From a request's head to the end of its answer.", 0.000_25);
        let reload_duration = histogram(&mut registry, "reload_duration", "Time of a reload.", 0.000_05);
        let counter = |registry: &mut Registry, name, help| {
            let counter = Counter::<u64, AtomicU64>::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let gauge = |registry: &mut Registry, name, help| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let r = &mut registry;
        Metrics {
            by_class,
            duration,
            reload_duration,
            requests_active: gauge(r, "requests_active", "Requests under way."),
            connections: counter(r, "connections", "Connections that were accepted."),
            connections_active: gauge(r, "connections_active", "Connections that are open."),
            handshakes_failed: counter(r, "handshakes_failed", "TLS handshakes that did not end in a connection."),
            accept_pauses: counter(r, "accept_pauses", "Pauses in accepting, for want of descriptors or memory."),
            rejected: counter(r, "requests_rejected", "Requests refused because they could mean two things."),
            retries: counter(r, "upstream_retries", "Tries beyond the first."),
            connect_errors: counter(r, "upstream_connect_errors", "Connections to members that could not be made."),
            answers_cut: counter(r, "upstream_answers_cut", "Answers that members began and did not end."),
            log_lines_lost: counter(r, "access_log_lines_lost", "Lines lost because the log's reader was too slow."),
            reloads: reload_results.get_or_create_owned(&Result { result: "done" }),
            reloads_refused: reload_results.get_or_create_owned(&Result { result: "refused" }),
            resources: gauge(r, "resources", "Resources that are loaded."),
            not_live: gauge(r, "resources_not_live", "Resources that are loaded and not live."),
            member_updates: counter(r, "member_updates", "Changes of member sets."),
            tunnels_active: gauge(r, "tunnels_active", "Connections taken over by WebSocket that are open."),
            bytes_sent: counter(r, "response_bytes", "Bytes of the bodies of answers."),
            bytes_received: counter(r, "request_bytes", "Bytes of the bodies of requests."),
            registry,
        }
    }

    /// Counts an answer.
    pub fn answered(&self, status: http::StatusCode) {
        let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        if let Some(counter) = self.by_class.get(class) {
            counter.inc();
        }
    }

    /// The OpenMetrics text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        if encode(&mut out, &self.registry).is_err() {
            // Writing to a String does not fail.
            let _infallible = out.write_str("# EOF\n");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_class_and_written_as_openmetrics() {
        let metrics = Metrics::new();
        metrics.answered(http::StatusCode::OK);
        metrics.answered(http::StatusCode::BAD_GATEWAY);
        metrics.answered(http::StatusCode::BAD_GATEWAY);
        metrics.answered(http::StatusCode::from_u16(999).unwrap());
        let text = metrics.text();
        assert!(text.contains("scalwsd_requests_total{code=\"2xx\"} 1\n"), "{text}");
        assert!(text.contains("scalwsd_requests_total{code=\"5xx\"} 3\n"), "{text}");
        assert!(text.contains("scalwsd_reloads_total{result=\"done\"} 0\n"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
