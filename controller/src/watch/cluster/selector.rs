//! Label selectors, checked before anything is asked with them.
//!
//! The grammar is that of <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors>.

use std::sync::Arc;

/// A label selector that the API server takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(Arc<str>);

/// Why a text is no label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part:?}: {why}")]
pub struct NoSelector {
    part: String,
    why: &'static str,
}

impl Selector {
    /// As it is sent; none when it selects everything.
    pub fn text(&self) -> Option<Arc<str>> {
        (!self.0.is_empty()).then(|| Arc::clone(&self.0))
    }
}

impl std::str::FromStr for Selector {
    type Err = NoSelector;

    fn from_str(text: &str) -> Result<Selector, NoSelector> {
        let text = text.trim();
        if !text.is_empty() {
            requirements(text).into_iter().try_for_each(requirement)?;
        }
        Ok(Selector(text.into()))
    }
}

/// The requirements: parts between commas that are outside of parentheses.
fn requirements(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let comma = move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    text.split(comma).map(str::trim).collect()
}

fn requirement(part: &str) -> Result<(), NoSelector> {
    let fail = |why| NoSelector { part: part.to_owned(), why };
    if let Some(key) = part.strip_prefix('!') {
        return check_key(key.trim()).map_err(fail);
    }
    if let Some((left, values)) = part.split_once('(') {
        let values = values.strip_suffix(')').ok_or(fail("a list of values ends with )"))?;
        let mut words = left.split_whitespace();
        let (key, operator) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if !matches!(operator, "in" | "notin") || words.next().is_some() {
            return Err(fail("before a list of values there is a key and `in` or `notin`"));
        }
        check_key(key).map_err(fail)?;
        return values.split(',').try_for_each(|value| check_value(value.trim())).map_err(fail);
    }
    if let Some(at) = part.find(['=', '!']) {
        let (key, rest) = part.split_at(at);
        let operator = ["==", "!=", "="].into_iter().find(|operator| rest.starts_with(operator));
        let operator = operator.ok_or(fail("between key and value there is =, == or !="))?;
        check_key(key.trim()).map_err(fail)?;
        return check_value(rest[operator.len()..].trim()).map_err(fail);
    }
    check_key(part).map_err(fail)
}

fn is_name(text: &str) -> bool {
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 63
        && ends(text.bytes().next())
        && ends(text.bytes().last())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn check_key(key: &str) -> Result<(), &'static str> {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let label =
        |label: &str| is_name(label) && label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    if prefix.is_some_and(|prefix| prefix.len() > 253 || !prefix.split('.').all(label)) {
        return Err("before the / of a key there is the name of a domain");
    }
    if is_name(name) {
        Ok(())
    } else {
        Err("a key is at most 63 letters, digits, -, _ and ., and both its ends are letters or digits")
    }
}

fn check_value(value: &str) -> Result<(), &'static str> {
    let fine = value.is_empty() || is_name(value);
    if fine {
        Ok(())
    } else {
        Err("a value is at most 63 letters, digits, -, _ and ., and both its ends are letters or digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_that_the_api_server_takes_are_taken() {
        for text in [
            "",
            "a",
            "!a",
            "a=b",
            "a==b",
            "a!=b",
            "a=",
            "a in (b, c)",
            "a notin (b)",
            "x.example/a=b,c",
            "a in (b,),!c",
            "app.kubernetes.io/name in (shop),tier!=web",
        ] {
            assert!(text.parse::<Selector>().is_ok(), "{text:?}: {:?}", text.parse::<Selector>());
        }
        assert_eq!(" ".parse::<Selector>().unwrap().text(), None);
    }

    #[test]
    fn others_are_refused_with_the_part_that_is_wrong() {
        for text in [
            "a=b,",
            "=b",
            "a=b=c",
            "a in b",
            "a in (b",
            "a like (b)",
            "-a",
            "a=b c",
            "A.B/a",
            "a/b/c",
            "a!b",
            "a in ()x",
        ] {
            let error = text.parse::<Selector>().unwrap_err().to_string();
            assert!(error.contains('"'), "{text:?}: {error}");
        }
    }
}
