//! `scalwsctl wait`: until what is in DIR now is live on every agent.

use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::{DONE, FAILED, HELD};
use crate::client::{self, ClientError, WaitAnswer};
use crate::output::{clean, say};

/// How long to pause before asking again while there is no live controller.
const RETRY: Duration = Duration::from_millis(50);
/// What the controller gets less than this command has, so that its answer arrives in time.
const MARGIN: Duration = Duration::from_millis(50);
/// With less time than this the controller is not asked again: it could only say that it is still reading, in the place of
/// what it said before.
const LEAST: Duration = Duration::from_millis(250);
/// How much longer than it was given the controller may take before it counts as hung.
const GRACE: Duration = Duration::from_millis(200);

/// Runs the command and gives its exit code. All messages go to stderr.
pub async fn run(state: &Path, timeout: Duration) -> u8 {
    let end = Instant::now() + timeout;
    let mut why;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match ask(state, left).await {
            Ok(Outcome::Live) => return DONE,
            Ok(Outcome::Held(message)) => {
                say(&format!("the new world is held: {}", clean(&message)));
                return HELD;
            }
            Ok(Outcome::Lagging(text)) => why = text,
            Err(error) => why = clean(&error.to_string()),
        }
        if Instant::now() + RETRY + LEAST >= end {
            break;
        }
        tokio::time::sleep(RETRY).await;
    }
    // A controller that is missing all the time uses the whole timeout too.
    tokio::time::sleep_until(end).await;
    say(&format!("not live after {timeout:?}: {why}"));
    FAILED
}

/// What one question led to.
enum Outcome {
    Live,
    Held(String),
    Lagging(String),
}

async fn ask(state: &Path, left: Duration) -> Result<Outcome, ClientError> {
    let up = client::find(state)?;
    let limit = left.saturating_sub(MARGIN);
    let (status, answer) = tokio::time::timeout(left + GRACE, client::wait_once(state, &up, limit))
        .await
        .map_err(|_| ClientError::Broken("no answer within the time".to_owned()))??;
    Ok(match status {
        StatusCode::OK if answer.live => Outcome::Live,
        StatusCode::CONFLICT => {
            let message = answer.held.map(|h| h.message).unwrap_or_default();
            Outcome::Held(if message.contains("confirm") {
                message
            } else {
                format!("{message} (publish it with `scalwsctl confirm --state {}`)", state.display())
            })
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::OK => Outcome::Lagging(who_lags(&answer)),
        other => Outcome::Lagging(format!("the controller answered {other}")),
    })
}

fn who_lags(answer: &WaitAnswer) -> String {
    if answer.lagging.is_empty() {
        return "the controller named nobody who lags".to_owned();
    }
    let names: Vec<String> = answer.lagging.iter().map(|l| format!("{}: {}", clean(&l.agent), clean(&l.why))).collect();
    names.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_live_up_it_waits_till_the_timeout() {
        let state = tempfile::tempdir().unwrap();
        let start = Instant::now();
        assert_eq!(run(state.path(), Duration::from_millis(120)).await, FAILED);
        assert!(start.elapsed() >= Duration::from_millis(120), "{:?}", start.elapsed());
    }

    #[test]
    fn those_who_lag_are_named() {
        let answer: WaitAnswer =
            serde_json::from_str(r#"{"live":false,"lagging":[{"agent":"replica-1","why":"not connected"}]}"#).unwrap();
        assert_eq!(who_lags(&answer), "replica-1: not connected");
    }
}
