//! The connections to `scalwsd`: one for configuration, one for members, so that neither waits for the other.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use journal::admin::{ConfigAnswer, PatchMembers, ReloadAnswer, ReloadRequest};
use journal::client::AdminError;
use journal::{AdminClient, Digest};
use tokio::sync::{mpsc, watch};

use crate::core::{CallError, Effect, Input};
use push::agent_session::Timings;

/// How often a socket that nobody listens on is tried.
const RETRY: Duration = Duration::from_millis(20);
/// How long a call other than a reload may take. Longer means that `scalwsd` hangs: the connection is given up.
const CALL: Duration = Duration::from_secs(10);
/// How long a reload may take. `scalwsd` ends itself before that when it hangs.
const RELOAD: Duration = Duration::from_secs(120);
/// The pause before a process is asked again for a load that broke off and that it survived, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// A call, with the number of the connection that it was meant for.
#[derive(Debug)]
pub struct Call {
    /// From [`Event::Up`].
    pub connection: u64,
    /// A call of the lane.
    pub effect: Effect,
    /// What writing to the volume took before it, in microseconds.
    pub journal_us: u64,
}

/// What a lane says.
#[derive(Debug)]
pub enum Event {
    /// The configuration connection stands.
    Up {
        /// Counts connections.
        connection: u64,
        /// What runs.
        answer: ConfigAnswer,
    },
    /// It dropped.
    Down {
        /// Which one.
        connection: u64,
    },
    /// The answer to a call.
    Answer {
        /// The connection of the call.
        connection: u64,
        /// For the core.
        input: Input,
    },
    /// The members connection broke during a call: look whether `scalwsd` is still the same.
    MembersGone {
        /// The connection of the call.
        connection: u64,
    },
}

/// Keeps the configuration connection: connects, says what runs, does calls. Ends when nobody listens any more.
pub async fn configuration_lane(
    socket: PathBuf,
    mut calls: mpsc::Receiver<Call>,
    mut reconnect: watch::Receiver<u64>,
    events: mpsc::Sender<Event>,
) {
    let mut broken = Broken::default();
    for connection in 1.. {
        let Some((mut client, answer)) = first_answer(&socket, &events).await else { return };
        broken.now_runs(&answer.start);
        reconnect.mark_unchanged();
        let mut closed = client.closed();
        if events.send(Event::Up { connection, answer }).await.is_err() {
            return;
        }
        loop {
            let call = tokio::select! {
                biased;
                call = calls.recv() => call,
                _ = closed.wait_for(|closed| *closed) => break,
                _ = reconnect.changed() => break,
            };
            let Some(call) = call else { return };
            if call.connection != connection {
                // It was meant for a connection that dropped; whoever asked was told so.
                continue;
            }
            let pause = if matches!(call.effect, Effect::Reload { .. }) { broken.pause() } else { Duration::ZERO };
            if !pause.is_zero() {
                tracing::warn!(?pause, "a load broke off and scalwsd lives: it is asked again after a pause");
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = closed.wait_for(|closed| *closed) => break,
                    _ = reconnect.changed() => break,
                }
            }
            let input = configuration_call(&mut client, call).await;
            let gone = is_gone(&input);
            if matches!(input, Input::Reloaded { .. }) {
                broken.heard(gone);
            }
            if events.send(Event::Answer { connection, input }).await.is_err() {
                return;
            }
            if gone {
                break;
            }
        }
        if events.send(Event::Down { connection }).await.is_err() {
            return;
        }
    }
}

/// Loads that broke off, as told by the process that still runs.
#[derive(Debug, Default)]
struct Broken {
    start: String,
    times: u32,
}

impl Broken {
    /// Another process starts without a past: what killed the last one is found in another way.
    fn now_runs(&mut self, start: &str) {
        if self.start != start {
            (self.start, self.times) = (start.to_owned(), 0);
        }
    }

    fn heard(&mut self, gone: bool) {
        self.times = if gone { self.times.saturating_add(1) } else { 0 };
    }

