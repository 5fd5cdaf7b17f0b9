//! What a single change costs the controller, without processes: instructions and allocations, counted by valgrind.
//!
//! The difference between a run with some changes and one with more is what the changes cost; everything else cancels.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use controller::hub::Hub;
use controller::pipeline::Translator;
use controller::watch::directory::Directory;
use e2e::swarm::world::World;
use prost::Message;
use proto::v1::agent_message::Message as FromAgent;
use proto::v1::controller_message::Message as ToAgent;
use proto::v1::{AgentMessage, Applied, MembersAck};
use push::agent_session::{AgentSession, Effect, HelloFacts, Holdings, Input};
use push::limits;
use push::server_session::{Agent, Input as ServerInput, Role, ServerSession};
use translate::{FleetName, Settings};

use crate::footprint::counted;
use crate::stats::{micros, thread_cpu};

/// The hidden verb that makes some changes and ends.
pub(crate) const VERB: &str = "single-changes";
/// Changes of the shorter run and of the longer one.
const CHANGES: [usize; 2] = [50, 250];

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// An endpoint moves
    Endpoint,
    /// A path of an Ingress changes
    Route,
}

#[derive(Args)]
pub(crate) struct Options {
    kind: Kind,
    /// Routes of the world
    routes: usize,
    /// Changes to make
    changes: usize,
}

/// What an agent holds that has nothing and takes nothing.
#[derive(Default)]
struct Nothing(journal::Tree, journal::MemberTree);

impl Holdings for Nothing {
    fn tree(&self) -> &journal::Tree {
        &self.0
    }

    fn members(&self) -> &journal::MemberTree {
        &self.1
    }

    fn has_secret(&self, _: &journal::Digest) -> bool {
        true
    }
}

/// Reads, translates, publishes and encodes for one agent, as the controller does, in this thread.
pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let world = World::write(folder.path(), options.routes, false)?;
    let settings = Settings::local(8080, 8443);
    let name: FleetName = settings.fleets.keys().next().context("no fleet")?.clone();
    let hub = Arc::new(Hub::new([name.clone()], 1));
    let mut directory = Directory::open(world.folder())?;
    let mut translator = Translator::new(settings);
    let first = directory.rescan(Instant::now()).listed.context("nothing was listed")?;
    let mut take = |changes| {
        let outcome = translator.apply(changes);
        hub.changed(&outcome.applied, &outcome.faults);
        outcome.deltas.into_iter().for_each(|delta| hub.publish(delta));
    };
    take(first.changes);
    // The agent says Hello with nothing and agrees to everything: what is counted is what it costs to tell it.
    let fleet = hub.fleet(&name).context("no fleet")?;
    let agent = Agent { uid: "single".into(), name: "single".to_owned() };
    let mut session = ServerSession::new(agent, Role::Leading, 0);
    let mut other = AgentSession::new(limits::STAGING);
    let nothing = Nothing::default();
    for effect in other.step(0, Input::Connected(HelloFacts { schema_version: 1, ..HelloFacts::default() }), &nothing) {
        if let Effect::Send(message) = effect {
            fleet.with(|fleet| session.step(0, ServerInput::Received(message), fleet));
        }
    }
    let mut bytes = 0;
    let mut poll = || {
        while let Some(message) = fleet.with(|fleet| session.poll(0, fleet)) {
            bytes += message.encode_to_vec().len();
            let answer = match message.message {
                Some(ToAgent::Members(message)) => {
                    FromAgent::MembersAck(MembersAck { seq: message.seq, member_root: message.digest })
                }
                Some(ToAgent::Commit(_)) => {
                    let version = fleet.with(|fleet| fleet.published());
                    let root = bytes::Bytes::copy_from_slice(&version.root.0);
                    FromAgent::Applied(Applied { version: Some(version.version.to_wire()), root, ..Applied::default() })
                }
                _ => continue,
            };
            let answer = AgentMessage { message: Some(answer) };
            fleet.with(|fleet| session.step(0, ServerInput::Received(answer), fleet));
        }
    };
    poll();
    let cpu = thread_cpu();
    for serial in 1..=options.changes {
        let number = serial.wrapping_mul(7_919) % options.routes;
        let change = match options.kind {
            Kind::Endpoint => world.move_endpoint(number, serial as u64)?,
            Kind::Route => world.change_route(number, serial as u64)?,
        };
        change.make()?;
        take(directory.step(Instant::now()).observed);
        poll();
    }
    let used = thread_cpu().saturating_sub(cpu) / u32::try_from(options.changes.max(1))?;
    println!("{} us per change with the files, {bytes} bytes for an agent", micros(used));
    Ok(())
}

pub(crate) fn table(routes: &[usize]) -> Result<()> {
    println!("\n| routes | change | instructions | allocations |\n| --- | --- | --- | --- |");
    for routes in routes {
        for kind in ["endpoint", "route"] {
            let run = |tool: &[&str], word: &str| -> Result<Option<u64>> {
                let mut counts = Vec::new();
                for changes in CHANGES {
                    let arguments = [VERB, kind, &routes.to_string(), &changes.to_string()].map(str::to_owned);
                    counts.extend(counted(tool, &arguments, word)?);
                }
                let [few, many] = counts[..] else { return Ok(None) };
                Ok(Some(many.saturating_sub(few) / (CHANGES[1] - CHANGES[0]) as u64))
            };
            let instructions = run(&["--tool=callgrind", "--callgrind-out-file=/dev/null"], "Collected :")?;
            let allocations = run(&["--undef-value-errors=no", "--leak-check=no"], "total heap usage:")?;
            let shown = |count: Option<u64>| count.map_or("no valgrind".to_owned(), |count| count.to_string());
            println!("| {routes} | {kind} | {} | {} |", shown(instructions), shown(allocations));
        }
    }
    Ok(())
}
