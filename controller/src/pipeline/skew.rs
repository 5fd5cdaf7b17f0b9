//! What a controller of a later release might send, for tests of agents and proxies that do not know it.

use journal::Key;
use push::fleet::{FleetChange, Item};

/// In the name of an object whose fragments get a field that this release does not know.
const FIELD: &str = "newer-field";
/// In the name of an object that comes with a resource of a kind that this release does not know.
const KIND: &str = "newer-kind";

/// The change as a later release would make it, if this process is to be one.
pub(super) fn newer(mut change: FleetChange) -> FleetChange {
    if !push::skew::is_newer() {
        return change;
    }
    for item in change.puts.iter_mut().filter(|item| is_fragment_of(&item.key, FIELD)) {
        let text = String::from_utf8_lossy(&item.body);
        // The version comes first, and the body last.
        let newer = text.replacen('{', "{\"v\":2,", 1).replacen("\"body\":{", "\"body\":{\"mirror\":\"all\",", 1);
        item.body = newer.into_bytes().into();
    }
    let quota = |key: &Key| Key::new("quota", &key.name);
    let more: Vec<Item> = change
        .puts
        .iter()
        .filter(|item| is_fragment_of(&item.key, KIND))
        .map(|item| Item { key: quota(&item.key), body: "{\"v\":2,\"body\":{\"most\":1}}".into(), secrets: Vec::new() })
        .collect();
    change.puts.extend(more);
    let gone: Vec<Key> = change.removes.iter().filter(|key| is_fragment_of(key, KIND)).map(quota).collect();
    change.removes.extend(gone);
    change
}

fn is_fragment_of(key: &Key, name: &str) -> bool {
    &*key.kind == "fragment" && key.name.contains(name)
}