    fn pause(&self) -> Duration {
        match self.times {
            0 => Duration::ZERO,
            n => AGAIN.0.saturating_mul(1 << (n - 1).min(16)).min(AGAIN.1),
        }
    }
}

/// Does the calls of the members lane, on a connection of its own.
pub async fn members_lane(socket: PathBuf, mut calls: mpsc::Receiver<Call>, events: mpsc::Sender<Event>) {
    let mut kept: Option<(u64, AdminClient)> = None;
    while let Some(call) = calls.recv().await {
        let connection = call.connection;
        let mut client = match kept.take() {
            Some((number, client)) if number == connection && !client.is_closed() => Some(client),
            _ => AdminClient::connect(&socket).await.ok(),
        };
        let input = match &mut client {
            Some(client) => members_call(client, call.effect).await,
            None => None,
        };
        let event = match input {
            Some(input) => {
                kept = client.map(|client| (connection, client));
                Event::Answer { connection, input }
            }
            None => Event::MembersGone { connection },
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

async fn first_answer(socket: &Path, events: &mpsc::Sender<Event>) -> Option<(AdminClient, ConfigAnswer)> {
    let mut said = false;
    loop {
        let tried = async {
            let mut client = AdminClient::connect(socket).await?;
            let answer = client.config().await?;
            Ok::<_, AdminError>((client, answer))
        };
        match tokio::time::timeout(CALL, tried).await {
            Ok(Ok(connected)) => return Some(connected),
            Ok(Err(e)) if !said => {
                tracing::info!("waiting for scalwsd: {e}");
                said = true;
            }
            _ => {}
        }
        tokio::select! {
            () = events.closed() => return None,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

async fn configuration_call(client: &mut AdminClient, call: Call) -> Input {
    let began = Instant::now();
    match call.effect {
        Effect::Reload { journal, commit } => {
            let request = ReloadRequest { journal: Some(journal.to_string()), commit: Some(commit) };
            let result: Result<ReloadAnswer, CallError> = within(RELOAD, client.reload(&request)).await;
            let timings = Timings { journal_us: call.journal_us, reload_us: micros(began), ..Timings::default() };
            Input::Reloaded { result, timings }
        }
        _ => {
            let result = within(CALL, client.config()).await;
            Input::ReadBack { result, took_us: micros(began) }
        }
    }
}

/// `None` when the connection broke.
async fn members_call(client: &mut AdminClient, effect: Effect) -> Option<Input> {
    let texts = |list: &[Arc<str>]| list.iter().map(|text| text.to_string()).collect::<Vec<_>>();
    let result: Result<Option<Digest>, CallError> = match effect {
        Effect::PutMembers { set, members } => within(CALL, client.put_members(&set, texts(&members))).await.map(Some),
        Effect::PatchMembers { set, base, add, remove } => {
            let patch = PatchMembers { base, add: texts(&add), remove: texts(&remove) };
            within(CALL, client.patch_members(&set, &patch)).await.map(Some)
        }
        Effect::DeleteMembers { set } => within(CALL, client.delete_members(&set)).await.map(|()| None),
        _ => {
            let listed = within(CALL, client.upstreams()).await;
            let listed = listed.map(|answer| {
                answer.sets.into_iter().map(|(name, digest)| (Arc::from(name), digest)).collect::<Vec<(Arc<str>, _)>>()
            });
            return (listed != Err(CallError::Gone)).then_some(Input::Upstreams(listed));
        }
    };
    (result != Err(CallError::Gone)).then_some(Input::MembersAnswered(result))
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, AdminError>>) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(AdminError::Gone { .. })) | Err(_) => Err(CallError::Gone),
        Ok(Err(AdminError::Conflict { digest })) => Err(CallError::Conflict(digest)),
        Ok(Err(e @ (AdminError::Refused { .. } | AdminError::Answer { .. }))) => Err(CallError::Refused(e.to_string())),
    }
}

fn is_gone(input: &Input) -> bool {
    matches!(
        input,
        Input::Reloaded { result: Err(CallError::Gone), .. } | Input::ReadBack { result: Err(CallError::Gone), .. }
    )
}

fn micros(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}
