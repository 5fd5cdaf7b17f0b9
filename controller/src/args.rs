//! The command line of `scalws-controller`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use translate::{FleetName, FleetSettings, Settings};

use crate::api_server::ApiServer;
use crate::election;
use crate::watch::cluster::ClusterArgs;

/// The central controller: reads manifests, works out what every proxy must do, and pushes what changed.
#[derive(Clone, Debug, Parser)]
#[command(name = "scalws-controller", version, after_help = EXAMPLES)]
pub struct Args {
    /// Run under a supervisor: authority and tokens come over standard input, and its end is the end of the controller.
    #[arg(long, conflicts_with = "authority")]
    pub supervised: bool,
    /// Where objects come from.
    #[arg(long, value_enum, default_value_t = SourceKind::Directory)]
    pub source: SourceKind,
    /// The folder of manifests. Not with --source cluster.
    #[arg(long, value_name = "DIR", required_unless_present = "source", required_if_eq("source", "directory"))]
    pub manifests: Option<PathBuf>,
    /// The state directory: epoch and readable statuses; never a key.
    #[arg(long, value_name = "DIR")]
    pub state: PathBuf,
    /// The unix socket of the local API.
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    /// Serve /healthz, /readyz and /metrics on this address too, for probes and Prometheus. Nobody is asked who they are.
    #[arg(long, value_name = "IP:PORT")]
    pub metrics_listen: Option<SocketAddr>,
    /// The port that proxies serve HTTP on.
    #[arg(long, value_name = "PORT", default_value_t = 80, value_parser = clap::value_parser!(u16).range(1..))]
    pub http: u16,
    /// The port that proxies serve HTTPS on.
    #[arg(long, value_name = "PORT", default_value_t = 443, value_parser = clap::value_parser!(u16).range(1..))]
    pub https: u16,
    /// Let endpoints on loopback addresses have traffic.
    #[arg(long)]
    pub allow_loopback_endpoints: bool,
    /// An empty folder is meant, even while proxies serve something.
    #[arg(long)]
    pub allow_empty: bool,
    /// How log lines are written to standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log: LogFormat,
    /// The API server: of the objects, and of the Lease.
    #[command(flatten)]
    pub api_server: ApiServer,
    /// What is read of the cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How replicas share the work.
    #[command(flatten)]
    pub replica: ReplicaArgs,
}

const EXAMPLES: &str = "\
Examples:
  One of three replicas in a pod, whose service account has the documented rights; agents are pods of a ProxyFleet:
    scalws-controller --source cluster --authority-secret scalws/authority --trust-configmap scalws/trust \\
      --enrolment pod-token --advertise $POD_IP --state /var/lib/scalws --socket /run/scalws/controller.sock

  The same from outside, on a machine of its own, with other times:
    scalws-controller --source cluster --kubeconfig ~/.kube/config --authority ./authority --listen 192.0.2.1 \\
      --lease-duration 6s --renew-deadline 4s --retry-period 1s --state ./state --socket ./controller.sock";

/// How replicas share the work: who proves agents, where they listen, and which of them leads.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "As one of several replicas")]
pub struct ReplicaArgs {
    /// The folder with the authority that all replicas share: ca.crt and ca.key (`scalwsctl authority DIR` makes one). Agents
    /// enrol with join tokens that it signs (`scalwsctl join-token`).
    #[arg(long, value_name = "DIR")]
    pub authority: Option<PathBuf>,
    /// The Secret with the authority, instead of a folder. It is made when it is not there, and the leader replaces the authority in
    /// time, with both trusted meanwhile.
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with_all = ["authority", "supervised"])]
    pub authority_secret: Option<Named>,
    /// The ConfigMap in which the leader keeps the certificates of the authority (ca.crt) for agents to trust.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "authority_secret")]
    pub trust_configmap: Option<Named>,
    /// How long an authority is valid that the controller makes.
    #[arg(long, value_name = "TIME", default_value = "8760h", value_parser = time)]
    pub authority_lifetime: Duration,
    /// How long the certificate of an agent is valid. Agents renew it at half of that.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = time)]
    pub certificate_lifetime: Duration,
    /// How an agent proves who it is when it enrols.
    #[arg(long, value_enum, default_value_t = Enrolment::JoinToken)]
    pub enrolment: Enrolment,
    /// The fleet that serves classes without parameters. It is there without a ProxyFleet too, with the ports of --http and
    /// --https.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "scalws/default")]
    pub fleet: Named,
    /// The address to listen on for agents.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    pub listen: IpAddr,
    /// The port for enrolment.
    #[arg(long, value_name = "PORT", default_value_t = 9443)]
    pub enroll_port: u16,
    /// The port for the push.
    #[arg(long, value_name = "PORT", default_value_t = 9444)]
    pub push_port: u16,
    /// The address that agents know this replica by; followers send them to the leader's [default: --listen].
    #[arg(long, value_name = "HOST")]
    pub advertise: Option<String>,
    /// The Lease of which the leader is the holder.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "scalws/scalws-controller")]
    pub lease: Named,
    /// How long the others wait for a leader that does not renew, in whole seconds. Agents notice a silent controller in the
    /// same time.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = time)]
    pub lease_duration: Duration,
    /// How long a leader goes on without renewing.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub renew_deadline: Duration,
    /// How often a leader renews.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    pub retry_period: Duration,
}

