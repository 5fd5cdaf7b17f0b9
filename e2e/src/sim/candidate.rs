//! One controller process: the shipped elector, office and pipeline, wired as the shipped process wires them.

use controller::election::{Effect, Elector, Input, Moment, Settings, Standing};
use controller::leadership::Office;
use controller::report::AgentNews;
use push::server_session::{Event, Role};
use translate::FleetName;

use super::api::Api;
use super::dice::Dice;
use super::faults::Faults;
use super::lease::{Lease, Request};
use super::ledger::Ledger;
use super::pipeline::{Memory, Pipeline};
use super::watches::Watches;

/// Lease duration, renew deadline and retry period, in milliseconds: short, as runs are.
pub(crate) const TIMES: (u64, u64, u64) = (1_000, 600, 150);

/// What a candidate works with in a turn.
pub(crate) struct World<'a> {
    pub(crate) now: u64,
    /// What its own clocks show.
    pub(crate) moment: Moment,
    pub(crate) lease: &'a mut Lease,
    pub(crate) api: &'a Api,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) dice: &'a mut Dice,
    pub(crate) faults: Faults,
    /// Whether the Lease can be reached.
    pub(crate) reachable: bool,
}

/// A request that waits for its answer, and until when by our clock.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: u64,
    is_read: bool,
    until_ms: u64,
}

/// One process.
pub(crate) struct Candidate {
    /// Which; another one for each start.
    pub(crate) number: u64,
    elector: Elector,
    office: Office,
    call: Option<Call>,
    /// What the sessions are told.
    pub(crate) role: Role,
    pub(crate) pipeline: Pipeline,
    pub(crate) watches: Watches,
    /// The epoch for which our view is being proven, and the ticket of that.
    proving: Option<(u64, u64)>,
    /// The highest epoch that an agent reported, and whether the elector knows.
    reported: (u64, bool),
    step_down: bool,
    /// It was asked to end, and whether the elector has yet to hear of it.
    releasing: bool,
    asked_to_end: bool,
    /// It gave the Lease back, and ends.
    pub(crate) ended: bool,
    /// Stopped: its clock goes on, and it does nothing.
    pub(crate) paused_until: u64,
}

impl Candidate {
    /// A process that begins at this time of its own clock.
    pub(crate) fn new(number: u64, own_ms: u64, memory: &Memory, late: bool, dice: &mut Dice) -> Candidate {
        let (lease_ms, renew_deadline_ms, retry_ms) = TIMES;
        let (identity, address) = (format!("controller-{number}"), number.to_string());
        let settings = Settings { identity, address, lease_ms, renew_deadline_ms, retry_ms };
        settings.check().expect("settings that the controller accepts");
        Candidate {
            number,
            elector: Elector::new(settings),
            office: Office::default(),
            call: None,
            role: Role::Standby,
            pipeline: Pipeline::new(memory),
            watches: Watches::new(own_ms, late, dice),
            proving: None,
            reported: (0, true),
            step_down: false,
            releasing: false,
            asked_to_end: false,
            ended: false,
            paused_until: 0,
        }
    }

    /// Whether it is stopped.
    pub(crate) fn is_paused(&self, now: u64) -> bool {
        now < self.paused_until
    }

    /// Whether it leads by what its elector says.
    pub(crate) fn stands(&self) -> Option<u64> {
        match self.elector.standing() {
            Standing::Leading { epoch } => Some(*epoch),
            _ => None,
        }
    }

    /// Its agents are gone: another one should lead.
    pub(crate) fn step_down(&mut self) {
        self.step_down = true;
    }

    /// It is asked to end.
    pub(crate) fn release(&mut self) {
        if !self.releasing {
            (self.releasing, self.asked_to_end) = (true, true);
            // Nothing more is pushed from here on.
            self.role = Role::Standby;
        }
    }

    /// One turn. Gives whether anything happened.
    pub(crate) fn turn(&mut self, world: &mut World, memory: &mut Memory) -> bool {
        let mut busy = self.elect(world);
        let own_ms = world.moment.ms;
        let (heard, outs) = self.watches.turn(world.now, own_ms, world.api, world.dice);
        busy |= heard;
        if let Some(new) = self.pipeline.take(own_ms, outs) {
            *memory = new;
        }
        for part in self.pipeline.due(own_ms) {
            self.watches.ask(own_ms, Some(part), world.dice);
        }
        if let Some((epoch, _)) = self.proving.take_if(|(_, ticket)| *ticket <= self.watches.seen()) {
            busy = true;
            // What is held back is as it was when it was last seen, which may be long ago.
            world.ledger.blind |= self.pipeline.is_held();
            let role = self.office.proven(epoch);
            self.set(role);
        }
        busy
    }

