//! What every agent has to hold: the objects that the API server has now, translated from nothing.

use std::sync::Arc;

use anyhow::{Context, Result};
use controller::pipeline::{Translator, convert};
use http::Request;
use journal::Digest;
use kube::Client;
use push::fleet::Fleet;
use serde_json::Value;
use translate::{Change, Object, Settings};

/// The lists that are read, with the kind and version that their items do not say.
const LISTS: [(&str, &str, &str); 7] = [
    ("/apis/networking.k8s.io/v1/ingresses", "networking.k8s.io/v1", "Ingress"),
    ("/apis/networking.k8s.io/v1/ingressclasses", "networking.k8s.io/v1", "IngressClass"),
    ("/apis/discovery.k8s.io/v1/endpointslices", "discovery.k8s.io/v1", "EndpointSlice"),
    ("/api/v1/services", "v1", "Service"),
    ("/api/v1/secrets", "v1", "Secret"),
    ("/api/v1/configmaps", "v1", "ConfigMap"),
    ("/api/v1/namespaces", "v1", "Namespace"),
];

/// The roots of configuration and member sets that a cold start over the API server's objects comes to.
///
/// # Errors
/// When something cannot be listed.
pub(super) async fn roots(client: &Client, settings: &Settings) -> Result<(Digest, Digest)> {
    let mut changes = Vec::new();
    for (path, version, kind) in LISTS {
        let list: Value = client.request(Request::get(path).body(Vec::new())?).await.context(path)?;
        let items = list["items"].as_array().with_context(|| format!("{path} gave no list"))?;
        for item in items {
            let mut item = item.clone();
            item["apiVersion"] = version.into();
            item["kind"] = kind.into();
            changes.push(Change::Put(Arc::new(Object::from_value(item)?)));
        }
    }
    let mut fleet = Fleet::new(1);
    let outcome = Translator::new(settings.clone()).apply(changes);
    for mut delta in outcome.deltas {
        if let Some(delta) = delta.fleets.remove(&settings.default_fleet) {
            fleet.publish(convert::change(delta));
        }
    }
    Ok((fleet.root(), fleet.members().root()))
}
