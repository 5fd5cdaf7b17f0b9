//! The controller's own certificate for both listeners, replaced in time.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use push::authority::{Authority, BACKDATED, validity_of};
use push::grpc::tls;

use crate::identity::SERVER_NAME;
use crate::metrics::Metrics;

/// How long a certificate of the controller is valid; the next one is made at half of it.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// How often it is looked whether a next one has to be made: agents who come meanwhile may be refused because of the time, or by an
/// authority that they do not trust any more.
const LOOK: Duration = Duration::from_secs(2);

/// TLS for both listeners with a fresh certificate, whose end the metrics say: enrolment, push.
///
/// # Errors
/// When none can be made.
pub(crate) fn slots(authority: &Authority, metrics: &Metrics) -> anyhow::Result<(tls::TlsSlot, tls::TlsSlot)> {
    let own = authority.server_identity(SERVER_NAME, SystemTime::now(), LIFETIME)?;
    if let Some(leaf) = own.chain.first() {
        metrics.certificate_ends(validity_of(leaf)?.not_after);
    }
    Ok((tls::slot(tls::enrolment_server(&own)?), tls::slot(tls::push_server(&own, authority.bundle())?)))
}

/// Replaces the certificate in time, and whom it trusts when the authority changes, for ever. Gives an error when no new one can be
/// made.
pub(crate) async fn renew(
    authority: &ArcSwap<Authority>,
    enrol_tls: &tls::TlsSlot,
    push_tls: &tls::TlsSlot,
    metrics: &Metrics,
) -> anyhow::Error {
    let (mut made, mut by) = (SystemTime::now(), authority.load_full());
    loop {
        tokio::time::sleep(LOOK).await;
        let (now, present) = (SystemTime::now(), authority.load_full());
        if !is_due(made, now) && Arc::ptr_eq(&by, &present) {
            continue;
        }
        match slots(&present, metrics) {
            Ok((enrol, push)) => {
                enrol_tls.store(enrol.load_full());
                push_tls.store(push.load_full());
                (made, by) = (now, present);
                tracing::info!("the controller's certificate was renewed");
            }
            Err(error) => return error.context("the controller's certificate"),
        }
    }
}

/// Whether a certificate that was made then has to be replaced. By the time of day, as those judge it who see it: a clock may
/// be set, in both directions, and a machine may sleep.
fn is_due(made: SystemTime, now: SystemTime) -> bool {
    match now.duration_since(made) {
        Ok(age) => age >= LIFETIME / 2,
        Err(back) => back.duration() >= BACKDATED / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_replaced_long_before_it_is_out_of_its_time_wherever_the_clock_is_set() {
        let (made, hour) = (SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000), Duration::from_secs(3600));
        assert!(!is_due(made, made));
        for hours in 1..=100 {
            // It is good for a day in both directions.
            let (ahead, back) = (is_due(made, made + hour * hours), is_due(made, made - hour * hours));
            assert_eq!((ahead, back), (hours >= 12, hours >= 12), "{hours} hours");
        }
        assert!(BACKDATED > hour * 2 && LIFETIME > hour * 2, "an hour is nothing");
    }
}
