//! Hundreds of random edits under traffic: nobody else notices, and the end is what a cold start on the same folder gives.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use e2e::http_client::Connection;
use e2e::process::{Options, Up};
use e2e::shop::{Shop, ingress, ingress_tls, tls_secret};
use e2e::traffic::scene::{Scene, at_rate, scaled};
use journal::Replay;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

const SEED: u64 = 4;
/// Edits per second.
const RATE: u32 = 50;
/// Objects that are edited, of each kind.
const SLOTS: u32 = 12;

/// Writes, changes or deletes one object.
fn edit(shop: &Shop, dice: &mut StdRng, secrets: &[(String, String)]) -> Result<()> {
    let slot = dice.random_range(0..SLOTS);
    let kind = ["ingress", "service", "slice", "secret"][dice.random_range(0..4)];
    let file = format!("shop/edit-{kind}-{slot}.yaml");
    if dice.random_range(0..4) == 0 {
        // It may not be there.
        let _ = shop.remove(&file);
        return Ok(());
    }
    let host = format!("edit-{slot}.example.com");
    let name = format!("edit-{slot}");
    let own = format!("edit-{}", dice.random_range(0..SLOTS));
    let text = match kind {
        "ingress" => {
            let (service, port) =
                [("web", 80), ("assets", 8080), (own.as_str(), 80), ("missing", 80)][dice.random_range(0..4)];
            match dice.random_range(0..3) {
                0 => ingress_tls("shop", &name, &host, service, port, &name),
                1 => ingress("shop", &name, &host, service, port),
                _ => ingress("shop", &name, &host, service, port).replace("path: /", "path: /deep"),
            }
        }
        "service" => format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{ports: [{{port: 80, \
             targetPort: {}}}]}}\n",
            19_200 + dice.random_range(0..3)
        ),
        "slice" => {
            // None of them is a loopback address, which would open an echo server.
            let endpoints: Vec<String> = (0..dice.random_range(0..6))
                .map(|_| {
                    let (last, ready) = (dice.random_range(1..9), dice.random_range(0..3) > 0);
                    format!("{{addresses: [192.0.2.{last}], conditions: {{ready: {ready}}}}}")
                })
                .collect();
            format!(
                "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-1, namespace: shop, labels: \
                 {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{{port: {}}}]\nendpoints: [{}]\n",
                19_200 + dice.random_range(0..3),
                endpoints.join(", ")
            )
        }
        _ => {
            // Two for each host, and sometimes one that is for another host.
            let other = dice.random_range(0..secrets.len());
            let own = usize::try_from(slot)? * 2 + dice.random_range(0..2);
            let (_, text) = &secrets[if dice.random_range(0..5) == 0 { other } else { own }];
            text.replace("name: any", &format!("name: {name}"))
        }
    };
    shop.write(&file, &text)
}

/// Body and secrets of each resource on a volume.
type Volume = BTreeMap<String, (Vec<u8>, Vec<String>)>;

/// Everything that was published and that the proxies run, without what depends on the past: epochs and generations.
#[derive(PartialEq)]
struct Final {
    published: Vec<(String, Value)>,
    volumes: Vec<Volume>,
    running: Vec<(Value, Value)>,
    keys: Vec<Vec<String>>,
}

async fn look(up: &Up) -> Result<Final> {
    let ask = async |socket: &std::path::Path, path: &str| -> Result<Value> {
        let reply = Connection::open_unix(socket).await?.get("localhost", path).await?;
        Ok(serde_json::from_slice(&reply.body)?)
    };
    let mut config = ask(&up.file().controller_socket, "/debug/config").await?;
    let fleets = config["fleets"].as_array_mut().context("no fleets")?;
    let mut published = Vec::new();
    for fleet in fleets {
        published.push(("root".to_owned(), fleet["root"].clone()));
        published.push(("member root".to_owned(), fleet["memberRoot"].clone()));
        for resource in fleet["resources"].as_array_mut().context("no resources")? {
            let name = resource["resource"].as_str().context("no name")?.to_owned();
            if let Some(fields) = resource.as_object_mut() {
                fields.remove("generation");
            }
            published.push((name, resource.clone()));
        }
    }
    let (mut volumes, mut running, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    for replica in 0..up.file().replicas {
        let volume = up.file().runtime_dir.join(format!("r{replica}"));
        let replay = Replay::of(&fs::read(volume.join("config.jsonl"))?);
        ensure!(replay.corrupt.is_none() && replay.open.is_none(), "a journal with an open end");
        let body = |(key, stored): (&journal::Key, &journal::Stored)| {
            let secrets = stored.secrets.iter().map(ToString::to_string).collect();
            (key.to_string(), (stored.body.to_vec(), secrets))
        };
        volumes.push(replay.resources.iter().map(body).collect());
        let socket = volume.join("admin.sock");
        let config = ask(&socket, "/v1/config").await?;
        ensure!(config["root"] == published[0].1, "replica {replica} runs another root: {config}");
        running.push((config["not_live"].clone(), ask(&socket, "/v1/upstreams").await?));
        let names = fs::read_dir(volume.join("keys"))?.map(|e| Ok(e?.file_name().to_string_lossy().into_owned()));
        let mut names = names.collect::<Result<Vec<String>>>()?;
        names.sort();
        keys.push(names);
    }
    Ok(Final { published, volumes, running, keys })
}

#[tokio::test(flavor = "multi_thread")]
async fn random_edits_disturb_nobody_and_end_where_a_cold_start_ends() -> Result<()> {
    let scene = Scene::start(Shop::copy()?, &Options::default(), |_, _| Vec::new())?;
    let mut dice = StdRng::seed_from_u64(SEED);
    let secret = |n: u32| tls_secret("shop", "any", &format!("edit-{}.example.com", n / 2));
    let secrets = (0..SLOTS * 2).map(secret).collect::<Result<Vec<_>>>()?;
    let edits = scaled(250, 10_000);
    scene.traffic.doing("random edits");
    let late = at_rate(RATE, edits, |_| edit(&scene.shop, &mut dice, &secrets))?;
    scene.up.wait()?;
    scene.traffic.doing("after the edits");
    scene.answered(50)?;
    let after_edits = look(&scene.up).await?;
    let (http, https) = (scene.up.file().http, scene.up.file().https);
    let Scene { shop, up, traffic } = scene;
    let report = traffic.stop()?;
    ensure!(!up.said().contains("panicked"), "{}", up.said());
    up.stop()?;
    eprintln!("{edits} edits at {RATE} a second (seed {SEED}, the last {late:?} late): {report}");
    assert!(report.failed.is_empty(), "requests to hosts that nobody edited failed: {:#?}", report.failed);
    assert!(report.closed.is_empty(), "kept connections were closed: {:#?}", report.closed);

    let cold = shop.state().with_extension("cold");
    let up = Up::start(&shop.manifests(), &cold, &Options { http, https, ..Options::default() })?;
    up.wait()?;
    let fresh = look(&up).await?;
    eprintln!("{} resources and {} keys at the end", fresh.published.len(), fresh.keys[0].len());
    for (after, cold) in after_edits.published.iter().zip(&fresh.published) {
        assert_eq!(after, cold, "what is published after the edits is not what a cold start publishes");
    }
    assert_eq!(after_edits.keys, fresh.keys, "keys on the volumes");
    assert_eq!(after_edits.running, fresh.running, "what the proxies run");
    assert!(after_edits == fresh, "the volumes differ");
    up.stop()
}
