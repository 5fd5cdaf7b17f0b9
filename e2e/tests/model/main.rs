//! Every run of two controllers within stated bounds: no two lead in one epoch, and no agent goes back.
//!
//! The controllers run the elector as it ships. What a session does is a page (`sessions.rs`) that `conformance.rs` holds
//! against the shipped sessions. `docs/robustness.md` says what this covers and what it does not.

#![allow(missing_docs, unreachable_pub, reason = "a test is no library")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints its figures")]

mod conformance;
mod properties;
mod sessions;
mod settle;
mod steps;
mod world;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use properties::{Leaders, NEVER, REFUSED};
use stateright::{Checker, HasDiscoveries, Model};
use world::{Bounds, Planted};

/// What most runs have; each names what it has besides.
const BOUNDS: Bounds = Bounds { ticks: 4, edits: 0, faults: 1, agents: 0, under_way: 0, deletion: false };

/// One with `MODEL=deep` in the environment: further than there is time for at each change.
fn deeper() -> u8 {
    std::env::var_os("MODEL").is_some_and(|how| how == "deep").into()
}

/// Looks at everything within the bounds, and at whether all of this was met on the way.
fn holds(what: &str, bounds: Bounds, settles: bool, met: &[&str]) {
    let began = std::time::Instant::now();
    let refused = REFUSED.load(Relaxed);
    let model = Leaders { bounds, planted: Planted::Nothing, settles };
    let checker = model.checker().threads(2).spawn_bfs().join();
    let (states, unique, depth) = (checker.state_count(), checker.unique_state_count(), checker.max_depth());
    println!("{what}: {bounds:?}");
    println!("    {states} states, {unique} of them unique, at most {depth} steps deep, {:?}", began.elapsed());
    let found = checker.discoveries();
    for never in NEVER {
        assert!(!found.contains_key(never), "{what}: not true: {never}\n{:?}", found.get(never));
    }
    for sometimes in met {
        let path = found.get(sometimes).unwrap_or_else(|| panic!("{what}: it never came to this: {sometimes}"));
        println!("    {sometimes}: after {} steps", path.clone().into_actions().len());
    }
    assert!(bounds.under_way == 0 || REFUSED.load(Relaxed) > refused, "{what}: no agent ever refused a push");
}

/// With this planted, the checker finds how it comes to what must never happen.
fn breaks(planted: Planted, bounds: Bounds, never: &'static str) {
    let when = HasDiscoveries::AnyOf(BTreeSet::from([never]));
    let model = Leaders { bounds, planted, settles: false };
    let checker = model.checker().threads(1).finish_when(when).spawn_bfs().join();
    let path = checker.discovery(never).unwrap_or_else(|| panic!("{planted:?} went unnoticed: {never}"));
    let actions = path.into_actions();
    let unique = checker.unique_state_count();
    println!("{planted:?}: not true after {} steps, {unique} states: {never}", actions.len());
    println!("    {actions:?}");
}

#[test]
fn leaders_with_any_two_faults() {
    let met = ["a failover", "one is overtaken and does not know", "one is unsure", "a write lost the race"];
    holds("leaders", Bounds { ticks: 7 + 2 * deeper(), faults: 2, ..BOUNDS }, false, &met);
}

#[test]
fn leaders_and_two_agents_with_any_fault() {
    let met =
        ["a failover", "a barrier waits", "a push of the past is under way", "all have the newest of a second leader"];
    holds("two agents", Bounds { ticks: 3 + 2 * deeper(), edits: 1, agents: 2, under_way: 1, ..BOUNDS }, false, &met);
}

#[test]
fn leaders_and_an_agent_with_two_edits_and_any_fault() {
    let met =
        ["a failover", "a barrier waits", "a push of the past is under way", "all have the newest of a second leader"];
    holds("two edits", Bounds { ticks: 3 + deeper(), edits: 2, agents: 1, under_way: 1, ..BOUNDS }, false, &met);
}

#[test]
fn from_every_state_all_is_well_again_when_the_faults_end() {
    let bounds = Bounds { edits: 1, agents: 1, under_way: 1, ..BOUNDS };
    holds("settles", bounds, true, &["a failover", "a late write is still under way"]);
}

#[test]
fn without_the_fence_an_agent_goes_back() {
    breaks(Planted::NoFence, Bounds { agents: 1, under_way: 1, ..BOUNDS }, NEVER[1]);
}

#[test]
fn without_the_barrier_an_object_goes_back() {
    breaks(Planted::NoBarrier, Bounds { edits: 1, agents: 1, ..BOUNDS }, NEVER[2]);
}

#[test]
fn without_the_wait_two_lead_at_once() {
    breaks(Planted::NoWait, Bounds { edits: 1, agents: 1, ..BOUNDS }, NEVER[3]);
    breaks(Planted::NoWait, Bounds { edits: 1, agents: 1, ..BOUNDS }, NEVER[2]);
}

#[test]
fn without_the_version_two_lead_in_one_epoch() {
    breaks(Planted::NoVersionCheck, BOUNDS, NEVER[0]);
}

#[test]
fn with_the_same_epoch_again_two_lead_in_one() {
    breaks(Planted::SameEpoch, BOUNDS, NEVER[0]);
}

#[test]
fn a_leader_that_does_not_look_at_its_clock_takes_an_object_back() {
    breaks(Planted::NoClock, Bounds { edits: 1, agents: 1, ..BOUNDS }, NEVER[2]);
}

/// The known limit: when the Lease is deleted and nobody is left that saw it, its number comes again. No agent goes back
/// for that, and one that knows better makes the leader go above it.
#[test]
fn a_deleted_lease_that_nobody_saw_gives_an_epoch_again_and_agents_still_do_not_go_back() {
    let bounds = Bounds { agents: 1, deletion: true, ..BOUNDS };
    breaks(Planted::Nothing, bounds, NEVER[0]);
    let forgiven = Planted::EpochMayRepeat;
    let model = Leaders { bounds, planted: forgiven, settles: false };
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!("deletion: {} states, {} of them unique", checker.state_count(), checker.unique_state_count());
    let found = checker.discoveries();
    for never in &NEVER[1..] {
        assert!(!found.contains_key(never), "after a deletion: not true: {never}\n{:?}", found.get(never));
    }
    assert!(found.contains_key("an agent is beyond its leader"), "nobody had to go above an epoch");
}
