//! What a body must be beyond its types: ranges, legal texts, and what depends on the resource's name or claims.

use ipnet::IpNet;

use crate::limits::{
    CERTIFICATES_MAX, HEADER_CHANGES_MAX, MATCH_TEXT_BYTES_MAX, POLICIES_MAX, RETRIES_MAX, SHARES_MAX, TIMEOUT_MS_MAX,
    WEIGHT_MAX,
};
use crate::text::{changeable_header, header_value, location_host, sent_authority, sent_path, server_name};
use crate::{
    Action, Body, CertificateBody, Claims, ForwardAction, FragmentBody, HeaderChanges, HostBody, HostTls, ListenerBody,
    ListenerProtocol, MemberSource, PathMatch, PathRewrite, PolicyBody, PoolBody, Redirect, RedirectPath, RouteAction,
    SecretDigest, Share, Timeouts, Transport, TypedName, UnknownName,
};

/// Checks a body against its own rules, the resource's name, and, for a fragment, its claims.
///
/// # Errors
/// The sentence names the field, the value and the rule. The resource is then not live, and only it.
pub(crate) fn check_body(name: &TypedName, claims: Option<&Claims>, body: &Body) -> Result<(), String> {
    match (name, body) {
        (TypedName::Listener(name), Body::Listener(body)) => check_listener(name.transport, body),
        (TypedName::Host(_), Body::Host(body)) => check_host(body),
        (TypedName::Fragment(_), Body::Fragment(body)) => check_fragment(claims, body),
        (TypedName::Pool(_), Body::Pool(body)) => check_pool(body),
        (TypedName::Certificate(_), Body::Certificate(body)) => check_certificate(body),
        (TypedName::Policy(_), Body::Policy(body)) => check_policy(body),
        _ => Err("the body is of another kind than the name".to_owned()),
    }
}

fn check_listener(transport: Transport, body: &ListenerBody) -> Result<(), String> {
    if transport == Transport::Udp && body.protocol != ListenerProtocol::Raw {
        return Err("protocol: a udp listener can only be raw".to_owned());
    }
    if (body.protocol == ListenerProtocol::Raw) != body.pool.is_some() {
        return Err("pool: a raw listener needs one, and no other may have one".to_owned());
    }
    let has_tls_fields = body.unknown_name != UnknownName::Default || body.default_certificate.is_some();
    if body.protocol != ListenerProtocol::Tls && has_tls_fields {
        return Err("unknownName, defaultCertificate: only a tls listener may have them".to_owned());
    }
    Ok(())
}

fn check_host(body: &HostBody) -> Result<(), String> {
    if body.owner.len() > 253 || body.owner.chars().any(char::is_control) {
        return Err(format!("owner: {:?} is not a namespace", body.owner));
    }
    match &body.tls {
        Some(HostTls::Terminate { certificates, client_auth, .. }) => {
            at_most("tls.terminate.certificates", certificates.len(), CERTIFICATES_MAX)?;
            client_auth
                .as_ref()
                .map_or(Ok(()), |auth| digest("tls.terminate.clientAuth.authorities", &auth.authorities))
        }
        Some(HostTls::Stream { certificates, .. }) => {
            at_most("tls.stream.certificates", certificates.len(), CERTIFICATES_MAX)
        }
        Some(HostTls::Passthrough { .. }) | None => Ok(()),
    }
}

fn check_fragment(claims: Option<&Claims>, body: &FragmentBody) -> Result<(), String> {
    let matches = claims.map_or(&[][..], |claims| &claims.matches);
    if matches.len() != body.actions.len() {
        return Err(format!("actions: {} for {} matches", body.actions.len(), matches.len()));
    }
    for (i, (one, action)) in matches.iter().zip(&body.actions).enumerate() {
        check_route(&one.path, action).map_err(|why| format!("actions[{i}].{why}"))?;
    }
    Ok(())
}

