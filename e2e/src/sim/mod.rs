//! The simulation: one seed drives the shipped election, watches, gates, engine, hub, sessions and agents through everything
//! that may go wrong, in virtual milliseconds, without a socket, a thread or a real clock.
//!
//! What must always hold is asserted at every step (an agent never goes back, never holds a name that leads nowhere, a
//! resource of another fleet, or a configuration without a route that nobody removed; no two controllers act in one epoch).
//! When the faults stop, one controller must come to lead, every agent must come to hold the desired state byte for byte, and
//! the desired state must be that of a cold start.

mod api;
mod candidate;
mod clock;
mod control;
mod dice;
mod faults;
mod lease;
mod ledger;
mod manifests;
mod node;
mod pipeline;
mod proxy;
mod scenarios;
mod watches;

use proto::v1::agent_message::Message as ToController;
use proto::v1::controller_message::Message as ToAgent;
use proto::v1::{AgentMessage, ControllerMessage};
use push::Version;
use push::server_session::{self, Agent, ServerSession};

use candidate::Candidate;
use control::Control;
use dice::Dice;
use faults::Faults;
use manifests::Objects;
use node::Node;
use proxy::Readings;

/// Messages that a link holds before the sender waits.
const LINK: usize = 12;

/// A cluster of two fleets with two pods each, and two or three controllers.
pub struct Simulation {
    now: u64,
    dice: Dice,
    faults: Faults,
    poison: bool,
    objects: Objects,
    /// Counts the edits of what can be told from each other in their order.
    mark: u64,
    control: Control,
    nodes: Vec<Node>,
    readings: Readings,
    /// Messages carried.
    messages: u64,
}

/// What happened in a run. A run in which nothing of it happens proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages carried.
    pub messages: u64,
    /// Configuration journals that were written anew while their agent ran.
    pub compactions: u64,
    /// How often another controller acted than the one before.
    pub leader_changes: u64,
    /// Promotions that waited for a view that was older than the API server.
    pub held_back: u64,
    /// Leaders that could not renew in time.
    pub unsure: u64,
    /// Turns in which two controllers led by their own clocks.
    pub overlaps: u64,
    /// Writes of the Lease that somebody else had come before.
    pub conflicts: u64,
    /// How often a leader heard of an agent that is beyond it.
    pub overtaken: u64,
    /// Agents that were sent to another controller.
    pub redirected: u64,
    /// Agents that had to wait at a controller that does not lead.
    pub parked: u64,
}

impl Tally {
    /// Each count with its name.
    pub fn counts(&self) -> [(&'static str, u64); 10] {
        [
            ("messages carried", self.messages),
            ("journals written anew", self.compactions),
            ("changes of the leader", self.leader_changes),
            ("promotions held back", self.held_back),
            ("leaders that became unsure", self.unsure),
            ("turns with two leaders", self.overlaps),
            ("lost races for the Lease", self.conflicts),
            ("agents beyond their leader", self.overtaken),
            ("agents sent elsewhere", self.redirected),
            ("agents parked", self.parked),
        ]
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.messages += other.messages;
        self.compactions += other.compactions;
        self.leader_changes += other.leader_changes;
        self.held_back += other.held_back;
        self.unsure += other.unsure;
        self.overlaps += other.overlaps;
        self.conflicts += other.conflicts;
        self.overtaken += other.overtaken;
        self.redirected += other.redirected;
        self.parked += other.parked;
    }
}

impl Simulation {
    /// A run whose every step follows from the seed.
    pub fn new(seed: u64) -> Simulation {
        let mut dice = Dice::new(seed);
        let faults = Faults::of(&mut dice);
        let mut readings = Readings::default();
        let nodes = (0..4).map(|number| Node::new(number / 2, number, &mut readings)).collect();
        let poison = dice.one_in(3);
        let objects = manifests::first();
        let now = 1_000;
        let control = Control::new(now, &mut dice, &objects);
        Simulation { now, dice, faults, poison, objects, mark: 0, control, nodes, readings, messages: 0 }
    }

    /// Faults and edits for so many turns, then peace until everything agrees.
    ///
    /// # Errors
    /// What still differs after `limit_ms` of virtual time without faults.
    pub fn run(mut self, turns: u64, limit_ms: u64) -> Result<Simulation, String> {
        for _ in 0..turns {
            self.now += 1 + self.dice.below(40);
            self.misfortune();
            if self.dice.one_in(6) {
                self.edit(self.poison);
            }
            self.turn();
        }
        self.settle(limit_ms)?;
        Ok(self)
    }

