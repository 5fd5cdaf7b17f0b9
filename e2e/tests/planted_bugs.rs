//! A test of the tests: bugs of other products, planted in our own code, must be caught by the checks that run in CI.
//!
//! Each check runs in this process with one bug switched on and must fail, and must hold with the same seed when the
//! bug is off. `UPDATE_DOCS=1` writes the table of docs/robustness.md again.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use std::collections::BTreeMap;
use std::panic::{catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use e2e::checks::{conversation, edges, identity};
use e2e::sim::Simulation;
use journal::mutants::{Mutant, activate, asked};

/// Seeds of the simulation that a planted bug may survive.
const SEEDS: u64 = 100;
const TURNS: u64 = 300;
const AGREE_MS: u64 = 90_000;

/// A check that runs in CI by itself too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Check {
    Simulation,
    Identity,
    Methods,
    Request,
    Crowd,
    Protocols,
    FileNames,
    Connection,
}

impl Check {
    /// The test that runs it.
    fn name(self) -> &'static str {
        match self {
            Check::Simulation => "e2e simulation",
            Check::Identity => "e2e checks only_the_own_fleet_is_heard",
            Check::Methods => "e2e checks every_method_but_the_one_is_closed",
            Check::Request => "e2e checks a_request_does_not_choose_its_fleet",
            Check::Crowd => "e2e checks a_crowd_is_let_in_a_few_at_a_time",
            Check::Protocols => "e2e checks another_protocol_is_refused_aloud",
            Check::FileNames => "e2e checks a_secret_is_stored_under_its_digest_only",
            Check::Connection => "e2e checks connection_takes_none_of_our_headers",
        }
    }

    /// How many seeds there are to try; one where chance has no part.
    fn seeds(self) -> u64 {
        if self == Check::Simulation { SEEDS } else { 1 }
    }

    fn run(self, seed: u64) -> Result<(), String> {
        let told = |error: anyhow::Error| format!("{error:#}");
        match self {
            Check::Simulation => {
                Simulation::new(seed).run(TURNS, AGREE_MS)?;
                Simulation::scenarios(seed)
            }
            Check::Identity => identity::only_the_own_fleet_is_heard().map_err(told),
            Check::Methods => identity::every_method_but_the_one_is_closed().map_err(told),
            Check::Request => identity::a_request_does_not_choose_its_fleet().map_err(told),
            Check::Crowd => conversation::a_crowd_is_let_in_a_few_at_a_time(),
            Check::Protocols => conversation::another_protocol_is_refused_aloud(),
            Check::FileNames => edges::a_secret_is_stored_under_its_digest_only().map_err(told),
            Check::Connection => edges::connection_takes_none_of_our_headers().map_err(told),
        }
    }
}

/// A public bug: what it was, where, when, the promise that it breaks, and the check that must find it here.
struct Row(&'static str, &'static str, &'static str, &'static str, Check);

