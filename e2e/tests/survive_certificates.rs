//! A certificate is rotated again and again while somebody shakes hands every 10 ms: never a wrong one, no old key stays.

use anyhow::{Result, ensure};
use e2e::process::Options;
use e2e::shop::{Shop, ingress_tls, tls_secret};
use e2e::traffic::scene::{Scene, scaled};
use e2e::traffic::{Plan, Target, Traffic, Trusted};

const HOST: &str = "rotating.example.com";

#[test]
fn a_certificate_that_is_rotated_is_the_right_one_in_every_handshake() -> Result<()> {
    let shop = Shop::copy()?;
    let (certificate, text) = tls_secret("shop", "rotating", HOST)?;
    let trusted = Trusted::only(&certificate)?;
    shop.write("shop/rotating.yaml", &text)?;
    shop.write("shop/rotating-ingress.yaml", &ingress_tls("shop", "rotating", HOST, "web", 80, "rotating"))?;
    let scene = Scene::start(shop, &Options::default(), |_, _| Vec::new())?;
    let target = Target::https(scene.up.file().https, HOST, &["shop/web"], &trusted);
    // Every request has a connection of its own: one handshake every 10 ms.
    let hands = Traffic::start(Plan { per_second: 100, kept: 0, ..Plan::of(vec![target]) })?;
    let keys = scene.keys(0)?.len();
    let rotations = scaled(120, 1_000);
    for turn in 1..=rotations {
        let (certificate, text) = tls_secret("shop", "rotating", HOST)?;
        // From now on the new one may be shown; only when it is acknowledged, the old ones may not any more.
        trusted.also(&certificate)?;
        scene.shop.write("shop/rotating.yaml", &text)?;
        // Some come in bursts, before the last one is acknowledged.
        if turn % 4 == 0 || turn == rotations {
            scene.up.wait()?;
            trusted.newest_only();
            scene.answered(4)?;
        }
    }
    for replica in 0..2 {
        let left = scene.keys(replica)?;
        ensure!(left.len() == keys, "replica {replica} has {left:?}, where {keys} are used");
    }
    let hands = hands.stop()?;
    let report = scene.end()?;
    eprintln!("{rotations} rotations; handshakes: {hands}\nothers: {report}");
    ensure!(hands.answered() > 50, "only {} handshakes", hands.answered());
    assert!(hands.failed.is_empty(), "{:#?}", hands.failed);
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    assert!(report.closed.is_empty(), "{:#?}", report.closed);
    Ok(())
}
