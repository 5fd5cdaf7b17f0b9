//! Joins the core, the session, the volume, `scalwsd` and the link. One task, which never waits for a disk or a peer.

mod compaction;

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use journal::Compacted;
use push::agent_session::{self as session, AgentSession, Close, HelloFacts};
use push::grpc::client::Link;
use push::limits;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::admin::{self, Call, Event};
use crate::check::Checker;
use crate::core::{AgentCore, Effect, Input, MemberChange, Report};
use crate::faults::Faults;
use crate::link::{Ended, Opened};
use crate::status::Status;
use crate::volume::Volume;

/// How long a Hello waits for `scalwsd` and for a configuration under way.
const HELLO_WAIT: Duration = Duration::from_secs(2);
/// How often `scalwsd` is read back while it lists faults of the environment, which it mends by itself.
const POLL_FAULTS: Duration = Duration::from_secs(1);
/// How often it is read back otherwise.
const POLL: Duration = Duration::from_secs(15);
/// How often the member sets are compared.
const COMPARE: Duration = Duration::from_secs(60);
/// Messages that wait for a stream that does not take them. More is a peer that does not read.
const OUTBOX: usize = 1_024;

/// Why the driver ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The controller does not believe the epoch of this volume: it has to be forgotten.
    ForgetEpoch,
    /// Only a new start can go on.
    Restart(String),
}

/// A stream with its session.
struct Stream {
    session: AgentSession,
    link: Link,
    /// Only [`session::Effect::Send`].
    outbox: VecDeque<session::Effect>,
    ended: oneshot::Sender<Ended>,
    unsure: watch::Sender<bool>,
    served: bool,
    answered: bool,
    close: Option<Close>,
}

/// Work that one input leads to.
enum Job {
    Core(Input),
    Session(session::Input),
}

/// See the module.
pub struct Driver {
    core: AgentCore,
    volume: Volume,
    faults: Faults,
    boot_id: String,
    checker: Checker,
    status: Arc<Status>,
    began: Instant,
    stream: Option<Stream>,
    /// A stream whose Hello waits.
    opening: Option<(Opened, Instant)>,
    connection: Option<u64>,
    version: String,
    schema: u32,
    journal_us: u64,
    transfer_began: Option<Instant>,
    config_calls: mpsc::Sender<Call>,
    member_calls: mpsc::Sender<Call>,
    reconnect: watch::Sender<u64>,
    events: mpsc::Receiver<Event>,
    checked: (mpsc::Sender<Vec<journal::Key>>, mpsc::Receiver<Vec<journal::Key>>),
    compacted: (mpsc::Sender<std::io::Result<Compacted>>, mpsc::Receiver<std::io::Result<Compacted>>),
    started: bool,
    end: Option<End>,
}

/// What a driver needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of the volume.
    pub volume: PathBuf,
    /// The unix socket of the admin API.
    pub admin: PathBuf,
    /// The `scalwsd` executable, for `scalwsd check`.
    pub scalwsd: PathBuf,
}

impl Driver {
    /// Opens the volume, puts it in order and starts the lanes to `scalwsd`. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the volume cannot be read or written.
    pub fn start(options: &Options, status: Arc<Status>) -> std::io::Result<Driver> {
        let boot_id = format!("{:032x}", rand::random::<u128>());
        let (volume, image) = Volume::open(&options.volume)?;
        let (core, effects) = AgentCore::open(image, &boot_id);
        let (config_calls, config_queue) = mpsc::channel(8);
        let (member_calls, member_queue) = mpsc::channel(8);
        let (reconnect, reconnect_asked) = watch::channel(0);
        let (say, events) = mpsc::channel(64);
        tokio::spawn(admin::configuration_lane(options.admin.clone(), config_queue, reconnect_asked, say.clone()));
        tokio::spawn(admin::members_lane(options.admin.clone(), member_queue, say));
        let mut driver = Driver {
            core,
            volume,
            faults: Faults::from_environment(),
            boot_id,
            checker: Checker { scalwsd: options.scalwsd.clone(), volume: options.volume.clone() },
            status,
            began: Instant::now(),
            stream: None,
            opening: None,
            connection: None,
            version: String::new(),
            schema: 0,
            journal_us: 0,
            transfer_began: None,
            config_calls,
            member_calls,
            reconnect,
            events,
            checked: mpsc::channel(1),
            compacted: mpsc::channel(1),
            started: false,
            end: None,
        };
        let jobs = driver.perform(effects);
        driver.work(jobs);
        driver.started = true;
        Ok(driver)
    }

