//! Several controllers at a real API server, many agents that know all of them, and one real proxy under traffic.

pub mod controller;
pub mod crowd;
pub mod ground;
pub mod proxy;
pub mod relay;
mod truth;
pub mod world;

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use controller::Replica;
use crowd::Crowd;
use ground::Ground;
use kube::Client;
use proxy::Proxy;
use scalwsctl::up::echo::endpoints::Endpoint;
use scalwsctl::up::echo::server::{self, Owner};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use translate::{FleetName, FleetSettings, Settings};
use world::{STILL, World};

use crate::cluster::ControlPlane;
use crate::process::until;
use crate::traffic::{Plan, Target, Traffic};

/// Controllers.
pub const CONTROLLERS: u8 = 3;
/// Where the endpoint that nobody changes answers: an address of the control plane's own network.
const STILL_ENDPOINT: &str = "198.51.100.20";
/// The port of the proxy; the endpoint has 8080 on an address of its own.
pub(super) const HTTP: u16 = 8088;
/// How long anything may take that is not a fault.
const LIMIT: Duration = Duration::from_secs(60);

/// The whole. Everything ends when it is dropped.
pub struct Scene {
    /// Traffic to the real proxy.
    pub traffic: Traffic,
    /// The controllers, by number from 1.
    pub replicas: Vec<Replica>,
    /// The objects.
    pub world: World,
    crowd: Crowd,
    proxy: Proxy,
    client: Client,
    settings: Settings,
    _echo: JoinHandle<()>,
    /// Everything of the test's own that runs on tokio.
    pub runtime: Runtime,
    _folder: TempDir,
    /// The API server and its store.
    pub plane: ControlPlane,
}

/// How large it is, and how quick the election.
#[derive(Clone, Debug)]
pub struct Size {
    /// Agents beside the real one.
    pub agents: usize,
    /// Routes that change.
    pub routes: u64,
    /// Lease duration, renew deadline and retry period, as arguments.
    pub times: [&'static str; 3],
}

impl Scene {
    /// Starts everything and waits until all agents are current. None where this machine has no API server, which is said with
    /// the name of what is not run. This thread moves into the control plane's network.
    ///
    /// # Errors
    /// When a part does not come up.
    pub fn start(what: &str, size: &Size) -> Result<Option<Scene>> {
        let Some(ground) = Ground::start(what, size.agents + 1, size.times)? else { return Ok(None) };
        let Ground { runtime, client, common, trust, tokens, folder, plane } = ground;
        let world = runtime.block_on(World::create(client.clone(), size.routes, 2, STILL_ENDPOINT))?;
        let echo = Owner::new(Endpoint { service: "team/still".to_owned(), pod: "still".to_owned() });
        let at: SocketAddr = format!("{STILL_ENDPOINT}:8080").parse()?;
        let echo = runtime.block_on(server::open(at, echo))?;

        let replicas = (1..=CONTROLLERS).map(|number| Replica::start(runtime.handle(), number, &common));
        let replicas = replicas.collect::<Result<Vec<_>>>()?;
        let (real, played) = tokens.split_last().context("no tokens")?;
        let known: Vec<_> = (1..=CONTROLLERS).map(|number| controller::known(number).to_string()).collect();
        let ports = [controller::ENROLL, controller::PUSH];
        let proxy = Proxy::start(folder.path(), &known, ports, &trust, &fs::read_to_string(real)?)?;
        let crowd = Crowd::start(runtime.handle(), CONTROLLERS, &trust, played)?;
        let mut targets = vec![Target::http(HTTP, STILL, &["team/still"])];
        let up = until(LIMIT, "the proxy answers", || {
            Ok(runtime.block_on(crate::http_client::get(HTTP, STILL, "/")).is_ok_and(|reply| reply.status == 200))
        });
        let said = || replicas.iter().map(Replica::said).collect::<Vec<_>>().join("\n");
        up.with_context(|| format!("{}\n{}", said(), proxy.said()))?;
        targets.push(Target { path: "/deeper".to_owned(), ..targets[0].clone() });
        let traffic = Traffic::start(Plan { per_second: 50, ..Plan::of(targets) })?;
        let fleet = FleetName::new("scalws", "default");
        let ports = FleetSettings { http_port: HTTP, https_port: 8443 };
        let settings = Settings {
            fleets: [(fleet.clone(), ports)].into(),
            default_fleet: fleet,
            builtin_classes: false,
            ..Settings::local(HTTP, 8443)
        };
        let scene = Scene {
            traffic,
            replicas,
            world,
            crowd,
            proxy,
            client,
            settings,
            _echo: echo,
            runtime,
            _folder: folder,
            plane,
        };
        scene.agree()?;
        Ok(Some(scene))
    }

