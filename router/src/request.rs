//! What a request shows to conditions, each part read once and only when a condition asks.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

use http::header::COOKIE;
use http::{HeaderMap, HeaderName};

/// A request while its route is looked for.
pub(crate) struct Request<'r> {
    pub(crate) method: &'r str,
    /// The normal form, which expressions look at.
    pub(crate) path: &'r str,
    /// The text in which paths are compared.
    pub(crate) compared: &'r str,
    headers: &'r HeaderMap,
    query: Option<&'r str>,
    parameters: OnceCell<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl<'r> Request<'r> {
    pub(crate) fn new(
        method: &'r str,
        path: &'r str,
        compared: &'r str,
        headers: &'r HeaderMap,
        query: Option<&'r str>,
    ) -> Request<'r> {
        Request { method, path, compared, headers, query, parameters: OnceCell::new() }
    }

    /// The same request with its path read otherwise.
    pub(crate) fn with_reading<'s>(&self, reading: &'s str) -> Request<'s>
    where
        'r: 's,
    {
        Request::new(self.method, reading, reading, self.headers, self.query)
    }

    /// The value of a header; several lines of one name are joined (RFC 9110 section 5.3, RFC 6265 section 5.4).
    pub(crate) fn header(&self, name: &HeaderName) -> Option<Cow<'_, [u8]>> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next()?.as_bytes();
        let mut out = Cow::Borrowed(first);
        for more in values {
            let joined = out.to_mut();
            joined.extend_from_slice(if name == COOKIE { b"; " } else { b", " });
            joined.extend_from_slice(more.as_bytes());
        }
        Some(out)
    }

    /// The first value of a query parameter, decoded (Gateway API, `HTTPQueryParamMatch`).
    pub(crate) fn parameter(&self, name: &[u8]) -> Option<&[u8]> {
        self.parameters.get_or_init(|| read_query(self.query.unwrap_or(""))).get(name).map(Vec::as_slice)
    }
}

fn read_query(query: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut out = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        out.entry(decode(name)).or_insert_with(|| decode(value));
    }
    out
}

/// Decodes escapes and `+` as forms write them (WHATWG URL, application/x-www-form-urlencoded); broken escapes stay.
fn decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digit = |offset: usize| bytes.get(at + offset).and_then(|b| char::from(*b).to_digit(16));
        let escaped = if byte == b'%' { digit(1).zip(digit(2)) } else { None };
        match escaped.and_then(|(high, low)| u8::try_from(high * 16 + low).ok()) {
            Some(value) => {
                out.push(value);
                at += 3;
            }
            None => {
                out.push(if byte == b'+' { b' ' } else { byte });
                at += 1;
            }
        }
    }
    out
}
