//! What tells one state of an object from another: its uid and its resourceVersion, kept small.

/// A resourceVersion. Within a kind those that are numbers are ordered
/// (<https://github.com/kubernetes/enhancements/issues/5504>); of others only equality is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// As all of Kubernetes writes it.
    Number(u64),
    /// Of a server that does it in another way.
    Text(Box<str>),
}

impl Version {
    /// Whether it is known to be of a later time than the other one.
    pub fn is_newer_than(&self, other: &Version) -> bool {
        matches!((self, other), (Version::Number(this), Version::Number(other)) if this > other)
    }

    /// Whether it says something that the other one does not: it is newer, or it cannot be known not to be.
    pub fn supersedes(&self, other: &Version) -> bool {
        match (self, other) {
            (Version::Number(this), Version::Number(other)) => this > other,
            _ => self != other,
        }
    }
}

impl Default for Version {
    fn default() -> Version {
        Version::Number(0)
    }
}

impl From<&str> for Version {
    fn from(text: &str) -> Version {
        // `007` is not what `7` is: it would be written back in another way.
        match text.parse::<u64>() {
            Ok(number) if number.to_string() == text => Version::Number(number),
            _ => Version::Text(text.into()),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Version::Number(number) => number.fmt(f),
            Version::Text(text) => text.fmt(f),
        }
    }
}

/// A uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uid {
    /// In the usual form, as a number.
    Usual(u128),
    /// In any other.
    Text(Box<str>),
}

impl From<&str> for Uid {
    fn from(text: &str) -> Uid {
        let usual = |text: &str| {
            let dashes = [8, 13, 18, 23];
            let formed = text.len() == 36
                && text.bytes().enumerate().all(|(at, byte)| match dashes.contains(&at) {
                    true => byte == b'-',
                    false => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
                });
            formed.then(|| u128::from_str_radix(&text.replace('-', ""), 16).ok()).flatten()
        };
        usual(text).map_or_else(|| Uid::Text(text.into()), Uid::Usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ordered_and_other_versions_only_differ() {
        let [seven, eight, text] = ["7", "8", "a"].map(Version::from);
        assert!(eight.is_newer_than(&seven) && !seven.is_newer_than(&eight) && !seven.is_newer_than(&seven));
        assert!(!text.is_newer_than(&seven) && !seven.is_newer_than(&text));
        assert!(text.supersedes(&seven) && !text.supersedes(&text) && !seven.supersedes(&eight));
        assert_eq!(Version::from("007").to_string(), "007");
    }

    #[test]
    fn uids_are_equal_only_when_they_are_the_same_text() {
        let usual = "fa4e0000-0000-4000-8000-0123456789ab";
        assert!(matches!(Uid::from(usual), Uid::Usual(_)));
        for other in [
            "FA4E0000-0000-4000-8000-0123456789ab",
            "fa4e00000000400080000123456789ab",
            "",
            "+a4e0000-0000-4000-8000-0123456789ab",
        ] {
            assert!(matches!(Uid::from(other), Uid::Text(_)), "{other}");
            assert_ne!(Uid::from(usual), Uid::from(other));
        }
    }
}
