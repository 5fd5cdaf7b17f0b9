//! The simulation: one seed drives the shipped store, engine, hub, sessions and agents through everything that may go
//! wrong, in virtual milliseconds, without a socket, a thread or a real clock.
//!
//! What must always hold is asserted at every step (an agent never goes back, never holds a name that leads nowhere, a
//! resource of another fleet, or a configuration without a route that nobody removed). When the faults stop, every agent
//! must come to hold the desired state byte for byte, and the desired state must be that of a cold start.

mod dice;
mod faults;
mod manifests;
mod node;
mod plane;
mod proxy;
mod scenarios;

use std::collections::BTreeMap;

use proto::v1::agent_message::Message as ToController;
use proto::v1::controller_message::Message as ToAgent;
use proto::v1::{AgentMessage, ControllerMessage};
use push::Version;
use push::server_session::{self, Agent, Role, ServerSession};

use dice::Dice;
use faults::Faults;
use manifests::Objects;
use node::Node;
use plane::{Controller, List};
use proxy::Readings;

/// Messages that a link holds before the sender waits.
const LINK: usize = 12;

/// A cluster of two fleets with two pods each.
pub struct Simulation {
    now: u64,
    dice: Dice,
    faults: Faults,
    poison: bool,
    objects: Objects,
    controllers: BTreeMap<u64, Controller>,
    /// The number of the controller that holds the lease.
    leader: u64,
    /// The counter of epochs, which outlives controllers.
    epoch: u64,
    nodes: Vec<Node>,
    readings: Readings,
    /// Messages carried.
    pub messages: u64,
}

impl Simulation {
    /// A run whose every step follows from the seed.
    pub fn new(seed: u64) -> Simulation {
        let mut dice = Dice::new(seed);
        let faults = Faults::of(&mut dice);
        let mut readings = Readings::default();
        let nodes = (0..4).map(|number| Node::new(number / 2, number, &mut readings)).collect();
        let poison = dice.one_in(3);
        let mut simulation = Simulation {
            now: 1_000,
            dice,
            faults,
            poison,
            objects: manifests::first(),
            controllers: BTreeMap::new(),
            leader: 0,
            epoch: 0,
            nodes,
            readings,
            messages: 0,
        };
        simulation.lead(0);
        simulation
    }

    /// Faults and edits for so many turns, then peace until everything agrees.
    ///
    /// # Errors
    /// What still differs after `limit_ms` of virtual time without faults.
    pub fn run(mut self, turns: u64, limit_ms: u64) -> Result<Simulation, String> {
        for _ in 0..turns {
            self.now += 1 + self.dice.below(20);
            self.misfortune();
            if self.dice.one_in(6) {
                manifests::edit(&mut self.dice, &mut self.objects, self.poison);
            }
            self.turn();
        }
        self.settle(limit_ms)?;
        Ok(self)
    }

    /// A new controller takes the lease.
    fn lead(&mut self, before: usize) {
        self.epoch = controller::epoch::next(self.epoch, 0).expect("epochs do not run out");
        self.leader += 1;
        let late = self.dice.one_in(4);
        self.controllers.insert(self.leader, Controller::new(self.epoch, before, late));
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
        if self.dice.one_in(self.faults.failover) {
            self.failover();
        }
        if self.dice.one_in(self.faults.list) {
            let list = *self.dice.pick(&[List::Whole, List::Whole, List::Part, List::Empty]);
            let Simulation { now, dice, controllers, leader, objects, .. } = self;
            if let Some(controller) = controllers.get_mut(leader).filter(|c| c.is_open() || list != List::Empty) {
                controller.list(*now, dice, objects, list);
            }
        }
    }

    /// Another controller wins. The old one is dead, or does not know it yet.
    fn failover(&mut self) {
        let before = self.controllers.get(&self.leader).map_or(0, Controller::in_force);
        let before = before.max(manifests::first().len());
        if self.dice.one_in(2) {
            self.controllers.clear();
            let Simulation { now, dice, faults, nodes, readings, .. } = self;
            for node in nodes {
                let wait = dice.below(300);
                node.cut(*now, wait, dice, *faults, readings);
            }
        } else {
            // At most two at a time.
            let leader = self.leader;
            self.controllers.retain(|number, _| *number == leader);
        }
        self.lead(before);
    }

