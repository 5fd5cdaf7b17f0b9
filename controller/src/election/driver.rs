//! Drives the elector: its requests, its clock, and what others tell it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::api::Lease;
use super::elector::{Effect, Elector, Input, Moment, Standing};
use super::term::Term;

type Answer = Pin<Box<dyn Future<Output = (Lease, Input)> + Send>>;

/// Takes part in the election until `release` is cancelled and the Lease is given back. `reported` is the highest epoch that
/// an agent has seen; whoever notifies `step_down` knows that we are of no use as a leader.
pub async fn run(
    mut elector: Elector,
    lease: Lease,
    term: Arc<Term>,
    standing: watch::Sender<Standing>,
    mut reported: watch::Receiver<u64>,
    step_down: Arc<Notify>,
    release: CancellationToken,
) {
    let moment = || Moment {
        ms: term.now_ms(),
        wall_us: SystemTime::UNIX_EPOCH
            .elapsed()
            .ok()
            .and_then(|since| i64::try_from(since.as_micros()).ok())
            .unwrap_or_default(),
    };
    let (mut at_rest, mut under_way): (Option<Lease>, Option<Answer>) = (Some(lease), None);
    let mut releasing = false;
    let mut input = Input::Tick;
    loop {
        let effects = elector.step(moment(), input);
        // Before anybody is told what we are.
        term.set(elector.leads_until());
        for effect in effects {
            match effect {
                Effect::Become(new) => {
                    // Who ends knows of no leader, and it means nothing.
                    if !releasing {
                        tell(&new, elector.holder());
                    }
                    standing.send_replace(new);
                }
                Effect::Released => return,
                Effect::Read => {
                    under_way = at_rest.take().map(|mut lease| -> Answer {
                        Box::pin(async move {
                            let answer = lease.read().await;
                            (lease, Input::Read(answer))
                        })
                    });
                }
                Effect::Write { record, over } => {
                    under_way = at_rest.take().map(|mut lease| -> Answer {
                        Box::pin(async move {
                            let answer = lease.write(record, over).await;
                            (lease, Input::Written(answer))
                        })
                    });
                }
            }
        }
        let due =
            elector.deadline().and_then(|ms| term.at(ms)).unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        input = tokio::select! {
            // The clock first: after a pause a leader finds out that it leads no more before anything else.
            biased;
            () = tokio::time::sleep_until(due.into()) => Input::Tick,
            () = release.cancelled(), if !releasing => {
                releasing = true;
                Input::Release
            }
            (lease, input) = answered(&mut under_way) => {
                at_rest = Some(lease);
                under_way = None;
                input
            }
            () = step_down.notified() => Input::StepDown,
            Ok(()) = reported.changed() => Input::EpochReported(*reported.borrow_and_update()),
        };
    }
}

/// The answer to the request under way; waits for ever without one.
async fn answered(under_way: &mut Option<Answer>) -> (Lease, Input) {
    match under_way {
        Some(answer) => answer.await,
        None => std::future::pending().await,
    }
}

fn tell(standing: &Standing, holder: Option<&str>) {
    match standing {
        Standing::Leading { epoch } => tracing::info!(epoch, "leading"),
        Standing::Unsure => tracing::warn!(
            "the Lease could not be renewed in time; nothing is published until it is, and agents keep what they run"
        ),
        Standing::Following { leader: Some(leader) } => tracing::info!(leader, holder, "following"),
        Standing::Following { leader: None } => tracing::info!(holder, "following; no leader is known"),
    }
}
