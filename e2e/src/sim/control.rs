//! The control plane: several pods with a controller each, the Lease and the API server.

use std::collections::BTreeSet;

use push::server_session::Role;

use super::api::{Api, List};
use super::candidate::{Candidate, TIMES, World};
use super::clock::Clock;
use super::dice::Dice;
use super::faults::Faults;
use super::lease::Lease;
use super::ledger::Ledger;
use super::manifests::Objects;
use super::pipeline::Memory;

/// Rates of clocks, in percent, that never differ by more than the lease duration does from the renew deadline.
const ALIKE: (u64, u64) = (80, 125);
/// Any rates.
const ANY: (u64, u64) = (50, 200);

/// A pod: its clocks and its state directory outlive the process.
struct Pod {
    clock: Clock,
    memory: Memory,
    process: Option<Candidate>,
    starts_at: u64,
    /// The Lease cannot be reached before this time.
    cut_until: u64,
}

/// The control plane.
pub(crate) struct Control {
    pods: Vec<Pod>,
    pub(crate) lease: Lease,
    pub(crate) api: Api,
    pub(crate) ledger: Ledger,
    /// The rates that clocks may have.
    rates: (u64, u64),
    born: u64,
}

impl Control {
    /// Pods that start now.
    pub(crate) fn new(now: u64, dice: &mut Dice, objects: &Objects) -> Control {
        let mut memory = Memory::new();
        objects.keys().for_each(|reference| *memory.entry(reference.kind.clone()).or_default() += 1);
        let count = if dice.one_in(3) { 3 } else { 2 };
        let pod =
            |_| Pod { clock: Clock::new(now), memory: memory.clone(), process: None, starts_at: now, cut_until: 0 };
        Control {
            pods: (0..count).map(pod).collect(),
            lease: if dice.one_in(4) { Lease::default() } else { Lease::made() },
            api: Api::default(),
            ledger: Ledger::default(),
            rates: if dice.one_in(2) { ALIKE } else { ANY },
            born: 0,
        }
    }