    /// One turn of everything that can move. Gives whether anything did.
    fn turn(&mut self) -> bool {
        let mut busy = false;
        for controller in self.controllers.values_mut().filter(|controller| !controller.silent) {
            if controller.awaits_list() {
                if self.dice.one_in(if controller.late { 60 } else { 8 }) {
                    controller.list(self.now, &mut self.dice, &self.objects, List::Whole);
                }
                // The source shows changes while its first list is not complete.
                controller.watch(&mut self.dice, &self.objects);
                busy = true;
            } else if self.dice.one_in(2) && !controller.has_seen(&self.objects) {
                controller.watch(&mut self.dice, &self.objects);
                busy = true;
            }
        }
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
        let mut busy = false;
        let Simulation { dice, faults, nodes, readings, controllers, leader, epoch, messages, .. } = self;
        let node = &mut nodes[at];
        let fleet = node.fleet_name();
        if let Some(stream) = &mut node.stream {
            let Some(controller) = controllers.get_mut(&stream.controller) else {
                let wait = dice.below(300);
                node.cut(now, wait, dice, *faults, readings);
                return true;
            };
            let mut events = Vec::new();
            if stream.down.len() < LINK
                && let Some(message) = controller.with(&fleet, |fleet| stream.server.poll(now, fleet))
            {
                busy = true;
                *messages += 1;
                one_at_a_time(&message, &mut stream.unanswered);
                if !stream.dead_link {
                    faults.carry(dice, &mut stream.down, message);
                }
            }
            if stream.server.deadline().is_some_and(|at| now >= at) {
                events.extend(
                    controller.with(&fleet, |fleet| stream.server.step(now, server_session::Input::Tick, fleet)),
                );
            }
            if !dice.one_in(3)
                && let Some(message) = stream.up.pop_front()
            {
                busy = true;
                stream.unanswered &= !is_answer(&message);
                let input = server_session::Input::Received(message);
                events.extend(controller.with(&fleet, |fleet| stream.server.step(now, input, fleet)));
            }
            events.extend(
                controller.with(&fleet, |fleet| stream.server.step(now, server_session::Input::FleetChanged, fleet)),
            );
            let mut reported = None;
            for event in events {
                reported = reported.max(controller.event(&fleet, &node.name, event));
            }
            let over = stream.server.closed().is_some() && stream.down.is_empty();
            if let Some(reported) = reported {
                if stream.controller == *leader {
                    *epoch = controller::epoch::next(*epoch, reported).expect("epochs do not run out");
                    controller.hub.raise_epoch(*epoch);
                } else {
                    // It cannot raise the epoch on a lease that is not its own: it knows now that it was deposed.
                    controller.role = Role::NotLeader { leader_address: None, retry_ms: 50 };
                }
            }
            if stream.server.closed().is_none() && controller.role != Role::Leading {
                let input = server_session::Input::Role(controller.role.clone());
                controller.with(&fleet, |fleet| stream.server.step(now, input, fleet));
            }
            if over {
                let wait = dice.below(300);
                node.cut(now, wait, dice, *faults, readings);
            }
        }
        node.turn(now, dice, *faults, readings) || busy
    }

    /// A pod finds any controller that says it leads.
    fn connect(&mut self, at: usize) {
        let leading: Vec<u64> =
            self.controllers.iter().filter(|(_, c)| c.role == Role::Leading).map(|(number, _)| *number).collect();
        if leading.is_empty() {
            return;
        }
        let number = *self.dice.pick(&leading);
        let node = &mut self.nodes[at];
        let agent = Agent { uid: node.name.clone(), name: node.name.to_string() };
        node.connect(self.now, number, ServerSession::new(agent, Role::Leading, self.now));
    }

    /// Ends the faults and waits for agreement.
    fn settle(&mut self, limit_ms: u64) -> Result<(), String> {
        self.faults = Faults::default();
        let leader = self.leader;
        // Whoever is not the leader learns it within a lease.
        self.controllers.retain(|number, _| *number == leader);
        for node in &mut self.nodes {
            node.set_full(false);
            node.reload_ms = 1;
        }
        // A list that was held waits for a whole one.
        let Simulation { now, dice, controllers, objects, .. } = self;
        if let Some(controller) = controllers.get_mut(&leader) {
            controller.list(*now, dice, objects, List::Whole);
            if controller.is_held() {
                controller.list(*now + 10_001, dice, objects, List::Whole);
                *now += 10_001;
            }
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
                    let next = self.nodes.iter().map(Node::next_at).min().unwrap_or(self.now);
                    self.now = next.max(self.now + 1);
                }
            }
        }
    }

    /// Edits until the desired configuration of a fleet is another one.
    fn change(&mut self, fleet: &translate::FleetName) {
        let before = self.desired(fleet);
        while self.desired(fleet) == before {
            manifests::edit(&mut self.dice, &mut self.objects, false);
            self.now += 5;
            self.turn();
        }
    }

    /// Configuration journals that were written anew while their agent ran.
    pub fn compactions(&self) -> u64 {
        self.nodes.iter().map(|node| node.compactions).sum()
    }

    fn desired(&self, fleet: &translate::FleetName) -> Version {
        self.controllers[&self.leader].with(fleet, |fleet| fleet.version())
    }

    fn difference(&mut self) -> Option<String> {
        let controller = self.controllers.get(&self.leader)?;
        if !controller.has_seen(&self.objects) {
            return Some("the leader has not seen everything".to_owned());
        }
        for node in &mut self.nodes {
            let fleet = node.fleet_name();
            let difference = controller.with(&fleet, |fleet| node.difference(fleet));
            if let Some(difference) = difference {
                return Some(format!("{difference} ({})", node.describe()));
            }
        }
        controller.differs_from_cold_start(&self.objects)
    }
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
