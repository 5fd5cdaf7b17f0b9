//! An agent without processes: the shipped session and core, over a proxy that agrees to everything at once.

use std::collections::VecDeque;
use std::sync::Arc;

use agent::core::{AgentCore, Effect, File, Input, MemberChange, Report, VolumeImage};
use anyhow::{Context, Result, bail};
use journal::Digest;
use journal::admin::{ConfigAnswer, ReloadAnswer};
use prost::Message;
use proto::v1::{AgentMessage, ControllerMessage};
use push::agent_session::{self as session, AgentSession, HelloFacts, Timings};
use push::limits;

/// See the module.
pub(super) struct Agent {
    core: AgentCore,
    session: AgentSession,
    /// What `scalwsd` would run.
    runs: ConfigAnswer,
    /// The root of the transfer that is under way.
    loads: Option<Digest>,
    inputs: VecDeque<Input>,
    /// Encoded, for the controller.
    answers: Vec<Vec<u8>>,
    /// Bytes appended to the journals.
    pub(super) journaled: u64,
}

impl Agent {
    /// An agent on an empty volume, with its Hello to be taken by [`Agent::answers`].
    pub(super) fn connect() -> Result<Agent> {
        let (mut core, effects) = AgentCore::open(VolumeImage::default(), "counts");
        let root = core.facts().root;
        let runs = ConfigAnswer {
            start: "counts".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: config::SCHEMA_VERSION,
            journal: None,
            commit: 0,
            root,
            not_live: Vec::new(),
            listening: Vec::new(),
        };
        let session = AgentSession::new(limits::STAGING);
        let inputs = VecDeque::from([Input::Up(runs.clone())]);
        let mut agent = Agent { core, session, runs, loads: None, inputs, answers: Vec::new(), journaled: 0 };
        agent.perform(effects)?;
        agent.settle()?;
        let hello = HelloFacts { schema_version: 1, boot_id: "counts".to_owned(), ..HelloFacts::default() };
        agent.converse(session::Input::Connected(hello))?;
        agent.settle()?;
        Ok(agent)
    }

    /// What it has to say since the last time.
    pub(super) fn answers(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.answers)
    }

    /// Takes one encoded message and does all that follows.
    pub(super) fn receive(&mut self, message: &[u8]) -> Result<()> {
        self.converse(session::Input::Received(ControllerMessage::decode(message)?))?;
        self.settle()
    }

    fn settle(&mut self) -> Result<()> {
        while let Some(input) = self.inputs.pop_front() {
            let effects = self.core.step(input);
            self.perform(effects)?;
        }
        Ok(())
    }

    fn converse(&mut self, input: session::Input) -> Result<()> {
        for effect in self.session.step(0, input, &self.core) {
            match effect {
                session::Effect::Send(message) => self.answers.push(AgentMessage::encode_to_vec(&message)),
                session::Effect::Apply(transfer) => {
                    self.loads = Some(transfer.root);
                    self.inputs.push_back(Input::Transfer(transfer));
                }
                session::Effect::Adopt { version, root } => self.inputs.push_back(Input::Adopt { version, root }),
                session::Effect::RecordEpoch(epoch) => self.inputs.push_back(Input::Epoch(epoch)),
                session::Effect::Members { seq, set, change, digest } => {
                    self.inputs.push_back(Input::Members(MemberChange { seq, set, change, digest }));
                }
                session::Effect::Welcomed { .. } | session::Effect::LookElsewhere => {}
                session::Effect::Close(close) => bail!("the agent closed: {close:?}"),
            }
        }
        Ok(())
    }

    fn perform(&mut self, effects: Vec<Effect>) -> Result<()> {
        for effect in effects {
            let answer = match effect {
                Effect::Append { lines, .. } => {
                    self.journaled += lines.len() as u64;
                    continue;
                }
                Effect::WriteKey { .. } | Effect::UnlinkKeys(_) | Effect::Cut { .. } => continue,
                Effect::Compact { .. } => {
                    // About as long as what is in it.
                    let lines = self
                        .core
                        .config()
                        .resources()
                        .iter()
                        .map(|(key, stored)| key.name.len() + stored.body.len() + 60);
                    Input::Replaced { file: File::Config, len: Some(lines.sum::<usize>() as u64 + 100) }
                }
                Effect::Replace { file, .. } => Input::Replaced { file, len: Some(0) },
                Effect::Reload { journal, commit } => {
                    self.runs.root = self.loads.take().context("a reload without a transfer")?;
                    (self.runs.journal, self.runs.commit) = (Some((*journal).to_owned()), commit);
                    let answer = ReloadAnswer { root: self.runs.root, changed: 0, not_live: Vec::new() };
                    Input::Reloaded { result: Ok(answer), timings: Timings::default() }
                }
                Effect::ReadBack => Input::ReadBack { result: Ok(self.runs.clone()), took_us: 0 },
                Effect::PutMembers { set, members } => {
                    let digest = journal::digest::members(&set, members.iter().map(|member| &**member));
                    Input::MembersAnswered(Ok(Some(digest)))
                }
                Effect::PatchMembers { set, base, add, remove } => self.patch(&set, base, &add, &remove)?,
                Effect::DeleteMembers { .. } => Input::MembersAnswered(Ok(None)),
                Effect::ListUpstreams => Input::Upstreams(Ok(Vec::new())),
                Effect::Report(report) => {
                    self.report(report)?;
                    continue;
                }
                Effect::Check { .. } | Effect::Fatal(_) => bail!("the agent wants {effect:?}"),
            };
            self.inputs.push_back(answer);
        }
        Ok(())
    }

    fn patch(&self, set: &str, base: Digest, add: &[Arc<str>], remove: &[Arc<str>]) -> Result<Input> {
        let held = self.core.member_set(set).with_context(|| format!("{set} is not held"))?;
        let result = if held.digest == base { Ok(Some(held.changed(set, add, remove).digest)) } else { bail!("{set}") };
        Ok(Input::MembersAnswered(result))
    }

    fn report(&mut self, report: Report) -> Result<()> {
        self.converse(match report {
            Report::Applied { version, root, timings, not_live } => {
                session::Input::Applied { version, root, timings, not_live }
            }
            Report::HoldingsChanged => session::Input::HoldingsChanged,
            Report::MembersApplied { seq, root } => session::Input::MembersApplied { seq, root },
            other => bail!("the agent reports {other:?}"),
        })
    }
}