    /// A process that runs.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Candidate> {
        self.pods.iter_mut().filter_map(|pod| pod.process.as_mut()).find(|process| process.number == number)
    }

    /// Every process that runs.
    pub(crate) fn running(&self) -> impl Iterator<Item = &Candidate> {
        self.pods.iter().filter_map(|pod| pod.process.as_ref())
    }

    /// The one that leads; none when nobody or more than one does.
    pub(crate) fn leader(&self) -> Option<&Candidate> {
        let mut leaders = self.running().filter(|process| process.role == Role::Leading);
        leaders.next().filter(|_| leaders.next().is_none())
    }

    /// The pod of a process.
    pub(crate) fn pod_of(&self, number: u64) -> Option<usize> {
        self.pods.iter().position(|pod| pod.process.as_ref().is_some_and(|process| process.number == number))
    }

    pub(crate) fn misfortune(&mut self, now: u64, dice: &mut Dice, faults: Faults) {
        for pod in &mut self.pods {
            if dice.one_in(faults.clock) {
                pod.clock.disturb(now, dice, self.rates);
            }
            if dice.one_in(faults.unreachable) {
                pod.cut_until = now + dice.below(3_000);
            }
            let own_ms = pod.clock.moment(now).ms;
            let Some(process) = &mut pod.process else { continue };
            process.watches.misfortune(own_ms, dice, faults);
            if dice.one_in(faults.pause) {
                process.paused_until = now + dice.below(3_000);
            }
            if dice.one_in(faults.step_down) {
                process.step_down();
            }
            if dice.one_in(faults.release) {
                process.release();
            }
            if dice.one_in(faults.kill) {
                pod.process = None;
                pod.starts_at = now + dice.below(1_500);
            }
        }
        if dice.one_in(faults.stranger) {
            self.lease.hold(dice);
        }
        if dice.one_in(faults.annotate) {
            self.lease.annotate();
        }
        if dice.one_in(faults.forget) {
            if dice.one_in(2) {
                self.lease.delete();
            } else {
                self.lease.restore(dice);
            }
        }
    }

    /// One turn of all of them. Gives whether anything happened.
    pub(crate) fn turn(&mut self, now: u64, dice: &mut Dice, faults: Faults, objects: &Objects) -> bool {
        self.api.follow(objects);
        let mut busy = self.lease.turn(now);
        for pod in &mut self.pods {
            let moment = pod.clock.moment(now);
            if pod.process.is_none() && now >= pod.starts_at {
                self.born += 1;
                let late = dice.one_in(4);
                pod.process = Some(Candidate::new(self.born, moment.ms, &pod.memory, late, dice));
                busy = true;
            }
            let Some(process) = pod.process.as_mut().filter(|process| !process.is_paused(now)) else { continue };
            let mut world = World {
                now,
                moment,
                lease: &mut self.lease,
                api: &self.api,
                ledger: &mut self.ledger,
                dice,
                faults,
                reachable: now >= pod.cut_until,
            };
            busy |= process.turn(&mut world, &mut pod.memory);
            if process.ended {
                pod.process = None;
                pod.starts_at = now + 500;
            }
        }
        let leaders = self.running().filter(|process| !process.is_paused(now) && process.stands().is_some());
        let leaders: Vec<u64> = leaders.map(|process| process.number).collect();
        let forgot = self.lease.forgot;
        self.ledger.in_office(&leaders, self.rates == ALIKE, forgot);
        busy
    }

    /// When something next happens by itself.
    pub(crate) fn next_at(&self, now: u64) -> u64 {
        let pods = self.pods.iter().map(|pod| match &pod.process {
            None => pod.starts_at,
            Some(process) if process.is_paused(now) => process.paused_until,
            Some(process) => {
                let (own, real) = process.next_at();
                let own = own.map(|own| pod.clock.when(own));
                own.into_iter().chain(real).min().unwrap_or(u64::MAX)
            }
        });
        pods.chain(self.lease.next_at()).min().unwrap_or(u64::MAX)
    }

    /// Nothing goes wrong from here on, and all clocks are set right.
    pub(crate) fn peace(&mut self, now: u64, dice: &mut Dice) {
        for pod in &mut self.pods {
            pod.clock.set_right(now);
            pod.cut_until = 0;
            pod.starts_at = pod.starts_at.min(now);
            let own_ms = pod.clock.moment(now).ms;
            if let Some(process) = &mut pod.process {
                process.paused_until = 0;
                process.watches.silent = false;
                for kind in super::api::KINDS {
                    process.watches.set_next(kind, List::Whole);
                }
                // As somebody does who wants to be sure, or as a controller does by itself every ten minutes.
                process.watches.ask(own_ms, None, dice);
            }
        }
    }

    /// Every process dies. These pods start another one, the others never.
    pub(crate) fn restart_only(&mut self, now: u64, which: &BTreeSet<usize>) {
        for (number, pod) in self.pods.iter_mut().enumerate() {
            pod.process = None;
            pod.starts_at = if which.contains(&number) { now } else { u64::MAX };
        }
    }

    /// The watches of all others show nothing from now on.
    pub(crate) fn silence_others(&mut self, number: u64) {
        let others = self.pods.iter_mut().filter_map(|pod| pod.process.as_mut()).filter(|other| other.number != number);
        others.for_each(|other| other.watches.silent = true);
    }

    /// A process dies, and its pod starts no other one.
    pub(crate) fn kill_for_good(&mut self, number: u64) {
        if let Some(pod) = self.pod_of(number).and_then(|pod| self.pods.get_mut(pod)) {
            (pod.process, pod.starts_at) = (None, u64::MAX);
        }
    }

    /// The clocks of a pod stand still for its controller, and the Lease is out of its reach.
    pub(crate) fn strand(&mut self, now: u64, pod: usize) {
        self.rates = ANY;
        self.pods[pod].clock.set_rate(now, 0);
        self.pods[pod].cut_until = u64::MAX;
    }

    /// What a pod shows of its own time.
    pub(crate) fn own_ms(&self, now: u64, pod: usize) -> u64 {
        self.pods[pod].clock.moment(now).ms
    }

    /// How long a leader that went away is waited for at most, in milliseconds of a clock that goes right.
    pub(crate) const WAIT_MS: u64 = TIMES.0 * 2;
}
