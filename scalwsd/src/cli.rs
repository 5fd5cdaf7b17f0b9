//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::access_log::Destination;

/// The ScalWS proxy.
///
/// In a pod or under `scalwsctl up` it is started with `run` and gets its configuration from the agent beside it. With a
/// hand-written file it stands alone.
#[derive(Debug, Parser)]
#[command(name = "scalwsd", version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Cli {
    /// Stand alone with this scalws.yaml. SIGHUP or POST /v1/reload reads it again.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What standing alone and `run` have in common.
    #[command(flatten)]
    pub common: Common,
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

const EXAMPLES: &str = "Examples:
  scalwsd --config scalws.yaml --access-log stdout
  scalwsd check scalws.yaml
  scalwsd run --volume /run/scalws --admin /run/scalws/admin.sock
  curl --unix-socket /run/scalws/admin.sock http://scalwsd/v1/config";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve what the agent puts on a volume. Without --keeper this process keeps the sockets and restarts its worker.
    Run(Run),
    /// Load a configuration without opening a socket, and say what is not live.
    ///
    /// Ends with 0 when everything is live, with 1 when something is not, with 2 when the whole is unusable.
    Check(Check),
    /// The process that proxies, started by `run`.
    #[command(hide = true)]
    Worker(Run),
}

/// What standing alone and `run` have in common.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// The unix socket of the admin API.
    #[arg(long, value_name = "SOCK")]
    pub admin: Option<PathBuf>,
    /// How long open connections may go on when the proxy ends, such as 5s or 500ms.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub drain_timeout: Duration,
    /// Where access log lines go: off, stdout or a file. Default: stdout, and off with --supervised.
    #[arg(long, value_name = "off|stdout|PATH")]
    pub access_log: Option<Destination>,
    /// The form of log lines on standard error.
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub log: LogForm,
    /// Let ExternalName lead to this machine, for trying things out.
    #[arg(long)]
    pub allow_loopback: bool,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogForm {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// `run`.
#[derive(Clone, Debug, Args)]
pub struct Run {
    /// The volume that is shared with the agent; memory-backed.
    #[arg(long, value_name = "DIR")]
    pub volume: PathBuf,
    /// The unix socket of a socket keeper; without it this process is the keeper.
    #[arg(long, value_name = "SOCK")]
    pub keeper: Option<PathBuf>,
    /// End when the parent dies or standard input ends.
    #[arg(long)]
    pub supervised: bool,
    /// Shared options.
    #[command(flatten)]
    pub common: Common,
}

/// `check`.
#[derive(Clone, Debug, Args)]
pub struct Check {
    /// A scalws.yaml.
    #[arg(value_name = "FILE", required_unless_present = "volume", conflicts_with = "volume")]
    pub file: Option<PathBuf>,
    /// A volume: prints one JSON line before each resource that it loads.
    #[arg(long, value_name = "DIR")]
    pub volume: Option<PathBuf>,
    /// The journal on the volume; its accepted state without this.
    #[arg(long, value_name = "ID", requires = "commit", requires = "volume")]
    pub journal: Option<String>,
    /// The commit to load up to.
    #[arg(long, value_name = "N", requires = "journal")]
    pub commit: Option<u64>,
    /// Leave a resource out; may be repeated.
    #[arg(long, value_name = "KIND/NAME")]
    pub skip: Vec<String>,
}

/// Reads a time such as `5s`, `500ms` or `1m`.
fn duration(text: &str) -> Result<Duration, String> {
    let number_ends = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(number_ends);
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is no time; write 5s, 500ms or 1m"))?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        _ => Err(format!("{text:?} has no unit; write 5s, 500ms or 1m")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_are_read_with_their_unit() {
        assert_eq!(duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "5", "s", "-1s", "5h", "1.5s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_forms_that_others_call_are_understood() {
        for line in [
            "scalwsd run --supervised --volume v --admin a --keeper k --drain-timeout 5s",
            "scalwsd run --volume v --admin a --access-log off",
            "scalwsd --config scalws.yaml --admin a",
            "scalwsd check --volume v --journal j --commit 3 --skip fragment/a --skip pool/b",
            "scalwsd check scalws.yaml",
        ] {
            Cli::try_parse_from(line.split(' ')).unwrap();
        }
        for line in [
            "scalwsd run --admin a",
            "scalwsd check",
            "scalwsd check f --volume v",
            "scalwsd check --volume v --commit 3",
        ] {
            Cli::try_parse_from(line.split(' ')).unwrap_err();
        }
    }
}
