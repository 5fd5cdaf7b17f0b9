//! A test of the tests: bugs of other products, planted in our own code, must be caught by the simulation.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use std::panic::{catch_unwind, set_hook, take_hook};

use e2e::sim::Simulation;
use journal::mutants::{Mutant, activate};

/// Seeds that a planted bug may survive.
const SEEDS: u64 = 200;
const TURNS: u64 = 300;
const AGREE_MS: u64 = 90_000;

/// Why a seed fails, if it does.
fn fault(seed: u64, mutant: Option<Mutant>) -> Option<String> {
    let outcome = catch_unwind(|| {
        activate(mutant);
        Simulation::new(seed).run(TURNS, AGREE_MS)?;
        Simulation::new(seed).members_pass_a_stuck_reload()?;
        Simulation::new(seed).refused_bytes_stay_refused()
    });
    activate(None);
    match outcome {
        Ok(done) => done.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            Some(text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default())
        }
    }
}

#[test]
fn every_planted_bug_is_caught() {
    let hook = take_hook();
    // A panic is what a caught bug looks like; its text is in the table.
    set_hook(Box::new(|_| {}));
    let mut survivors = Vec::new();
    let mut table = String::from("| planted bug | seeds to catch it | how it shows |\n| --- | --- | --- |\n");
    for mutant in Mutant::ALL {
        let caught = (0..SEEDS).find_map(|seed| fault(seed, Some(mutant)).map(|why| (seed + 1, why)));
        match caught {
            Some((seeds, why)) => {
                let why: String = why.lines().next().unwrap_or_default().chars().take(110).collect();
                table.push_str(&format!("| {mutant:?} | {seeds} | {why} |\n"));
            }
            None => {
                table.push_str(&format!("| {mutant:?} | not within {SEEDS} | |\n"));
                survivors.push(mutant);
            }
        }
    }
    set_hook(hook);
    println!("{table}");
    assert!(survivors.is_empty(), "these planted bugs are not caught: {survivors:?}\n{table}");
}
