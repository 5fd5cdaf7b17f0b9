//! `bench translate`: what one change costs the engine, with few and with many objects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use translate::{Change, Engine, Object, Settings};

use crate::stats::{Samples, micros, thread_cpu};

/// How far the cost of a point change may grow from the smallest world to the largest.
const GROWTH: f64 = 1.5;

#[derive(Args)]
pub(crate) struct Options {
    /// Numbers of Ingresses
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000,50000")]
    sizes: Vec<usize>,
    /// Interleaved rounds; the figure is the median of their medians
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Changes in a round
    #[arg(long, default_value_t = 200)]
    changes: usize,
}

/// A world and the point changes that are applied to it.
struct World {
    name: String,
    engine: Engine,
    size: usize,
    one_host: bool,
    serial: usize,
    results: [(Samples, Samples); 2],
}

/// The kinds of point changes, in the order of `World::results`.
const KINDS: [&str; 2] = ["Ingress path", "endpoint"];

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut worlds = Vec::new();
    for size in &options.sizes {
        worlds.push(World::new(format!("{size} Ingresses"), *size, false)?);
    }
    worlds.push(World::new("1,000 Ingresses on one host".to_owned(), 1_000, true)?);
    for round in 0..options.rounds {
        for world in &mut worlds {
            world.round(options.changes)?;
        }
        println!("round {} of {} done", round + 1, options.rounds);
    }
    println!("\n| world | change | wall median us | CPU median us |\n| --- | --- | --- | --- |");
    for world in &worlds {
        for (kind, (wall, cpu)) in KINDS.iter().zip(&world.results) {
            println!("| {} | {kind} | {} | {} |", world.name, micros(wall.median()), micros(cpu.median()));
        }
    }
    let (first, last) = (&worlds[0], &worlds[options.sizes.len() - 1]);
    for (index, kind) in KINDS.iter().enumerate() {
        let cpu = |world: &World| world.results[index].1.median().as_secs_f64();
        let growth = cpu(last) / cpu(first);
        println!("{kind}: {} costs {growth:.2} x what {} cost (limit {GROWTH})", last.name, first.name);
        if growth > GROWTH {
            bail!("a point change grows with the number of objects");
        }
    }
    Ok(())
}

impl World {
    fn new(name: String, size: usize, one_host: bool) -> Result<World> {
        let mut engine = Engine::new(Settings::local(80, 443));
        let start = Instant::now();
        let mut changes = Vec::with_capacity(3 * size);
        for number in 0..size {
            changes.push(service(number)?);
            changes.push(slice(number, 0)?);
            changes.push(ingress(number, 0, one_host)?);
        }
        engine.apply(changes);
        println!("{name}: translated in {:.2} s", start.elapsed().as_secs_f64());
        Ok(World { name, engine, size, one_host, serial: 0, results: Default::default() })
    }

    /// Applies point changes to objects spread over the world and keeps the medians.
    fn round(&mut self, changes: usize) -> Result<()> {
        let mut samples: [(Samples, Samples); 2] = Default::default();
        for _ in 0..changes {
            self.serial += 1;
            let number = self.serial.wrapping_mul(7_919) % self.size;
            // On one host the Ingresses share ten Services.
            let moved = if self.one_host { number % 10 } else { number };
            let changes = [ingress(number, self.serial, self.one_host)?, slice(moved, self.serial)?];
            for (change, (walls, cpus)) in changes.into_iter().zip(&mut samples) {
                let (wall, cpu) = (Instant::now(), thread_cpu());
                let delta = self.engine.apply(vec![change]);
                let (wall, cpu) = (wall.elapsed(), thread_cpu().saturating_sub(cpu));
                if delta.is_empty() {
                    bail!("{}: the change changed nothing, so nothing was measured", self.name);
                }
                walls.add(wall);
                cpus.add(cpu.max(Duration::from_nanos(1)));
            }
        }
        for ((walls, cpus), (wall, cpu)) in self.results.iter_mut().zip(&samples) {
            walls.add(wall.median());
            cpus.add(cpu.median());
        }
        Ok(())
    }
}

fn put(object: serde_json::Value) -> Result<Change> {
    Ok(Change::Put(Arc::new(Object::from_value(object)?)))
}

/// Ten Ingresses share a namespace.
fn namespace(number: usize) -> String {
    format!("team-{}", number / 10)
}

fn service(number: usize) -> Result<Change> {
    put(json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("app-{number}"), "namespace": namespace(number)},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}))
}

fn slice(number: usize, serial: usize) -> Result<Change> {
    let address = |n: usize| json!({"addresses": [format!("10.{}.{}.{}", n / 65_536 % 256, n / 256 % 256, n % 256)]});
    put(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("app-{number}-1"), "namespace": namespace(number),
            "labels": {"kubernetes.io/service-name": format!("app-{number}")}},
        "endpoints": [address(number), address(number + 1), address(100_000 + serial)],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]}))
}

fn ingress(number: usize, serial: usize, one_host: bool) -> Result<Change> {
    let host = if one_host { "shop.example.com".to_owned() } else { format!("app-{number}.example.com") };
    // On one host all Ingresses are of one namespace, or the oldest would own it alone.
    let (name, namespace) = if one_host {
        (format!("i-{number}"), namespace(0))
    } else {
        ("i".to_owned() + &number.to_string(), namespace(number))
    };
    let service = if one_host { format!("app-{}", number % 10) } else { format!("app-{number}") };
    let path = |text: String| {
        json!({"path": text, "pathType": "Prefix",
        "backend": {"service": {"name": service, "port": {"number": 80}}}})
    };
    put(json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"ingressClassName": "nginx", "rules": [{"host": host, "http": {"paths":
            [path(format!("/{number}")), path(format!("/{number}/v{serial}"))]}}]}}))
}
