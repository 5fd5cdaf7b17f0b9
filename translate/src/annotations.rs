//! What the annotations of an Ingress mean for now: served, ignored with a word, or the Ingress is not served.

use ipnet::IpNet;

use crate::objects::Texts;
use crate::outcome::{Finding, reasons};

/// The prefix of the annotations that are read.
pub(crate) const PREFIX: &str = "nginx.ingress.kubernetes.io/";

/// What the annotations come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Redirect http to https where the host has TLS.
    pub(crate) ssl_redirect: bool,
    /// Redirect http to https in any case.
    pub(crate) force_ssl_redirect: bool,
    /// The Ingress is a canary; its paths are not claimed, because they belong to the Ingress that it shadows.
    pub(crate) canary: bool,
    /// Why the Ingress must not be served: the annotation, and a sentence.
    pub(crate) refusal: Option<(String, String)>,
    /// Everything else worth saying.
    pub(crate) findings: Vec<Finding>,
}

/// Annotations that decide who may have access. An Ingress with one of them must not be served without it.
const ACCESS: [&str; 6] = [
    "whitelist-source-range",
    "allowlist-source-range",
    "denylist-source-range",
    "block-source-range",
    "satisfy",
    "auth-url",
];

/// Annotations that change behaviour but protect nothing: they are ignored, and that is said.
const IGNORED: [&str; 67] = [
    "affinity",
    "affinity-canary-behavior",
    "affinity-mode",
    "app-root",
    "backend-protocol",
    "connection-proxy-header",
    "cors-allow-credentials",
    "cors-allow-headers",
    "cors-allow-methods",
    "cors-allow-origin",
    "cors-expose-headers",
    "cors-max-age",
    "custom-headers",
    "custom-http-errors",
    "default-backend",
    "disable-proxy-intercept-errors",
    "enable-cors",
    "enable-global-auth",
    "fastcgi-index",
    "fastcgi-params-configmap",
    "from-to-www-redirect",
    "limit-allowlist",
    "limit-burst-multiplier",
    "limit-connections",
    "limit-rate",
    "limit-rate-after",
    "limit-rpm",
    "limit-rps",
    "limit-whitelist",
    "load-balance",
    "mirror-host",
    "mirror-request-body",
    "mirror-target",
    "permanent-redirect",
    "permanent-redirect-code",
    "preserve-trailing-slash",
    "proxy-body-size",
    "proxy-buffer-size",
    "proxy-buffering",
    "proxy-connect-timeout",
    "proxy-cookie-domain",
    "proxy-cookie-path",
    "proxy-http-version",
    "proxy-next-upstream",
    "proxy-next-upstream-timeout",
    "proxy-next-upstream-tries",
    "proxy-read-timeout",
    "proxy-redirect-from",
    "proxy-redirect-to",
    "proxy-request-buffering",
    "proxy-send-timeout",
    "relative-redirects",
    "rewrite-target",
    "server-alias",
    "service-upstream",
    "session-cookie-domain",
    "session-cookie-expires",
    "session-cookie-max-age",
    "session-cookie-name",
    "session-cookie-path",
    "session-cookie-samesite",
    "session-cookie-secure",
    "temporal-redirect",
    "temporal-redirect-code",
    "upstream-hash-by",
    "upstream-vhost",
    "use-regex",
];

/// Reads the annotations of an Ingress. Values are never repeated in messages: they may hold credentials.
pub(crate) fn read(annotations: &Texts) -> Policy {
    let mut policy = Policy { ssl_redirect: true, ..Policy::default() };
    for (full, value) in annotations.iter() {
        let Some(name) = full.strip_prefix(PREFIX) else { continue };
        let field = format!("metadata.annotations[{full}]");
        match name {
            "ssl-redirect" => policy.ssl_redirect = boolean(&mut policy.findings, field, value, true),
            "force-ssl-redirect" => policy.force_ssl_redirect = boolean(&mut policy.findings, field, value, false),
            "canary" if parse_bool(value) == Some(true) => {
                policy.canary = true;
                policy.refuse(full, "canaries are not supported yet; its paths stay with the main Ingress");
            }
            _ if is_access_control(name) && lets_everybody_in(name, value) => {}
            _ if is_access_control(name) => {
                policy.refuse(
                    full,
                    "it controls access, which is not supported yet, and serving without it would let everybody in",
                );
            }
            _ if name.ends_with("-snippet") || name.ends_with("-snippets") => {
                policy.refuse(
                    full,
                    "snippets of another proxy's configuration cannot be honoured; use typed annotations",
                );
            }
            _ if refused_value(name, value) => {
                policy.refuse(
                    full,
                    "it asks for protection that is not supported yet, and serving without it would be weaker",
                );
            }
            _ if IGNORED.contains(&name) => {
                let message = format!("{full} is not supported yet and has no effect");
                policy.findings.push(Finding::warning(reasons::ANNOTATION_IGNORED, field, message));
            }
            _ => {}
        }
    }
    policy
}