impl ReplicaArgs {
    /// What the election needs to know of us.
    pub fn election(&self, identity: String, address: String) -> election::Settings {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        election::Settings {
            identity,
            address,
            lease_ms: ms(self.lease_duration),
            renew_deadline_ms: ms(self.renew_deadline),
            retry_ms: ms(self.retry_period),
        }
    }
}

/// A namespace and a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Named, String> {
        let is_name = |part: &str| {
            let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
            (1..=253).contains(&part.len()) && part.bytes().all(inner)
        };
        match text.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                Ok(Named { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("it has to be a namespace and a name with `/` between them, such as scalws/default".to_owned()),
        }
    }
}

/// A time such as `300ms`, `2s`, `90m` or `24h`.
fn time(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    let in_unit = |(unit, ms): (&str, u64)| Some(u64::from(text.strip_suffix(unit)?.parse::<u32>().ok()?) * ms);
    let ms = units.into_iter().find_map(in_unit);
    ms.map(Duration::from_millis)
        .ok_or_else(|| "it has to be a whole number with a unit, such as 300ms, 15s, 90m or 24h".to_owned())
}

impl Args {
    /// What translation is told that no object says.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::local(self.http, self.https);
        settings.allow_loopback_endpoints = self.allow_loopback_endpoints;
        if !self.supervised {
            let fleet = FleetName::new(&self.replica.fleet.namespace, &self.replica.fleet.name);
            let ports = FleetSettings { http_port: self.http, https_port: self.https };
            settings.fleets = [(fleet.clone(), ports)].into();
            settings.fleets_are_fixed = false;
            settings.default_fleet = fleet;
            settings.builtin_classes = false;
        }
        settings
    }
}

/// How an agent proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Enrolment {
    /// A token that `scalwsctl join-token` made with the authority: it names the agent and its fleet.
    JoinToken,
    /// The token of the service account of its pod, for the audience scalws.io/agent. The API server says which pod it is, and a
    /// ProxyFleet which fleet the pod's workload is.
    PodToken,
}

/// Where objects come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceKind {
    /// A folder of manifests.
    Directory,
    /// A Kubernetes API server.
    Cluster,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn times_have_a_unit_and_names_a_namespace() {
        assert_eq!(time("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(time("300ms"), Ok(Duration::from_millis(300)));
        assert_eq!(time("90m"), Ok(Duration::from_secs(90 * 60)));
        assert_eq!(time("8760h"), Ok(Duration::from_secs(365 * 24 * 3600)));
        for wrong in ["", "s", "h", "15", "1.5s", "-1s", "99999999999s", "1d", "1 h"] {
            assert!(time(wrong).is_err(), "{wrong:?}");
        }
        let named = |text: &str| text.parse::<Named>().map(|named| format!("{} {}", named.namespace, named.name));
        assert_eq!(named("scalws/default").unwrap(), "scalws default");
        for wrong in ["", "/", "a/", "/b", "a/b/c", "A/b", "a b/c"] {
            assert!(named(wrong).is_err(), "{wrong:?}");
        }
    }
}
