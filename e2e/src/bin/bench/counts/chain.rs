//! One change from its file to the agent that applied it, in one thread, stage by stage.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use controller::hub::Hub;
use controller::pipeline::{Outcome, Translator};
use controller::watch::directory::Directory;
use e2e::swarm::world::World;
use prost::Message;
use proto::v1::AgentMessage;
use push::grpc::SharedFleet;
use push::server_session::{Agent as Peer, Input, Role, ServerSession};
use translate::{Change, FleetName, Settings};

use super::agent::Agent;
use crate::stats::thread_cpu;

/// The stages in their order. The functions with the same names are what valgrind collects.
pub(super) const STAGES: [&str; 5] = ["read", "translate", "publish", "encode", "apply"];

/// What a stage took, over all changes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// Whether it is measured: under valgrind the clock of the thread cannot be read.
    measured: bool,
    /// CPU time of the thread.
    pub(super) cpu: Duration,
    /// Allocations of the thread.
    pub(super) allocations: u64,
}

/// Does a stage, and adds what it took.
fn costing<T>(cost: &mut Cost, stage: impl FnOnce() -> T) -> T {
    if !cost.measured {
        return stage();
    }
    let (mut result, cpu) = (None, thread_cpu());
    let counted = allocation_counter::measure(|| result = Some(stage()));
    cost.cpu += thread_cpu().saturating_sub(cpu);
    cost.allocations += counted.count_total;
    match result {
        Some(result) => result,
        None => unreachable!("it was called"),
    }
}

/// A folder, its translation, and one agent that holds all of it.
pub(super) struct Chain {
    directory: Directory,
    translator: Translator,
    hub: Arc<Hub>,
    fleet: SharedFleet,
    session: ServerSession,
    agent: Agent,
    /// Bytes of messages to the agent.
    pub(super) sent: u64,
    /// What the stages took.
    pub(super) costs: [Cost; STAGES.len()],
}

#[inline(never)]
fn stage_read(directory: &mut Directory) -> Vec<Change> {
    directory.step(Instant::now()).observed
}

#[inline(never)]
fn stage_translate(translator: &mut Translator, changes: Vec<Change>) -> Outcome {
    translator.apply(changes)
}

#[inline(never)]
fn stage_publish(hub: &Hub, outcome: Outcome) {
    hub.changed(&outcome.applied, &outcome.faults);
    outcome.deltas.into_iter().for_each(|delta| hub.publish(delta));
}

#[inline(never)]
fn stage_encode(session: &mut ServerSession, fleet: &SharedFleet, answers: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
    encode(session, fleet, answers)
}

#[inline(never)]
fn stage_apply(agent: &mut Agent, messages: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
    apply(agent, messages)
}

/// Takes answers and gives what follows from them, encoded.
fn encode(session: &mut ServerSession, fleet: &SharedFleet, answers: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
    for answer in answers {
        let answer = AgentMessage::decode(&**answer)?;
        fleet.with(|fleet| session.step(0, Input::Received(answer), fleet));
    }
    Ok(std::iter::from_fn(|| fleet.with(|fleet| session.poll(0, fleet))).map(|m| m.encode_to_vec()).collect())
}

/// Takes messages and gives the answers, encoded.
fn apply(agent: &mut Agent, messages: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
    messages.iter().try_for_each(|message| agent.receive(message))?;
    Ok(agent.answers())
}

impl Chain {
    /// Over a world, with everything applied. What follows is measured, or only done.
    pub(super) fn over(world: &World, measured: bool) -> Result<Chain> {
        let settings = Settings::local(8080, 8443);
        let name: FleetName = settings.fleets.keys().next().context("no fleet")?.clone();
        let hub = Arc::new(Hub::new([name.clone()], 1));
        let mut directory = Directory::open(world.folder())?;
        let mut translator = Translator::new(settings);
        let first = directory.rescan(Instant::now()).listed.context("nothing was listed")?;
        let outcome = translator.apply(first.changes);
        hub.changed(&outcome.applied, &outcome.faults);
        outcome.deltas.into_iter().for_each(|delta| hub.publish(delta));
        let fleet = hub.fleet(&name).context("no fleet")?.clone();
        let peer = Peer { uid: "counts".into(), name: "counts".to_owned() };
        let session = ServerSession::new(peer, Role::Leading, 0);
        let agent = Agent::connect()?;
        let costs = [Cost { measured, ..Cost::default() }; STAGES.len()];
        let mut chain = Chain { directory, translator, hub, fleet, session, agent, sent: 0, costs };
        let mut answers = chain.agent.answers();
        loop {
            let messages = encode(&mut chain.session, &chain.fleet, &answers)?;
            if messages.is_empty() {
                return Ok(chain);
            }
            answers = apply(&mut chain.agent, &messages)?;
        }
    }

    /// Takes in what changed in the folder, to its end.
    pub(super) fn take(&mut self) -> Result<()> {
        let [read, translate, publish, encode, apply] = &mut self.costs;
        let changes = costing(read, || stage_read(&mut self.directory));
        let outcome = costing(translate, || stage_translate(&mut self.translator, changes));
        costing(publish, || stage_publish(&self.hub, outcome));
        let mut answers = Vec::new();
        loop {
            let messages = costing(encode, || stage_encode(&mut self.session, &self.fleet, &answers))?;
            if messages.is_empty() {
                return Ok(());
            }
            self.sent += messages.iter().map(|message| message.len() as u64).sum::<u64>();
            answers = costing(apply, || stage_apply(&mut self.agent, &messages))?;
        }
    }
}