impl Policy {
    /// Keeps the first reason; one is enough to refuse.
    fn refuse(&mut self, annotation: &str, why: &str) {
        self.refusal.get_or_insert_with(|| (annotation.to_owned(), why.to_owned()));
    }
}

/// Access control, or so close to it that a slip of the pen is likelier than anything else: then the intent would be lost.
fn is_access_control(name: &str) -> bool {
    let prefixes = ["auth-", "whitelist", "allowlist", "denylist", "blocklist", "blacklist", "satisfy"];
    prefixes.iter().any(|p| name.starts_with(p))
        || name.ends_with("source-range")
        || name.ends_with("source-ranges")
        || (name.len() > 5 && ACCESS.iter().any(|known| distance_at_most_two(name, known)))
}

/// Values of other annotations that must not be ignored: TLS to the backend or past us, and filters of requests.
fn refused_value(name: &str, value: &str) -> bool {
    let value = value.trim();
    match name {
        "backend-protocol" => ["HTTPS", "GRPCS", "FCGI"].iter().any(|p| value.eq_ignore_ascii_case(p)),
        "secure-backends" | "ssl-passthrough" | "enable-modsecurity" | "enable-owasp-core-rules" => {
            parse_bool(value) != Some(false)
        }
        "secure-verify-ca-secret" => true,
        "lua-resty-waf" => value.eq_ignore_ascii_case("active"),
        _ => false,
    }
}

/// An allow-list of every IPv4 and every IPv6 address restricts nothing (ACME solvers carry one).
fn lets_everybody_in(name: &str, value: &str) -> bool {
    if !matches!(name, "whitelist-source-range" | "allowlist-source-range") {
        return false;
    }
    let nets: Option<Vec<IpNet>> = value.split(',').map(|part| part.trim().parse().ok()).collect();
    let all =
        |nets: &[IpNet], v4: bool| nets.iter().any(|net| net.prefix_len() == 0 && matches!(net, IpNet::V4(_)) == v4);
    nets.is_some_and(|nets| all(&nets, true) && all(&nets, false))
}

/// The words of Go's `strconv.ParseBool`, no others.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn boolean(findings: &mut Vec<Finding>, field: String, value: &str, default: bool) -> bool {
    parse_bool(value).unwrap_or_else(|| {
        // Empty values count as not given.
        if !value.is_empty() {
            let message = format!("the value is neither true nor false; {default} is used");
            findings.push(Finding::warning(reasons::ANNOTATION_INVALID, field, message));
        }
        default
    })
}

/// Whether two names are at most two edits apart (Levenshtein distance).
fn distance_at_most_two(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len().abs_diff(b.len()) > 2 {
        return false;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()] <= 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn refused(name: &str, value: &str) -> bool {
        read(&BTreeMap::from([(format!("{PREFIX}{name}"), value.to_owned())]).into()).refusal.is_some()
    }

    #[test]
    fn whatever_controls_access_is_refused() {
        for name in [
            "auth-url",
            "auth-secret",
            "auth-secrets",
            "auth-tls-secret",
            "satisfy",
            "satisfi",
            "whitelist-source-range",
        ] {
            assert!(refused(name, "x"), "{name}");
        }
        for name in ["whitelist-source-ranges", "witelist-source-range", "block-source-range", "denylist-source-range"]
        {
            assert!(refused(name, ""), "{name}");
        }
        assert!(refused("configuration-snippet", "deny all;"));
        assert!(refused("backend-protocol", "https"));
        assert!(refused("ssl-passthrough", "true"));
    }

    #[test]
    fn other_annotations_do_not_refuse() {
        for name in ["rewrite-target", "use-regex", "limit-rps", "proxy-body-size", "no-such-annotation", "app-root"] {
            assert!(!refused(name, "1"), "{name}");
        }
        assert!(!refused("backend-protocol", "GRPC"));
        assert!(!refused("enable-modsecurity", "false"));
    }

    #[test]
    fn an_allow_list_of_the_whole_world_restricts_nothing() {
        assert!(!refused("whitelist-source-range", "0.0.0.0/0,::/0"));
        assert!(!refused("allowlist-source-range", "::/0, 0.0.0.0/0"));
        assert!(refused("whitelist-source-range", "0.0.0.0/0"));
        assert!(refused("whitelist-source-range", "0.0.0.0/0,::/0,nonsense"));
        assert!(refused("denylist-source-range", "0.0.0.0/0,::/0"));
    }

    #[test]
    fn values_never_reach_a_message() {
        let secret = "hunter2";
        for name in ["auth-secret", "server-snippet", "proxy-body-size", "ssl-redirect", "satisfy"] {
            let policy = read(&BTreeMap::from([(format!("{PREFIX}{name}"), secret.to_owned())]).into());
            assert!(!format!("{policy:?}").contains(secret), "{name}");
        }
    }

    #[test]
    fn booleans_are_those_of_go() {
        assert_eq!(parse_bool("T"), Some(true));
        assert_eq!(parse_bool("yes"), None);
        let policy = read(&BTreeMap::from([(format!("{PREFIX}ssl-redirect"), "off".to_owned())]).into());
        assert!(policy.ssl_redirect && policy.findings.len() == 1);
    }
}
