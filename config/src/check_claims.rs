//! The frozen grammar of an envelope, beyond what its types say. A breach is a controller's bug, never a tenant's.
//!
//! Regular expressions are not looked at: a proxy that cannot build one claims its literal prefix instead.

use crate::limits::{
    CONDITIONS_MAX, LISTENERS_MAX, MATCH_TEXT_BYTES_MAX, MATCHES_MAX, METHOD_BYTES_MAX, ORIGINS_MAX, RANK_NUMBERS_MAX,
};
use crate::text::{header_name, is_token};
use crate::{Claims, Envelope, Match, ObjectRef, PathMatch, TypedName, ValueMatch};

/// Checks the envelope of a resource with this name.
pub(crate) fn check_envelope(name: &TypedName, envelope: &Envelope) -> Result<(), String> {
    if envelope.v == 0 {
        return Err("v: schema versions count from 1".to_owned());
    }
    check_origin(&envelope.origin)?;
    if let Some(withheld) = &envelope.withheld {
        if !is_token(&withheld.code) || withheld.code.len() > 64 {
            return Err(format!("withheld.code: {:?} is not a word", withheld.code));
        }
        bounded("withheld.message", &withheld.message, MATCH_TEXT_BYTES_MAX)?;
    }
    if let (TypedName::Fragment(fragment), Some(claims)) = (name, &envelope.claims) {
        if fragment.domain != claims.host {
            return Err(format!("claims.host: {} is not the domain of the name, {}", claims.host, fragment.domain));
        }
        check_claims(claims)?;
    }
    Ok(())
}

/// Checks the claims of a fragment against the frozen grammar.
///
/// # Errors
/// The sentence names the field, the value and the rule. Such claims cannot travel; a translator drops or mends them.
pub fn check_claims(claims: &Claims) -> Result<(), String> {
    if claims.listeners.len() > LISTENERS_MAX {
        return Err(format!("claims.listeners: more than {LISTENERS_MAX}"));
    }
    if !claims.listeners.is_sorted_by(|a, b| a < b) {
        return Err("claims.listeners: not sorted, or one twice".to_owned());
    }
    if claims.matches.len() > MATCHES_MAX {
        return Err(format!("claims.matches: {} are more than {MATCHES_MAX}", claims.matches.len()));
    }
    for (i, one) in claims.matches.iter().enumerate() {
        check_match(one).map_err(|why| format!("claims.matches[{i}].{why}"))?;
    }
    Ok(())
}

/// Checks one match against the frozen grammar.
///
/// # Errors
/// The sentence names the field, the value and the rule.
pub fn check_match(one: &Match) -> Result<(), String> {
    check_path(&one.path)?;
    if let Some(method) = &one.method
        && (!is_token(&method.0) || method.0.len() > METHOD_BYTES_MAX)
    {
        return Err(format!("method: {:?} is not a method (RFC 9110 section 9.1)", method.0));
    }
    if one.headers.len() > CONDITIONS_MAX || one.query.len() > CONDITIONS_MAX {
        return Err(format!("headers, query: more than {CONDITIONS_MAX} conditions"));
    }
    for (i, header) in one.headers.iter().enumerate() {
        header_name(&header.name).map_err(|why| format!("headers[{i}].name: {why}"))?;
        if one.headers[..i].iter().any(|earlier| earlier.name == header.name) {
            return Err(format!("headers[{i}].name: {:?} occurs twice", header.name));
        }
        check_value(&header.value).map_err(|why| format!("headers[{i}].value: {why}"))?;
    }
    for (i, parameter) in one.query.iter().enumerate() {
        if parameter.name.is_empty() {
            return Err(format!("query[{i}].name: it is empty"));
        }
        bounded("query.name", &parameter.name, MATCH_TEXT_BYTES_MAX)?;
        if one.query[..i].iter().any(|earlier| earlier.name == parameter.name) {
            return Err(format!("query[{i}].name: {:?} occurs twice", parameter.name));
        }
        check_value(&parameter.value).map_err(|why| format!("query[{i}].value: {why}"))?;
    }
    if one.key.rank.len() > RANK_NUMBERS_MAX {
        return Err(format!("key.rank: more than {RANK_NUMBERS_MAX} numbers"));
    }
    bounded("key.tie", &one.key.tie.0, MATCH_TEXT_BYTES_MAX)?;
    bounded("key.tie", &one.key.tie.1, MATCH_TEXT_BYTES_MAX)
}

fn check_path(path: &PathMatch) -> Result<(), String> {
    let (PathMatch::Exact(text) | PathMatch::Prefix(text) | PathMatch::Regex(text)) = path;
    bounded("path", text, MATCH_TEXT_BYTES_MAX)?;
    match path {
        PathMatch::Regex(_) => Ok(()),
        _ if !text.starts_with('/') => Err(format!("path: {text:?} does not start with '/'")),
        PathMatch::Prefix(text) if text.len() > 1 && text.ends_with('/') => {
            Err(format!("path: a prefix is written without its last '/', not {text:?}"))
        }
        _ => Ok(()),
    }
}

fn check_value(value: &ValueMatch) -> Result<(), String> {
    match value {
        ValueMatch::Exact(text) | ValueMatch::Regex(text) => bounded("text", text, MATCH_TEXT_BYTES_MAX),
        ValueMatch::Present => Ok(()),
    }
}

fn check_origin(origin: &[ObjectRef]) -> Result<(), String> {
    if origin.len() > ORIGINS_MAX {
        return Err(format!("origin: more than {ORIGINS_MAX} objects"));
    }
    for object in origin {
        for part in [&object.kind, &object.namespace, &object.name] {
            if part.len() > 253 || part.chars().any(char::is_control) {
                return Err(format!("origin: {object:?} holds a part that no object can have"));
            }
        }
    }
    Ok(())
}

fn bounded(field: &str, text: &str, bytes_max: usize) -> Result<(), String> {
    if text.len() > bytes_max { Err(format!("{field}: longer than {bytes_max} bytes")) } else { Ok(()) }
}
