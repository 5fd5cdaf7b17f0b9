//! Two controllers with the shipped elector, one Lease, three objects and two agents: a state, and what may happen next.
//!
//! Time is counted in ticks. Whatever may happen at a tick happens in any order or not before a later one, so a controller
//! may stop, a message may be late and a watch may lag for any time.

use std::sync::Arc;

use controller::election::{Elector, Input, Moment, Observed, Record, Settings, Standing};

use super::sessions::{Agent, OBJECTS, Push, Versions};

/// How many controllers there are.
pub const CONTROLLERS: usize = 2;
/// Lease, renew deadline and retry period, in ticks.
pub const TIMES: (u64, u64, u64) = (3, 2, 1);
/// Epochs that a run can reach, with some to spare.
const EPOCHS: usize = 8;

/// How much may happen in a run. Within this everything is tried.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The last tick.
    pub ticks: u8,
    /// Edits of objects.
    pub edits: u8,
    /// Stalls, lost requests and answers, late writes, and ends of controllers, all together.
    pub faults: u8,
    /// Agents that there are.
    pub agents: usize,
    /// Messages to agents that are under way at once.
    pub under_way: usize,
    /// Whether somebody may delete the Lease, once.
    pub deletion: bool,
}

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Nothing.
    Nothing,
    /// Agents take whatever comes.
    NoFence,
    /// A new leader serves what it happens to have seen.
    NoBarrier,
    /// A Lease of somebody else counts as expired at once.
    NoWait,
    /// The API server takes a write whatever version it names.
    NoVersionCheck,
    /// A leader takes in changes and pushes without a look at its clock.
    NoClock,
    /// The elector's own planted bug: whoever takes the Lease keeps its epoch.
    SameEpoch,
    /// Nothing; but that two lead in one epoch is let pass, to see what comes of it.
    EpochMayRepeat,
}

/// What must never happen, and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// Two led in one epoch.
    TwoInOneEpoch,
    /// An agent applied a version below what it had applied.
    VersionWentBack,
    /// An agent applied an object older than what it had applied.
    ObjectWentBack,
}

/// A request about the Lease that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// On its way to the API server.
    Read,
    /// On its way to the API server.
    Write(Write),
    /// The answer to a read, on its way back.
    ReadIs(Option<Arc<Observed>>),
    /// The answer to a write, on its way back.
    Written(Arc<Observed>),
    /// The answer to a write that named another version, on its way back.
    Conflict,
}

/// A write of the Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    pub record: Arc<Record>,
    pub over: Option<(String, String)>,
}

/// What a leader serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Office {
    /// Its epoch.
    pub epoch: u8,
    /// Counts from 1.
    pub generation: u8,
    /// What the API server had at the promotion, until the watches have it too: nothing is served before.
    pub needs: Option<Versions>,
}

/// One controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Controller {
    /// Which process it is.
    pub life: u8,
    /// As it ships.
    pub elector: Arc<Elector>,
    /// Its round is held up.
    pub stalled: bool,
    /// At most one.
    pub request: Option<Request>,
    /// A write that was given up, and may still come to be.
    pub late: Option<Write>,
    /// What its watches have shown; each object has its own.
    pub view: Versions,
    /// While it leads, or cannot say whether it does.
    pub office: Option<Office>,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The tick.
    pub now: u8,
    /// The Lease at the API server.
    pub lease: Option<Arc<Observed>>,
    /// Writes of the Lease in this tick.
    pub written: u8,
    /// The objects at the API server.
    pub objects: Versions,
    /// The controllers.
    pub controllers: [Controller; CONTROLLERS],
    /// The agents.
    pub agents: Vec<Agent>,
    /// What is on the way to an agent, whoever sent it.
    pub under_way: Vec<(usize, Push)>,
    /// Which process led in an epoch.
    pub led: [u8; EPOCHS],
    /// The first thing that went wrong. Nothing happens after it.
    pub broken: Option<Broken>,
    /// Whether the first controller did anything.
    pub begun: bool,
    /// So many faults there were.
    pub faults: u8,
    /// So many processes there were.
    pub lives: u8,
    /// Whether the Lease was deleted.
    pub deleted: bool,
    /// Pushes that this step saw refused; not a part of the state.
    pub refused: u8,
}

/// Where a round is held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Where {
    /// Before anything is asked.
    Before,
    /// On the way to the API server.
    Asked,
    /// On the way back.
    Served,
}

/// What happens next. The numbers are those of controllers, agents and objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A tick passes. Whoever is not stalled has done all that was due.
    Pass,
    /// Somebody edits an object.
    Edit(usize),
    /// A watch shows the next version of an object.
    Watch(usize, usize),
    /// The elector does what is due: it asks the API server, and has the answer at once.
    Round(usize),
    /// Fault: the elector does not get to what is due, or its request or the answer is under way, for any time, until its
    /// next round. A controller that stops, or a slow network.
    Stall(usize, Where),
    /// Fault: the request is lost.
    Lose(usize),
    /// Fault: the request is served, and the answer is lost.
    LoseAnswer(usize),
    /// Fault: a write is given up, and is under way still.
    GiveUp(usize),
    /// The API server does what was given up.
    ServeLate(usize),
    /// Fault: the controller dies, and another begins.
    Crash(usize),
    /// Fault: the controller gives the Lease back and ends; then another begins.
    Release(usize),
    /// Fault: the leader finds that it is of no use, and lets others lead.
    StepDown(usize),
    /// Somebody deletes the Lease.
    Delete,
    /// A leader sends its newest generation, which arrives at once.
    Push(usize, usize),
    /// The same, and the stream breaks when only the beginning has arrived.
    Break(usize, usize),
    /// The same, and it is under way for as long as it likes.
    Send(usize, usize),
    /// What was under way arrives.
    Arrive(usize),
    /// A leader hears that the agent is beyond it.
    Report(usize, usize),
}

