//! The elector against a Lease that behaves as the API server's: whatever is slow, lost, paused, deleted or restored, no two
//! lead in one epoch, no lead goes below an epoch before it, and when the trouble ends somebody leads.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use controller::election::{
    Effect, Elector, Failed, Input, Moment, Observed, Record, Settings, SettingsError, Standing, WriteFailed,
};
use proptest::prelude::*;

const LEASE: u64 = 15_000;
const DEADLINE: u64 = 10_000;
const RETRY: u64 = 2_000;

fn settings(name: &str) -> Settings {
    Settings {
        identity: name.to_owned(),
        address: format!("{name}.example"),
        lease_ms: LEASE,
        renew_deadline_ms: DEADLINE,
        retry_ms: RETRY,
    }
}

/// One Lease, with the rules of the API server.
#[derive(Default)]
struct Server {
    lease: Option<Observed>,
    version: u64,
    uids: u64,
    /// Copies of the Lease, for restores.
    backups: Vec<Record>,
}

impl Server {
    fn store(&mut self, uid: String, record: Record) -> Observed {
        self.version += 1;
        let observed = Observed { uid, version: self.version.to_string(), record };
        self.lease = Some(observed.clone());
        observed
    }

    fn write(&mut self, record: Record, over: Option<(String, String)>) -> Result<Observed, WriteFailed> {
        match (&self.lease, over) {
            (None, None) => {
                self.uids += 1;
                Ok(self.store(format!("uid-{}", self.uids), record))
            }
            (Some(lease), Some((uid, version))) if lease.uid == uid && lease.version == version => {
                Ok(self.store(uid, record))
            }
            _ => Err(WriteFailed::Conflict),
        }
    }

    fn restore(&mut self, which: usize) {
        let record = self.backups[which % self.backups.len()].clone();
        self.uids += 1;
        self.store(format!("uid-{}", self.uids), record);
    }

    fn stranger(&mut self, record: Record) {
        let uid = self.lease.as_ref().map_or("uid-0".to_owned(), |lease| lease.uid.clone());
        self.store(uid, record);
    }
}

/// A candidate with a clock of its own.
struct Candidate {
    elector: Elector,
    /// Percent of the real rate.
    rate: u64,
    /// Its time of day is so far off.
    wall_off_us: i64,
    answers: Vec<(u64, Input)>,
    paused_until: u64,
    released: bool,
}

impl Candidate {
    fn new(name: &str, rate: u64, wall_off_us: i64) -> Candidate {
        let elector = Elector::new(settings(name));
        Candidate { elector, rate, wall_off_us, answers: Vec::new(), paused_until: 0, released: false }
    }

    fn moment(&self, now: u64) -> Moment {
        let wall = i64::try_from(now).unwrap() * 1_000 + 1_700_000_000_000_000;
        Moment { ms: now * self.rate / 100, wall_us: wall + self.wall_off_us }
    }

    fn epoch(&self) -> Option<u64> {
        match self.elector.standing() {
            Standing::Leading { epoch } => Some(*epoch),
            _ => None,
        }
    }
}

/// What may go wrong with one request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Fine,
    /// It is lost before it is done.
    Lost,
    /// It is done, and the answer is lost.
    Unanswered,
}

#[derive(Clone, Debug)]
enum Trouble {
    Pause { who: usize, ms: u64 },
    Delete,
    Restore(usize),
    Stranger { lease_s: u64 },
    Annotate,
    Report { who: usize, above: u64 },
    Cut { ms: u64 },
    Slow { ms: u64 },
    Crash { who: usize },
    StepDown { who: usize },
}

struct World {
    now: u64,
    server: Server,
    candidates: Vec<Candidate>,
    born: usize,
    made_at: u64,
    /// The Lease went back to an older state: from then on only agents know which epochs there were.
    restored: bool,
    cut_until: u64,
    slow: (u64, u64),
    /// Who led in which epoch.
    led: BTreeMap<u64, String>,
}

impl World {
    fn new(clocks: &[(u64, i64)]) -> World {
        let candidates = clocks
            .iter()
            .enumerate()
            .map(|(number, (rate, off))| Candidate::new(&format!("c{number}"), *rate, *off))
            .collect();
        World {
            now: 1_000,
            server: Server::default(),
            candidates,
            born: clocks.len(),
            made_at: 0,
            restored: false,
            cut_until: 0,
            slow: (0, 0),
            led: BTreeMap::new(),
        }
    }

