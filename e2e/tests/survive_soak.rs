//! All faults at once for a long time: nothing fails without a reason, and nothing grows.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::process::{Options, send};
use e2e::shop::{Shop, ingress_tls, tls_secret};
use e2e::traffic::plane::resident;
use e2e::traffic::scene::{Scene, at_rate};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;

/// How long, in seconds; the short form when it is missing.
const SECONDS: &str = "SCALWS_SOAK_SECONDS";
const SHORT: u64 = 8;
/// Memory and the pools of idle connections have to settle before their slopes say anything.
const SETTLED: u64 = 300;
const SEED: u64 = 44;

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

#[test]
fn all_faults_at_once_make_nothing_fail_or_grow() -> Result<()> {
    let seconds: u64 = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok()).unwrap_or(SHORT);
    let scene = Scene::start(Shop::copy()?, &Options::default(), |_, _| Vec::new())?;
    let (began, length) = (Instant::now(), Duration::from_secs(seconds));
    let mut dice = StdRng::seed_from_u64(SEED);
    let (mut series, mut events) = (Series::new(), BTreeMap::<&str, usize>::new());
    while began.elapsed() < length {
        let late = began.elapsed() > length / 2;
        let event = dice.random_range(0..6);
        let (name, victim) = match event {
            0 => ("edits", None),
            1 => ("rotations", None),
            // In the second half the controller lives, so that its slopes mean something.
            2 if !late => ("kill -9 of the controller", Some(("scalws-controller", ""))),
            2 | 3 => ("SIGSTOP of the controller", None),
            4 => ("kill -9 of an agent", Some(("scalws-agent", "replica-0"))),
            _ => ("kill -9 of scalwsd", Some(("scalwsd", "/r0"))),
        };
        scene.traffic.doing(name);
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
            (name, _) => {
                at_rate(50, 25, |_| {
                    let slot = if name == "rotations" { 0 } else { dice.random_range(0..20) };
                    let (object, host) = (format!("soak-{slot}"), format!("soak-{slot}.example.com"));
                    let (_, secret) = tls_secret("shop", &object, &host)?;
                    let (service, port) = [("web", 80), ("assets", 8080)][dice.random_range(0..2)];
                    let route = ingress_tls("shop", &object, &host, service, port, &object);
                    scene.shop.write(&format!("shop/{object}.yaml"), &format!("{secret}---\n{route}"))
                })?;
            }
        }
        scene.up.wait().with_context(|| format!("after {name}"))?;
        scene.answered(30)?;
        sample(&scene, began.elapsed().as_secs_f64(), &mut series)?;
    }
    let report = scene.end()?;
    eprintln!("{events:?}\n{report}");
    let dies = |doing: &str| doing.contains("scalwsd");
    let rest = report.unexplained(|failed| failed.is_cut() && (dies(&failed.doing) || dies(&failed.after)));
    assert!(rest.is_empty(), "{rest:#?}");
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