    fn elect(&mut self, world: &mut World) -> bool {
        let own_ms = world.moment.ms;
        let mut busy = false;
        // The clock first: after a pause a leader finds out that it leads no more before anything else.
        if self.elector.deadline().is_some_and(|at| at <= own_ms) {
            self.step(world, Input::Tick);
        }
        if std::mem::take(&mut self.asked_to_end) {
            self.step(world, Input::Release);
        }
        if let Some(call) = self.call {
            let answer = world.lease.answer(world.now, call.number);
            let late = (own_ms >= call.until_ms).then(|| Lease::no_answer(call.is_read));
            if let Some(input) = answer.or(late) {
                self.call = None;
                busy = true;
                self.step(world, input);
            }
        }
        if std::mem::take(&mut self.step_down) {
            self.step(world, Input::StepDown);
        }
        if !std::mem::replace(&mut self.reported.1, true) {
            self.step(world, Input::EpochReported(self.reported.0));
        }
        busy
    }

    fn step(&mut self, world: &mut World, input: Input) {
        let effects = self.elector.step(world.moment, input);
        let mut standing = None;
        for effect in effects {
            let request = match effect {
                Effect::Become(new) => {
                    standing = Some(new);
                    continue;
                }
                Effect::Released => {
                    self.ended = true;
                    continue;
                }
                Effect::Read => Request::Read,
                Effect::Write { record, over } => Request::Write(record, over),
            };
            let is_read = matches!(request, Request::Read);
            let number = world.lease.send(world.now, request, world.reachable, world.dice, world.faults);
            self.call = Some(Call { number, is_read, until_ms: world.moment.ms + TIMES.1 / 2 });
        }
        if let Some(standing) = standing {
            self.follow(world, &standing);
        }
    }

    /// As the shipped task does with what the election says.
    fn follow(&mut self, world: &mut World, standing: &Standing) {
        world.ledger.unsure += u64::from(*standing == Standing::Unsure);
        let duty = self.office.stands(standing);
        self.set(duty.role);
        if let Some(epoch) = duty.epoch
            && self.pipeline.hub.epoch() < epoch
        {
            self.pipeline.hub.raise_epoch(epoch);
        }
        self.proving = None;
        if let Some(epoch) = duty.epoch.filter(|_| duty.prove) {
            world.ledger.held_back += u64::from(self.watches.is_behind(world.api));
            let ticket = self.watches.ask(world.moment.ms, None, world.dice);
            self.proving = Some((epoch, ticket));
        }
    }

    fn set(&mut self, role: Role) {
        // Whoever ends serves nobody again.
        if !self.releasing {
            self.role = role;
        }
    }

    /// Does with an event of a session what the shipped sessions do.
    pub(crate) fn event(&mut self, fleet: &FleetName, agent: &str, event: Event) {
        match event {
            Event::EpochReported(epoch) => {
                if epoch > self.reported.0 {
                    self.reported = (epoch, false);
                }
            }
            Event::EpochAlarm(epoch) => panic!("{agent} reports epoch {epoch}"),
            Event::Condemned { leaves, .. } => {
                self.pipeline.hub.condemn(fleet, agent, &leaves);
            }
            Event::Applied { version, root, not_live, .. } => {
                self.pipeline.hub.news(fleet, agent, AgentNews::Applied { version, root, not_live });
            }
            Event::Hello(_)
            | Event::Refused { .. }
            | Event::Welcomed
            | Event::Overdue { .. }
            | Event::MembersCurrent { .. }
            | Event::MembersRefused { .. }
            | Event::Closed(_) => {}
        }
    }

    /// When it next does something by its own clock, and in virtual time.
    pub(crate) fn next_at(&self) -> (Option<u64>, Option<u64>) {
        let (own, real) = self.watches.next_at();
        let call = self.call.map(|call| call.until_ms);
        let own = [own, call, self.elector.deadline(), self.pipeline.next_own_ms()].into_iter().flatten().min();
        (own, real)
    }
}
