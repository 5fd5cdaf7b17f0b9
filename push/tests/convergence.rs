//! Both sessions over a link that loses, doubles, swaps and cuts, with agents that fail and die: in the end every agent
//! holds exactly what is desired, and none ever goes back (the model asserts that at every application).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod model;

use model::{Faults, World};
use proptest::prelude::*;

/// P1 without a clock of its own: 30 s after the faults end.
const LIMIT: u64 = 60_000;

fn run(seed: u64, agents: usize, faults: Faults, publications: u64, size: u64) -> Result<u64, String> {
    let mut world = World::new(seed, agents, faults);
    for _ in 0..publications {
        world.publish_something(30, size);
        for _ in 0..world.dice.below(60) {
            world.turn();
        }
    }
    world.settle(LIMIT)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agents_converge_after_any_faults(
        seed: u64,
        lose in prop_oneof![Just(0u64), 5..200u64],
        double in prop_oneof![Just(0u64), 5..200u64],
        swap in prop_oneof![Just(0u64), 5..200u64],
        cut in prop_oneof![Just(0u64), 20..500u64],
        failover in prop_oneof![Just(0u64), 100..1_000u64],
        fail_apply in prop_oneof![Just(0u64), 2..10u64],
        crash_in_apply in prop_oneof![Just(0u64), 3..20u64],
    ) {
        let faults = Faults { lose, double, swap, cut, failover, fail_apply, crash_in_apply, ..Faults::default() };
        if let Err(difference) = run(seed, 3, faults, 25, 40) {
            return Err(TestCaseError::fail(difference));
        }
    }
}

/// One of two secrets that an agent asked for got lost, and the agent refused the configuration for good.
#[test]
fn a_secret_that_got_lost_does_not_keep_a_configuration_away() {
    let faults = Faults { lose: 8, cut: 134, failover: 152, ..Faults::default() };
    run(7_807_869_943_530_123_357, 3, faults, 25, 40).unwrap();
}

#[test]
fn without_faults_every_change_arrives_and_no_stream_is_closed() {
    for seed in 0..20 {
        let mut world = World::new(seed, 3, Faults::default());
        for _ in 0..40 {
            world.publish_something(30, 40);
            world.turn();
        }
        let took = world.settle(2_000).unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
        assert!(took <= 2_000, "{took} ms");
        for node in &world.nodes {
            assert_eq!(node.closes, [], "seed {seed}");
        }
    }
}

#[test]
fn large_bodies_cross_chunk_borders_unharmed() {
    let mut world = World::new(7, 2, Faults::default());
    for _ in 0..6 {
        world.publish_something(10, 200_000);
        (0..10).for_each(|_| world.turn());
    }
    world.settle(20_000).unwrap();
}