    /// What happened.
    pub fn tally(&self) -> Tally {
        let ledger = &self.control.ledger;
        let of_nodes = |count: fn(&Node) -> u64| self.nodes.iter().map(count).sum();
        Tally {
            messages: self.messages,
            compactions: of_nodes(|node| node.compactions),
            leader_changes: ledger.changes,
            held_back: ledger.held_back,
            unsure: ledger.unsure,
            overlaps: ledger.overlaps,
            conflicts: self.control.lease.conflicts,
            overtaken: ledger.overtaken,
            redirected: of_nodes(|node| node.redirected),
            parked: of_nodes(|node| node.parked),
        }
    }

    fn edit(&mut self, poison: bool) {
        manifests::edit(&mut self.dice, &mut self.objects, poison, &mut self.mark);
    }

    fn misfortune(&mut self) {
        let Simulation { now, dice, faults, nodes, readings, .. } = self;
        let (now, faults) = (*now, *faults);
        for node in nodes.iter_mut() {
            if dice.one_in(faults.cut) {
                let wait = dice.below(300);
                node.cut(now, wait, dice, faults, readings);
            }
            if dice.one_in(faults.proxy) {
                node.crash_proxy(now, readings);
            }
            if dice.one_in(faults.full) {
                node.set_full(true);
            } else if dice.one_in(20) {
                node.set_full(false);
            }
            node.reload_ms = if dice.one_in(faults.stuck) { 1_000 + dice.below(30_000) } else { 1 + dice.below(30) };
            if let Some(stream) = &mut node.stream {
                stream.dead_link |= dice.one_in(faults.dead_link);
                if dice.one_in(faults.slow) {
                    stream.reads_from = now + dice.below(20_000);
                }
            }
        }
        self.control.misfortune(now, &mut self.dice, faults);
    }

    /// One turn of everything that can move. Gives whether anything did.
    fn turn(&mut self) -> bool {
        let mut busy = self.control.turn(self.now, &mut self.dice, self.faults, &self.objects);
        for at in 0..self.nodes.len() {
            busy |= self.turn_node(at);
        }
        busy
    }

    fn turn_node(&mut self, at: usize) -> bool {
        let now = self.now;
        if self.nodes[at].may_connect(now) {
            self.connect(at);
        }
        let busy = self.serve(at);
        let Simulation { dice, faults, nodes, readings, control, .. } = self;
        let ledger = &control.ledger;
        nodes[at].counted = !control.lease.forgot;
        nodes[at].in_order = !control.lease.forgot && !ledger.blind && ledger.overlaps == 0;
        nodes[at].turn(now, dice, *faults, readings) || busy
    }

    /// What the controller's end of a stream does.
    fn serve(&mut self, at: usize) -> bool {
        let Simulation { now, dice, faults, nodes, readings, control, messages, .. } = self;
        let (now, faults, forgot) = (*now, *faults, control.lease.forgot);
        let node = &mut nodes[at];
        let fleet = node.fleet_name();
        let Some(stream) = &mut node.stream else { return false };
        let Some(candidate) = control.get_mut(stream.controller) else {
            let wait = dice.below(300);
            node.cut(now, wait, dice, faults, readings);
            return true;
        };
        if candidate.is_paused(now) {
            return false;
        }
        let (mut busy, mut events, mut acts) = (false, Vec::new(), None);
        let number = candidate.number;
        let step = |candidate: &Candidate, server: &mut ServerSession, input| {
            candidate.pipeline.with(&fleet, |fleet| server.step(now, input, fleet))
        };
        // What a session is told of its controller comes before anything else.
        if stream.told != candidate.role && stream.server.closed().is_none() {
            stream.told = candidate.role.clone();
            let input = server_session::Input::Role(stream.told.clone());
            events.extend(step(candidate, &mut stream.server, input));
        }
        if stream.down.len() < LINK
            && let Some(message) = candidate.pipeline.with(&fleet, |fleet| stream.server.poll(now, fleet))
        {
            busy = true;
            *messages += 1;
            one_at_a_time(&message, &mut stream.unanswered);
            acts = candidate.stands().filter(|_| is_act(&message));
            if !stream.dead_link {
                faults.carry(dice, &mut stream.down, message);
            }
        }
        if stream.server.deadline().is_some_and(|at| now >= at) {
            events.extend(step(candidate, &mut stream.server, server_session::Input::Tick));
        }
        if !dice.one_in(3)
            && let Some(message) = stream.up.pop_front()
        {
            busy = true;
            stream.unanswered &= !is_answer(&message);
            events.extend(step(candidate, &mut stream.server, server_session::Input::Received(message)));
        }
        events.extend(step(candidate, &mut stream.server, server_session::Input::FleetChanged));
        let beyond = events.iter().filter(|event| matches!(event, server_session::Event::EpochReported(_))).count();
        for event in events {
            candidate.event(&fleet, &node.name, event);
        }
        control.ledger.overtaken += beyond as u64;
        if let Some(epoch) = acts {
            control.ledger.acts(number, epoch, forgot);
        }
        if stream.server.closed().is_some() && stream.down.is_empty() {
            let wait = dice.below(300);
            node.cut(now, wait, dice, faults, readings);
        }
        busy
    }

