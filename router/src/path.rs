//! The one form of a path: what requests and claims are compared in, and which spellings are refused.

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
/// them. [`crate::HostTable::route`] refuses them where they would lead around a more specific route. The normal form of
/// a normal form is itself.
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

/// The normal form of a claimed path. It is never refused: what no request can be stays and matches nothing.
pub(crate) fn claimed(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = String::with_capacity(path.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match escape_at(bytes, at) {
            Some(value) => {
                push_decoded(&mut out, value);
                at += 3;
            }
            None => {
                if is_path_byte(byte) {
                    out.push(char::from(byte))
                } else {
                    push_escaped(&mut out, byte)
                }
                at += 1;
            }
        }
    }
    out
}

/// How a lenient server may read a normal form: escaped separators decoded, empty segments merged, parameters cut off.
/// `None` if that is what is written.
pub(crate) fn lenient_reading(normal: &str) -> Option<String> {
    if !["//", ";", "%2F", "%5C", "%3B"].iter().any(|odd| normal.contains(odd)) {
        return None;
    }
    let decoded = normal.replace("%2F", "/").replace("%5C", "/");
    let mut out = String::with_capacity(decoded.len());
    for segment in decoded.split('/').map(before_parameters).filter(|segment| !segment.is_empty()) {
        out.push('/');
        out.push_str(segment);
    }
    if decoded.ends_with('/') || out.is_empty() {
        out.push('/');
    }
    (out != normal).then_some(out)
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
                    Some("") => return Err(PathError::AmbiguousDots),
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

fn before_parameters(segment: &str) -> &str {
    let before = segment.split_once(';').map_or(segment, |(before, _)| before);
    before.split_once("%3B").map_or(before, |(before, _)| before)
}
