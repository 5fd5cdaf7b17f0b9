//! The one form of a path, the text that paths are compared in, and which spellings are refused.

use std::borrow::Cow;

/// Why a path is refused. The request then gets 400.
///
/// Each is a spelling that two servers may read differently, so that what was authorised here would not be what is
/// served there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not start with `/`.
    #[error("the path does not start with '/'")]
    NotAbsolute,
    /// A `%` without two hexadecimal digits (RFC 3986 section 2.1).
    #[error("the path holds a broken percent escape")]
    BrokenEscape,
    /// A control character or space, written out or escaped.
    #[error("the path holds a control character")]
    Control,
    /// A backslash, which some servers read as `/`; or `?` or `#`, which end a path.
    #[error("the path holds a character that no path may hold")]
    Illegal,
    /// `..` above the root.
    #[error("the path leads above the root")]
    AboveRoot,
    /// `.` or `..` beside `;`, an escaped separator, or an empty segment.
    #[error("the path holds dots that servers read differently")]
    AmbiguousDots,
}

/// The normal form of a request's path, without its query (RFC 3986 section 6.2.2).
///
/// Escapes of unreserved characters are decoded, the others are written in upper case, and characters that no URI may
/// hold are escaped; `.` and `..` segments are resolved. `%2F`, `%5C` and `//` stay: they mean what the backend makes of
/// them. The router refuses them where they would lead around a more specific route. The normal form of a normal form is
/// itself.
///
/// # Errors
/// See [`PathError`].
pub fn normalise(path: &str) -> Result<Cow<'_, str>, PathError> {
    if !path.starts_with('/') {
        return Err(PathError::NotAbsolute);
    }
    if is_plain(path.as_bytes()) {
        return Ok(Cow::Borrowed(path));
    }
    let spelled = spell(path)?;
    Ok(Cow::Owned(resolve_dots(&spelled)?))
}

/// The text in which claimed paths and normal forms are compared.
///
/// It is the normal form with the escapes of those reserved characters decoded that a path may hold as they are
/// (RFC 3986 section 3.3), for nearly every backend decodes them: `/a%3Ab` is `/a:b`. Dots are left alone, and nothing is
/// refused: a claim that no request can spell stays and matches nothing, and a broken escape is a `%` itself. The
/// compared text of a compared text is itself, and every `/` of the path stays one.
pub fn compared(path: &str) -> Cow<'_, str> {
    let bytes = path.as_bytes();
    if bytes.iter().all(|byte| is_path_byte(*byte)) {
        return Cow::Borrowed(path);
    }
    let mut out = String::with_capacity(path.len() + 16);
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let (value, length) = match escape_at(bytes, at) {
            Some(value) => (value, 3),
            None => (byte, 1),
        };
        // An escaped slash separates nothing.
        if is_path_byte(value) && !(value == b'/' && length == 3) {
            out.push(char::from(value));
        } else {
            push_escaped(&mut out, value);
        }
        at += length;
    }
    Cow::Owned(out)
}

/// Why a claimed path matches nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unspellable {
    /// A `?` ends a path, and what follows is a query.
    #[error("a path ends before '?'; claim the part before it, or write %3F if the character is meant")]
    Query,
    /// A `#` ends a path, and no request holds what follows.
    #[error("no request holds '#'; claim the part before it, or write %23 if the character is meant")]
    Fragment,
    /// Dots lead elsewhere.
    #[error("dots in the path of a request are resolved before it is matched; write {0:?}")]
    Dots(String),
    /// Requests like it are refused.
    #[error("every request like it is refused: {0}; claim another path")]
    Refused(#[from] PathError),
}

/// Whether a request can have this path, so that a claim of it can match.
///
/// # Errors
/// What no request has, and what the owner of the claim can write instead.
pub fn check_spelling(claimed: &str) -> Result<(), Unspellable> {
    match claimed.bytes().find(|byte| matches!(byte, b'?' | b'#')) {
        Some(b'?') => return Err(Unspellable::Query),
        Some(_) => return Err(Unspellable::Fragment),
        None => {}
    }
    let wanted = compared(claimed);
    let normal = normalise(&wanted)?;
    if normal == wanted { Ok(()) } else { Err(Unspellable::Dots(normal.into_owned())) }
}

/// The longest path above one that no request can have: what is claimed in its place. It ends before the first element
/// that stands in no request.
pub fn spellable_part(claimed: &str) -> &str {
    let end = claimed.find(['?', '#']).unwrap_or(claimed.len());
    let path = claimed.get(..end).unwrap_or_default();
    let mut end = 0;
    while let Some(rest) = path.get(end..).and_then(|rest| rest.strip_prefix('/')) {
        let length = 1 + rest.find('/').unwrap_or(rest.len());
        let Some(element) = path.get(end..end + length).filter(|element| check_spelling(element).is_ok()) else {
            break;
        };
        end += element.len();
    }
    match path.get(..end).unwrap_or_default().trim_end_matches('/') {
        "" => "/",
        part => part,
    }
}

/// True if a path is its own normal form by a glance: no escapes, and no segment that starts with a dot.
fn is_plain(path: &[u8]) -> bool {
    let mut before = 0;
    path.iter().all(|&byte| {
        let plain = is_path_byte(byte) && !(byte == b'.' && before == b'/');
        before = byte;
        plain
    })
}

/// Bytes that may stand in a path as they are (RFC 3986 section 3.3: `pchar` and `/`).
fn is_path_byte(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@/".contains(&byte)
}