    fn trouble(&mut self, trouble: &Trouble) {
        let count = self.candidates.len();
        match trouble {
            Trouble::Pause { who, ms } => self.candidates[who % count].paused_until = self.now + ms,
            // A Lease that is made and deleted between two looks was never there for a candidate, whose lead could then have
            // the same number: only agents know better (ADR 0035).
            Trouble::Delete if self.now > self.made_at + 2_000 => self.server.lease = None,
            Trouble::Delete => {}
            Trouble::Restore(which) => {
                if !self.server.backups.is_empty() {
                    self.server.restore(*which);
                    self.restored = true;
                }
            }
            Trouble::Stranger { lease_s } => {
                let before = self.server.lease.as_ref().map(|lease| lease.record.clone()).unwrap_or_default();
                let record = Record { holder: "stranger".to_owned(), lease_ms: lease_s * 1_000, ..before };
                self.server.stranger(record);
            }
            Trouble::Annotate => {
                if let Some(lease) = self.server.lease.clone() {
                    self.server.store(lease.uid, lease.record);
                }
            }
            Trouble::Report { who, above } => {
                let highest = self.led.keys().max().copied().unwrap_or(0);
                self.step(who % count, Input::EpochReported(highest + above));
            }
            Trouble::StepDown { who } => self.step(who % count, Input::StepDown),
            Trouble::Cut { ms } => self.cut_until = self.now + ms,
            Trouble::Slow { ms } => self.slow = (self.now + 5_000, *ms),
            Trouble::Crash { who } => {
                let who = who % count;
                let old = &self.candidates[who];
                let fresh = Candidate::new(&format!("c{}", self.born), old.rate, old.wall_off_us);
                self.born += 1;
                self.candidates[who] = fresh;
            }
        }
    }

    fn step(&mut self, who: usize, input: Input) {
        let moment = self.candidates[who].moment(self.now);
        let effects = self.candidates[who].elector.step(moment, input);
        for effect in effects {
            self.effect(who, effect);
        }
    }

    fn effect(&mut self, who: usize, effect: Effect) {
        let fate = if self.now < self.cut_until {
            if self.now.is_multiple_of(3) { Fate::Unanswered } else { Fate::Lost }
        } else {
            Fate::Fine
        };
        let delay = if self.now < self.slow.0 { self.slow.1 } else { 3 };
        let answer = match effect {
            Effect::Read => match fate {
                Fate::Fine => Input::Read(Ok(self.server.lease.clone())),
                Fate::Lost | Fate::Unanswered => Input::Read(Err(Failed)),
            },
            Effect::Write { record, over } => {
                let written = match fate {
                    Fate::Lost => Err(WriteFailed::Unknown),
                    Fate::Fine | Fate::Unanswered => {
                        let missing = self.server.lease.is_none();
                        self.made_at = if missing { self.now } else { self.made_at };
                        self.server.write(record, over)
                    }
                };
                if let Ok(observed) = &written {
                    self.server.backups.push(observed.record.clone());
                }
                Input::Written(if matches!(fate, Fate::Fine) { written } else { Err(WriteFailed::Unknown) })
            }
            Effect::Become(Standing::Leading { epoch }) => {
                let name = self.candidates[who].elector_name();
                let others = self.candidates.iter().enumerate().filter(|(other, _)| *other != who);
                for (_, other) in others {
                    // One that is paused looks at its clock before it does anything.
                    let mut awake = other.elector.clone();
                    awake.step(other.moment(self.now), Input::Tick);
                    let leads = *awake.standing() == Standing::Leading { epoch };
                    assert!(!leads || self.restored, "{} and {name} lead in one epoch", other.elector_name());
                }
                self.led.insert(epoch, name);
                return;
            }
            Effect::Become(_) => return,
            Effect::Released => {
                self.candidates[who].released = true;
                return;
            }
        };
        self.candidates[who].answers.push((self.now + delay, answer));
    }

