//! Routes, built: what happens to a request that a match won.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::{FragmentBody, Name, PathRewrite, Redirect, RedirectPath, RouteAction, Share, Timeouts};
use http::{HeaderValue, StatusCode};

use crate::headers::Changes;
use crate::pool::Pool;

/// The actions of a fragment, by number of the match; or nothing, and every match answers 503. Matches of one action share it.
pub type Routes = Option<Box<[Arc<Route>]>>;

/// One route.
#[derive(Debug)]
pub struct Route {
    /// On a connection without TLS: redirect to https first.
    pub to_https: Option<ToHttps>,
    /// The main thing.
    pub action: Action,
    /// Changes to the answer's headers.
    pub response_headers: Changes,
}

/// The redirect from http to https.
#[derive(Clone, Copy, Debug)]
pub struct ToHttps {
    /// Its status.
    pub status: StatusCode,
    /// The port of the https listener.
    pub port: u16,
}

/// What a route does.
#[derive(Debug)]
pub enum Action {
    /// Forward.
    Forward(Box<Forward>),
    /// Redirect.
    Redirect {
        /// What changes.
        redirect: Box<Redirect>,
        /// Its status.
        status: StatusCode,
    },
    /// A fixed answer.
    Respond(StatusCode),
    /// 503: something it needs is not live.
    Unavailable,
}

/// Forwarding.
#[derive(Debug)]
pub struct Forward {
    shares: Box<[(u32, Target)]>,
    total: u64,
    /// The changed path.
    pub path: Option<Box<PathRewrite>>,
    /// Another Host.
    pub host: Option<Box<HeaderValue>>,
    /// Changes to the request's headers.
    pub request_headers: Changes,
    /// How long things may take.
    pub limits: Limits,
    /// Tries beyond the first.
    pub retries: u8,
}

/// Where a share of the traffic goes.
#[derive(Clone, Debug)]
pub enum Target {
    /// To a pool.
    Pool(Arc<Pool>),
    /// A fixed answer.
    Status(StatusCode),
}

/// Times in milliseconds; 0 is without limit.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// To a connection.
    pub connect_ms: u64,
    /// Between two reads or writes, of a WebSocket connection too.
    pub idle_ms: u64,
    /// For the whole.
    pub request_ms: u64,
}

impl From<&Timeouts> for Limits {
    fn from(timeouts: &Timeouts) -> Limits {
        Limits {
            connect_ms: timeouts.connect_ms.unwrap_or(5_000),
            idle_ms: timeouts.idle_ms.unwrap_or(60_000),
            request_ms: timeouts.request_ms.unwrap_or(0),
        }
    }
}

/// The pools that are live, by encoded name.
pub type Pools = BTreeMap<Name, Arc<Pool>>;

/// Builds the routes of a fragment.
///
/// `pools` has those that are live; a share of another pool answers 503. No policy is built yet, so a route that names one
/// answers 503.
///
/// # Errors
/// A sentence when the body cannot be built.
pub fn build(claims: &config::Claims, body: &FragmentBody, pools: &Pools) -> Result<Box<[Arc<Route>]>, String> {
    if claims.matches.len() != body.actions.len() {
        return Err(format!("{} matches and {} actions", claims.matches.len(), body.actions.len()));
    }
    let mut routes: Vec<Arc<Route>> = Vec::with_capacity(body.actions.len());
    for (number, action) in body.actions.iter().enumerate() {
        // Mostly all paths of an object lead to the same.
        let before = number.checked_sub(1).and_then(|before| Some((body.actions.get(before)?, routes.get(before)?)));
        let route = match before {
            Some((same, route)) if same == action => Arc::clone(route),
            _ => Arc::new(build_one(action, pools).map_err(|why| format!("actions[{number}]: {why}"))?),
        };
        routes.push(route);
    }
    Ok(routes.into())
}

fn build_one(route: &RouteAction, pools: &Pools) -> Result<Route, String> {
    let action = match &route.action {
        _ if !route.policies.is_empty() => Action::Unavailable,
        config::Action::Respond(code) => Action::Respond(status(*code)?),
        config::Action::Redirect(redirect) => {
            Action::Redirect { redirect: Box::new(redirect.clone()), status: status(redirect.status)? }
        }
        config::Action::Forward(forward) => {
            let shares =
                forward.shares.iter().map(|share| build_share(share, pools)).collect::<Result<Box<[_]>, _>>()?;
            let host = forward.host.as_deref().map(HeaderValue::from_str).transpose();
            Action::Forward(Box::new(Forward {
                total: shares.iter().map(|(weight, _)| u64::from(*weight)).sum(),
                shares,
                path: forward.path.clone().map(Box::new),
                host: host.map_err(|_| "host: it cannot be sent".to_owned())?.map(Box::new),
                request_headers: Changes::compile(&forward.request_headers)
                    .map_err(|why| format!("requestHeaders: {why}"))?,
                limits: Limits::from(&forward.timeouts),
                retries: forward.retries,
            }))
        }
    };
    let to_https = match &route.to_https {
        Some(to) => Some(ToHttps { status: status(to.status)?, port: to.port }),
        None => None,
    };
    let response_headers =
        Changes::compile(&route.response_headers).map_err(|why| format!("responseHeaders: {why}"))?;
    Ok(Route { to_https, action, response_headers })
}