/// RFC 3986 section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// The byte that an escape at this place stands for.
fn escape_at(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |offset: usize| char::from(*bytes.get(at + offset)?).to_digit(16);
    if bytes.get(at) != Some(&b'%') {
        return None;
    }
    u8::try_from(digit(1)? * 16 + digit(2)?).ok()
}

fn push_decoded(out: &mut String, byte: u8) {
    if is_unreserved(byte) { out.push(char::from(byte)) } else { push_escaped(out, byte) }
}

fn push_escaped(out: &mut String, byte: u8) {
    const HEX: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    out.extend(['%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

/// One spelling for every character.
fn spell(path: &str) -> Result<String, PathError> {
    let bytes = path.as_bytes();
    let mut out = String::with_capacity(path.len() + 16);
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte == b'%' {
            let value = escape_at(bytes, at).ok_or(PathError::BrokenEscape)?;
            if value < 0x20 || value == 0x7f {
                return Err(PathError::Control);
            }
            push_decoded(&mut out, value);
            at += 3;
            continue;
        }
        match byte {
            0..=0x20 | 0x7f => return Err(PathError::Control),
            b'\\' | b'?' | b'#' => return Err(PathError::Illegal),
            _ if is_path_byte(byte) => out.push(char::from(byte)),
            _ => push_escaped(&mut out, byte),
        }
        at += 1;
    }
    Ok(out)
}

/// RFC 3986 section 5.2.4, but nothing is popped that a server may not have seen as a segment.
fn resolve_dots(path: &str) -> Result<String, PathError> {
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_in_dots = false;
    for segment in path.split('/').skip(1) {
        ends_in_dots = false;
        match segment {
            "." => ends_in_dots = true,
            ".." => {
                ends_in_dots = true;
                match kept.pop() {
                    None => return Err(PathError::AboveRoot),
                    Some(segment) if is_not_one_segment(segment) => return Err(PathError::AmbiguousDots),
                    Some(_) => {}
                }
            }
            _ if has_hidden_dots(segment) => return Err(PathError::AmbiguousDots),
            _ => kept.push(segment),
        }
    }
    let mut out = String::with_capacity(path.len());
    for segment in kept {
        out.push('/');
        out.push_str(segment);
    }
    if ends_in_dots || out.is_empty() {
        out.push('/');
    }
    Ok(out)
}

/// Whether a server that cuts parameters off or decodes separators sees `.` or `..` in a segment that is neither.
fn has_hidden_dots(segment: &str) -> bool {
    let is_dots = |piece: &str| matches!(before_parameters(piece), "." | "..");
    segment.split("%2F").flat_map(|piece| piece.split("%5C")).any(is_dots)
}

/// Whether a server may see no segment here, or several, so that `..` behind it takes something else away.
fn is_not_one_segment(segment: &str) -> bool {
    before_parameters(segment).is_empty() || segment.contains("%2F") || segment.contains("%5C")
}

fn before_parameters(segment: &str) -> &str {
    let before = segment.split_once(';').map_or(segment, |(before, _)| before);
    before.split_once("%3B").map_or(before, |(before, _)| before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compared_text_decodes_what_a_path_may_hold_and_nothing_else() {
        for (path, wanted) in [
            ("/a", "/a"),
            ("/%61%3a%40%24%2b%3B", "/a:@$+;"),
            ("/a%2fb%5c%25%3f%23", "/a%2Fb%5C%25%3F%23"),
            ("/a b", "/a%20b"),
            ("/100%", "/100%25"),
            ("/\u{fc}", "/%C3%BC"),
            ("/a\\b", "/a%5Cb"),
            ("/../%2e", "/../."),
        ] {
            assert_eq!(compared(path), wanted, "{path}");
            assert_eq!(compared(wanted), wanted, "{path}: again");
        }
    }

    #[test]
    fn what_no_request_can_spell_is_told_and_the_part_above_it_is_known() {
        for (path, part) in [
            ("/a/../b", "/a"),
            ("/a/./b", "/a"),
            ("/a/%2e%2E/b", "/a"),
            ("/..", "/"),
            ("/.", "/"),
            ("/a?b", "/a"),
            ("/a/?b=/c", "/a"),
            ("/?", "/"),
            ("/a#b", "/a"),
            ("/a/b%00/c", "/a"),
            ("/a/..;x/b", "/a"),
            ("/a/x%2f..%2Fb", "/a"),
            ("/a//../b", "/a"),
        ] {
            assert!(check_spelling(path).is_err(), "{path} can be spelled");
            assert_eq!(spellable_part(path), part, "{path}");
        }
        for path in
            ["/", "/a b", "/100%", "/a%2Fb", "/a//b", "/a;b/c", "/a%3Bb", "/.well-known", "/...", "/\u{fc}", "/a%3F"]
        {
            assert_eq!(check_spelling(path), Ok(()), "{path}");
            assert_eq!(spellable_part(path), path, "{path}");
        }
        assert_eq!(check_spelling("/a/../b"), Err(Unspellable::Dots("/b".to_owned())));
    }

    #[test]
    fn dots_take_nothing_away_that_a_server_may_not_see_as_one_segment() {
        for path in ["/x/y/;/../admin", "/x/y%2Fz/../admin", "/x/y%5cz/..", "/x/%3b/..", "/x//.."] {
            assert_eq!(normalise(path), Err(PathError::AmbiguousDots), "{path}");
        }
        assert_eq!(normalise("/x/a;v=1/../b").as_deref(), Ok("/x/b"));
    }
}
