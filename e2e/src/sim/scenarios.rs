//! What is tried by itself, without other faults: each scenario is one thing that happens to a cluster at peace.

use super::api::List;
use super::control::Control;
use super::manifests::{self, NAMESPACES};
use std::collections::BTreeSet;

use super::{Faults, Simulation};

/// Virtual milliseconds in which any scenario comes to rest.
const AGREE_MS: u64 = 120_000;
/// A handover without faults is over before the first heartbeat could repair it, in virtual milliseconds.
const HANDOVER_MS: u64 = 4_500;

impl Simulation {
    /// Every scenario, each on a cluster of its own.
    ///
    /// # Errors
    /// The first thing that does not hold. Panics on what must never happen.
    pub fn scenarios(seed: u64) -> Result<(), String> {
        Simulation::new(seed).members_pass_a_stuck_reload()?;
        Simulation::new(seed).others_pass_a_stuck_reload()?;
        Simulation::new(seed).refused_bytes_stay_refused()?;
        Simulation::new(seed).what_failed_in_passing_is_repeated()?;
        Simulation::new(seed).routes_and_members_come_and_go_in_order()?;
        Simulation::new(seed).a_handover_waits_for_no_heartbeat()?;
        Simulation::new(seed).a_new_leader_does_not_believe_a_short_list()?;
        Simulation::new(seed).a_new_leader_first_learns_what_it_missed()?;
        Simulation::new(seed).a_deposed_leader_changes_nobody()
    }