fn build_share(share: &Share, pools: &Pools) -> Result<(u32, Target), String> {
    Ok(match share {
        Share::Status { status: code, weight } => (*weight, Target::Status(status(*code)?)),
        Share::Pool { name, weight } => match pools.get(&name.to_name()) {
            Some(pool) => (*weight, Target::Pool(Arc::clone(pool))),
            None => (*weight, Target::Status(StatusCode::SERVICE_UNAVAILABLE)),
        },
    })
}

fn status(code: u16) -> Result<StatusCode, String> {
    StatusCode::from_u16(code)
        .ok()
        .filter(|s| !s.is_informational())
        .ok_or_else(|| format!("{code} is no status of an answer"))
}

impl Forward {
    /// Chooses a share by weight. If all weigh 0 the answer is 500 (Gateway API, HTTPBackendRef.weight).
    pub fn choose(&self) -> Target {
        if let [(1.., only)] = &*self.shares {
            return only.clone();
        }
        if self.total == 0 {
            return Target::Status(StatusCode::INTERNAL_SERVER_ERROR);
        }
        self.at(rand::random_range(0..self.total))
    }

    fn at(&self, mut point: u64) -> Target {
        for (weight, target) in &self.shares {
            match point.checked_sub(u64::from(*weight)) {
                Some(rest) => point = rest,
                None => return target.clone(),
            }
        }
        Target::Status(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// Puts `replacement` in place of the first `covered` bytes of a path (Gateway API, HTTPPathModifier).
pub fn replace_prefix(path: &str, covered: usize, replacement: &str) -> String {
    let rest = path.get(covered..).unwrap_or_default();
    if rest.is_empty() {
        return if replacement.is_empty() { "/".to_owned() } else { replacement.to_owned() };
    }
    let front = replacement.strip_suffix('/').unwrap_or(replacement);
    if rest.starts_with('/') { format!("{front}{rest}") } else { format!("{front}/{rest}") }
}

/// The path that a rewrite makes.
///
/// # Errors
/// When the result is spelled so that two servers may read it differently.
pub fn rewrite(
    rewrite: &PathRewrite,
    path: &str,
    covered: usize,
    captures: Option<&router::Captures>,
) -> Result<String, router::PathError> {
    let new = match rewrite {
        PathRewrite::Full(path) => path.clone(),
        PathRewrite::Prefix(replacement) => replace_prefix(path, covered, replacement),
        PathRewrite::Template(template) => expand(template, path, captures),
    };
    router::normalise(&new).map(std::borrow::Cow::into_owned)
}

/// Fills `$1` to `$9`; a group that took no part is empty.
fn expand(template: &str, path: &str, captures: Option<&router::Captures>) -> String {
    let mut out = String::with_capacity(template.len() + path.len());
    let mut rest = template;
    while let Some((text, after)) = rest.split_once('$') {
        out.push_str(text);
        match after.chars().next().and_then(|c| c.to_digit(10)).filter(|n| *n > 0) {
            Some(group) => {
                out.push_str(captures.map_or("", |c| c.text(path, group as usize)));
                rest = after.get(1..).unwrap_or_default();
            }
            None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    if out.starts_with('/') { out } else { format!("/{out}") }
}

/// The path of a redirect.
pub fn redirect_path(change: Option<&RedirectPath>, path: &str, covered: usize) -> String {
    match change {
        None => path.to_owned(),
        Some(RedirectPath::Full(full)) => full.clone(),
        Some(RedirectPath::Prefix(replacement)) => replace_prefix(path, covered, replacement),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_replaced_as_the_gateway_api_says() {
        for (path, prefix, replacement, wanted) in [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo/", "/foo", "", "/"),
            ("/foo", "/foo", "", "/"),
            ("/foo/", "/foo", "/", "/"),
            ("/foo", "/foo", "/", "/"),
            ("/a/b", "", "/x", "/x/a/b"),
            ("/", "", "/x", "/x/"),
        ] {
            assert_eq!(replace_prefix(path, prefix.len(), replacement), wanted, "{path} {prefix} {replacement}");
        }
    }

    #[test]
    fn shares_get_traffic_by_weight_and_none_when_all_weigh_nothing() {
        let share = |code, weight| (weight, Target::Status(StatusCode::from_u16(code).unwrap()));
        let forward = |shares: Vec<(u32, Target)>| Forward {
            total: shares.iter().map(|s| u64::from(s.0)).sum(),
            shares: shares.into(),
            path: None,
            host: None,
            request_headers: Changes::default(),
            limits: Limits::from(&Timeouts::default()),
            retries: 2,
        };
        let code = |target| match target {
            Target::Status(status) => status.as_u16(),
            Target::Pool(_) => 0,
        };
        let three = forward(vec![share(201, 1), share(202, 0), share(203, 3)]);
        let drawn: Vec<u16> = (0..4).map(|point| code(three.at(point))).collect();
        assert_eq!(drawn, [201, 203, 203, 203]);
        assert_eq!(code(forward(vec![share(201, 0)]).choose()), 500);
        assert_eq!(code(forward(vec![share(201, 0), share(202, 0)]).choose()), 500);
    }

    #[test]
    fn templates_without_groups_keep_their_text() {
        assert_eq!(expand("/a/$b/$", "/x", None), "/a/$b/$");
        assert_eq!(expand("$1x", "/x", None), "/x");
    }
}