fn elector(life: u8, planted: Planted) -> Arc<Elector> {
    let (lease_ms, renew_deadline_ms, retry_ms) = TIMES;
    // It waits for others as long as it lets others wait.
    let lease_ms = if planted == Planted::NoWait { 0 } else { lease_ms };
    let (identity, address) = (life.to_string(), String::new());
    Arc::new(Elector::new(Settings { identity, address, lease_ms, renew_deadline_ms, retry_ms }))
}

/// A process that begins.
pub fn controller(life: u8, planted: Planted) -> Controller {
    // The first list may come from a cache that is as old as the cluster.
    let view = [0; OBJECTS];
    Controller { life, elector: elector(life, planted), stalled: false, request: None, late: None, view, office: None }
}

impl Controller {
    /// The moment of a tick; all clocks go alike.
    pub fn moment(now: u8) -> Moment {
        Moment { ms: now.into(), wall_us: now.into() }
    }

    /// Whether its elector wants to be asked.
    pub fn is_due(&self, now: u8) -> bool {
        self.elector.deadline().is_some_and(|at| at <= now.into())
    }

    /// Whether something is due or under way.
    pub fn is_busy(&self, now: u8) -> bool {
        self.request.is_some() || self.is_due(now)
    }

    /// Whether it leads, if it looks at its clock now.
    pub fn leads(&self, now: u8) -> bool {
        let mut elector = self.elector.clone();
        if self.is_due(now) {
            Arc::make_mut(&mut elector).step(Controller::moment(now), Input::Tick);
        }
        matches!(elector.standing(), Standing::Leading { .. })
    }

    /// What it would push.
    pub fn newest(&self) -> Option<Push> {
        let Office { epoch, generation, needs } = self.office?;
        let leads = matches!(self.elector.standing(), Standing::Leading { .. });
        (leads && needs.is_none()).then_some(Push { epoch, generation, content: self.view })
    }
}

impl State {
    /// A Lease that nobody holds, as the chart makes it, and two controllers that begin.
    pub fn new(agents: usize, planted: Planted) -> State {
        let lease = Observed { uid: "a".to_owned(), version: "0".to_owned(), record: Record::default() };
        State {
            now: 0,
            lease: Some(Arc::new(lease)),
            written: 0,
            objects: [0; OBJECTS],
            controllers: [controller(1, planted), controller(2, planted)],
            agents: vec![Agent::default(); agents],
            under_way: Vec::new(),
            led: [0; EPOCHS],
            broken: None,
            begun: false,
            faults: 0,
            lives: 2,
            deleted: false,
            refused: 0,
        }
    }

    /// What may happen.
    pub fn actions(&self, bounds: &Bounds, planted: Planted, actions: &mut Vec<Action>) {
        if self.broken.is_some() {
            return;
        }
        if self.now < bounds.ticks && self.controllers.iter().all(|one| one.stalled || !one.is_busy(self.now)) {
            actions.push(Action::Pass);
        }
        if self.objects.iter().sum::<u8>() < bounds.edits {
            // Objects are alike: which is edited first is of no consequence.
            let touched = self.objects.iter().take_while(|version| **version > 0).count();
            actions.extend((0..OBJECTS.min(touched + 1)).map(Action::Edit));
        }
        if bounds.deletion && !self.deleted && self.lease.is_some() {
            actions.push(Action::Delete);
        }
        // Controllers are alike: the one that does something first is the first.
        for who in 0..if self.begun { CONTROLLERS } else { 1 } {
            self.of_elector(who, bounds, actions);
            self.of_leader(who, bounds, planted, actions);
        }
        actions.extend((0..self.under_way.len()).map(Action::Arrive));
    }

    fn of_elector(&self, who: usize, bounds: &Bounds, actions: &mut Vec<Action>) {
        let controller = &self.controllers[who];
        let may_fail = self.faults < bounds.faults;
        if controller.is_busy(self.now) {
            actions.push(Action::Round(who));
            if may_fail {
                actions.extend([Action::Lose(who), Action::LoseAnswer(who), Action::GiveUp(who)]);
                let at = [Where::Before, Where::Asked, Where::Served];
                actions.extend(at.map(|at| Action::Stall(who, at)));
            }
        }
        if controller.late.is_some() {
            actions.push(Action::ServeLate(who));
        }
        if may_fail {
            actions.extend([Action::Crash(who), Action::Release(who)]);
        }
        if may_fail && controller.office.is_some() {
            actions.push(Action::StepDown(who));
        }
    }

    fn of_leader(&self, who: usize, bounds: &Bounds, planted: Planted, actions: &mut Vec<Action>) {
        let controller = &self.controllers[who];
        // After any pause a controller looks at its clock before it does anything else.
        if controller.is_due(self.now) && planted != Planted::NoClock {
            return;
        }
        if controller.office.is_none() {
            return;
        }
        let behind = (0..OBJECTS).filter(|object| controller.view[*object] < self.objects[*object]);
        actions.extend(behind.map(|object| Action::Watch(who, object)));
        let Some(push) = controller.newest() else { return };
        for (number, agent) in self.agents.iter().enumerate() {
            if agent.applied != Some(push) {
                actions.push(Action::Push(who, number));
                if agent.seen != push.epoch {
                    actions.push(Action::Break(who, number));
                }
                if self.under_way.len() < bounds.under_way {
                    actions.push(Action::Send(who, number));
                }
            }
            if agent.reports(push).is_some() {
                actions.push(Action::Report(who, number));
            }
        }
    }
}
