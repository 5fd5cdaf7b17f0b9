//! `cargo xtask cluster`: a real Kubernetes on this machine, for tests and people: built from pinned modules, up in seconds.

mod build;
mod key;
mod machine;
mod programs;
mod scripts;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};

use self::programs::Mode;
use crate::repository;

/// What holds for every verb, at the end of its help.
const CODES: &str =
    "Exit codes: 0 done, 1 failed or something is missing (which, and how to get it, is said), 2 wrong arguments.";

/// The settings of `cluster`.
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

impl Options {
    /// What tests need, whether it can be had or not.
    pub(crate) fn for_tests() -> Options {
        Options { verb: Verb::BuildForTests }
    }
}

#[derive(Subcommand)]
enum Verb {
    /// Build the programs, once for as long as what they are made of is the same
    #[command(after_help = format!("Examples:
  cargo xtask cluster build --control-plane   the API alone: enough for all tests but those of containers
  cargo xtask cluster build                   what a node needs too

They go to target/cluster/<key>/bin, to which target/cluster/current points. Needs Go; as root, Debian packages that are \
missing are installed.

{CODES}"))]
    Build(BuildOptions),
    /// Start a cluster and wait until it is ready; one that runs already is left alone
    #[command(after_help = format!("Examples:
  cargo xtask cluster up                 one node: kubelet, containers, DNS
  cargo xtask cluster up --nodes 3       three nodes
  cargo xtask cluster up --nodes 0       the API alone, as tests have it: no node and no controllers
  KEEP=1 cargo xtask cluster up          with the objects of the last run

Builds first what has not been built. Further settings are variables, see e2e/cluster/config.sh. Needs root.

{CODES}"))]
    Up(UpOptions),
    /// End a cluster; none running is fine
    #[command(after_help = format!("Examples:
  cargo xtask cluster down
  cargo xtask cluster down --state /tmp/other

{CODES}"))]
    Down(State),
    /// Run a command inside a cluster, with kubectl on its path and KUBECONFIG set; a shell if none is named
    #[command(after_help = "Examples:
  cargo xtask cluster enter -- kubectl get pods -A
  cargo xtask cluster enter --node 2 -- ctr -n k8s.io images ls
  cargo xtask cluster enter --net-only -- kubectl port-forward service/web 8080:80
  cargo xtask cluster enter

Exit codes: that of the command; 1 if it cannot be started, 2 wrong arguments.")]
    Enter(EnterOptions),
    /// Build what tests need, or say why not
    #[command(hide = true)]
    BuildForTests,
}

#[derive(Args, Default)]
struct BuildOptions {
    /// Only etcd, kube-apiserver and kubectl
    #[arg(long)]
    control_plane: bool,
}

/// Which of several clusters.
#[derive(Args)]
struct State {
    /// The folder of its keys, data and logs [default: target/cluster/state]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// The folder of a cluster when none is named.
fn default_state() -> PathBuf {
    repository::target().join("cluster/state")
}

impl State {
    fn folder(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(default_state)
    }
}

#[derive(Args)]
struct UpOptions {
    /// How many nodes; 0: kube-apiserver and etcd alone
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=9))]
    nodes: u8,
    #[command(flatten)]
    state: State,
}

#[derive(Args)]
struct EnterOptions {
    #[command(flatten)]
    state: State,
    /// On which node
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    node: u8,
    /// Only its network; files and processes stay those of this machine
    #[arg(long)]
    net_only: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.verb {
        Verb::Build(BuildOptions { control_plane: true }) => build_for(Mode::ControlPlane),
        Verb::Build(BuildOptions { control_plane: false }) => build_for(Mode::Nodes),
        Verb::Up(UpOptions { nodes, state }) => {
            machine::require_root()?;
            // Before minutes of building.
            scripts::refuse_other(&state.folder(), *nodes)?;
            build_for(if *nodes == 0 { Mode::ControlPlane } else { Mode::Nodes })?;
            scripts::up(&state.folder(), *nodes)
        }
        Verb::Down(state) => scripts::down(&state.folder()),
        Verb::Enter(EnterOptions { state, node, net_only, command }) => {
            scripts::enter(&state.folder(), *node, *net_only, command)
        }
        Verb::BuildForTests => build_for_tests(),
    }
}

/// Packages if they are missing and can be installed, then the programs.
fn build_for(mode: Mode) -> Result<()> {
    let go = machine::go()?;
    machine::require_packages(mode, machine::is_root())?;
    build::run(&go, mode).map(drop)
}

/// What the tests need. Where this machine cannot have it, that is said, and those tests name themselves as not run; a program that
/// does not compile is an error.
pub(crate) fn build_for_tests() -> Result<()> {
    let ready = |mode| -> Result<_> {
        machine::require_root()?;
        let go = machine::go()?;
        // At a desk nobody asked for packages.
        machine::require_packages(mode, repository::in_ci())?;
        build::fetch(&go, mode)?;
        Ok(go)
    };
    let nodes = ready(Mode::Nodes);
    if let Err(why) = &nodes {
        eprintln!("cluster: tests that need nodes will not run: {why:#}");
    }
    match nodes.map(|go| (go, Mode::Nodes)).or_else(|_| Ok((ready(Mode::ControlPlane)?, Mode::ControlPlane))) {
        Ok((go, mode)) => build::run(&go, mode).map(drop),
        Err(why) => {
            let why: anyhow::Error = why;
            eprintln!("cluster: not built, tests that need a real API server will not run: {why:#}");
            Ok(())
        }
    }
}
