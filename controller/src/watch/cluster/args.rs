//! The arguments about an API server as the source.

use clap::ArgAction;

use super::kinds::Family;
use super::selector::Selector;
use super::{KINDS, Kind, KindWatchSettings};

/// What of the cluster is read.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "With --source cluster")]
pub struct ClusterArgs {
    /// Read only this namespace; may be given several times [default: all]. Kinds without namespaces are read as a whole.
    #[arg(long, value_name = "NAME", value_parser = namespace)]
    pub namespace: Vec<String>,
    /// Read only Secrets with these labels, such as `type=tls` [default: all].
    #[arg(long, value_name = "SELECTOR")]
    pub secret_selector: Option<Selector>,
    /// Read only ConfigMaps with these labels [default: all].
    #[arg(long, value_name = "SELECTOR")]
    pub config_map_selector: Option<Selector>,
    /// Whether Ingresses and their classes are read.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub ingress: bool,
    /// Whether the kinds of the Gateway API are read.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub gateway_api: bool,
}

/// The name of a namespace: a label of DNS (RFC 1123).
fn namespace(text: &str) -> Result<String, String> {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let edges = !text.starts_with('-') && !text.ends_with('-');
    if (1..=63).contains(&text.len()) && edges && text.bytes().all(inner) {
        return Ok(text.to_owned());
    }
    Err("it has to be the name of a namespace: at most 63 of a-z, 0-9 and -".to_owned())
}

impl ClusterArgs {
    /// What of it the source needs.
    pub fn settings(&self) -> KindWatchSettings {
        let mut namespaces = self.namespace.clone();
        namespaces.sort();
        namespaces.dedup();
        let reads = |kind: &&Kind| match kind.family {
            Family::Core | Family::Fleet => true,
            Family::Ingress => self.ingress,
            Family::Gateway => self.gateway_api,
        };
        KindWatchSettings {
            kinds: KINDS.iter().filter(reads).collect(),
            namespaces,
            secrets: self.secret_selector.as_ref().and_then(Selector::text),
            config_maps: self.config_map_selector.as_ref().and_then(Selector::text),
            ..KindWatchSettings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        cluster: ClusterArgs,
    }

    fn parse(arguments: &[&str]) -> Result<KindWatchSettings, String> {
        let line = Line::try_parse_from(["x"].iter().chain(arguments));
        line.map(|line| line.cluster.settings()).map_err(|error| error.to_string())
    }

    #[test]
    fn inputs_are_switched_off_and_namespaces_count_once() {
        let all = parse(&[]).unwrap();
        assert_eq!((all.kinds.len(), all.namespaces.len()), (KINDS.len(), 0));
        let some = parse(&[
            "--ingress=false",
            "--gateway-api=false",
            "--namespace",
            "b",
            "--namespace",
            "a",
            "--namespace",
            "b",
        ]);
        let some = some.unwrap();
        let names: Vec<_> = some.kinds.iter().map(|kind| kind.name).collect();
        assert_eq!(names, ["Service", "EndpointSlice", "Secret", "ConfigMap", "Namespace", "ProxyFleet"]);
        assert_eq!(some.namespaces, ["a", "b"]);
    }

    #[test]
    fn a_selector_that_does_not_parse_names_its_argument() {
        let settings = parse(&["--secret-selector", "a in (b)"]).unwrap();
        assert_eq!(settings.secrets.as_deref(), Some("a in (b)"));
        for flag in ["--secret-selector", "--config-map-selector"] {
            let error = parse(&[flag, "a in b"]).unwrap_err();
            assert!(error.contains(flag) && error.contains("a in b"), "{error}");
        }
    }
}
