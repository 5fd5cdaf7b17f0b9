//! Waits until the first world is live and says what is served where.

use std::time::Duration;

use http::{Method, StatusCode};

use super::banner;
use super::plan::Plan;
use crate::client;
use crate::commands::verdict::{Document, Verdict};
use crate::state::UpFile;

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
                let unwell = unwell(&plan, &up).await;
                banner::print(&plan, unwell.as_deref()).await;
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

/// How many objects are not well, in words. None when all are, or when the controller does not say.
async fn unwell(plan: &Plan, up: &UpFile) -> Option<String> {
    let reply = client::call(&plan.state, up, Method::GET, "/v1/status", Vec::new()).await.ok()?;
    let document: Document = serde_json::from_slice(&reply.body).ok()?;
    let count = |wanted: Verdict| document.objects.iter().filter(|object| object.verdict() == wanted).count();
    let (refused, degraded) = (count(Verdict::Refused), count(Verdict::Degraded));
    (refused + degraded > 0).then(|| format!("{refused} refused, {degraded} degraded"))
}
