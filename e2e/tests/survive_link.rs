//! The link between controller and agents is cut without a reset: it is noticed, and what was missed comes when it is whole.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::http_client::Connection;
use e2e::machine::network::Network;
use e2e::machine::not_run::not_run;
use e2e::process::{Options, Up, until};
use e2e::shop::{Shop, ingress};
use serde_json::Value;

/// Within this a cut link is noticed: three heartbeats, and one second.
const NOTICED: Duration = Duration::from_secs(16);
/// Within this the agents are connected again: their longest pause between two tries, and a second.
const WHOLE: Duration = Duration::from_secs(20);

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
    let Some(network) = Network::new(true) else {
        not_run("a cut link", "no network namespace can be made; it needs root and iproute2");
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shop = Shop::copy()?;
    let within = network.within().map(str::to_owned).to_vec();
    let up = Up::start(&shop.manifests(), &shop.state(), &Options { within, ..Options::default() })?;
    up.wait()?;
    let children = up.children();
    ensure!(runtime.block_on(connected(&up))? == 2, "both agents are connected before");

    // Without the loopback interface packets are lost and no connection is reset.
    network.ip(&["link", "set", "lo", "down"])?;
    let cut = Instant::now();
    shop.write("shop/new.yaml", &ingress("shop", "new", "new.example.com", "web", 80))?;
    until(NOTICED, "the controller notices that the link is cut", || Ok(runtime.block_on(connected(&up))? == 0))?;
    let noticed = cut.elapsed();
    ensure!(up.wait_output("200ms")?.status.code() == Some(1), "a change is live over a cut link");

    network.ip(&["link", "set", "lo", "up"])?;
    let whole = Instant::now();
    until(WHOLE, "both agents are connected again", || Ok(runtime.block_on(connected(&up))? == 2))?;
    up.wait()?;
    eprintln!("cut: noticed after {noticed:?}; whole: everything live after {:?}", whole.elapsed());
    ensure!(up.children() == children, "a process was started again\n{}", up.said());
    up.stop()
}
