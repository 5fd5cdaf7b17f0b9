//! Rules for single texts: tokens, header fields, paths, hosts. Each says why a text is refused.

use std::net::IpAddr;

use crate::Domain;
use crate::limits::{HEADER_NAME_BYTES_MAX, HEADER_VALUE_BYTES_MAX};

/// Fields that frame a message, name its target, or belong to one connection (RFC 9110 sections 6.6, 7.2 and 7.6, RFC 9113
/// section 8.2.2). The proxy alone writes them, so no configuration may touch them.
const OWN_FIELDS: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Whether the text is a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Checks a header name in its normal form: a token in lower case.
pub(crate) fn header_name(name: &str) -> Result<(), String> {
    if name.len() > HEADER_NAME_BYTES_MAX {
        return Err(format!("a header name is longer than {HEADER_NAME_BYTES_MAX} bytes"));
    }
    if !is_token(name) || name.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(format!("{name:?} is not a header name in lower case (RFC 9110 section 5.1)"));
    }
    Ok(())
}

/// Checks the name of a header that a configuration wants to change.
pub(crate) fn changeable_header(name: &str) -> Result<(), String> {
    header_name(name)?;
    if OWN_FIELDS.contains(&name) {
        return Err(format!("the header {name:?} is written by the proxy alone; leave it out"));
    }
    Ok(())
}

/// Checks a header value (RFC 9110 section 5.5): no control bytes but tabs inside, no space at its ends.
pub(crate) fn header_value(value: &str) -> Result<(), String> {
    if value.len() > HEADER_VALUE_BYTES_MAX {
        return Err(format!("a header value is longer than {HEADER_VALUE_BYTES_MAX} bytes"));
    }
    if value.bytes().any(|b| (b < 0x20 && b != b'\t') || b == 0x7f) {
        return Err(format!("the header value {value:?} holds a control character (RFC 9110 section 5.5)"));
    }
    if value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']) {
        return Err(format!("the header value {value:?} begins or ends with a space (RFC 9110 section 5.5)"));
    }
    Ok(())
}

/// Checks a path that is sent on: it starts with `/` and holds only what a path may hold (RFC 3986 section 3.3).
pub(crate) fn sent_path(path: &str) -> Result<(), String> {
    if !path.starts_with('/') {
        return Err(format!("the path {path:?} does not start with '/'"));
    }
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        let legal = match byte {
            b'%' => {
                let hex = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_hexdigit());
                hex(bytes.next()) && hex(bytes.next())
            }
            _ => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte),
        };
        if !legal {
            return Err(format!(
                "the path {path:?} holds a character that must be percent-encoded (RFC 3986 section 3.3)"
            ));
        }
    }
    Ok(())
}

/// Checks the name of a server: an exact domain.
pub(crate) fn server_name(name: &str) -> Result<(), String> {
    let domain: Domain = name.parse().map_err(|e| format!("{e}"))?;
    if domain.is_wildcard() {
        return Err(format!("{name:?} must be one name, not a wildcard"));
    }
    if domain.as_str() != name {
        return Err(format!("{name:?} is not in its normal form {:?}", domain.as_str()));
    }
    Ok(())
}

/// Checks a host as it may stand in a location: an exact domain or an IP address, IPv6 in brackets.
pub(crate) fn location_host(host: &str) -> Result<(), String> {
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match address {
        Some(inner) if matches!(inner.parse(), Ok(IpAddr::V6(_))) => Ok(()),
        Some(_) => Err(format!("{host:?} is not an IPv6 address in brackets")),
        None => server_name(host),
    }
}

/// Checks an authority that is sent as Host: a host with or without a port.
pub(crate) fn sent_authority(text: &str) -> Result<(), String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    location_host(host)?;
    match port {
        Some(port) if port.parse::<u16>().map_or(true, |p| p == 0 || p.to_string() != port) => {
            Err(format!("{text:?} has no valid port (1 to 65535)"))
        }
        _ => Ok(()),
    }
}

/// A text that is safe in a message: bounded, and without control characters.
pub(crate) fn tame(text: &str, chars_max: usize) -> String {
    let mut out: String =
        text.chars().take(chars_max).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    if text.chars().nth(chars_max).is_some() {
        out.push('…');
    }
    out
}
