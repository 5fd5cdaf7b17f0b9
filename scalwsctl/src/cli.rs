//! The command line: every command, its options, examples and exit codes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Everything that can be typed.
#[derive(Debug, Parser)]
#[command(
    name = "scalwsctl",
    version,
    about = "Serve a folder of Kubernetes manifests, and see what is live",
    after_help = "Start here:\n  scalwsctl up examples/shop --echo\n\nExit codes: 0 done, 1 failed or the answer is no, 2 wrong arguments, 3 a held world waits for `scalwsctl confirm`."
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the manifests in DIR: one controller, N proxies, everything on this machine.
    #[command(
        after_help = "DIR is watched: edit, add or delete a file and it is live at once. YAML and JSON, several documents a file, sub-folders.\nStop with Ctrl-C or SIGTERM; everything that was started ends too.\n\nExamples:\n  scalwsctl up examples/shop --echo\n  scalwsctl up manifests/ --http 80 --https 443 --state /run/scalws-demo --replicas 3\n\nExit codes: 0 stopped as asked, 1 could not start (a taken port, a missing DIR, another `up` on STATEDIR)."
    )]
    Up(UpArguments),
    /// Wait until everything that is in DIR now is live on every proxy, or refused for good.
    #[command(
        after_help = "Examples:\n  scalwsctl wait --state STATEDIR\n  cp new.yaml DIR/ && scalwsctl wait --state STATEDIR --timeout 5s\n\nExit codes: 0 live, 1 not within the timeout (says who lags and why), 3 the world is held (says how to confirm)."
    )]
    Wait(WaitArguments),
    /// Show every fleet, agent and object: what is live, what is not, and why.
    #[command(
        after_help = "Examples:\n  scalwsctl status --state STATEDIR\n  scalwsctl status --state STATEDIR -o json | jq '.objects[] | select(.events != [])'\n  scalwsctl status --socket /run/scalws/controller.sock\n\nExit codes: 0 shown, 1 no controller answers."
    )]
    Status(StatusArguments),
    /// Read DIR and say what would be refused or served only in part, without starting anything.
    #[command(
        after_help = "Examples:\n  scalwsctl lint manifests/\n  scalwsctl lint examples/shop --echo -o json\n\nExit codes: 0 nothing would be refused, 1 an object would be refused, or something in the folder is not read."
    )]
    Lint(LintArguments),
    /// Publish a world that is held because it shrank by too much at once.
    #[command(
        after_help = "Examples:\n  scalwsctl confirm --state STATEDIR\n  scalwsctl confirm --socket /run/scalws/controller.sock\n\nExit codes: 0 published (or nothing was held), 1 no controller answers."
    )]
    Confirm(ControllerArguments),
    /// Make the authority that several controllers share: DIR/ca.crt and DIR/ca.key.
    #[command(
        after_help = "Every controller replica reads both files (--authority DIR); agents get ca.crt only (--trust). The key is never overwritten and nobody else may read it.\n\nExample:\n  scalwsctl authority /etc/scalws/authority\n\nExit codes: 0 made, 1 there is one already, or DIR cannot be written."
    )]
    Authority(AuthorityArguments),
    /// Print a token with which the agent of one pod enrols at any controller of this authority.
    #[command(
        after_help = "A token can be used until its time is over, as often as an agent starts or renews its certificate (at half of 24 hours). Whoever has it gets a certificate of that pod: hand it over as a secret. The agent reads its file anew each time, so replace it before it ends.\n\nExamples:\n  scalwsctl join-token --authority /etc/scalws/authority --pod replica-0 > replica-0.token\n  scalwsctl join-token --authority DIR --pod edge-1 --uid 7d1f0c52 --fleet scalws/edge --valid 30d\n\nExit codes: 0 printed, 1 the authority cannot be read, or a name cannot be one."
    )]
    JoinToken(JoinTokenArguments),
    /// Print the definition of ProxyFleet (CustomResourceDefinition) as YAML, as this version reads it.
    #[command(
        after_help = "Examples:\n  scalwsctl crds | kubectl apply --server-side --filename -\n\nExit codes: 0 printed, 1 it cannot be written."
    )]
    Crds,
    /// Print the version.
    Version,
}

/// `scalwsctl up`.
#[derive(Debug, Args)]
pub struct UpArguments {
    /// The folder with the manifests.
    #[arg(value_name = "DIR")]
    pub manifests: PathBuf,
    /// The port for plain HTTP, on all addresses; 0 lets the system choose (see up.json in STATEDIR).
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub http: u16,
    /// The port for HTTPS, on all addresses; 0 as above.
    #[arg(long, value_name = "PORT", default_value_t = 8443)]
    pub https: u16,
    /// The state directory: a lock, the epoch and readable statuses, never a key. Made if it is missing.
    #[arg(long, value_name = "STATEDIR", default_value = ".scalws")]
    pub state: PathBuf,
    /// How many proxies serve the same ports, 1 to 64.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub replicas: u16,
    /// Start an echo server behind every loopback endpoint of DIR. Only then may loopback endpoints get traffic.
    #[arg(long)]
    pub echo: bool,
    /// Publish an empty DIR even though the proxies still serve something.
    #[arg(long)]
    pub allow_empty: bool,
    /// How the log on stderr is written.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log: LogFormat,
}

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// `scalwsctl wait`.
#[derive(Debug, Args)]
pub struct WaitArguments {
    /// The state directory of the running `up`.
    #[arg(long, value_name = "STATEDIR", default_value = ".scalws")]
    pub state: PathBuf,
    /// How long to wait at most: a number with `ms`, `s` or `m`.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,
}