    /// Turns for so many virtual milliseconds.
    fn pass(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.now += 5;
            self.turn();
        }
    }

    fn cut_all(&mut self) {
        let Simulation { now, dice, nodes, readings, .. } = self;
        for node in nodes {
            let wait = dice.below(300);
            node.cut(*now, wait, dice, Faults::default(), readings);
        }
    }

    /// A configuration that one proxy refuses for good is sent to it once, and the next one that it can use is taken.
    ///
    /// # Errors
    /// What differs in the end. Panics when the refused bytes come again.
    pub fn refused_bytes_stay_refused(&mut self) -> Result<(), String> {
        self.settle(AGREE_MS)?;
        let fleet = manifests::fleets()[0].clone();
        self.nodes[0].proxy.refuses = true;
        self.change(&fleet);
        let end = self.now + 30_000;
        while self.now < end {
            self.now += 5;
            self.turn();
        }
        self.nodes[0].proxy.refuses = false;
        self.change(&fleet);
        self.settle(AGREE_MS)
    }

    /// While one agent's reload hangs, a member change must still reach its proxy.
    ///
    /// # Errors
    /// When it does not within five seconds.
    pub fn members_pass_a_stuck_reload(&mut self) -> Result<(), String> {
        self.settle(AGREE_MS)?;
        let (namespace, fleet) = (NAMESPACES[0][0], manifests::fleets()[0].clone());
        self.nodes[0].reload_ms = 9_000;
        self.change(&fleet);
        let reload = self.now + 1_000;
        while self.now < reload {
            self.now += 5;
            self.turn();
        }
        manifests::move_kept(&mut self.objects, namespace, &mut self.mark);
        while self.now < reload + 5_000 {
            self.now += 5;
            self.turn();
            assert!(self.nodes[0].applied() != self.desired(&fleet), "the reload was not stuck");
            if self.nodes[0].members_changed_at >= reload {
                return Ok(());
            }
        }
        Err("a member change waited for a configuration".to_owned())
    }

    /// While one agent's reload hangs, a new configuration must still reach the others of its fleet.
    ///
    /// # Errors
    /// When it does not within two seconds.
    pub fn others_pass_a_stuck_reload(&mut self) -> Result<(), String> {
        self.settle(AGREE_MS)?;
        let fleet = manifests::fleets()[0].clone();
        self.nodes[0].reload_ms = 9_000;
        self.change(&fleet);
        // Until the one is stuck in it, and then another one.
        self.pass(500);
        self.change(&fleet);
        self.pass(2_000);
        assert!(self.nodes[0].applied() != self.desired(&fleet), "the reload was not stuck");
        if self.nodes[1].applied() == self.desired(&fleet) {
            return Ok(());
        }
        Err("one agent that does not answer holds up the other one of its fleet".to_owned())
    }

    /// What a volume without room kept from being applied is tried again, though nothing else happens.
    ///
    /// # Errors
    /// What differs in the end.
    pub fn what_failed_in_passing_is_repeated(&mut self) -> Result<(), String> {
        self.settle(AGREE_MS)?;
        self.nodes[0].set_full(true);
        self.change(&manifests::fleets()[0].clone());
        self.pass(3_000);
        self.nodes[0].set_full(false);
        self.settle(AGREE_MS)
    }

    /// Edits without any fault: a pool comes after its members and goes before them.
    ///
    /// # Errors
    /// What differs in the end. Panics on what came too early or went too late.
    pub fn routes_and_members_come_and_go_in_order(&mut self) -> Result<(), String> {
        self.settle(AGREE_MS)?;
        self.nodes.iter_mut().for_each(|node| node.calm = true);
        for _ in 0..40 {
            self.edit(false);
            self.pass(40);
        }
        self.settle(AGREE_MS)
    }

    /// A new leader brings every agent up to date by what their Hellos say, also to what changed and went meanwhile.
    ///
    /// # Errors
    /// What differs once that must be done.
    pub fn a_handover_waits_for_no_heartbeat(&mut self) -> Result<(), String> {
        self.settle(AGREE_MS)?;
        self.fail_over();
        for namespaces in NAMESPACES {
            manifests::move_kept(&mut self.objects, namespaces[0], &mut self.mark);
        }
        for _ in 0..6 {
            self.edit(false);
        }
        self.until_led()?;
        self.pass(HANDOVER_MS);
        match self.difference() {
            None => Ok(()),
            Some(difference) => Err(format!("{HANDOVER_MS} ms after a handover: {difference}")),
        }
    }

    /// Every controller dies, and one is started.
    fn fail_over(&mut self) {
        self.control.restart_only(self.now, &BTreeSet::from([0]));
        self.cut_all();
    }

    /// Until there is a leader again.
    fn until_led(&mut self) -> Result<(), String> {
        let end = self.now + 2 * Control::WAIT_MS;
        while self.control.leader().is_none() {
            if self.now > end {
                return Err(format!("nobody leads within {} ms", 2 * Control::WAIT_MS));
            }
            self.pass(5);
        }
        Ok(())
    }

    /// All lists of a new leader break off, and the next ones show a part of what was in force: nothing of the rest goes away.
    ///
    /// # Errors
    /// What differs in the end. Panics when a route is gone.
    pub fn a_new_leader_does_not_believe_a_short_list(&mut self) -> Result<(), String> {
        self.settle(AGREE_MS)?;
        self.fail_over();
        self.pass(5);
        let silent = |simulation: &mut Simulation, silent| {
            let number = simulation.control.running().map(|process| process.number).next();
            let number = number.ok_or("no controller runs")?;
            let process = simulation.control.get_mut(number).ok_or("no controller runs")?;
            process.watches.silent = silent;
            Ok::<u64, String>(number)
        };
        let number = silent(self, true)?;
        // Its lists answer what is asked of it at its promotion only when they begin after that.
        let end = self.now + Control::WAIT_MS;
        while self.now < end && self.control.running().all(|process| process.stands().is_none()) {
            self.pass(5);
        }
        let pod = self.control.pod_of(number).ok_or("it is gone")?;
        let own_ms = self.control.own_ms(self.now, pod);
        if let Some(process) = self.control.get_mut(number) {
            process.watches.break_off(own_ms, &mut self.dice);
            process.watches.set_next("Ingress", List::Empty);
            // Either alone, so that the guard of each kind is looked at.
            if self.dice.one_in(2) {
                process.watches.set_next("Service", List::Part(0));
            }
        }
        silent(self, false)?;
        self.pass(500);
        // What is seen to happen to a kind that is held back is no list of it.
        for (fleet, namespaces) in NAMESPACES.iter().enumerate() {
            manifests::touch_kept(&mut self.objects, fleet, namespaces[0], &mut self.mark);
        }
        self.pass(3_000);
        self.settle(AGREE_MS)
    }

    /// A change of everything that is always there.
    fn touch_all(&mut self) {
        for (fleet, namespaces) in NAMESPACES.iter().enumerate() {
            for namespace in namespaces {
                manifests::touch_kept(&mut self.objects, fleet, namespace, &mut self.mark);
                manifests::move_kept(&mut self.objects, namespace, &mut self.mark);
            }
        }
    }

    /// The watches of those who follow show nothing for a while, and the leader dies: the next one serves nothing before it has
    /// seen what every agent has.
    ///
    /// # Errors
    /// What differs in the end. Panics when an agent goes back.
    pub fn a_new_leader_first_learns_what_it_missed(&mut self) -> Result<(), String> {
        self.settle(AGREE_MS)?;
        let leader = self.control.leader().map(|process| process.number).ok_or("nobody leads")?;
        self.control.silence_others(leader);
        self.touch_all();
        self.pass(1_000);
        self.control.kill_for_good(leader);
        self.cut_all();
        self.pass(2 * Control::WAIT_MS);
        self.settle(AGREE_MS)
    }

    /// Two controllers believe that they lead, and the agents come to either.
    ///
    /// # Errors
    /// What differs in the end. Panics when an agent goes back.
    pub fn a_deposed_leader_changes_nobody(&mut self) -> Result<(), String> {
        self.settle(AGREE_MS)?;
        let deposed = self.control.leader().map(|process| process.number).ok_or("nobody leads")?;
        let pod = self.control.pod_of(deposed).ok_or("it is gone")?;
        self.control.strand(self.now, pod);
        self.pass(Control::WAIT_MS);
        let leaders = self.control.running().filter(|process| process.stands().is_some()).count();
        assert!(leaders == 2, "the deposed leader does not believe that it leads: {leaders} do");
        for _ in 0..6 {
            self.edit(false);
            self.cut_all();
            self.pass(1_500);
        }
        self.settle(AGREE_MS)
    }
}
