//! All faults at once for a long time: nothing fails without a reason, and nothing grows.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::machine::descriptors::allow_more;
use e2e::machine::link::{Conditions, Link};
use e2e::machine::programs::Programs;
use e2e::process::{Options, send};
use e2e::shop::{Shop, ingress_tls, tls_secret};
use e2e::traffic::deaths::Deaths;
use e2e::traffic::plane::resident;
use e2e::traffic::scene::{Scene, at_rate};
use e2e::traffic::{Plan, Target, Traffic, Trusted};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;

/// How long, in seconds; the short form when it is missing.
const SECONDS: &str = "SCALWS_SOAK_SECONDS";
const SHORT: u64 = 8;
/// Memory and the pools of idle connections have to settle before their slopes say anything.
const SETTLED: u64 = 300;
const SEED: u64 = 44;
/// The host whose certificate is rotated.
const HANDS: &str = "hands.example.com";
/// How many events there are, some of them twice, so that they come more often.
const EVENTS: u32 = 10;
const ROLLING: &str = "rolling endpoints";
const CUT: &str = "a cut link";
const DESCRIPTORS: &str = "no descriptors";

/// Something that must stay flat: its samples are (seconds, value).
type Series = BTreeMap<(String, &'static str), Vec<(f64, f64)>>;

/// What a process, or a volume, uses now.
fn sample(scene: &Scene, at: f64, series: &mut Series) -> Result<()> {
    let mut note = |who: &str, what, value: u64| {
        // Far below 2^52.
        #[allow(clippy::cast_precision_loss)]
        let value = value as f64;
        series.entry((who.to_owned(), what)).or_default().push((at, value));
    };
    let mut processes = vec![("up", scene.up.file().pid)];
    // Those of the other replica are killed.
    for (name, program, argument) in
        [("controller", "scalws-controller", ""), ("agent", "scalws-agent", "replica-1"), ("scalwsd", "scalwsd", "/r1")]
    {
        processes.push((name, u32::try_from(scene.up.find(program, argument)?.pid)?));
    }
    for (name, pid) in processes {
        note(name, "bytes of memory", resident(pid)?);
        note(name, "descriptors", fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64);
        note(name, "threads", fs::read_dir(format!("/proc/{pid}/task"))?.count() as u64);
    }
    for replica in ["r0", "r1"] {
        for file in ["config.jsonl", "members.jsonl"] {
            let length = fs::metadata(scene.up.file().runtime_dir.join(replica).join(file))?.len();
            note(&format!("{replica}/{file}"), "bytes of journal", length);
        }
        note(replica, "keys", fs::read_dir(scene.up.file().runtime_dir.join(replica).join("keys"))?.count() as u64);
    }
    Ok(())
}

/// The slope of a line through the samples (least squares), per second.
fn slope(samples: &[(f64, f64)]) -> f64 {
    // As many as fit into memory.
    #[allow(clippy::cast_precision_loss)]
    let count = samples.len() as f64;
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| samples.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(&|s| s.0), mean(&|s| s.1));
    let up: f64 = samples.iter().map(|s| (s.0 - x) * (s.1 - y)).sum();
    let down: f64 = samples.iter().map(|s| (s.0 - x).powi(2)).sum();
    if down > 0.0 { up / down } else { 0.0 }
}

/// How much more there may be at the end than at the beginning of what is looked at.
fn slack(what: &str, level: f64) -> f64 {
    match what {
        "bytes of memory" => (level / 5.0).max(8e6),
        // A journal grows to its compaction and begins anew.
        "bytes of journal" => level.max(1e6),
        _ => (level / 5.0).max(8.0),
    }
}

/// A route with a certificate of its own comes, or changes.
fn edit(scene: &Scene, slot: u32, dice: &mut StdRng) -> Result<()> {
    let (object, host) = (format!("soak-{slot}"), format!("soak-{slot}.example.com"));
    let (_, secret) = tls_secret("shop", &object, &host)?;
    let (service, port) = [("web", 80), ("assets", 8080)][dice.random_range(0..2)];
    let route = ingress_tls("shop", &object, &host, service, port, &object);
    scene.shop.write(&format!("shop/{object}.yaml"), &format!("{secret}---\n{route}"))
}