fn check_route(path: &PathMatch, route: &RouteAction) -> Result<(), String> {
    if let Some(to_https) = &route.to_https {
        redirect_status(to_https.status).map_err(|why| format!("toHttps.{why}"))?;
        port("toHttps.port", to_https.port)?;
    }
    at_most("policies", route.policies.len(), POLICIES_MAX)?;
    check_headers(&route.response_headers).map_err(|why| format!("responseHeaders.{why}"))?;
    match &route.action {
        Action::Forward(forward) => check_forward(path, forward).map_err(|why| format!("action.forward.{why}")),
        Action::Redirect(redirect) => check_redirect(path, redirect).map_err(|why| format!("action.redirect.{why}")),
        Action::Respond(status) => answer_status(*status).map_err(|why| format!("action.respond: {why}")),
    }
}

fn check_forward(matched: &PathMatch, forward: &ForwardAction) -> Result<(), String> {
    if forward.shares.is_empty() {
        return Err("shares: at least one is needed".to_owned());
    }
    at_most("shares", forward.shares.len(), SHARES_MAX)?;
    for (i, share) in forward.shares.iter().enumerate() {
        let weight = match share {
            Share::Pool { weight, .. } => *weight,
            Share::Status { status, weight } => {
                answer_status(*status).map_err(|why| format!("shares[{i}].status: {why}"))?;
                *weight
            }
        };
        if weight > WEIGHT_MAX {
            return Err(format!("shares[{i}].weight: {weight} is above {WEIGHT_MAX}"));
        }
    }
    match &forward.path {
        None => {}
        Some(PathRewrite::Full(path)) => sent_path(path).map_err(|why| format!("path.full: {why}"))?,
        Some(PathRewrite::Prefix(path)) => {
            sent_path(path).map_err(|why| format!("path.prefix: {why}"))?;
            needs_prefix(matched).map_err(|why| format!("path.prefix: {why}"))?;
        }
        Some(PathRewrite::Template(template)) => {
            sent_path(template).map_err(|why| format!("path.template: {why}"))?;
            if !matches!(matched, PathMatch::Regex(_)) {
                return Err("path.template: only a regular expression has groups to fill it".to_owned());
            }
        }
    }
    if let Some(host) = &forward.host {
        sent_authority(host).map_err(|why| format!("host: {why}"))?;
    }
    check_headers(&forward.request_headers).map_err(|why| format!("requestHeaders.{why}"))?;
    check_timeouts(&forward.timeouts).map_err(|why| format!("timeouts.{why}"))?;
    if forward.retries > RETRIES_MAX {
        return Err(format!("retries: {} is above {RETRIES_MAX}", forward.retries));
    }
    Ok(())
}

fn check_redirect(matched: &PathMatch, redirect: &Redirect) -> Result<(), String> {
    redirect_status(redirect.status)?;
    if let Some(scheme) = &redirect.scheme
        && scheme != "http"
        && scheme != "https"
    {
        return Err(format!("scheme: {scheme:?} is neither http nor https"));
    }
    if let Some(host) = &redirect.host {
        location_host(host).map_err(|why| format!("host: {why}"))?;
    }
    if let Some(number) = redirect.port {
        port("port", number)?;
    }
    match &redirect.path {
        None => Ok(()),
        Some(RedirectPath::Full(path)) => sent_path(path).map_err(|why| format!("path.full: {why}")),
        Some(RedirectPath::Prefix(path)) => {
            sent_path(path).map_err(|why| format!("path.prefix: {why}"))?;
            needs_prefix(matched).map_err(|why| format!("path.prefix: {why}"))
        }
    }
}

/// Only a prefix match says which part of the path a new prefix stands for (Gateway API, `ReplacePrefixMatch`).
fn needs_prefix(matched: &PathMatch) -> Result<(), String> {
    match matched {
        PathMatch::Prefix(_) => Ok(()),
        _ => Err("only a prefix match has a part to replace".to_owned()),
    }
}