    /// One millisecond-sized turn of everybody, in steps of `by`.
    fn turn(&mut self, by: u64) {
        self.now += by;
        for who in 0..self.candidates.len() {
            if self.now < self.candidates[who].paused_until || self.candidates[who].released {
                continue;
            }
            let due: Vec<Input> = {
                let now = self.now;
                let (due, later) =
                    std::mem::take(&mut self.candidates[who].answers).into_iter().partition(|(at, _)| *at <= now);
                self.candidates[who].answers = later;
                due.into_iter().map(|(_, input): (u64, Input)| input).collect()
            };
            for input in due {
                self.step(who, input);
            }
            let moment = self.candidates[who].moment(self.now);
            if self.candidates[who].elector.deadline().is_some_and(|at| moment.ms >= at) {
                self.step(who, Input::Tick);
            }
        }
    }

    fn leaders(&self) -> Vec<usize> {
        (0..self.candidates.len()).filter(|who| self.candidates[*who].epoch().is_some()).collect()
    }

    fn until_one_leads(&mut self, limit_ms: u64) -> Result<(), String> {
        let end = self.now + limit_ms;
        while self.leaders().len() != 1 {
            if self.now > end {
                let standings: Vec<_> = self.candidates.iter().map(|c| c.elector.standing().clone()).collect();
                return Err(format!("nobody, or more than one, leads after {limit_ms} ms: {standings:?}"));
            }
            self.turn(20);
        }
        Ok(())
    }
}

