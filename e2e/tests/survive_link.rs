//! The link between controller and agents is cut without a reset: it is noticed, and what was missed comes when it is whole.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::http_client::Connection;
use e2e::process::{Options, Up, until};
use e2e::shop::{Shop, ingress};
use serde_json::Value;

/// Within this a cut link is noticed: three heartbeats, and one second.
const NOTICED: Duration = Duration::from_secs(16);
/// Within this the agents are connected again: their longest pause between two tries, and a second.
const WHOLE: Duration = Duration::from_secs(20);

/// A network of its own, until it is dropped.
struct Network(String);

impl Network {
    fn new() -> Option<Network> {
        let network = Network(format!("scalws-e2e-{}", std::process::id()));
        let made = network.ip(&["netns", "add", &network.0]) && network.link("up");
        made.then_some(network)
    }

    fn ip(&self, words: &[&str]) -> bool {
        Command::new("ip").args(words).output().is_ok_and(|output| output.status.success())
    }

    /// Without the loopback interface packets are lost and no connection is reset.
    fn link(&self, state: &str) -> bool {
        self.ip(&["-n", &self.0, "link", "set", "lo", state])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.ip(&["netns", "delete", &self.0]);
    }
}

/// How many agents the controller takes for connected.
async fn connected(up: &Up) -> Result<usize> {
    let reply = Connection::open_unix(&up.file().controller_socket).await?.get("localhost", "/debug/agents").await?;
    let view: Value = serde_json::from_slice(&reply.body)?;
    let agents =
        view["fleets"].as_array().into_iter().flatten().filter_map(|fleet| fleet["agents"].as_array()).flatten();
    Ok(agents.filter(|agent| agent["connected"] == true).count())
}

#[test]
fn a_link_that_is_cut_is_noticed_and_what_was_missed_comes_when_it_is_whole() -> Result<()> {
    eprintln!("not run: 200 ms of delay and 5 % of loss (this kernel's packets cannot be delayed without sch_netem)");
    let Some(network) = Network::new() else {
        eprintln!("not run: a cut link (no network namespace can be made; it needs root and iproute2)");
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shop = Shop::copy()?;
    let within = ["ip", "netns", "exec", &network.0].map(str::to_owned).to_vec();
    let up = Up::start(&shop.manifests(), &shop.state(), &Options { within, ..Options::default() })?;
    up.wait()?;
    let children = up.children();
    ensure!(runtime.block_on(connected(&up))? == 2, "both agents are connected before");

    ensure!(network.link("down"), "the link cannot be cut");
    let cut = Instant::now();
    shop.write("shop/new.yaml", &ingress("shop", "new", "new.example.com", "web", 80))?;
    until(NOTICED, "the controller notices that the link is cut", || Ok(runtime.block_on(connected(&up))? == 0))?;
    let noticed = cut.elapsed();
    ensure!(up.wait_output("200ms")?.status.code() == Some(1), "a change is live over a cut link");

    ensure!(network.link("up"), "the link cannot be healed");
    let whole = Instant::now();
    until(WHOLE, "both agents are connected again", || Ok(runtime.block_on(connected(&up))? == 2))?;
    up.wait()?;
    eprintln!("cut: noticed after {noticed:?}; whole: everything live after {:?}", whole.elapsed());
    ensure!(up.children() == children, "a process was started again\n{}", up.said());
    up.stop()
}