/// `scalwsctl status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// Which controller is asked.
    #[command(flatten)]
    pub at: ControllerArguments,
    /// A table for people, or the whole document as JSON.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

/// `scalwsctl lint`.
#[derive(Debug, Args)]
pub struct LintArguments {
    /// The folder with the manifests.
    #[arg(value_name = "DIR")]
    pub manifests: PathBuf,
    /// Loopback endpoints get traffic, as with `up --echo`.
    #[arg(long)]
    pub echo: bool,
    /// A table for people, or JSON.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

/// Which controller is asked.
#[derive(Debug, Args)]
pub struct ControllerArguments {
    /// The state directory of the running `up`.
    #[arg(long, value_name = "STATEDIR", default_value = ".scalws")]
    pub state: PathBuf,
    /// The socket of a controller that no `up` started (its --socket), instead of --state.
    #[arg(long, value_name = "PATH", conflicts_with = "state")]
    pub socket: Option<PathBuf>,
}

/// `scalwsctl authority`.
#[derive(Debug, Args)]
pub struct AuthorityArguments {
    /// The folder, made if it is missing.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// How long the authority is valid: a number with `h` or `d`.
    #[arg(long, value_name = "TIME", default_value = "3650d", value_parser = validity)]
    pub valid: Duration,
}

/// `scalwsctl join-token`.
#[derive(Debug, Args)]
pub struct JoinTokenArguments {
    /// The folder with the authority's ca.crt and ca.key.
    #[arg(long, value_name = "DIR")]
    pub authority: PathBuf,
    /// The pod's name, for people.
    #[arg(long, value_name = "NAME")]
    pub pod: String,
    /// The pod's UID, which tells agents apart [default: the pod's name].
    #[arg(long, value_name = "UID")]
    pub uid: Option<String>,
    /// The fleet that the pod belongs to.
    #[arg(long, value_name = "NS/NAME", default_value = "scalws/default", value_parser = fleet)]
    pub fleet: (String, String),
    /// How long the token can be used: a number with `s`, `m`, `h` or `d`.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = validity)]
    pub valid: Duration,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Reads `1500ms`, `30s`, `2m`, or a plain number of seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is not a time; write 30s, 500ms or 2m"))?;
    let milliseconds = match unit {
        "ms" => Some(number),
        "s" | "" => number.checked_mul(1000),
        "m" => number.checked_mul(60_000),
        _ => return Err(format!("{text:?} has no unit that is known here; write 30s, 500ms or 2m")),
    };
    milliseconds
        .filter(|ms| *ms <= 24 * 3_600_000)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{text:?} is too long; at most 24 hours"))
}

/// Reads `90s`, `15m`, `24h` or `30d`; ten years at most, and more than nothing.
fn validity(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 24 * 3_600,
        _ => return Err(format!("{text:?} is not a time; write 90s, 15m, 24h or 30d")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is not a time; write 90s, 15m, 24h or 30d"))?;
    number
        .checked_mul(seconds)
        .filter(|seconds| (1..=3_650 * 24 * 3_600).contains(seconds))
        .map(Duration::from_secs)
        .ok_or_else(|| format!("{text:?} is out of range; from 1s to 3650d"))
}

/// Reads `namespace/name`.
fn fleet(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err(format!("{text:?} is not a fleet; write NAMESPACE/NAME, such as scalws/default")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("7"), Ok(Duration::from_secs(7)));
        for bad in ["", "s", "-1s", "1h", "1.5s", "99999999999999999999s", "18446744073709551615m"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn validities_and_fleets_are_read_or_refused_with_the_way_out() {
        assert_eq!(validity("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(validity("3650d"), Ok(Duration::from_secs(3_650 * 86_400)));
        for bad in ["", "0s", "5", "h", "-1h", "3651d", "99999999999999999999d", "1w"] {
            assert!(validity(bad).is_err(), "{bad}");
        }
        assert_eq!(fleet("a/b"), Ok(("a".to_owned(), "b".to_owned())));
        for bad in ["", "a", "/", "a/", "/b", "a/b/c"] {
            assert!(fleet(bad).unwrap_err().contains("NAMESPACE/NAME"), "{bad}");
        }
    }

    #[test]
    fn the_fixed_interface_is_understood() {
        let line = "scalwsctl up d --http 80 --https 443 --state s --replicas 3 --echo --allow-empty";
        let Command::Up(up) = Arguments::try_parse_from(line.split(' ')).unwrap().command else { panic!("not up") };
        assert_eq!((up.http, up.https, up.replicas, up.echo, up.allow_empty), (80, 443, 3, true, true));
        let line = "scalwsctl status --state s -o json";
        let Command::Status(status) = Arguments::try_parse_from(line.split(' ')).unwrap().command else {
            panic!("not status")
        };
        assert_eq!(status.output, Format::Json);
    }
}
