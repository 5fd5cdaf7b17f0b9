//! Which requests a route claims: the frozen grammar of matches, and the key that orders them.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One way to match a request. All parts that are given must hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// What the path must be.
    pub path: PathMatch,
    /// The HTTP method, if only one is matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Headers that must be there. Names are lower case and occur once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderMatch>,
    /// Query parameters that must be there. Names occur once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<QueryMatch>,
    /// Where this match stands among all that share the host.
    pub key: OrderKey,
}

/// How a path is compared. Paths start with `/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum PathMatch {
    /// Equal, byte for byte.
    Exact(String),
    /// Equal or below, element by element (`/a` covers `/a`, `/a/` and `/a/b`, not `/ab`). No trailing slash but in `/`.
    Prefix(String),
    /// A regular expression, anchored at the start of the path; open at its end. `(?i)` if case does not matter.
    Regex(String),
}

/// An HTTP method as it is written in a request (RFC 9110 section 9): a token, case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Method(pub String);

/// How a header or parameter value is compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum ValueMatch {
    /// Equal, byte for byte.
    Exact(String),
    /// The whole value matches this regular expression.
    Regex(String),
    /// It is there, whatever it says.
    Present,
}

/// A header that must be there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeaderMatch {
    /// The name in lower case.
    pub name: String,
    /// What its value must be.
    pub value: ValueMatch,
}

/// A query parameter that must be there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueryMatch {
    /// The name, compared after percent-decoding, case-sensitive.
    pub name: String,
    /// What its value must be.
    pub value: ValueMatch,
}

/// The place of a match in the total order of its host: the greatest rank is tried first, then the oldest, then the
/// smallest tie. The translator decides what a rank means, so the router never has to know it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderKey {
    /// Compared from the left; greater comes first; a missing number is 0.
    pub rank: Vec<u32>,
    /// Creation time of the source object in seconds since 1970; smaller comes first.
    pub created: i64,
    /// Last resort, unique in a host: namespace, name, then number of the rule; smaller comes first.
    pub tie: (String, String, u32),
}

/// An [`OrderKey`] whose parts are kept elsewhere. Compares as it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderParts<'a> {
    /// As in [`OrderKey::rank`].
    pub rank: &'a [u32],
    /// As in [`OrderKey::created`].
    pub created: i64,
    /// As in [`OrderKey::tie`].
    pub tie: (&'a str, &'a str, u32),
}

impl OrderKey {
    /// Its parts.
    pub fn parts(&self) -> OrderParts<'_> {
        let (namespace, name, number) = &self.tie;
        OrderParts { rank: &self.rank, created: self.created, tie: (namespace, name, *number) }
    }
}

impl Ord for OrderParts<'_> {
    /// `Less` comes first.
    fn cmp(&self, other: &OrderParts<'_>) -> Ordering {
        for i in 0..self.rank.len().max(other.rank.len()) {
            let (ours, theirs) = (self.rank.get(i).unwrap_or(&0), other.rank.get(i).unwrap_or(&0));
            match theirs.cmp(ours) {
                Ordering::Equal => {}
                order => return order,
            }
        }
        self.created
            .cmp(&other.created)
            .then_with(|| self.tie.cmp(&other.tie))
            .then_with(|| self.rank.len().cmp(&other.rank.len()))
    }
}

impl PartialOrd for OrderParts<'_> {
    fn partial_cmp(&self, other: &OrderParts<'_>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderKey {
    /// `Less` comes first.
    fn cmp(&self, other: &OrderKey) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for OrderKey {
    fn partial_cmp(&self, other: &OrderKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