fn row(mutant: Mutant) -> Row {
    use Check::{Connection, Crowd, FileNames, Identity, Methods, Protocols, Request, Simulation};
    let (bug, product, year, promise, check) = match mutant {
        Mutant::SentIsApplied => ("#5334, #5496", "NGINX Gateway Fabric", "2026", "P1", Simulation),
        Mutant::RefusedIsSentAgain => ("#21111", "Istio", "2020", "P7", Simulation),
        Mutant::NoFence => ("Jepsen's analysis of locks", "etcd", "2020", "P3", Simulation),
        Mutant::PublishedBeforeTheList => ("Contour#1280, #2489", "APISIX, Contour", "2019, 2025", "P4", Simulation),
        Mutant::ShrunkenListIsBelieved => {
            ("ingress-nginx#2195, #4207", "Kong, ingress-nginx", "2018, 2023", "P4", Simulation)
        }
        Mutant::SilenceIsIgnored => ("#14912", "Kuma", "2025", "P1", Simulation),
        Mutant::PoisonIsNotSetAside => ("CVE-2026-53719", "Envoy Gateway", "2026", "P6", Simulation),
        Mutant::RemovalIsLost => ("#41494", "Istio", "2022", "P1", Simulation),
        Mutant::RemovalWhileAwayIsLost => ("#415", "Kmesh", "2024", "P1", Simulation),
        Mutant::MembersWaitForConfiguration => ("#14349", "Istio", "2019", "P1", Simulation),
        Mutant::CommitCountsAsAccepted => ("class: half a write is loaded", "many", "", "P2", Simulation),
        Mutant::RewriteForgetsWhatCame => ("class: appended during a rewrite", "many", "", "P2", Simulation),
        Mutant::MissingKeyIsNotAskedFor => ("#33607", "Envoy", "2024", "P1", Simulation),
        Mutant::KeyIsNotWaitedFor => ("#47309", "Envoy", "2026", "P8", Simulation),
        Mutant::NoBackPressure => ("#28261", "Istio", "2020", "P9", Simulation),
        Mutant::HerdIsLetIn => ("#35263", "Istio", "2021", "P10", Crowd),
        Mutant::ReadyWhileEmpty => ("#49929", "Istio", "2024", "P4", Simulation),
        Mutant::RefusedByTheProxyIsApplied => ("#4697", "NGINX Gateway Fabric", "2026", "P7", Simulation),
        Mutant::LockedUntilAnswered => {
            ("lock held across the answer", "NGINX Gateway Fabric", "2026", "P9", Simulation)
        }
        Mutant::HandoverForgetsWhatWasThere => ("#5356", "NGINX Gateway Fabric", "2026", "P4", Simulation),
        Mutant::NewLeaderKeepsItsBaseline => ("#2774", "APISIX", "2026", "P10", Simulation),
        Mutant::SameEpochAgain => ("class: same holder, same number", "client-go", "", "P3", Simulation),
        Mutant::LeaseByWallClock => ("class: the clock of another pod", "kube-leader-election", "", "P3", Simulation),
        Mutant::LeaseWithoutVersion => {
            ("class: merge patch without version", "kube-leader-election", "", "P3", Simulation)
        }
        Mutant::LeadsPastItsDeadline => ("class: leads past its deadline", "many", "", "P3", Simulation),
        Mutant::StaleFollowerPublishes => ("class: a warm standby that lags", "many", "", "P2", Simulation),
        Mutant::FleetFromTheRequest => ("CVE-2026-96615", "NGINX Gateway Fabric", "2026", "P12", Request),
        Mutant::OneMethodIsGuarded => ("CVE-2026-53714", "Envoy Gateway", "2026", "P12", Methods),
        Mutant::NobodyIsAsked => ("GHSA-4766-x535-jw3r", "kgateway", "2025", "P12", Identity),
        Mutant::UnansweredIsForgotten => ("#1356", "go-control-plane", "2026", "P1", Simulation),
        Mutant::SupersededIsSent => ("#1498", "go-control-plane", "2026", "P2", Simulation),
        Mutant::RoutesBeforeMembers => ("#526", "go-control-plane", "2022", "P8", Simulation),
        Mutant::BreakBeforeMake => ("class: xDS make before break", "many", "", "P8", Simulation),
        Mutant::OneBadRefusesAll => ("proposal A46", "gRPC", "2022", "P6", Simulation),
        Mutant::NoRecoveryAfterTheFix => ("#14264", "kgateway", "2026", "P7", Simulation),
        Mutant::OtherProtocolIsAccepted => ("#18329", "Kuma", "2026", "P11", Protocols),
        Mutant::TextBecomesAFileName => ("CVE-2025-24513", "ingress-nginx", "2025", "P14", FileNames),
        Mutant::ConnectionTakesOurHeaders => ("CVE-2024-45410", "Traefik", "2024", "P15", Connection),
    };
    Row(bug, product, year, promise, check)
}

/// What came of one bug.
struct Outcome {
    /// The seed that caught it and what failed.
    caught: Option<(u64, String)>,
    /// What failed with that seed although the bug was off.
    without: Option<String>,
    /// Whether the code with the bug was reached at all.
    reached: bool,
}

/// Why a check fails, if it does.
fn fault(check: Check, seed: u64) -> Option<String> {
    match catch_unwind(|| check.run(seed)) {
        Ok(done) => done.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            Some(text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default())
        }
    }
}

fn judge(mutant: Mutant) -> Outcome {
    let check = row(mutant).4;
    let mut reached = false;
    let caught = (0..check.seeds()).find_map(|seed| {
        activate(Some(mutant));
        let fault = fault(check, seed);
        reached |= asked() > 0;
        activate(None);
        fault.map(|why| (seed, why))
    });
    let without = caught.as_ref().and_then(|(seed, _)| fault(check, *seed));
    Outcome { caught, without, reached }
}