    /// The place of the controller that leads and serves the agents. One that just woke up may think that it leads, in an older
    /// epoch.
    ///
    /// # Errors
    /// When none does in time.
    pub fn leader(&self) -> Result<usize> {
        let mut found = None;
        until(LIMIT, "a controller leads", || {
            let epoch = self.epoch();
            let leads = |at: &usize| self.runtime.block_on(self.replicas[*at].leads_in(epoch));
            found = (0..self.replicas.len()).find(leads);
            Ok(found.is_some())
        })
        .with_context(|| self.said())?;
        found.context("none leads")
    }

    /// Waits until all controllers could take over.
    ///
    /// # Errors
    /// When one could not in time.
    pub fn all_ready(&self) -> Result<()> {
        until(LIMIT, "all controllers are ready", || {
            Ok(self.replicas.iter().all(|replica| self.runtime.block_on(replica.is_ready())))
        })
        .with_context(|| self.said())
    }

    /// Waits until all agents are served and hold exactly what a cold start over the API server's objects comes to.
    ///
    /// # Errors
    /// When they do not in time.
    pub fn agree(&self) -> Result<()> {
        let roots = self.runtime.block_on(truth::roots(&self.client, &self.settings))?;
        let (board, agents) = (self.crowd.board(), self.crowd.len());
        until(LIMIT, "all agents hold what the API server has", || Ok(board.holding(roots) == agents))
            .with_context(|| format!("{} of {agents} do: {}\n{}", board.holding(roots), board.describe(), self.said()))
    }

    /// The epoch that agents are served in.
    pub fn epoch(&self) -> u64 {
        self.crowd.board().epoch()
    }

    /// Waits until all agents are served in an epoch above this one. Gives when that was.
    ///
    /// # Errors
    /// When they are not in time.
    pub fn served_above(&self, epoch: u64) -> Result<Instant> {
        let (board, agents) = (self.crowd.board(), self.crowd.len());
        let end = Instant::now() + LIMIT;
        while board.served(epoch + 1) < agents {
            if Instant::now() > end {
                bail!(
                    "{} of {agents} are served above epoch {epoch}: {}\n{}",
                    board.served(epoch + 1),
                    board.describe(),
                    self.said()
                );
            }
            // sleep: looks again until it holds, within the limit.
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(Instant::now())
    }

    /// Transfers of configuration that came to agents so far.
    pub fn transfers(&self) -> u64 {
        self.crowd.board().counts().transfers
    }

    /// No agent ever went back, and no request failed.
    ///
    /// # Errors
    /// What did.
    pub fn end(self) -> Result<usize> {
        let said = self.said();
        let back = self.crowd.board().counts().back;
        ensure!(back == 0, "{back} times an agent was served in a lower epoch or ran something lower\n{said}");
        let report = self.traffic.stop()?;
        ensure!(report.failed.is_empty(), "{:#?}\n{said}", report.failed);
        ensure!(!said.contains("panicked"), "{said}");
        Ok(report.answered())
    }

    /// The logs of everything.
    pub fn said(&self) -> String {
        let mut said: Vec<String> = self.replicas.iter().map(Replica::said).collect();
        said.push(self.proxy.said());
        said.join("\n")
    }
}

/// How long something took, for a histogram.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Adds one.
    pub fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// The longest.
    pub fn longest(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }

    /// Least, median, longest, and how many fall into each half second.
    pub fn histogram(&self) -> String {
        let mut sorted = self.0.clone();
        sorted.sort();
        let mut counts = std::collections::BTreeMap::<u128, usize>::new();
        for time in &sorted {
            *counts.entry(time.as_millis() / 500).or_default() += 1;
        }
        let bars: Vec<String> = counts
            .iter()
            .map(|(half, count)| format!("{:.1}s:{count}", f64::from(u32::try_from(*half).unwrap_or(0)) / 2.0))
            .collect();
        let at = |place: usize| sorted.get(place).map_or(0, Duration::as_millis);
        format!(
            "{} rounds, {} / {} / {} ms; {}",
            sorted.len(),
            at(0),
            at(sorted.len() / 2),
            at(sorted.len().saturating_sub(1)),
            bars.join(" ")
        )
    }
}
