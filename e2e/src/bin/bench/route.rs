//! `bench route`: from the rename of a manifest to the first request that sees it, over the shipped programs.
//!
//! The client asks without a pause on one kept connection, so a figure is at most one request too long.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use e2e::http_client::{Connection, Reply};
use e2e::process;
use http::StatusCode;
use tempfile::TempDir;

use crate::stats::{Samples, millis};

/// The host that the endpoint changes are seen on.
const MOVING: &str = "moving.example.com";
/// The two addresses that the endpoint of [`MOVING`] has in turn.
const ADDRESSES: [&str; 2] = ["127.0.31.1", "127.0.31.2"];

#[derive(Args)]
pub(crate) struct Options {
    /// Numbers of Ingresses
    #[arg(long, value_delimiter = ',', default_value = "100,1000")]
    sizes: Vec<usize>,
    /// Interleaved rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Changes of each kind in a round
    #[arg(long, default_value_t = 60)]
    changes: usize,
    /// Proxies; with more than one a connection sees only its own
    #[arg(long, default_value_t = 1)]
    replicas: u16,
}

/// One running system over a folder of its own.
struct System {
    size: usize,
    folder: TempDir,
    up: process::Up,
    serial: usize,
    added: Samples,
    moved: Samples,
    request: Samples,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(options))
}

async fn measure(options: &Options) -> Result<()> {
    println!("| Ingresses | change | p50 ms | p90 ms | p99 ms | samples |\n| --- | --- | --- | --- | --- | --- |");
    for size in &options.sizes {
        // One system at a time: two on two cores would measure each other.
        let mut system = System::start(*size, options.replicas)?;
        for _ in 0..options.rounds {
            system.round(options.changes).await?;
        }
        for (kind, samples) in
            [("new Ingress", &system.added), ("endpoint", &system.moved), ("(one request)", &system.request)]
        {
            let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| millis(samples.percentile(share)));
            println!("| {size} | {kind} | {p50} | {p90} | {p99} | {} |", options.rounds * options.changes);
        }
        system.up.stop()?;
    }
    Ok(())
}

impl System {
    fn start(size: usize, replicas: u16) -> Result<System> {
        let folder = tempfile::tempdir()?;
        let manifests = folder.path().join("manifests");
        fs::create_dir(&manifests)?;
        fs::write(manifests.join("app.yaml"), app("app", "127.0.31.3"))?;
        // Both addresses must have an echo server behind them from the start.
        fs::write(manifests.join("first.yaml"), app("first", ADDRESSES[0]))?;
        fs::write(manifests.join("second.yaml"), app("second", ADDRESSES[1]))?;
        fs::write(manifests.join("moving.yaml"), service("moving"))?;
        fs::write(manifests.join("moving-slice.yaml"), slice("moving", ADDRESSES[0]))?;
        fs::write(manifests.join("moving-ingress.yaml"), ingress("moving", MOVING, "moving"))?;
        for number in 0..size {
            let name = format!("i-{number}");
            fs::write(manifests.join(format!("{name}.yaml")), ingress(&name, &format!("{name}.example.com"), "app"))?;
        }
        let options = process::Options { replicas, ..process::Options::default() };
        let up = process::Up::start(&manifests, &folder.path().join("state"), &options)?;
        up.wait()?;
        let (added, moved, request) = Default::default();
        Ok(System { size, folder, up, serial: 0, added, moved, request })
    }

    async fn round(&mut self, changes: usize) -> Result<()> {
        for _ in 0..changes {
            self.serial += 1;
            let mut connection = Connection::open(self.up.file().http).await?;
            let start = Instant::now();
            connection.get(MOVING, "/").await?;
            self.request.add(start.elapsed());

            let (name, host) = (format!("new-{}", self.serial), format!("new-{}.example.com", self.serial));
            let file = self.prepare(&format!("{name}.yaml"), &ingress(&name, &host, "app"))?;
            let took = first(&mut connection, &host, file, |reply| reply.status == StatusCode::OK).await?;
            self.added.add(took);

            let address = ADDRESSES[self.serial % 2];
            let file = self.prepare("moving-slice.yaml", &slice("moving", address))?;
            let sees = |reply: &Reply| reply.echo("pod") == pod(address);
            self.moved.add(first(&mut connection, MOVING, file, sees).await?);

            // Back to the size that is measured.
            fs::remove_file(self.manifests().join(format!("{name}.yaml")))?;
            since(Instant::now(), &mut connection, &host, |reply| reply.status == StatusCode::NOT_FOUND).await?;
        }
        self.up.wait().with_context(|| format!("after a round with {} Ingresses", self.size))
    }

    fn manifests(&self) -> PathBuf {
        self.folder.path().join("manifests")
    }

    /// Writes a file beside its place; the rename puts it there.
    fn prepare(&self, name: &str, text: &str) -> Result<(PathBuf, PathBuf)> {
        let path = self.manifests().join(name);
        let part = path.with_extension("part");
        fs::write(&part, text)?;
        Ok((part, path))
    }
}

/// Renames, then asks until the answer fits; the time from the rename.
async fn first(
    connection: &mut Connection,
    host: &str,
    (part, path): (PathBuf, PathBuf),
    fits: impl Fn(&Reply) -> bool,
) -> Result<Duration> {
    let start = Instant::now();
    fs::rename(&part, &path).with_context(|| path.display().to_string())?;
    since(start, connection, host, fits).await
}

/// Asks until the answer fits; the time since the start.
async fn since(
    start: Instant,
    connection: &mut Connection,
    host: &str,
    fits: impl Fn(&Reply) -> bool,
) -> Result<Duration> {
    loop {
        let reply = connection.get(host, "/").await?;
        if fits(&reply) {
            return Ok(start.elapsed());
        }
        if start.elapsed() > process::SOON {
            bail!("{host}: still {} {}", reply.status, String::from_utf8_lossy(&reply.body));
        }
    }
}

fn ingress(name: &str, host: &str, service: &str) -> String {
    e2e::shop::ingress("bench", name, host, service, 80)
}

fn service(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: bench}}\nspec:\n  ports:\n  - {{name: http, \
         port: 80, targetPort: 9310}}\n"
    )
}

fn slice(service: &str, address: &str) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {service}-1, namespace: bench, labels: \
         {{kubernetes.io/service-name: {service}}}}}\naddressType: IPv4\nendpoints:\n- addresses: [{address}]\n  targetRef: {{kind: Pod, name: {pod}}}\nports:\n- \
         {{name: http, port: 9310, protocol: TCP}}\n",
        pod = pod(address)
    )
}

/// The name of the pod at an address, which its echo server answers with.
fn pod(address: &str) -> String {
    format!("pod-{}", address.replace('.', "-"))
}

/// A Service and its slice in one file.
fn app(name: &str, address: &str) -> String {
    format!("{}---\n{}", service(name), slice(name, address))
}
