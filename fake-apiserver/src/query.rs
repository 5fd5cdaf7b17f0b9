//! The query of a request: decoded, and the options of lists and watches in it.

use crate::kinds::Kind;
use crate::selector::Selector;
use crate::status::Failure;

/// The options of a list or a watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) watch: bool,
    pub(crate) limit: u64,
    /// The token; empty without one.
    pub(crate) continues: String,
    /// As it was written: empty and `0` mean different things.
    pub(crate) version: String,
    pub(crate) version_match: String,
    pub(crate) selector: Selector,
    pub(crate) bookmarks: bool,
    pub(crate) initial_events: Option<bool>,
    pub(crate) timeout_seconds: Option<u64>,
}

/// Decodes `%41` and, in queries, `+`.
pub(crate) fn decode(text: &str, plus: bool) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes().iter();
    while let Some(&byte) = bytes.next() {
        let rest = bytes.as_slice();
        match byte {
            b'+' if plus => out.push(b' '),
            b'%' => match rest.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()) {
                Some(decoded) => {
                    out.push(decoded);
                    bytes.nth(1);
                }
                None => out.push(byte),
            },
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The pairs of a query.
pub(crate) fn pairs(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name, true), decode(value, true))
        })
        .collect()
}

/// Whether a query asks for a watch; also used before anything else of it is read.
pub(crate) fn is_watch(query: &[(String, String)]) -> bool {
    query.iter().any(|(name, value)| name == "watch" && flag(value))
}

/// As the real one reads booleans in queries: only these are false.
fn flag(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "false" | "0")
}

impl Options {
    pub(crate) fn read(query: &[(String, String)], kind: &Kind) -> Result<Options, Failure> {
        let mut options = Options { watch: is_watch(query), ..Options::default() };
        let number = |name: &str, value: &str| {
            value.parse::<u64>().map_err(|error| Failure::bad_request(format!("{name}: {value:?}: {error}")))
        };
        for (name, value) in query {
            match name.as_str() {
                "limit" => options.limit = number(name, value)?,
                "continue" => options.continues.clone_from(value),
                "resourceVersion" => options.version.clone_from(value),
                "resourceVersionMatch" => options.version_match.clone_from(value),
                "labelSelector" => options.selector.read_labels(value)?,
                "fieldSelector" => options.selector.read_fields(value, kind)?,
                "allowWatchBookmarks" => options.bookmarks = flag(value),
                "sendInitialEvents" => options.initial_events = Some(flag(value)),
                "timeoutSeconds" => options.timeout_seconds = Some(number(name, value)?),
                _ => {}
            }
        }
        if options.watch {
            options.check_watch()?;
        } else {
            options.check_list()?;
        }
        Ok(options)
    }

    /// The version that was asked for; 0 where none was.
    pub(crate) fn version_number(&self) -> Result<u64, Failure> {
        if self.version.is_empty() {
            return Ok(0);
        }
        let number = self.version.parse::<u64>();
        number.map_err(|error| Failure::bad_request(format!("invalid resource version: {:?}: {error}", self.version)))
    }

    fn check_list(&self) -> Result<(), Failure> {
        let wrong = |field, why: &str| Err(forbidden(field, why));
        if self.initial_events.is_some() {
            return wrong("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        match (self.version_match.as_str(), self.version.as_str()) {
            ("", _) => Ok(()),
            (_, "") => {
                wrong("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided")
            }
            _ if !self.continues.is_empty() => {
                wrong("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
            }
            ("Exact", "0") => {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                wrong("resourceVersionMatch", why)
            }
            ("Exact" | "NotOlderThan", _) => Ok(()),
            (other, _) => Err(unsupported(other)),
        }
    }

    /// Checks, and sets what the real one sets: a watch from nowhere begins with what there is.
    fn check_watch(&mut self) -> Result<(), Failure> {
        let wrong = |why: &str| Err(forbidden("resourceVersionMatch", why));
        match (self.initial_events, self.version_match.as_str()) {
            (None, "") => {
                if matches!(self.version.as_str(), "" | "0") {
                    self.initial_events = Some(true);
                }
                Ok(())
            }
            (None, _) => wrong("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"),
            (Some(_), "NotOlderThan") if !self.continues.is_empty() => {
                wrong("resourceVersionMatch is forbidden when continue is provided")
            }
            (Some(_), "NotOlderThan") => Ok(()),
            (Some(_), _) => wrong("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        }
    }
}

fn forbidden(field: &str, why: &str) -> Failure {
    Failure::invalid("meta.k8s.io", "ListOptions", "", field, "FieldValueForbidden", &format!("Forbidden: {why}"))
}

fn unsupported(value: &str) -> Failure {
    let why = format!("Unsupported value: {value:?}: supported values: \"Exact\", \"NotOlderThan\", \"\"");
    Failure::invalid("meta.k8s.io", "ListOptions", "", "resourceVersionMatch", "FieldValueNotSupported", &why)
}

#[cfg(test)]
mod tests {
    use super::{decode, pairs};

    #[test]
    fn percent_signs_and_pluses_are_decoded_and_broken_ones_stay() {
        assert_eq!(decode("a%20b%2Fc+d", true), "a b/c d");
        assert_eq!(decode("a+b%2", false), "a+b%2");
        assert_eq!(decode("%zz%", true), "%zz%");
        let query = pairs("labelSelector=a%3Db&watch&x=");
        assert_eq!(query[0], ("labelSelector".to_owned(), "a=b".to_owned()));
        assert_eq!(query[1], ("watch".to_owned(), String::new()));
        assert_eq!(query.len(), 3);
    }
}
