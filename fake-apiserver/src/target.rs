//! What a path leads to.

use crate::kinds::{Kind, Kinds};
use crate::query::{decode, is_watch, pairs};
use crate::request::{Method, Request, Verb};

/// A resource, or one object of it.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    /// How the kind behaves.
    pub(crate) kind: Kind,
    /// The version of the path.
    pub(crate) version: String,
    /// Empty for all namespaces and for kinds without any.
    pub(crate) namespace: String,
    /// Empty for the whole collection.
    pub(crate) name: String,
    /// Whether it is the `status` subresource.
    pub(crate) status: bool,
}

impl Resource {
    pub(crate) fn api_version(&self) -> String {
        self.kind.api_version(&self.version)
    }

    pub(crate) fn key(&self) -> String {
        self.kind.key(&self.namespace, &self.name)
    }
}

/// What a path leads to.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Resource(Box<Resource>),
    /// A path with no objects behind it: versions, health, discovery.
    Path(Vec<String>),
    /// A group and version that is served, but nothing of that name in it.
    NoResource,
}

/// A request that was read as far as its path.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) target: Target,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) verb: Verb,
}

pub(crate) fn route(request: &Request, kinds: &Kinds) -> Route {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let (path, query) = (segments(path), pairs(query));
    let target = target(&path, kinds).unwrap_or(Target::Path(path));
    let verb = match (&target, request.method) {
        (Target::Resource(at), Method::Get) if at.name.is_empty() && is_watch(&query) => Verb::Watch,
        (Target::Resource(at), Method::Get) if at.name.is_empty() => Verb::List,
        (Target::Resource(_), Method::Get) => Verb::Get,
        (Target::Resource(_), Method::Post) => Verb::Create,
        (Target::Resource(_), Method::Put) => Verb::Replace,
        (Target::Resource(_), Method::Patch) => Verb::Patch,
        (Target::Resource(_), Method::Delete) => Verb::Delete,
        _ => Verb::Other,
    };
    Route { target, query, verb }
}

fn segments(path: &str) -> Vec<String> {
    path.split('/').filter(|segment| !segment.is_empty()).map(|segment| decode(segment, false)).collect()
}

/// None where no kind is meant.
fn target(path: &[String], kinds: &Kinds) -> Option<Target> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let (group, version, rest) = match path.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    // `namespaces/NAME/RESOURCE` is in a namespace; `namespaces/NAME` and `namespaces/NAME/status` are about the namespace.
    let (namespace, rest) = match rest {
        ["namespaces", namespace, inner @ ..] if !matches!(inner, [] | ["status" | "finalize"]) => (*namespace, inner),
        _ => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, subresource] => (*plural, *name, *subresource),
        _ => return None,
    };
    let Some(kind) = kinds.served(group, version, plural) else {
        // What is built in answers for itself; a group of custom resources without the kind is as if it were not there.
        let built_in = |kind: &Kind| !kind.custom && kind.group == group && kind.versions.iter().any(|v| v == version);
        return kinds.all().any(built_in).then_some(Target::NoResource);
    };
    let is_status = subresource == "status";
    let in_place = if kind.namespaced { !namespace.is_empty() || name.is_empty() } else { namespace.is_empty() };
    if !in_place || !(subresource.is_empty() || (is_status && kind.status)) {
        return Some(Target::NoResource);
    }
    Some(Target::Resource(Box::new(Resource {
        kind: kind.clone(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        status: is_status,
    })))
}

#[cfg(test)]
mod tests {
    use super::{Target, route};
    use crate::kinds::Kinds;
    use crate::request::{Method, Request, Verb};

    fn read(method: Method, target: &str) -> (Verb, String) {
        let route = route(&Request::new(method, target), &Kinds::built_in());
        let text = match route.target {
            Target::Resource(at) => {
                format!("{} {}{}", at.kind.resource(), at.key(), if at.status { " status" } else { "" })
            }
            Target::Path(path) => path.join("/"),
            Target::NoResource => "none".to_owned(),
        };
        (route.verb, text)
    }

    #[test]
    fn paths_lead_where_they_say() {
        let ingresses = "/apis/networking.k8s.io/v1/namespaces/n/ingresses";
        for (method, path, verb, text) in [
            (Method::Get, "/api/v1/secrets", Verb::List, "secrets /"),
            (Method::Get, "/api/v1/secrets?watch=1", Verb::Watch, "secrets /"),
            (Method::Get, "/api/v1/secrets?watch=false", Verb::List, "secrets /"),
            (Method::Get, "/api/v1/namespaces", Verb::List, "namespaces "),
            (Method::Get, "/api/v1/namespaces/n", Verb::Get, "namespaces n"),
            (Method::Put, "/api/v1/namespaces/n/status", Verb::Replace, "namespaces n status"),
            (Method::Post, "/api/v1/namespaces/n/pods", Verb::Create, "pods n/"),
            (Method::Patch, &format!("{ingresses}/a/status"), Verb::Patch, "ingresses.networking.k8s.io n/a status"),
            (Method::Delete, &format!("{ingresses}/a"), Verb::Delete, "ingresses.networking.k8s.io n/a"),
            (Method::Get, "/apis/networking.k8s.io/v1/ingresses/a", Verb::Other, "none"),
            (Method::Get, "/api/v1/namespaces/n/configmaps/a/status", Verb::Other, "none"),
            (Method::Get, "/api/v1/nothing", Verb::Other, "none"),
            (Method::Get, "/apis/example.com/v1/things", Verb::Other, "apis/example.com/v1/things"),
            (Method::Get, "/version", Verb::Other, "version"),
        ] {
            assert_eq!(read(method, path), (verb, text.to_owned()), "{path}");
        }
    }
}
