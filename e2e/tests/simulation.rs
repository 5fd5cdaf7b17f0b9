//! The simulation under many seeds. `SIM_SEED=N` runs one seed alone, `SIM_SEEDS=N` as many.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use std::panic::catch_unwind;

use e2e::sim::{Simulation, Tally};

/// Turns with faults and edits in each seed.
const TURNS: u64 = 300;
/// Virtual milliseconds that agreement may take once the faults are over.
const AGREE_MS: u64 = 90_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What a seed did.
fn run(seed: u64) -> Result<Tally, String> {
    let outcome = catch_unwind(|| Simulation::new(seed).run(TURNS, AGREE_MS).map(|done| done.tally()));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default())
    })
}

/// Runs seeds on two threads; gives what they did and what failed.
fn run_all(seeds: std::ops::Range<u64>) -> (Tally, Vec<String>) {
    let half = seeds.start + (seeds.end - seeds.start) / 2;
    let work = |seeds: std::ops::Range<u64>| {
        let (mut did, mut failed) = (Tally::default(), Vec::new());
        for seed in seeds {
            match run(seed) {
                Ok(more) => did += more,
                Err(why) => failed.push(format!("seed {seed}: {why}")),
            }
            if failed.len() == 3 {
                break;
            }
        }
        (did, failed)
    };
    std::thread::scope(|scope| {
        let second = scope.spawn(|| work(half..seeds.end));
        let (mut did, mut failed) = work(seeds.start..half);
        let (more, others) = second.join().unwrap();
        failed.extend(others);
        did += more;
        (did, failed)
    })
}

#[test]
fn whatever_goes_wrong_every_agent_comes_to_hold_what_is_desired_and_never_goes_back() {
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(1_000),
    };
    let count = seeds.end - seeds.start;
    let (did, failed) = run_all(seeds);
    assert!(failed.is_empty(), "{}\nrun one again: SIM_SEED=N cargo test -p e2e --test simulation", failed.join("\n"));
    println!("{count} seeds: {:?}", did.counts());
    assert!(did.messages > 100 * count, "so few messages prove nothing: {did:?}");
    assert!(did.compactions >= count, "so few journals written anew prove nothing: {did:?}");
    // One seed alone need not come to all of it.
    for (what, often) in did.counts() {
        assert!(often > 0 || count < 100, "{what}: never in {count} seeds");
    }
}

/// One thing that happens to a cluster at peace, with many seeds.
fn scenario(run: fn(&mut Simulation) -> Result<(), String>) {
    for seed in number("SIM_SEED").map_or(0..20, |seed| seed..seed + 1) {
        run(&mut Simulation::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn a_configuration_that_takes_long_never_holds_back_members() {
    scenario(Simulation::members_pass_a_stuck_reload);
}

#[test]
fn an_agent_that_does_not_answer_never_holds_back_another() {
    scenario(Simulation::others_pass_a_stuck_reload);
}

#[test]
fn what_an_agent_refused_for_good_is_not_sent_to_it_again() {
    scenario(Simulation::refused_bytes_stay_refused);
}

#[test]
fn what_a_full_volume_kept_from_being_applied_is_tried_again() {
    scenario(Simulation::what_failed_in_passing_is_repeated);
}

#[test]
fn a_pool_comes_after_its_members_and_goes_before_them() {
    scenario(Simulation::routes_and_members_come_and_go_in_order);
}

#[test]
fn a_new_leader_brings_every_agent_up_to_date_before_any_heartbeat() {
    scenario(Simulation::a_handover_waits_for_no_heartbeat);
}

#[test]
fn a_new_leader_removes_nothing_because_of_a_short_list() {
    scenario(Simulation::a_new_leader_does_not_believe_a_short_list);
}

#[test]
fn a_new_leader_serves_nothing_before_it_has_seen_what_the_agents_have() {
    scenario(Simulation::a_new_leader_first_learns_what_it_missed);
}

#[test]
fn a_deposed_leader_never_takes_an_agent_back() {
    scenario(Simulation::a_deposed_leader_changes_nobody);
}

#[test]
fn a_seed_decides_everything() {
    let carried = || Simulation::new(7).run(TURNS, AGREE_MS).map(|done| done.tally()).unwrap();
    assert_eq!(carried(), carried());
}
