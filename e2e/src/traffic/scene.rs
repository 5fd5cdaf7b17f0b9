//! The running example under traffic, and what a test does to it: signals, metrics, how large a run is.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::StatusCode;
use rustix::process::Signal;

use super::{Plan, Report, Target, Traffic, Trusted};
use crate::http_client::Connection;
use crate::process::{Below, Options, SOON, Up, send, until};
use crate::shop::Shop;

/// The variable that says how much of the full length a run has: 0 (the short form, when it is missing) to 1.
pub const SCALE: &str = "SCALWS_SURVIVE";

/// A number between that of the short form and that of the full one, as [`SCALE`] says.
pub fn scaled(short: u32, full: u32) -> u32 {
    let scale = std::env::var(SCALE).ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0).clamp(0.0, 1.0);
    // Between two numbers of 32 bits.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let more = (f64::from(full.saturating_sub(short)) * scale) as u32;
    short + more
}

/// `examples/shop` under traffic to hosts that the test leaves alone.
#[derive(Debug)]
pub struct Scene {
    /// The example.
    pub shop: Shop,
    /// The programs.
    pub up: Up,
    /// The traffic.
    pub traffic: Traffic,
}

impl Scene {
    /// Starts the example and traffic to hosts of it, HTTP and HTTPS, and to `more`, which is told the ports.
    ///
    /// # Errors
    /// When it does not start or does not become live.
    pub fn start(shop: Shop, options: &Options, more: impl FnOnce(u16, u16) -> Vec<Target>) -> Result<Scene> {
        let up = Up::start(&shop.manifests(), &shop.state(), options)?;
        up.wait()?;
        Scene::over(shop, up, more)
    }

    /// The same over programs that run.
    ///
    /// # Errors
    /// When requests are not answered.
    pub fn over(shop: Shop, up: Up, more: impl FnOnce(u16, u16) -> Vec<Target>) -> Result<Scene> {
        let (http, https) = (up.file().http, up.file().https);
        let mut targets = untouched(&shop, http, https)?;
        targets.extend(more(http, https));
        let scene = Scene { traffic: Traffic::start(Plan::of(targets))?, shop, up };
        scene.answered(100)?;
        Ok(scene)
    }

    /// Waits for so many more answers, so that there is traffic while something is in a state.
    ///
    /// # Errors
    /// When they do not come in time.
    pub fn answered(&self, more: usize) -> Result<()> {
        let wanted = self.traffic.answered() + more;
        let limit = SOON + Duration::from_millis(10) * u32::try_from(more).unwrap_or(u32::MAX);
        until(limit, "requests are answered", || Ok(self.traffic.answered() >= wanted)).with_context(|| self.up.said())
    }

    /// Kills a program and waits until it is gone. Gives who it was, and when it was gone.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn kill(&self, program: &str, argument: &str) -> Result<(Below, Duration)> {
        let victim = self.up.find(program, argument)?;
        send(victim.pid, Signal::KILL)?;
        // Its sockets are closed when its last thread ends; after that it is reaped, and has no entry any more.
        let entry = format!("/proc/{}", victim.pid);
        until(SOON, "the process is gone", || Ok(!Path::new(&entry).exists()))?;
        Ok((victim, self.traffic.now()))
    }

    /// Waits until a program runs again after it was killed.
    ///
    /// # Errors
    /// When it does not.
    pub fn is_back(&self, victim: &Below, argument: &str) -> Result<Below> {
        let program = victim.command.first().map(|path| path.rsplit('/').next().unwrap_or_default().to_owned());
        let program = program.context("no program")?;
        let mut found = None;
        until(SOON, &format!("{program} is started again"), || {
            found = self.up.find(&program, argument).ok().filter(|now| now.pid != victim.pid);
            Ok(found.is_some())
        })
        .with_context(|| self.up.said())?;
        found.context("it is gone again")
    }

    /// Ends everything in order, and gives what the traffic met. No process may have panicked.
    ///
    /// # Errors
    /// When it does not end cleanly.
    pub fn end(self) -> Result<Report> {
        let report = self.traffic.stop()?;
        ensure!(!self.up.said().contains("panicked"), "{}", self.up.said());
        self.up.stop()?;
        Ok(report)
    }

    /// The sum of a metric of the controller over all its labels in `labels`, such as `lane="members"`; all when empty.
    ///
    /// # Errors
    /// When the controller does not answer.
    pub async fn controller_metric(&self, name: &str, labels: &str) -> Result<f64> {
        metric(&self.up.file().controller_socket, name, labels).await
    }

    /// The same of a replica's `scalwsd`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn proxy_metric(&self, replica: u16, name: &str, labels: &str) -> Result<f64> {
        metric(&self.up.file().runtime_dir.join(format!("r{replica}/admin.sock")), name, labels).await
    }

    /// The names of the key files on a replica's volume.
    ///
    /// # Errors
    /// When the volume cannot be read.
    pub fn keys(&self, replica: u16) -> Result<Vec<String>> {
        let folder = self.up.file().runtime_dir.join(format!("r{replica}/keys"));
        let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }
}

/// Targets that no test changes.
fn untouched(shop: &Shop, http: u16, https: u16) -> Result<Vec<Target>> {
    let (shop_pem, blog_pem) = (shop.certificate("shop/certificate.yaml")?, shop.certificate("blog/certificate.yaml")?);
    Ok(vec![
        Target::http(http, "assets.example.com", &["shop/assets"]),
        Target::https(https, "shop.example.com", &["shop/web"], &Trusted::only(&shop_pem)?),
        Target::https(https, "blog.example.com", &["blog/blog"], &Trusted::only(&blog_pem)?),
    ])
}

/// The sum of a metric on a unix socket.
///
/// # Errors
/// When nobody answers there.
pub async fn metric(socket: &Path, name: &str, labels: &str) -> Result<f64> {
    let reply = Connection::open_unix(socket).await?.get("localhost", "/metrics").await?;
    ensure!(reply.status == StatusCode::OK, "{reply:?}");
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    let lines = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name) && line.contains(labels));
    Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

/// Runs something again and again at a fixed rate, on this thread; gives how late the last one was.
///
/// # Errors
/// When one of them fails.
pub fn at_rate(per_second: u32, count: u32, mut step: impl FnMut(u32) -> Result<()>) -> Result<Duration> {
    let began = Instant::now();
    let mut late = Duration::ZERO;
    for number in 0..count {
        let due = began + Duration::from_secs(1) * number / per_second;
        late = due.elapsed();
        // sleep: the rate is the input of the test.
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        step(number)?;
    }
    Ok(late)
}

#[cfg(test)]
mod tests {
    use super::scaled;

    #[test]
    fn without_a_scale_a_run_is_short() {
        if std::env::var_os(super::SCALE).is_none() {
            assert_eq!(scaled(3, 1_000), 3);
        }
        assert!((3..=1_000).contains(&scaled(3, 1_000)));
    }
}