    /// A pod goes where it was sent to, or to any controller.
    fn connect(&mut self, at: usize) {
        let Simulation { now, dice, nodes, control, .. } = self;
        let node = &mut nodes[at];
        let sent = node.sent_to.take().and_then(|number| control.get_mut(number).map(|process| process.number));
        let numbers: Vec<u64> = control.running().map(|process| process.number).collect();
        if numbers.is_empty() {
            node.connect_at = *now + 50;
            return;
        }
        let number = sent.unwrap_or_else(|| *dice.pick(&numbers));
        let Some(process) = control.get_mut(number) else { return };
        let agent = Agent { uid: node.name.clone(), name: node.name.to_string() };
        let role = process.role.clone();
        node.connect(*now, number, ServerSession::new(agent, role.clone(), *now), role);
    }

    /// Ends the faults and waits for agreement.
    fn settle(&mut self, limit_ms: u64) -> Result<(), String> {
        self.faults = Faults::default();
        self.control.peace(self.now, &mut self.dice);
        for node in &mut self.nodes {
            node.set_full(false);
            node.reload_ms = 1;
        }
        let start = self.now;
        loop {
            let busy = self.turn();
            let difference = if busy { Some(String::new()) } else { self.difference() };
            match difference {
                None => return Ok(()),
                Some(difference) if self.now - start > limit_ms => {
                    let difference = if difference.is_empty() { self.difference() } else { Some(difference) };
                    return match difference {
                        None => Ok(()),
                        Some(difference) => Err(difference),
                    };
                }
                Some(_) if busy => self.now += 1,
                Some(_) => {
                    let nodes = self.nodes.iter().map(Node::next_at).min().unwrap_or(self.now);
                    self.now = nodes.min(self.control.next_at(self.now)).max(self.now + 1);
                }
            }
        }
    }

    /// Edits until the desired configuration of a fleet is another one.
    fn change(&mut self, fleet: &translate::FleetName) {
        let before = self.desired(fleet);
        for edits in 0.. {
            if self.desired(fleet).is_some_and(|desired| Some(desired) != before) {
                return;
            }
            assert!(edits < 1_000, "edits change nothing at whoever leads");
            self.edit(false);
            self.now += 5;
            self.turn();
        }
    }

    fn desired(&self, fleet: &translate::FleetName) -> Option<Version> {
        Some(self.control.leader()?.pipeline.with(fleet, |fleet| fleet.version()))
    }

    fn difference(&mut self) -> Option<String> {
        let Some(leader) = self.control.leader() else { return Some("there is not one leader".to_owned()) };
        for candidate in self.control.running() {
            if candidate.watches.is_behind(&self.control.api) || candidate.pipeline.is_held() {
                return Some(format!("controller {} has not seen everything", candidate.number));
            }
        }
        for node in &mut self.nodes {
            let fleet = node.fleet_name();
            let difference = leader.pipeline.with(&fleet, |fleet| node.difference(fleet));
            if let Some(difference) = difference {
                return Some(format!("{difference} ({})", node.describe()));
            }
        }
        let mut world = translate::World::new(manifests::settings());
        self.objects.values().for_each(|object| world.apply(&translate::Change::Put(object.clone())));
        let cold = translate::translate(&world);
        // Whoever follows has translated the same.
        let differs = |candidate: &Candidate| {
            let difference = candidate.pipeline.differs_from(&cold)?;
            Some(format!("controller {}: {difference}", candidate.number))
        };
        self.control.running().find_map(differs)
    }
}

/// Whether only a leader may say this.
fn is_act(message: &ControllerMessage) -> bool {
    matches!(
        message.message,
        Some(ToAgent::Welcome(_) | ToAgent::Begin(_) | ToAgent::Commit(_) | ToAgent::Members(_) | ToAgent::Drop(_))
    )
}

/// A transfer begins only when the one before was answered or called off.
fn one_at_a_time(message: &ControllerMessage, unanswered: &mut bool) {
    match message.message {
        Some(ToAgent::Begin(_)) => {
            assert!(!*unanswered, "a transfer begins while the one before waits for its answer");
            *unanswered = true;
        }
        Some(ToAgent::Abort(_)) => *unanswered = false,
        _ => {}
    }
}

/// Whether this ends a transfer.
fn is_answer(message: &AgentMessage) -> bool {
    matches!(message.message, Some(ToController::Applied(_) | ToController::Refused(_) | ToController::Resync(_)))
}
