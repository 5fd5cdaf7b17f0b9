//! Waits until the first world is live and says what is served where.

use std::time::Duration;

use http::StatusCode;

use super::banner;
use super::plan::Plan;
use crate::client;

/// How long to wait before it is said who lags.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to pause while the controller does not answer yet.
const RETRY: Duration = Duration::from_millis(50);

/// Says it once, then ends.
pub async fn announce(plan: Plan) {
    let up = plan.up_file();
    let mut last = String::new();
    loop {
        let text = match client::wait_once(&plan.state, &up, PATIENCE).await {
            Ok((StatusCode::OK, answer)) if answer.live => {
                banner::print(&plan).await;
                return;
            }
            Ok((StatusCode::CONFLICT, answer)) => {
                let message = answer.held.map(|h| h.message).unwrap_or_default();
                format!("held: {message} (scalwsctl confirm --state {})", plan.state.display())
            }
            Ok((_, answer)) => {
                let names: Vec<String> = answer.lagging.iter().map(|l| format!("{}: {}", l.agent, l.why)).collect();
                format!("not live yet: {}", names.join("; "))
            }
            // It is starting, or dies and is restarted, which is said elsewhere.
            Err(_) => String::new(),
        };
        if !text.is_empty() && text != last {
            plan.log.say(&text);
            last = text;
        }
        tokio::time::sleep(RETRY).await;
    }
}