impl Candidate {
    fn elector_name(&self) -> String {
        // The identity is what its writes carry.
        format!("{:?}", self.elector).split("identity: \"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    }
}

fn troubles() -> impl Strategy<Value = Vec<(u64, Trouble)>> {
    let trouble = prop_oneof![
        (0usize..3, 100u64..40_000).prop_map(|(who, ms)| Trouble::Pause { who, ms }),
        Just(Trouble::Delete),
        (0usize..50).prop_map(Trouble::Restore),
        (1u64..100_000).prop_map(|lease_s| Trouble::Stranger { lease_s }),
        Just(Trouble::Annotate),
        (0usize..3, 0u64..5).prop_map(|(who, above)| Trouble::Report { who, above }),
        (100u64..60_000).prop_map(|ms| Trouble::Cut { ms }),
        (100u64..12_000).prop_map(|ms| Trouble::Slow { ms }),
        (0usize..3).prop_map(|who| Trouble::Crash { who }),
        (0usize..3).prop_map(|who| Trouble::StepDown { who }),
    ];
    prop::collection::vec((100u64..20_000, trouble), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_two_lead_in_one_epoch_and_somebody_leads_when_the_trouble_is_over(
        // Clocks may differ in rate as the lease and the renew deadline do; beyond that the agents' fence is what holds.
        clocks in prop::collection::vec((100u64..150, -3_600_000_000i64..3_600_000_000), 1..=3),
        troubles in troubles(),
    ) {
        let mut world = World::new(&clocks);
        for (wait, trouble) in &troubles {
            let end = world.now + wait;
            while world.now < end {
                world.turn(20);
            }
            world.trouble(trouble);
        }
        world.cut_until = 0;
        world.candidates.iter_mut().for_each(|candidate| candidate.paused_until = 0);
        // A stranger's hour counts as ten of our leases at most.
        let limit = 10 * LEASE + 3 * LEASE;
        run(&mut world, 2 * LEASE);
        world.until_one_leads(limit).map_err(TestCaseError::fail)?;
        let highest = world.led.keys().max().copied().unwrap();
        let leader = world.leaders()[0];
        if world.candidates[leader].epoch() < Some(highest) {
            // The Lease was restored to what it wrote itself. Agents tell what they have seen since.
            world.step(leader, Input::EpochReported(highest));
            run(&mut world, LEASE);
            world.until_one_leads(limit).map_err(TestCaseError::fail)?;
        }
        let epoch = world.candidates[world.leaders()[0]].epoch().unwrap();
        let highest = world.led.keys().max().copied().unwrap();
        prop_assert_eq!(epoch, highest, "the last leader has the highest epoch");
    }
}

/// Candidates with good clocks.
fn world(count: usize) -> World {
    let mut world = World::new(&vec![(100, 0); count]);
    world.until_one_leads(LEASE + 5_000).unwrap();
    world
}

fn run(world: &mut World, ms: u64) {
    let end = world.now + ms;
    while world.now < end {
        world.turn(20);
    }
}

#[test]
fn a_leader_renews_under_one_epoch_and_nobody_else_ever_leads() {
    let mut world = world(3);
    run(&mut world, 10 * LEASE);
    assert_eq!(world.led.len(), 1, "{:?}", world.led);
    assert_eq!(world.leaders().len(), 1);
}

#[test]
fn a_follower_names_the_leader_while_it_renews_and_nobody_once_it_does_not() {
    let mut world = world(2);
    run(&mut world, 3_000);
    let leader = world.leaders()[0];
    let follower = 1 - leader;
    let address = format!("c{leader}.example");
    assert_eq!(*world.candidates[follower].elector.standing(), Standing::Following { leader: Some(address) });
    world.candidates[leader].paused_until = u64::MAX;
    run(&mut world, DEADLINE + RETRY);
    assert_eq!(*world.candidates[follower].elector.standing(), Standing::Following { leader: None });
}

#[test]
fn a_leader_without_the_api_server_is_unsure_at_its_deadline_and_goes_on_in_the_same_epoch_when_nobody_took_it() {
    let mut world = world(1);
    let epoch = world.candidates[0].epoch().unwrap();
    world.cut_until = world.now + 60_000;
    run(&mut world, DEADLINE + RETRY + 100);
    assert_eq!(*world.candidates[0].elector.standing(), Standing::Unsure);
    run(&mut world, 60_000);
    assert_eq!(world.candidates[0].epoch(), Some(epoch), "nobody else wrote, so nothing changed");
}

#[test]
fn a_leader_that_stopped_for_long_does_not_lead_when_it_wakes() {
    let mut world = world(2);
    let old = world.leaders()[0];
    world.candidates[old].paused_until = world.now + 3 * LEASE;
    run(&mut world, 3 * LEASE + 100);
    assert_eq!(world.leaders(), [1 - old], "the other leads, and the first knows");
    assert_eq!(world.led.len(), 2);
}

#[test]
fn a_released_lease_is_taken_within_a_look_and_not_a_lease() {
    let mut world = world(2);
    run(&mut world, 3_000);
    let old = world.leaders()[0];
    world.step(old, Input::Release);
    assert!(world.candidates[old].epoch().is_none(), "it stops before it gives the Lease back");
    run(&mut world, 1_000);
    assert!(world.candidates[old].released);
    assert_eq!(world.leaders(), [1 - old]);
}

#[test]
fn a_leader_that_steps_down_is_followed_by_another_and_leads_again_only_when_there_is_none() {
    let mut world = world(2);
    run(&mut world, 3_000);
    let old = world.leaders()[0];
    world.step(old, Input::StepDown);
    assert!(world.leaders().is_empty(), "it stops before the Lease is free");
    run(&mut world, 1_000);
    assert_eq!(world.leaders(), [1 - old]);
    run(&mut world, 2 * LEASE);
    assert_eq!(world.leaders(), [1 - old], "it does not take it back");
    world.candidates[old].paused_until = u64::MAX;
    let left = 1 - old;
    world.step(left, Input::StepDown);
    run(&mut world, LEASE + 2_000);
    assert_eq!(world.leaders(), [left], "nobody else took it");
}

#[test]
fn a_release_ends_whatever_became_of_the_request_before_it() {
    let free = Observed { uid: "uid".to_owned(), version: "1".to_owned(), record: Record::default() };
    for answer in [
        Input::Written(Err(WriteFailed::Conflict)),
        Input::Written(Err(WriteFailed::Unknown)),
        Input::Read(Err(Failed)),
    ] {
        let mut elector = Elector::new(settings("a"));
        let moment = |ms| Moment { ms, wall_us: 0 };
        assert_eq!(elector.step(moment(0), Input::Tick), [Effect::Read]);
        if !matches!(answer, Input::Read(_)) {
            let effects = elector.step(moment(1), Input::Read(Ok(Some(free.clone()))));
            assert!(matches!(effects[..], [Effect::Write { .. }]), "{effects:?}");
        }
        assert!(elector.step(moment(2), Input::Release).is_empty(), "the request under way tells more");
        assert_eq!(elector.step(moment(3), answer.clone()), [Effect::Released], "after {answer:?}");
    }
}

#[test]
fn an_agent_that_saw_a_later_epoch_makes_the_leader_write_a_higher_one() {
    let mut world = world(1);
    world.step(0, Input::EpochReported(41));
    run(&mut world, 200);
    assert_eq!(world.candidates[0].epoch(), Some(42));
    assert_eq!(world.server.lease.as_ref().unwrap().record.epoch, 42, "on the Lease first");
}

#[test]
fn an_epoch_that_somebody_wrote_by_hand_is_not_counted_up_to_and_ends_no_lead_twice() {
    let most = 1 << 40;
    for written in [3_000_000, most - 1, most, most + 1, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, u64::MAX - 1, u64::MAX]
    {
        // While somebody leads, and while nobody knows of any epoch.
        for known in [true, false] {
            let mut world = if known { world(2) } else { World::new(&[(100, 0), (100, 0)]) };
            let before = world.led.len();
            let record = world.server.lease.clone().map(|lease| lease.record).unwrap_or_default();
            world.server.stranger(Record { epoch: written, ..record });
            run(&mut world, 2 * LEASE);
            assert_eq!(world.led.len(), before + 1, "epoch {written} written, known {known}: {:?}", world.led);
            let epoch = *world.led.keys().max().unwrap();
            let believed = !known && written <= most;
            assert_eq!(
                epoch,
                if believed { written + 1 } else { before as u64 + 1 },
                "{written} written, known {known}"
            );
            run(&mut world, 5 * LEASE);
            assert_eq!(world.led.len(), before + 1, "epoch {written} goes on to be written: {:?}", world.led);
            assert_eq!(world.leaders().len(), 1);
        }
    }
}

#[test]
fn a_deleted_lease_comes_back_above_what_was_seen() {
    let mut world = world(2);
    run(&mut world, 3_000);
    let before = *world.led.keys().max().unwrap();
    world.server.lease = None;
    run(&mut world, RETRY + 1_000);
    assert_eq!(world.leaders().len(), 1);
    assert!(world.server.lease.as_ref().unwrap().record.epoch > before, "{:?}", world.server.lease);
}

#[test]
fn a_candidate_that_finds_no_lease_waits_as_long_as_a_leader_could_still_act() {
    let mut world = World::new(&[(100, 0)]);
    run(&mut world, LEASE - 1_000);
    assert!(world.leaders().is_empty());
    run(&mut world, 2_000);
    assert_eq!(world.candidates[0].epoch(), Some(1));
    // Also when it looks as often as it would renew.
    let mut world = World::new(&[(100, 0)]);
    let quick = Settings { lease_ms: 2_000, renew_deadline_ms: 1_300, retry_ms: 300, ..settings("c0") };
    world.candidates[0].elector = Elector::new(quick);
    run(&mut world, 3_000);
    assert_eq!(world.candidates[0].epoch(), Some(1));
    // One that was made for it, as the chart does, is free at once.
    let mut world = World::new(&[(100, 0)]);
    world.server.store("uid".to_owned(), Record::default());
    run(&mut world, 100);
    assert_eq!(world.candidates[0].epoch(), Some(1));
}

#[test]
fn who_annotates_the_lease_keeps_nobody_in_office() {
    let mut world = world(2);
    run(&mut world, 3_000);
    let old = world.leaders()[0];
    world.candidates[old].paused_until = u64::MAX;
    for _ in 0..20 {
        run(&mut world, 1_000);
        world.trouble(&Trouble::Annotate);
    }
    assert_eq!(world.candidates[1 - old].epoch(), Some(2), "the holder did not renew for a whole lease");
}

#[test]
fn settings_with_which_two_might_lead_are_refused() {
    let with =
        |lease_ms, renew_deadline_ms, retry_ms| Settings { lease_ms, renew_deadline_ms, retry_ms, ..settings("a") };
    assert_eq!(with(15_000, 10_000, 2_000).check(), Ok(()));
    assert_eq!(with(15_500, 10_000, 2_000).check(), Err(SettingsError::Duration));
    assert_eq!(with(0, 0, 0).check(), Err(SettingsError::Duration));
    assert_eq!(with(10_000, 10_000, 2_000).check(), Err(SettingsError::Deadline));
    assert_eq!(with(15_000, 10_000, 6_000).check(), Err(SettingsError::Retry));
    assert_eq!(with(15_000, 10_000, 0).check(), Err(SettingsError::Retry));
}
