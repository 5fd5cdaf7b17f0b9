//! The one place where what the translation gives becomes what the push takes.

use std::sync::{Arc, LazyLock};

use config::{Kind, Resource, ResourceId, SecretDigest};
use journal::mutants::{self, Mutant};
use journal::{Digest, Key};
use push::Secret;
use push::fleet::{FleetChange, Item};
use push::identity::FleetId;
use translate::{FleetDelta, FleetName};

/// The key of a resource as it travels. It shares its texts: there are keys by the hundred thousand, and a few kinds.
pub fn key(id: &ResourceId) -> Key {
    static KINDS: LazyLock<[(Kind, Arc<str>); 6]> =
        LazyLock::new(|| Kind::ALL.map(|kind| (kind, kind.as_str().into())));
    let kind = KINDS.iter().find(|(kind, _)| *kind == id.kind).map(|(_, text)| Arc::clone(text));
    Key { kind: kind.unwrap_or_else(|| id.kind.as_str().into()), name: id.name.shared() }
}

/// A fleet as the translation names it.
pub fn fleet_name(id: &FleetId) -> FleetName {
    FleetName::new(&id.namespace, &id.name)
}

/// A resource as the push carries it.
pub fn item(resource: Resource) -> Item {
    Item { key: key(&resource.id), secrets: resource.secrets.iter().filter_map(digest).collect(), body: resource.bytes }
}

/// A digest that is not well-formed is nobody's: the resource then lacks its secret and is not live.
fn digest(digest: &SecretDigest) -> Option<Digest> {
    digest.0.parse().ok()
}

/// A step of a fleet.
pub fn change(delta: FleetDelta) -> FleetChange {
    let change = FleetChange {
        puts: delta.puts.into_iter().map(item).collect(),
        removes: delta.removes.iter().filter(|_| !mutants::active(Mutant::RemovalIsLost)).map(key).collect(),
        secrets: delta
            .secrets_added
            .into_iter()
            .filter_map(|(name, bytes)| Some((digest(&name)?, Secret::from(bytes.shared()))))
            .collect(),
        drop_secrets: delta.secrets_removed.iter().filter_map(digest).collect(),
        members: delta.sets.iter().map(|(name, set)| (Arc::from(name.to_string()), set.clone())).collect(),
    };
    #[cfg(all(feature = "skew", debug_assertions))]
    let change = super::skew::newer(change);
    change
}
