//! Object metadata, and the name that tells an object from others of its kind.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};

/// Namespace and name. The namespace is empty for cluster-scoped kinds.
///
/// All copies share one text: an object is named in dozens of places.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespacedName(Arc<NameParts>);

/// The parts of a [`NamespacedName`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameParts {
    /// The namespace.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
}

impl NamespacedName {
    /// Of these two.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> NamespacedName {
        NamespacedName::of(namespace.as_ref().into(), name.as_ref().into())
    }

    fn of(namespace: Box<str>, name: Box<str>) -> NamespacedName {
        NamespacedName(Arc::new(NameParts { namespace, name }))
    }
}

impl Deref for NamespacedName {
    type Target = NameParts;

    fn deref(&self) -> &NameParts {
        &self.0
    }
}

impl fmt::Debug for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The creation time of an object that has none: the end of the year 9999.
pub const NO_TIME: i64 = 253_402_300_799;

fn no_time() -> i64 {
    NO_TIME
}

/// What every object carries (`metadata`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Written")]
pub struct ObjectMeta {
    /// Namespace and name.
    pub key: NamespacedName,
    /// The UID; empty without an API server.
    pub uid: Box<str>,
    /// When it was created, in seconds since 1970. Objects without a time ([`NO_TIME`]) are equally old, and younger than all
    /// others: an API server gives a new object the time at which it came.
    pub creation_timestamp: i64,
    /// The generation of its spec; 0 without an API server.
    pub generation: i64,
    /// Labels.
    pub labels: Texts,
    /// Annotations.
    pub annotations: Texts,
}

/// Metadata as they are written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(default)]
    name: Box<str>,
    #[serde(default, deserialize_with = "or_default")]
    namespace: Box<str>,
    #[serde(default, deserialize_with = "or_default")]
    uid: Box<str>,
    #[serde(default = "no_time", deserialize_with = "timestamp")]
    creation_timestamp: i64,
    #[serde(default, deserialize_with = "or_default")]
    generation: i64,
    #[serde(default, deserialize_with = "or_default")]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "or_default")]
    annotations: BTreeMap<String, String>,
}

impl From<Written> for ObjectMeta {
    fn from(written: Written) -> ObjectMeta {
        ObjectMeta {
            key: NamespacedName::of(written.namespace, written.name),
            uid: written.uid,
            creation_timestamp: written.creation_timestamp,
            generation: written.generation,
            labels: written.labels.into(),
            annotations: written.annotations.into(),
        }
    }
}

impl ObjectMeta {
    /// The name.
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// The namespace; empty for cluster-scoped kinds.
    pub fn namespace(&self) -> &str {
        &self.key.namespace
    }
}

/// Texts by name, as labels and annotations are: few, and looked up rarely.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts(Box<[(Box<str>, Box<str>)]>);

impl Texts {
    /// The text of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.0[at].1)
    }

    /// All names and texts, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (&**name, &**text))
    }
}

impl From<BTreeMap<String, String>> for Texts {
    fn from(texts: BTreeMap<String, String>) -> Texts {
        Texts(texts.into_iter().map(|(name, text)| (name.into_boxed_str(), text.into_boxed_str())).collect())
    }
}

/// A null is the same as an absent field everywhere in the Kubernetes API.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

fn timestamp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(NO_TIME) };
    parse_timestamp(&text).ok_or_else(|| serde::de::Error::custom("not a time as in RFC 3339"))
}

/// Reads an RFC 3339 time into seconds since 1970. Fractions are cut off; a leap second counts as the one before.
pub(super) fn parse_timestamp(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = bytes.get(from..to)?;
        digits.iter().try_fold(0i64, |n, b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
    };
    let mark = |at: usize, any: &[u8]| bytes.get(at).is_some_and(|b| any.contains(b));
    if !(mark(4, b"-") && mark(7, b"-") && mark(10, b"Tt ") && mark(13, b":") && mark(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?.min(59));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) || hour > 23 || minute > 59 {
        return None;
    }
    let mut at = 19;
    if mark(at, b".") {
        at += 1;
        let from = at;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        if at == from {
            return None;
        }
    }
    let offset = match bytes.get(at)? {
        b'Z' | b'z' if bytes.len() == at + 1 => 0,
        sign @ (b'+' | b'-') if bytes.len() == at + 6 && mark(at + 3, b":") => {
            let seconds = number(at + 1, at + 3)? * 3600 + number(at + 4, at + 6)? * 60;
            if *sign == b'+' { seconds } else { -seconds }
        }
        _ => return None,
    };
    // Days since 1970 in the proleptic Gregorian calendar, with years that start in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        y * 365 + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (m * 153 + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second - offset)
}

#[cfg(test)]
mod tests {
    use super::{NO_TIME, parse_timestamp};

    #[test]
    fn times_are_seconds_since_1970() {
        assert_eq!(parse_timestamp("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse_timestamp("2024-02-29T12:30:15Z"), Some(1_709_209_815));
        assert_eq!(parse_timestamp("2024-02-29T13:30:15.25+01:00"), Some(1_709_209_815));
        assert_eq!(parse_timestamp("1969-12-31T23:59:59Z"), Some(-1));
        assert_eq!(parse_timestamp("9999-12-31T23:59:59Z"), Some(NO_TIME), "no time is younger than all of them");
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in
            ["", "2024", "2024-02-30T00:00:00Z", "2024-13-01T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00"]
        {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
    }
}
