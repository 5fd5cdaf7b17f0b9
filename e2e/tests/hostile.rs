//! Hostile folders: nothing that lies in one stops the others, is lost, or makes a program panic.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::http_client::get;
use e2e::process::{Options, SOON, Up, scalwsctl, send, stderr, until};
use e2e::shop::{Shop, ingress};
use http::StatusCode;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::process::Signal;

fn start(shop: &Shop) -> Result<Up> {
    let up = Up::start(&shop.manifests(), &shop.state(), &Options { replicas: 1, ..Options::default() })?;
    up.wait()?;
    Ok(up)
}

/// The folder goes on working: a new Ingress is served, an old one still is, and nothing panicked.
async fn goes_on(shop: &Shop, up: &Up, host: &str) -> Result<()> {
    shop.write("shop/after.yaml", &ingress("shop", "after", host, "web", 80))?;
    up.wait()?;
    assert_eq!(get(up.file().http, host, "/").await?.echo("service"), "shop/web");
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
    let good = ingress("shop", "mine", "mine.example.com", "web", 80);
    let texts = [
        ("{{{{".to_owned(), "not valid YAML at line 1"),
        ("a: b: c: - d".to_owned(), "not valid YAML at line 1"),
        ("\u{0}\u{1}".to_owned(), "not valid YAML at line 1"),
        ("- 1\n- 2\n".to_owned(), "every object must say its apiVersion and kind"),
        ("7\n".to_owned(), "every object must say its apiVersion and kind"),
        (deep.replace("a: ", ""), "not valid YAML at line 1"),
        (format!("{{\"a\": {}1{}}}", "{\"a\":".repeat(20_000), "}".repeat(20_000)), "not valid YAML at line 1"),
        (deep, "not valid YAML at line 1"),
        (bomb, "not valid YAML at line"),
        ("---\n- [\n".repeat(1 << 20), "at most 50000 are read"),
        (format!("{good}---\n{good}"), "is already in document 1 of this file"),
        (good.replace("kind: Ingress", "kind: [Ingress]"), "every object must say its apiVersion and kind"),
        (good.replace("  rules:", "  rules: 7\n  x:"), "spec.rules"),
        (good.replace("host: mine", "host: {a: b}\n    x: mine"), "spec.rules[0].host"),
        (good.replace("number: 80", "number: 1e999"), "a number that is not finite"),
        (good.replace("name: mine", "name: \"mi\\u001b[31mne\""), "must be a name of lower-case letters"),
    ];
    for (turn, (text, word)) in texts.into_iter().enumerate() {
        shop.write("shop/mine.yaml", &text)?;
        up.wait()?;
        let reply = get(up.file().http, "mine.example.com", "/").await?;
        assert_eq!(reply.echo("service"), "shop/web", "text {turn} took the last good Ingress away");
        let events = up.events("File//shop/mine.yaml").with_context(|| format!("text {turn}"))?;
        ensure!(events.iter().any(|e| e.starts_with("Warning ") && e.contains(word)), "text {turn}: {events:?}");
    }
    ensure!(!up.said().contains('\u{1b}'), "a control character of a manifest reached the log");
    fs::write(shop.manifests().join("shop/mine.yaml"), b"kind: \xff\xfe\n")?;
    up.wait()?;
    assert_eq!(get(up.file().http, "mine.example.com", "/").await?.echo("service"), "shop/web");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_good_file_that_becomes_something_else_keeps_its_objects() -> Result<()> {
    let shop = Shop::copy()?;
    let good = ingress("shop", "mine", "mine.example.com", "web", 80);
    shop.write("shop/mine.yaml", &good)?;
    let up = start(&shop)?;
    let path = shop.manifests().join("shop/mine.yaml");
    let part = shop.manifests().join("shop/mine.part");
    let socket = UnixListener::bind(shop.state().join("socket"))?;
    fs::write(shop.state().join("outside.yaml"), &good)?;
    let kinds: [(&str, &dyn Fn() -> Result<()>); 5] = [
        ("pipe", &|| Ok(mknodat(CWD, &part, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?)),
        ("socket", &|| Ok(fs::hard_link(shop.state().join("socket"), &part)?)),
        ("link to a device", &|| Ok(symlink("/dev/zero", &part)?)),
        ("link that leads out", &|| Ok(symlink(shop.state().join("outside.yaml"), &part)?)),
        ("link to itself", &|| Ok(symlink("mine.yaml", &part)?)),
    ];
    for (what, make) in kinds {
        make().with_context(|| what.to_owned())?;
        fs::rename(&part, &path)?;
        up.wait()?;
        let events = up.events("File//shop/mine.yaml").with_context(|| what.to_owned())?;
        ensure!(events.iter().any(|e| e.contains("what it held before stays in force")), "{what}: {events:?}");
        assert_eq!(get(up.file().http, "mine.example.com", "/").await?.echo("service"), "shop/web", "{what}");
    }
    drop(socket);
    shop.write("shop/mine.yaml", &good.replace("web", "assets").replace("number: 80", "number: 8080"))?;
    up.wait()?;
    assert_eq!(get(up.file().http, "mine.example.com", "/").await?.echo("service"), "shop/assets", "mended");
    ensure!(up.events("File//shop/mine.yaml").is_err(), "the finding is still there");
    goes_on(&shop, &up, "after.example.com").await?;
    up.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_too_deep_to_name_stop_nobody() -> Result<()> {
    let shop = Shop::copy()?;
    let up = start(&shop)?;
    let deep = shop.manifests().join("d/".repeat(200));
    fs::create_dir_all(&deep)?;
    fs::write(deep.join("deep.yaml"), ingress("shop", "deep", "deep.example.com", "web", 80))?;
    // Deeper than any path may be long (PATH_MAX, limits.h): only made folder by folder.
    let name = "x".repeat(250);
    let mut folder = rustix::fs::open(shop.manifests(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for _ in 0..20 {
        rustix::fs::mkdirat(&folder, &name, Mode::RWXU)?;
        folder = rustix::fs::openat(&folder, &name, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    }
    up.wait()?;
    assert_eq!(get(up.file().http, "deep.example.com", "/").await?.echo("service"), "shop/web");
    goes_on(&shop, &up, "after.example.com").await?;
    up.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_as_large_as_may_be_holds_no_change_of_others_up() -> Result<()> {
    let shop = Shop::copy()?;
    let up = start(&shop)?;
    let object = |n: usize| format!("---\napiVersion: v1\nkind: Nothing\nmetadata: {{name: m{n}}}\nspec: [\n");
    shop.write("flood.yaml", &(0..50_000).map(object).collect::<String>())?;
    shop.write("many.yaml", &(0..20_000).map(object).map(|o| o.replace("spec: [\n", "")).collect::<String>())?;
    let begin = Instant::now();
    goes_on(&shop, &up, "after.example.com").await?;
    ensure!(begin.elapsed() < Duration::from_secs(10), "a change of somebody else took {:?}", begin.elapsed());
    let events = up.events("File//flood.yaml")?;
    ensure!(events.len() == 1_001 && events[1_000].contains("49000 more findings"), "{:?}", events.last());
    let length = up.status()?.to_string().len();
    ensure!(length < 2 << 20, "the status has {length} bytes");
    up.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_goes_away_and_comes_back_loses_nothing() -> Result<()> {
    let shop = Shop::copy()?;
    let up = start(&shop)?;
    let generation = |up: &Up| anyhow::Ok(up.status()?["fleets"][0]["generation"].clone());
    let before = generation(&up)?;
    let away = shop.manifests().with_extension("away");
    fs::rename(shop.manifests(), &away)?;
    let begin = Instant::now();
    let held = up.wait_output("60s")?;
    ensure!(begin.elapsed() < SOON, "a wait for a held world took {:?}", begin.elapsed());
    let said = stderr(&held);
    assert_eq!(held.status.code(), Some(3), "{said}");
    ensure!(said.contains(&format!("scalwsctl confirm --state {}", shop.state().display())), "{said}");
    ensure!(up.status()?["held"].is_string(), "the status does not say that the world is held");
    assert_eq!(get(up.file().http, "assets.example.com", "/").await?.echo("service"), "shop/assets");
    fs::rename(&away, shop.manifests())?;
    up.wait()?;
    ensure!(up.status()?["held"].is_null(), "still held");
    assert_eq!(generation(&up)?, before, "nothing was published meanwhile");
    goes_on(&shop, &up, "after.example.com").await?;
    up.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_folder_is_served_as_such_unless_a_controller_finds_it_after_its_restart() -> Result<()> {
    let shop = Shop::copy()?;
    let full = shop.manifests().with_extension("full");
    fs::rename(shop.manifests(), &full)?;
    fs::create_dir(shop.manifests())?;
    // Nothing was in force: an empty folder is what somebody wants.
    let up = start(&shop)?;
    let is_empty = |up: &Up| anyhow::Ok(up.status()?["objects"].as_array().is_some_and(Vec::is_empty));
    ensure!(is_empty(&up)?, "an empty folder has objects");
    fs::rename(full.join("shop"), shop.manifests().join("shop"))?;
    up.wait()?;
    // The echo servers follow the folder on their own, a little later than the proxies.
    let begin = Instant::now();
    while get(up.file().http, "assets.example.com", "/").await?.echo("service") != "shop/assets" {
        ensure!(begin.elapsed() < SOON, "what came into the empty folder is not served\n{}", up.said());
    }
    // How much is in force is written down beside the pushes, and needed below.
    let remembered = || {
        let text = fs::read_to_string(shop.state().join("status/last.json")).unwrap_or_default();
        let memory: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        Ok(memory["objects"].as_u64().is_some_and(|objects| objects > 0))
    };
    until(SOON, "it is written down how much is in force", remembered)?;

    // Nobody sees the folder become empty.
    let controller = up.find("scalws-controller", "")?;
    send(controller.pid, Signal::STOP)?;
    fs::rename(shop.manifests().join("shop"), full.join("shop"))?;
    send(controller.pid, Signal::KILL)?;
    until(SOON, "the controller is started again", || {
        Ok(up.find("scalws-controller", "").is_ok_and(|c| c.pid != controller.pid))
    })?;
    let begin = Instant::now();
    let held = up.wait_output("60s")?;
    ensure!(begin.elapsed() < SOON, "a wait for a held world took {:?}", begin.elapsed());
    assert_eq!(held.status.code(), Some(3), "{}", stderr(&held));
    // The echo servers went with their manifests; the route did not.
    let reply = get(up.file().http, "assets.example.com", "/").await?;
    ensure!(reply.status != StatusCode::NOT_FOUND, "{reply:?}");
    let confirmed = scalwsctl(["confirm", "--state", &shop.state().display().to_string()])?;
    ensure!(confirmed.status.success(), "{}", stderr(&confirmed));
    up.wait()?;
    ensure!(is_empty(&up)?, "an empty folder has objects");
    assert_eq!(get(up.file().http, "assets.example.com", "/").await?.status, StatusCode::NOT_FOUND);
    up.stop()
}