#[test]
fn all_faults_at_once_make_nothing_fail_or_grow() -> Result<()> {
    let seconds: u64 = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok()).unwrap_or(SHORT);
    let link = Link::new(Conditions::default(), SEED, "the link of an agent that is cut, again and again")?;
    let mut options = Options::default();
    // What is started from here on is in the network before the link; the agent that is killed is behind it.
    let programs = match &link {
        Some(link) => {
            link.near().enter()?;
            Some(link.behind("replica-0")?)
        }
        None => None,
    };
    options.programs = programs.as_ref().and_then(Programs::folder);
    let scene = Scene::start(Shop::copy()?, &options, |_, _| Vec::new())?;
    let deaths = Deaths::watch(scene.up.file().pid, "scalwsd", scene.traffic.began());
    // Handshakes with a certificate that is rotated: never another one than it may be.
    let (certificate, text) = tls_secret("shop", "hands", HANDS)?;
    let trusted = Trusted::only(&certificate)?;
    scene.shop.write("shop/hands.yaml", &text)?;
    scene.shop.write("shop/hands-ingress.yaml", &ingress_tls("shop", "hands", HANDS, "assets", 8080, "hands"))?;
    scene.up.wait()?;
    let target = Target::https(scene.up.file().https, HANDS, &["shop/assets"], &trusted);
    let hands = Traffic::start(Plan { per_second: 20, kept: 0, ..Plan::of(vec![target]) })?;
    let hand_deaths = Deaths::watch(scene.up.file().pid, "scalwsd", hands.began());
    let web = scene.shop.read("shop/web.yaml")?;
    let (began, length) = (Instant::now(), Duration::from_secs(seconds));
    let mut dice = StdRng::seed_from_u64(SEED);
    let (mut series, mut events) = (Series::new(), BTreeMap::<&str, usize>::new());
    // Each of them once, then as the dice say.
    for round in 0.. {
        if began.elapsed() >= length && round >= EVENTS {
            break;
        }
        let late = round >= EVENTS && began.elapsed() > length / 2;
        let event = if round < EVENTS { round } else { dice.random_range(0..EVENTS) };
        let (name, victim) = match event {
            0 => ("edits", None),
            1 => ("rotations", None),
            // In the second half the controller lives, so that its slopes mean something.
            2 if !late => ("kill -9 of the controller", Some(("scalws-controller", ""))),
            2 | 3 => ("SIGSTOP of the controller", None),
            4 => ("kill -9 of an agent", Some(("scalws-agent", "replica-0"))),
            5 | 6 => (ROLLING, None),
            7 if link.is_some() => (CUT, None),
            7 | 8 => (DESCRIPTORS, None),
            _ => ("kill -9 of scalwsd", Some(("scalwsd", "/r0"))),
        };
        scene.traffic.doing(name);
        hands.doing(name);
        *events.entry(name).or_default() += 1;
        match (name, victim) {
            (_, Some((program, argument))) => {
                let (victim, _) = scene.kill(program, argument)?;
                scene.is_back(&victim, argument)?;
            }
            ("SIGSTOP of the controller", _) => {
                let controller = scene.up.find("scalws-controller", "")?;
                send(controller.pid, Signal::STOP)?;
                scene.answered(100)?;
                send(controller.pid, Signal::CONT)?;
            }
            (ROLLING, _) => {
                // One of two pods goes while the other one is there, a hundred changes a second.
                at_rate(100, 50, |turn| {
                    let gone = ["{ready: true}", "{ready: false}", "{ready: false, serving: true, terminating: true}"];
                    let mut parts = web.splitn(3, "{ready: true}");
                    let mut next = || parts.next().unwrap_or_default();
                    let (first, second) = ((turn / 3) % 2 == 0, gone[turn as usize % 3]);
                    let (one, other) = if first { (second, gone[0]) } else { (gone[0], second) };
                    let text = [next(), one, next(), other, next()].concat();
                    scene.shop.write("shop/web.yaml", &text)
                })?;
                scene.shop.write("shop/web.yaml", &web)?;
            }
            (CUT, _) => {
                let Some(link) = &link else { continue };
                link.cut(true);
                edit(&scene, dice.random_range(0..20), &mut dice)?;
                // From less than the agent notices to more.
                scene.answered(if round < EVENTS { 200 } else { dice.random_range(100..4_000) })?;
                link.cut(false);
            }
            (DESCRIPTORS, _) => {
                let (program, argument) =
                    [("scalws-controller", ""), ("scalws-agent", "replica-1")][dice.random_range(0..2)];
                let process = scene.up.find(program, argument)?;
                allow_more(&process, Some(0))?;
                edit(&scene, dice.random_range(0..20), &mut dice)?;
                scene.answered(100)?;
                allow_more(&process, None)?;
            }
            ("rotations", _) => {
                at_rate(50, 25, |_| {
                    let (certificate, text) = tls_secret("shop", "hands", HANDS)?;
                    trusted.also(&certificate)?;
                    scene.shop.write("shop/hands.yaml", &text)
                })?;
                scene.up.wait()?;
                trusted.newest_only();
            }
            _ => {
                at_rate(50, 25, |_| edit(&scene, dice.random_range(0..20), &mut dice))?;
            }
        }
        scene.up.wait().with_context(|| format!("after {name}"))?;
        scene.answered(30)?;
        sample(&scene, began.elapsed().as_secs_f64(), &mut series)?;
    }
    let (deaths, hand_deaths, hands) = (deaths.stop()?, hand_deaths.stop()?, hands.stop()?);
    let report = scene.end()?;
    eprintln!("{events:?}\n{report}\nhandshakes: {hands}\n{} deaths of scalwsd", deaths.len());
    for (report, deaths) in [(&report, &deaths), (&hands, &hand_deaths)] {
        let rest = report.unexplained(|failed| deaths.iter().any(|death| death.explains(failed)));
        assert!(rest.is_empty(), "failed, and was not under way at a death of scalwsd: {rest:#?}");
    }
    let mut grown = Vec::new();
    for ((who, what), samples) in &series {
        let half: Vec<(f64, f64)> =
            samples.iter().filter(|s| s.0 * 2.0 > began.elapsed().as_secs_f64()).copied().collect();
        let (Some(first), Some(last)) = (half.first(), half.last()) else { continue };
        let (slope, time) = (slope(&half), last.0 - first.0);
        eprintln!("{who}: {} {what} at the end, {:+.1} an hour", last.1, slope * 3_600.0);
        let most = slack(what, first.1);
        if seconds >= SETTLED && slope * time > most && last.1 - first.1 > most {
            grown.push(format!("{who}: {what} from {} to {}", first.1, last.1));
        }
    }
    ensure!(!series.is_empty(), "nothing was looked at");
    ensure!(grown.is_empty(), "it grows: {grown:?}");
    Ok(())
}
