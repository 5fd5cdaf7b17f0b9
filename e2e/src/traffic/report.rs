//! What traffic met: counts, every failed request, every kept connection that was closed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Over which connection a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// One that is kept.
    Kept,
    /// One of its own.
    New,
}

/// How a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nobody listens.
    Refused,
    /// The connection ended before the whole answer.
    Reset(String),
    /// Another status than 200.
    Status(u16),
    /// An answer of somebody else.
    WrongBackend(String),
    /// No whole answer within the limit.
    Timeout,
    /// The handshake failed.
    Tls(String),
    /// A certificate that is not one of those which may be shown.
    WrongCertificate,
}

/// A request that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// When it was to be sent, since the traffic began.
    pub began: Duration,
    /// When it had failed.
    pub ended: Duration,
    /// How.
    pub kind: Kind,
    /// Over which connection.
    pub way: Way,
    /// The host that it was for.
    pub host: String,
    /// What the run was doing when it was to be sent.
    pub doing: Arc<str>,
    /// What the run was doing when it had failed.
    pub after: Arc<str>,
}

impl Failed {
    /// Whether its connection was cut, as that of a request which a killed process was about to answer.
    pub fn is_cut(&self) -> bool {
        matches!(self.kind, Kind::Reset(_)) || matches!(&self.kind, Kind::Tls(why) if why.contains("cut"))
    }
}

/// A kept connection that was closed from the other side.
#[derive(Clone, Debug)]
pub struct Closed {
    /// When, since the traffic began.
    pub at: Duration,
    /// The host of its requests.
    pub host: String,
    /// What the run was doing.
    pub doing: Arc<str>,
}

/// What happened to all requests of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Good answers over kept connections, and over new ones.
    pub good: [usize; 2],
    /// How many of all good answers came over TLS.
    pub over_tls: usize,
    /// Every request that failed.
    pub failed: Vec<Failed>,
    /// Every kept connection that was closed.
    pub closed: Vec<Closed>,
    /// What good answers took, in microseconds.
    took: Vec<u32>,
}

impl Report {
    /// Notes a good answer.
    pub(super) fn answer(&mut self, way: Way, tls: bool, took: Duration) {
        self.good[usize::from(way == Way::New)] += 1;
        self.over_tls += usize::from(tls);
        self.took.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }

    /// Good answers.
    pub fn answered(&self) -> usize {
        self.good[0] + self.good[1]
    }

    /// The time within which this share of the good answers came; zero when there are none.
    pub fn within(&self, share: f64) -> Duration {
        let mut took = self.took.clone();
        took.sort_unstable();
        // The share is between 0 and 1, and there are far fewer than 2^52.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let place = (took.len() as f64 * share) as usize;
        let micros = took.get(place.min(took.len().saturating_sub(1))).copied().unwrap_or(0);
        Duration::from_micros(u64::from(micros))
    }

    /// The failed requests that `explains` does not explain.
    pub fn unexplained(&self, explains: impl Fn(&Failed) -> bool) -> Vec<&Failed> {
        self.failed.iter().filter(|failed| !explains(failed)).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kept, new] = self.good;
        write!(
            f,
            "{} answered ({kept} over kept connections, {new} over new ones, {} with TLS), {} failed, {} kept connections \
             closed, p50 {:?}, p99 {:?}, all within {:?}",
            self.answered(),
            self.over_tls,
            self.failed.len(),
            self.closed.len(),
            self.within(0.5),
            self.within(0.99),
            self.within(1.0),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_the_answers_and_what_explains_a_failure() {
        let mut report = Report::default();
        assert_eq!(report.within(0.5), Duration::ZERO);
        for ms in 1..=100 {
            report.answer(Way::New, false, Duration::from_millis(ms));
        }
        assert_eq!(report.within(0.5), Duration::from_millis(51));
        assert_eq!(report.within(1.0), Duration::from_millis(100));
        let failed = |kind| Failed {
            began: Duration::ZERO,
            ended: Duration::ZERO,
            kind,
            way: Way::Kept,
            host: String::new(),
            doing: "a".into(),
            after: "b".into(),
        };
        report.failed = vec![failed(Kind::Reset(String::new())), failed(Kind::Status(503))];
        assert_eq!(report.unexplained(Failed::is_cut).len(), 1);
        assert!(
            report.to_string().starts_with("100 answered (0 over kept connections, 100 over new ones, 0 with TLS), 2")
        );
    }
}