const HEADER: &str = "| bug | product | year | promise | our mutation | caught by | seeds | how it shows |\n\
                      | --- | --- | --- | --- | --- | --- | --- | --- |\n";
/// Columns that do not depend on seeds.
const FIXED: usize = 6;

fn line(mutant: Mutant, outcome: Option<&Outcome>) -> String {
    let Row(bug, product, year, promise, check) = row(mutant);
    let (seeds, why) = match outcome.map(|outcome| (&outcome.caught, outcome.reached)) {
        None => (String::new(), ""),
        Some((Some((seed, why)), _)) => ((seed + 1).to_string(), why.lines().next().unwrap_or_default()),
        Some((None, true)) => (format!("not within {}", check.seeds()), "**not caught**"),
        Some((None, false)) => (format!("not within {}", check.seeds()), "**never reached**"),
    };
    // The state of the pod, which follows in brackets, is for whoever looks into a seed.
    let why: String = why.split(" (settled").next().unwrap_or_default().replace('|', "/").chars().take(110).collect();
    let year = if year.is_empty() { "-" } else { year };
    format!("| {bug} | {product} | {year} | {promise} | {mutant:?} | {} | {seeds} | {why} |\n", check.name())
}

fn page() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/robustness.md")
}

/// The lines of the page's table of planted bugs, without its head.
fn published(text: &str) -> Vec<&str> {
    let head = HEADER.lines().next().unwrap();
    text.lines().skip_while(|line| *line != head).skip(2).take_while(|line| line.starts_with('|')).collect()
}

fn columns(line: &str) -> Vec<&str> {
    line.split('|').skip(1).take(FIXED).map(str::trim).collect()
}

#[test]
fn every_planted_bug_is_caught() {
    let hook = take_hook();
    // A panic is what a caught bug looks like; its text is in the table.
    set_hook(Box::new(|_| {}));
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    // A bug is switched on for one thread, so several can be tried side by side.
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(mutant) = Mutant::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = judge(*mutant);
                    outcomes.lock().unwrap().insert(*mutant as usize, outcome);
                }
            });
        }
    });
    set_hook(hook);
    let outcomes = outcomes.into_inner().unwrap();
    let outcome = |mutant: &Mutant| &outcomes[&(*mutant as usize)];
    let rows: Vec<String> = Mutant::ALL.iter().map(|mutant| line(*mutant, Some(outcome(mutant)))).collect();
    println!("{HEADER}{}", rows.concat());
    let seeds: u64 = outcomes.values().map(|o| o.caught.as_ref().map_or(SEEDS, |(seed, _)| seed + 1)).sum();
    let caught = outcomes.values().filter(|outcome| outcome.caught.is_some()).count();
    println!("{} bugs planted, {caught} caught, {seeds} runs with a bug", Mutant::ALL.len());
    let false_alarms: Vec<_> = Mutant::ALL.iter().filter_map(|m| Some((m, outcome(m).without.as_ref()?))).collect();
    assert!(false_alarms.is_empty(), "these checks fail without the bug: {false_alarms:?}");
    let survivors: Vec<_> = Mutant::ALL.iter().filter(|mutant| outcome(mutant).caught.is_none()).collect();
    assert!(survivors.is_empty(), "these planted bugs are not caught: {survivors:?}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let text = std::fs::read_to_string(page()).unwrap();
        let old: String = published(&text).iter().map(|line| format!("{line}\n")).collect();
        let (before, after) = text.split_once(&format!("{HEADER}{old}")).unwrap();
        std::fs::write(page(), format!("{before}{HEADER}{}{after}", rows.concat())).unwrap();
    }
}

#[test]
fn the_page_names_every_planted_bug() {
    let text = std::fs::read_to_string(page()).unwrap();
    let expected: Vec<String> = Mutant::ALL.iter().map(|mutant| line(*mutant, None)).collect();
    let expected: Vec<Vec<&str>> = expected.iter().map(|line| columns(line)).collect();
    let found: Vec<Vec<&str>> = published(&text).iter().map(|line| columns(line)).collect();
    let again = "UPDATE_DOCS=1 cargo test -p e2e --test planted_bugs writes docs/robustness.md again";
    assert!(found == expected, "the table of docs/robustness.md is another one; {again}");
}
