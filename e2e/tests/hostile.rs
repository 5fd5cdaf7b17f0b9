//! Hostile folders: nothing that lies in one stops the others, is lost, or makes a program panic.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use anyhow::{Result, ensure};
use e2e::http_client::get;
use e2e::process::{Options, Up};
use e2e::shop::{Shop, ingress};
use http::StatusCode;
use rustix::fs::{CWD, FileType, Mode, mknodat};

fn start(shop: &Shop) -> Result<Up> {
    let up = Up::start(&shop.manifests(), &shop.state(), &Options { replicas: 1, ..Options::default() })?;
    up.wait()?;
    Ok(up)
}

/// The folder goes on working: a new Ingress is served, an old one still is, and nothing panicked.
async fn goes_on(shop: &Shop, up: &Up, host: &str) -> Result<()> {
    shop.write("shop/after.yaml", &ingress("shop", "after", host, "web", 80))?;
    up.wait()?;
    assert_eq!(get(up.file().http, host, "/").await?.status, StatusCode::OK);
    assert_eq!(get(up.file().http, "assets.example.com", "/").await?.echo("service"), "shop/assets");
    ensure!(!up.said().contains("panicked"), "{}", up.said());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_named_and_keeps_its_last_good_objects() -> Result<()> {
    let shop = Shop::copy()?;
    shop.write("shop/mine.yaml", &ingress("shop", "mine", "mine.example.com", "web", 80))?;
    let up = start(&shop)?;
    let deep = format!("a: {}1{}", "[".repeat(20_000), "]".repeat(20_000));
    let bomb: String = (1..30).map(|n| format!("b{n}: &b{n} [*b{0}, *b{0}, *b{0}, *b{0}]\n", n - 1)).collect();
    let bomb = format!("b0: &b0 [x, x, x, x]\n{bomb}");
    for (turn, text) in ["{{{{", "a: b: c: - d", "\u{0}\u{1}", "- 1\n- 2\n", &deep, &bomb].into_iter().enumerate() {
        shop.write("shop/mine.yaml", text)?;
        up.wait()?;
        let reply = get(up.file().http, "mine.example.com", "/").await?;
        assert_eq!(reply.status, StatusCode::OK, "text {turn} took the last good Ingress away");
        ensure!(up.status()?.to_string().contains("mine.yaml"), "the status does not name the file of text {turn}");
    }
    fs::write(shop.manifests().join("shop/mine.yaml"), b"kind: \xff\xfe\n")?;
    up.wait()?;
    assert_eq!(get(up.file().http, "mine.example.com", "/").await?.status, StatusCode::OK);
    goes_on(&shop, &up, "after.example.com").await?;
    up.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_no_manifests_stop_nobody() -> Result<()> {
    let shop = Shop::copy()?;
    let up = start(&shop)?;
    let folder = shop.manifests();
    fs::write(folder.join("huge.yaml"), format!("# {}\n", "x".repeat(10 << 20)))?;
    fs::write(folder.join(OsStr::from_bytes(b"na\xffme.yaml")), ingress("shop", "odd", "odd.example.com", "web", 80))?;
    mknodat(CWD, folder.join("pipe.yaml"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    symlink(&folder, folder.join("loop"))?;
    symlink("/dev/zero", folder.join("zero.yaml"))?;
    symlink("nowhere", folder.join("dangling.yaml"))?;
    let many: String =
        (0..5_000).map(|n| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m{n}}}\n")).collect();
    fs::write(folder.join("many.yaml"), many)?;
    fs::write(folder.join("kinds.yaml"), "apiVersion: example.io/v1\nkind: Whatever\nmetadata: {name: x}\n")?;
    goes_on(&shop, &up, "after.example.com").await?;
    let status = up.status()?.to_string();
    ensure!(status.contains("huge.yaml"), "the file that is too large is not named: {status}");
    up.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_object_of_one_name_is_refused_and_the_first_stays() -> Result<()> {
    let shop = Shop::copy()?;
    shop.write("shop/first.yaml", &ingress("shop", "twin", "twin.example.com", "web", 80))?;
    let up = start(&shop)?;
    shop.write("shop/second.yaml", &ingress("shop", "twin", "twin.example.com", "assets", 8080))?;
    up.wait()?;
    assert_eq!(get(up.file().http, "twin.example.com", "/").await?.echo("service"), "shop/web");
    ensure!(up.status()?.to_string().contains("second.yaml"), "the second file is not named");
    let one = ingress("shop", "twice", "twice.example.com", "web", 80);
    shop.write("shop/twice.yaml", &format!("{one}---\n{one}"))?;
    up.wait()?;
    ensure!(up.status()?.to_string().contains("twice.yaml"), "an object that stands twice in a file is not named");
    // When the first goes, the second may take its place.
    shop.remove("shop/first.yaml")?;
    up.wait()?;
    assert_eq!(get(up.file().http, "twin.example.com", "/").await?.echo("service"), "shop/assets");
    goes_on(&shop, &up, "after.example.com").await?;
    up.stop()
}