fn check_headers(changes: &HeaderChanges) -> Result<(), String> {
    let HeaderChanges { remove, set, add } = changes;
    for (field, count) in [("remove", remove.len()), ("set", set.len()), ("add", add.len())] {
        at_most(field, count, HEADER_CHANGES_MAX)?;
    }
    for (i, name) in remove.iter().enumerate() {
        changeable_header(name).map_err(|why| format!("remove[{i}]: {why}"))?;
    }
    for (field, list) in [("set", set), ("add", add)] {
        for (i, (name, value)) in list.iter().enumerate() {
            changeable_header(name).and_then(|()| header_value(value)).map_err(|why| format!("{field}[{i}]: {why}"))?;
        }
    }
    for (i, (name, _)) in set.iter().enumerate() {
        if set[..i].iter().any(|(earlier, _)| earlier == name) {
            return Err(format!("set[{i}]: {name:?} occurs twice"));
        }
    }
    Ok(())
}

fn check_timeouts(timeouts: &Timeouts) -> Result<(), String> {
    let Timeouts { connect_ms, idle_ms, request_ms } = timeouts;
    for (field, time) in [("connectMs", connect_ms), ("idleMs", idle_ms), ("requestMs", request_ms)] {
        if let Some(time) = time
            && *time > TIMEOUT_MS_MAX
        {
            return Err(format!("{field}: {time} is above {TIMEOUT_MS_MAX}"));
        }
    }
    Ok(())
}

fn check_pool(body: &PoolBody) -> Result<(), String> {
    if let MemberSource::Dns { host, port: number } = &body.members {
        server_name(host).map_err(|why| format!("members.dns.host: {why}"))?;
        port("members.dns.port", *number)?;
    }
    if let Some(tls) = &body.tls {
        server_name(&tls.server_name).map_err(|why| format!("tls.serverName: {why}"))?;
        if let Some(authorities) = &tls.authorities {
            digest("tls.authorities", authorities)?;
        }
    }
    Ok(())
}

fn check_certificate(body: &CertificateBody) -> Result<(), String> {
    // A chain travels in the journal, where no key may ever be. The text is not shown.
    if body.chain.contains("PRIVATE KEY") {
        return Err("chain: it holds a private key".to_owned());
    }
    if !body.chain.contains("-----BEGIN CERTIFICATE-----") {
        return Err("chain: it holds no certificate in PEM (RFC 7468 section 5)".to_owned());
    }
    digest("key", &body.key)
}

fn check_policy(body: &PolicyBody) -> Result<(), String> {
    at_most("allow", body.allow.len(), 100_000)?;
    for (i, entry) in body.allow.iter().enumerate() {
        if entry.len() > MATCH_TEXT_BYTES_MAX || entry.parse::<IpNet>().is_err() {
            return Err(format!("allow[{i}]: {entry:?} is not a network such as 10.0.0.0/8"));
        }
    }
    Ok(())
}

fn at_most(field: &str, count: usize, max: usize) -> Result<(), String> {
    if count > max { Err(format!("{field}: {count} are more than {max}")) } else { Ok(()) }
}

fn digest(field: &str, digest: &SecretDigest) -> Result<(), String> {
    // The digest names a file in the volume, so nothing but a digest may pass.
    if digest.is_well_formed() { Ok(()) } else { Err(format!("{field}: not 64 lower-case hexadecimal digits")) }
}

fn port(field: &str, port: u16) -> Result<(), String> {
    if port == 0 { Err(format!("{field}: 0 is not a port (1 to 65535)")) } else { Ok(()) }
}

fn redirect_status(status: u16) -> Result<(), String> {
    match status {
        301 | 302 | 303 | 307 | 308 => Ok(()),
        _ => Err(format!("status: {status} is not one of 301, 302, 303, 307 and 308")),
    }
}

fn answer_status(status: u16) -> Result<(), String> {
    if (200..=599).contains(&status) { Ok(()) } else { Err(format!("{status} is not a status from 200 to 599")) }
}
