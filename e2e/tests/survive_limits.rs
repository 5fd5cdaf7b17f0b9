//! A volume that is full, a state directory that cannot be written, no descriptors: said clearly, served on, mended by itself.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::http_client::get;
use e2e::machine::descriptors::allow_more;
use e2e::machine::not_run::not_run;
use e2e::process::{Options, SOON, Up, send, until};
use e2e::shop::{Shop, ingress, ingress_tls, tls_secret};
use e2e::traffic::scene::Scene;
use http::StatusCode;
use rustix::process::Signal;

/// A file system in memory at a path, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    /// None, and why is said, when this user may not mount.
    fn new(path: &Path, options: &str, what: &str) -> Option<Mounted> {
        Mounted::by(&["-t", "tmpfs", "-o", options, "tmpfs"], path, what)
    }

    /// The same files once more at the same place, where they cannot be written. Who has one open goes on writing it.
    fn read_only(path: &Path, what: &str) -> Result<Option<Mounted>> {
        let mounted = Mounted::by(&["--bind", &path.display().to_string()], path, what);
        if mounted.is_some() {
            let done = Command::new("mount").args(["-o", "remount,bind,ro"]).arg(path).status()?;
            ensure!(done.success(), "remount: {done}");
        }
        Ok(mounted)
    }

    fn by(arguments: &[&str], path: &Path, what: &str) -> Option<Mounted> {
        match Command::new("mount").args(arguments).arg(path).output() {
            Ok(output) if output.status.success() => Some(Mounted(path.to_owned())),
            other => {
                not_run(what, &format!("a file system cannot be mounted: {other:?}"));
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn nothing_failed(scene: Scene, what: &str) -> Result<()> {
    let report = scene.end()?;
    eprintln!("{what}: {report}");
    assert!(report.failed.is_empty(), "{what}: {:#?}", report.failed);
    assert!(report.closed.is_empty(), "{what}: {:#?}", report.closed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_volume_keeps_what_it_has_and_takes_the_rest_when_there_is_room() -> Result<()> {
    let shop = Shop::copy()?;
    let up = Up::start(&shop.manifests(), &shop.state(), &Options { replicas: 1, ..Options::default() })?;
    up.wait()?;
    let volume = up.file().runtime_dir.join("r0");
    let Some(small) = Mounted::new(&volume, "size=512k,mode=0700", "the volume is full") else { return up.stop() };
    // Both begin anew on the small one.
    for (program, argument) in [("scalws-agent", "replica-0"), ("scalwsd", "/r0")] {
        let victim = up.find(program, argument)?;
        send(victim.pid, Signal::KILL)?;
        until(SOON, "it is started again", || Ok(up.find(program, argument).is_ok_and(|c| c.pid != victim.pid)))?;
    }
    up.wait()?;
    let scene = Scene::over(shop, up, |_, _| Vec::new())?;

    scene.traffic.doing("the volume is full");
    let filler = volume.join("filler");
    let mut file = fs::File::create(&filler)?;
    while file.write_all(&[0; 4096]).is_ok() {}
    while file.write_all(&[0]).is_ok() {}
    let (_, secret) = tls_secret("shop", "late", "late.example.com")?;
    scene.shop.write("shop/late.yaml", &secret)?;
    scene.shop.write("shop/late-ingress.yaml", &ingress_tls("shop", "late", "late.example.com", "web", 80, "late"))?;
    let waited = scene.up.wait_output("1500ms")?;
    let said = e2e::process::stderr(&waited);
    ensure!(waited.status.code() == Some(1), "wait says that it is live on a full volume: {}", waited.status);
    ensure!(said.contains("replica-0"), "wait does not name who lags: {said}");
    let refusing = scene.controller_metric("scalws_controller_agents", "state=\"refusing\"").await?;
    ensure!(refusing == 1.0, "{refusing} agents are counted as refusing\n{}", scene.up.said());
    ensure!(scene.up.said().contains("the volume cannot be written"), "{}", scene.up.said());
    // A proxy that dies now comes back on what was accepted last.
    scene.answered(200)?;

    scene.traffic.doing("there is room again");
    drop(file);
    fs::remove_file(&filler)?;
    scene.up.wait()?;
    let answer = get(scene.up.file().http, "late.example.com", "/").await?;
    ensure!(answer.status.is_redirection(), "the host with TLS is live: {answer:?}");
    let refusing = scene.controller_metric("scalws_controller_agents", "state=\"refusing\"").await?;
    ensure!(refusing == 0.0, "{refusing} agents are still counted as refusing");
    scene.answered(50)?;
    drop(small);
    nothing_failed(scene, "the volume is full")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_directory_that_cannot_be_written_stops_no_change_and_no_request() -> Result<()> {
    let shop = Shop::copy()?;
    let scene = Scene::start(shop, &Options::default(), |_, _| Vec::new())?;
    scene.traffic.doing("the state directory is read-only");
    let path = scene.shop.state();
    let Some(state) = Mounted::read_only(&path, "the state directory is read-only")? else { return scene.up.stop() };
    scene.shop.write("shop/new.yaml", &ingress("shop", "new", "new.example.com", "web", 80))?;
    scene.up.wait()?;
    for _ in 0..6 {
        let service = get(scene.up.file().http, "new.example.com", "/").await?.echo("service");
        assert_eq!(service, "shop/web", "a change is live without a state directory");
    }
    until(SOON, "it is said that the state cannot be written", || {
        Ok(scene.up.said().contains("Read-only file system"))
    })?;
    let failures = scene.controller_metric("scalws_controller_state_write_failures_total", "").await?;
    ensure!(failures >= 1.0, "no metric counts that the state cannot be written");
    // A new controller cannot raise the epoch, and serves nobody until it can; the proxies go on.
    scene.traffic.doing("the controller cannot start");
    let (_, _) = scene.kill("scalws-controller", "")?;
    scene.answered(200)?;
    ensure!(scene.up.wait_output("300ms")?.status.code() == Some(1), "a controller without an epoch serves");
    scene.traffic.doing("the state directory can be written again");
    drop(state);
    scene.up.wait()?;
    scene.shop.remove("shop/new.yaml")?;
    scene.up.wait()?;
    scene.answered(50)?;
    let report = scene.traffic.stop()?;
    eprintln!("the state directory is read-only: {report}");
    assert!(report.failed.is_empty() && report.closed.is_empty(), "{:#?} {:#?}", report.failed, report.closed);
    scene.up.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_without_descriptors_serves_what_is_open_and_the_rest_when_it_can() -> Result<()> {
    let options = Options { replicas: 1, ..Options::default() };
    let scene = Scene::start(Shop::copy()?, &options, |_, _| Vec::new())?;
    let proxy = scene.up.find("scalwsd", "/r0")?;
    scene.traffic.doing("scalwsd has no descriptors left");
    allow_more(&proxy, Some(6))?;
    let port = scene.up.file().http;
    let crowd = (0..40).map(|_| Ok(TcpStream::connect(("127.0.0.1", port))?)).collect::<Result<Vec<_>>>()?;
    // Its admin API gets no descriptor either; its log says it.
    until(SOON, "it is said", || Ok(scene.up.said().contains("connections cannot be accepted now")))?;
    scene.traffic.doing("the crowd is gone");
    drop(crowd);
    // The limit stays as it is: there is room because others went.
    scene.answered(100)?;
    scene.traffic.doing("the limit is lifted");
    allow_more(&proxy, None)?;
    scene.up.wait()?;
    let pauses = scene.proxy_metric(0, "scalwsd_accept_pauses_total", "").await?;
    ensure!(pauses > 0.0, "the pauses are not counted");
    scene.answered(50)?;
    let report = scene.end()?;
    eprintln!("scalwsd without descriptors: {report}, {pauses} pauses");
    let rest = report.unexplained(|failed| &*failed.doing != "the limit is lifted");
    for failed in &report.failed {
        eprintln!("{failed:?}");
    }
    assert!(rest.len() == report.failed.len(), "it did not recover: {:#?}", report.failed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_or_agent_without_descriptors_changes_nothing_and_catches_up_by_itself() -> Result<()> {
    let scene = Scene::start(Shop::copy()?, &Options { replicas: 1, ..Options::default() }, |_, _| Vec::new())?;
    for (number, (program, argument)) in
        [("scalws-controller", ""), ("scalws-agent", "replica-0")].into_iter().enumerate()
    {
        scene.traffic.doing(&format!("{program} has no descriptors left"));
        let process = scene.up.find(program, argument)?;
        allow_more(&process, Some(0))?;
        let (name, host) = (format!("late-{number}"), format!("late-{number}.example.com"));
        let (_, secret) = tls_secret("shop", &name, &host)?;
        let route = ingress_tls("shop", &name, &host, "web", 80, &name);
        scene.shop.write(&format!("shop/{name}.yaml"), &format!("{secret}---\n{route}"))?;
        let waited = scene.up.wait_output("500ms")?;
        ensure!(waited.status.code() == Some(1), "{program} needs no descriptor for a new key: {}", waited.status);
        // What could not be read must not be taken for gone.
        scene.answered(150)?;
        scene.traffic.doing(&format!("{program} has descriptors again"));
        allow_more(&process, None)?;
        scene.up.wait().with_context(|| format!("after {program} had no descriptors"))?;
        let mut last = StatusCode::OK;
        for _ in 0..4 {
            last = get(scene.up.file().http, &host, "/").await?.status;
        }
        ensure!(last.is_redirection(), "{host} answers {last} after {program} caught up\n{}", scene.up.said());
        ensure!(scene.up.find(program, argument)? == process, "{program} was started again");
        scene.answered(50)?;
    }
    nothing_failed(scene, "controller and agent without descriptors")
}
