//! Reading Host and `:authority`: strictly, into the one form that is compared.

use std::borrow::Cow;
use std::net::Ipv6Addr;

/// Why an authority is refused. The request then gets 400 (RFC 9112 section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// There is no host.
    #[error("the host is empty")]
    Empty,
    /// It names a user, which a request never may (RFC 9110 section 4.2.4).
    #[error("the host holds user information")]
    UserInfo,
    /// The host is neither a name nor an IP address.
    #[error("the host is neither a name nor an address")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
}

/// Splits an authority into its host, in lower case and without a trailing dot, and its port (RFC 3986 section 3.2).
///
/// An IPv6 address keeps its brackets and gets its canonical spelling (RFC 5952). Names in other scripts come as A-labels,
/// and nothing is percent-decoded: whatever is not a letter, digit, `-` or `_` is refused.
///
/// # Errors
/// When the text is not `host [":" port]`.
pub fn authority(text: &str) -> Result<(Cow<'_, str>, Option<u16>), AuthorityError> {
    if text.contains('@') {
        return Err(AuthorityError::UserInfo);
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or(AuthorityError::Host)?;
        let address: Ipv6Addr = address.parse().map_err(|_| AuthorityError::Host)?;
        let port = match rest.strip_prefix(':') {
            Some(port) => read_port(port)?,
            None if rest.is_empty() => None,
            None => return Err(AuthorityError::Host),
        };
        return Ok((Cow::Owned(format!("[{address}]")), port));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, read_port(port)?),
        None => (text, None),
    };
    Ok((read_name(host)?, port))
}

fn read_name(text: &str) -> Result<Cow<'_, str>, AuthorityError> {
    if text.is_empty() {
        return Err(AuthorityError::Empty);
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let legal = name.len() <= 253
        && name.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        });
    if !legal {
        return Err(AuthorityError::Host);
    }
    Ok(if name.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    })
}

/// An empty port is the scheme's default (RFC 3986 section 3.2.3).
fn read_port(text: &str) -> Result<Option<u16>, AuthorityError> {
    if text.is_empty() {
        return Ok(None);
    }
    if text.len() > 5 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(AuthorityError::Port);
    }
    match text.parse() {
        Ok(0) | Err(_) => Err(AuthorityError::Port),
        Ok(port) => Ok(Some(port)),
    }
}