    /// Runs until only a new start helps, or nobody hands over streams any more.
    pub async fn run(mut self, mut opened: mpsc::Receiver<Opened>) -> End {
        let mut poll = Instant::now() + POLL;
        let mut compare = Instant::now() + COMPARE;
        loop {
            if let Some(end) = self.end.take() {
                return end;
            }
            self.say_hello();
            self.flush();
            self.drop_closed_stream();
            self.show();
            let due = self.next_wake(poll.min(compare));
            let jobs = tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Some(event) => self.heard(event),
                    None => return End::Restart("the lanes to scalwsd ended".to_owned()),
                },
                Some(dead) = self.checked.1.recv() => vec![Job::Core(Input::Checked { dead })],
                Some(compacted) = self.compacted.1.recv() => vec![self.compacted(compacted)],
                heard = hear(&mut self.stream) => match heard {
                    Heard::Message(input) => vec![Job::Session(input)],
                    Heard::Room => Vec::new(),
                    Heard::End => self.end_stream(None),
                },
                new = opened.recv() => match new {
                    Some(new) => {
                        self.opening = Some((new, Instant::now() + HELLO_WAIT));
                        Vec::new()
                    }
                    None => return End::Restart("the link ended".to_owned()),
                },
                () = tokio::time::sleep_until(due) => {
                    let now = Instant::now();
                    let mut jobs = Vec::new();
                    if now >= poll {
                        poll = now + self.poll_interval();
                        jobs.push(Job::Core(Input::Poll));
                    }
                    if now >= compare {
                        compare = now + COMPARE;
                        jobs.push(Job::Core(Input::Compare));
                    }
                    if self.stream.is_some() {
                        jobs.push(Job::Session(session::Input::Tick));
                    }
                    jobs
                }
            };
            self.work(jobs);
            poll = poll.min(Instant::now() + self.poll_interval());
        }
    }

    fn poll_interval(&self) -> Duration {
        let faulty = self.core.not_live().iter().any(|entry| journal::admin::codes::is_environment(&entry.code));
        if faulty { POLL_FAULTS } else { POLL }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn next_wake(&self, background: Instant) -> Instant {
        let session = self.stream.as_ref().and_then(|stream| stream.session.deadline());
        let session = session.map(|ms| self.began + Duration::from_millis(ms));
        let hello = self.opening.as_ref().map(|(_, at)| *at);
        session.into_iter().chain(hello).fold(background, Instant::min)
    }

    /// What an event of a lane means. Answers of a connection that dropped are not heard: the core was told that it did.
    fn heard(&mut self, event: Event) -> Vec<Job> {
        match event {
            Event::Up { connection, answer } => {
                tracing::info!(start = %answer.start, root = %answer.root.short(), "scalwsd answers");
                self.connection = Some(connection);
                self.version = answer.version.clone();
                self.schema = answer.schema;
                self.status.scalwsd_up.set(1);
                vec![Job::Core(Input::Up(answer))]
            }
            Event::Down { connection } if self.connection == Some(connection) => {
                tracing::warn!("the connection to scalwsd dropped");
                self.connection = None;
                self.status.scalwsd_up.set(0);
                vec![Job::Core(Input::Down)]
            }
            Event::Answer { connection, input } if self.connection == Some(connection) => vec![Job::Core(input)],
            Event::MembersGone { connection } if self.connection == Some(connection) => {
                // Both lanes start over from what scalwsd says it runs.
                self.reconnect.send_modify(|n| *n += 1);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn end_stream(&mut self, close: Option<Close>) -> Vec<Job> {
        let Some(stream) = self.stream.take() else { return Vec::new() };
        self.status.connected.set(0);
        if close == Some(Close::EpochRejected) {
            self.end = Some(End::ForgetEpoch);
        }
        // A link that is gone learns it another way.
        let _gone = stream.ended.send(Ended { served: stream.served, answered: stream.answered, close });
        vec![Job::Core(Input::StreamEnded)]
    }

    /// Says Hello once `scalwsd` is known and nothing is under way, or it took too long.
    fn say_hello(&mut self) {
        let ready = self.connection.is_some() && self.core.is_settled();
        let Some((opened, _)) = self.opening.take_if(|(_, at)| ready || Instant::now() >= *at) else { return };
        let mut jobs = self.end_stream(None);
        self.stream = Some(Stream {
            session: AgentSession::new(limits::STAGING).with_answer_limit(opened.answer_ms),
            link: opened.link,
            outbox: VecDeque::new(),
            ended: opened.ended,
            unsure: opened.unsure,
            served: false,
            answered: false,
            close: None,
        });
        self.status.streams.inc();
        let facts = self.core.facts();
        jobs.push(Job::Session(session::Input::Connected(HelloFacts {
            boot_id: self.boot_id.clone(),
            schema_version: self.schema,
            highest_epoch: facts.highest_epoch,
            applied: facts.applied.map(|(version, _)| version),
            condemned: facts.condemned,
            scalwsd_version: self.version.clone(),
            scalwsd_state: facts.scalwsd.as_str().to_owned(),
        })));
        self.work(jobs);
    }

    /// Does jobs and what follows from them, until nothing follows.
    fn work(&mut self, jobs: Vec<Job>) {
        let mut queue = VecDeque::from(jobs);
        while let Some(job) = queue.pop_front() {
            let more = match job {
                Job::Core(input) => {
                    let effects = self.core.step(input);
                    self.perform(effects)
                }
                Job::Session(input) => self.converse(input),
            };
            queue.extend(more);
        }
    }

    /// One step of the session.
    fn converse(&mut self, input: session::Input) -> Vec<Job> {
        let now = self.now_ms();
        let Some(stream) = &mut self.stream else { return Vec::new() };
        stream.answered |= matches!(input, session::Input::Received(_));
        let mut jobs = Vec::new();
        for effect in stream.session.step(now, input, &self.core) {
            match effect {
                message @ session::Effect::Send(_) => stream.outbox.push_back(message),
                session::Effect::Apply(transfer) => {
                    self.transfer_began = Some(Instant::now());
                    jobs.push(Job::Core(Input::Transfer(transfer)));
                }
                session::Effect::Adopt { version, root } => jobs.push(Job::Core(Input::Adopt { version, root })),
                session::Effect::RecordEpoch(epoch) => jobs.push(Job::Core(Input::Epoch(epoch))),
                session::Effect::Members { seq, set, change, digest } => {
                    jobs.push(Job::Core(Input::Members(MemberChange { seq, set, change, digest })));
                }
                session::Effect::Welcomed { version, root } => {
                    tracing::info!(%version, root = %root.short(), "a controller serves this agent");
                    stream.served = true;
                    stream.unsure.send_replace(false);
                    self.status.connected.set(1);
                }
                session::Effect::LookElsewhere => {
                    tracing::warn!("the leader is not sure to lead; what runs goes on");
                    stream.unsure.send_replace(true);
                }
                session::Effect::Close(close) => stream.close = Some(close),
            }
        }
        jobs
    }

    /// Does effects in order. A failed write ends the batch for its file.
    fn perform(&mut self, effects: Vec<Effect>) -> Vec<Job> {
        let mut jobs = Vec::new();
        let mut failed = BTreeSet::new();
        for effect in effects {
            let file = effect.file();
            if file.is_some_and(|file| failed.contains(&file)) {
                continue;
            }
            self.faults.before_effect();
            let began = Instant::now();
            if let Some(done) = self.volume.perform(&effect) {
                self.journal_us += u64::try_from(began.elapsed().as_micros()).unwrap_or(0);
                let (Some(file), failure) = (file, done.err()) else { continue };
                if let Some(e) = &failure {
                    tracing::error!("the volume cannot be written: {e}");
                }
                match (&effect, failure) {
                    (Effect::Replace { content, .. }, failure) => {
                        let len = failure.is_none().then_some(content.len() as u64);
                        jobs.push(Job::Core(Input::Replaced { file, len }));
                    }
                    (_, Some(e)) => {
                        failed.insert(file);
                        jobs.push(Job::Core(Input::VolumeFailed { file, message: e.to_string() }));
                    }
                    (_, None) => {}
                }
                continue;
            }
            match effect {
                Effect::Report(report) => jobs.extend(self.report(report).into_iter().map(Job::Session)),
                Effect::Check { journal, commit } => self.check(journal, commit),
                Effect::Compact { journal, settled } => jobs.extend(self.compact(&journal, settled)),
                Effect::Fatal(why) => self.end = Some(End::Restart(why)),
                call @ (Effect::Reload { .. } | Effect::ReadBack) => {
                    let journal_us = std::mem::take(&mut self.journal_us);
                    self.call(true, call, journal_us);
                }
                call => self.call(false, call, 0),
            }
        }
        jobs
    }

    /// One call is under way in each lane, so that its queue has room. Without a connection the core hears that it is
    /// down, and asks again.
    fn call(&mut self, configuration: bool, effect: Effect, journal_us: u64) {
        let Some(connection) = self.connection else { return };
        let lane = if configuration { &self.config_calls } else { &self.member_calls };
        if lane.try_send(Call { connection, effect, journal_us }).is_err() {
            self.end = Some(End::Restart("a lane to scalwsd does not take calls".to_owned()));
        }
    }

    fn check(&self, journal: Arc<str>, commit: u64) {
        tracing::error!(commit, "scalwsd died while it loaded a commit: looking for the resource");
        let (checker, checked) = (self.checker.clone(), self.checked.0.clone());
        tokio::spawn(async move {
            let dead = checker.find_deadly(&journal, commit).await;
            // A driver that ended needs no answer.
            let _gone = checked.send(dead).await;
        });
    }

    /// What the session hears of a report.
    fn report(&mut self, report: Report) -> Vec<session::Input> {
        match report {
            Report::Applied { version, root, timings, not_live } => {
                if let Some(began) = self.transfer_began.take() {
                    self.status.apply_seconds.observe(began.elapsed().as_secs_f64());
                }
                self.status.applied.inc();
                tracing::info!(%version, root = %root.short(), not_live = not_live.len(), "applied");
                vec![session::Input::Applied { version, root, timings, not_live }]
            }
            Report::Refused { version, root, code, message, leaves, transient } => {
                self.transfer_began = None;
                self.status.refused.inc();
                tracing::error!(%version, root = %root.short(), code, "refused: {message}");
                vec![session::Input::Refused { version, root, code: code.to_owned(), message, leaves, transient }]
            }
            Report::NotLiveChanged(list) => vec![session::Input::NotLiveChanged(list)],
            Report::HoldingsChanged => vec![session::Input::HoldingsChanged],
            Report::MembersApplied { seq, root } => {
                self.status.members.inc();
                vec![session::Input::MembersApplied { seq, root }]
            }
            Report::MembersBaseUnknown { set } => vec![session::Input::MembersBaseUnknown { set }],
            Report::MembersRefused { seq, set, code, message } => {
                tracing::error!(%set, code, "member set refused: {message}");
                vec![session::Input::MembersRefused { seq, set, code: code.to_owned(), message }]
            }
        }
    }

    /// Hands messages to the stream as far as it takes them.
    fn flush(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        while let Some(effect) = stream.outbox.pop_front() {
            let session::Effect::Send(message) = effect else { continue };
            match stream.link.send.try_send(message) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(message)) => {
                    stream.outbox.push_front(session::Effect::Send(message));
                    break;
                }
                Err(mpsc::error::TrySendError::Closed(_)) => stream.outbox.clear(),
            }
        }
        if stream.outbox.len() > OUTBOX && stream.close.is_none() {
            stream.close = Some(Close::Silent);
        }
    }

    fn drop_closed_stream(&mut self) {
        if let Some(close) = self.stream.as_mut().and_then(|stream| stream.close.take()) {
            let jobs = self.end_stream(Some(close));
            self.work(jobs);
        }
    }

    /// Readiness and figures. Being behind, or without a controller, never makes a proxy unready.
    fn show(&mut self) {
        let facts = self.core.facts();
        self.status.set_ready(facts.scalwsd == crate::core::ScalwsdState::Ready);
        self.status.epoch.set(i64::try_from(facts.highest_epoch).unwrap_or(i64::MAX));
        let generation = facts.applied.map_or(0, |(version, _)| version.generation);
        self.status.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        self.status.not_live.set(i64::try_from(self.core.not_live().len()).unwrap_or(i64::MAX));
    }
}

/// What a stream has to say.
enum Heard {
    Message(session::Input),
    /// It takes a message that waits.
    Room,
    End,
}

/// Waits for ever when there is no stream.
async fn hear(stream: &mut Option<Stream>) -> Heard {
    let Some(stream) = stream else { return std::future::pending().await };
    let waits = !stream.outbox.is_empty();
    tokio::select! {
        message = stream.link.receive.message() => match message {
            Ok(Some(message)) => Heard::Message(session::Input::Received(message)),
            Ok(None) => Heard::End,
            Err(status) => {
                tracing::info!("the stream broke: {}", status.message());
                Heard::End
            }
        },
        // The permit is given back at once: there is one sender only.
        permit = stream.link.send.reserve(), if waits => match permit {
            Ok(_) => Heard::Room,
            Err(_) => Heard::End,
        },
    }
}
