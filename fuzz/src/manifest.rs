//! The bytes of a manifest file: reading ends, and what it holds is translated, whatever it says.

use std::sync::Arc;

use config::load;
use translate::manifest::values;
use translate::{Change, Engine, Object, Settings, Translation, World, translate};

/// The objects of a file that can be decoded.
fn objects(data: &[u8]) -> Vec<Arc<Object>> {
    match values(data) {
        Ok(values) => values.into_iter().filter_map(|value| Object::from_value(value).ok()).map(Arc::new).collect(),
        Err(error) => {
            assert!(!error.to_string().is_empty(), "an error says what is wrong");
            Vec::new()
        }
    }
}

/// Every resource that is sent must load: a body that does not is ours to withhold, never a proxy's to refuse.
fn all_load(translation: &Translation) {
    for fleet in translation.fleets.values() {
        for (id, resource) in &fleet.resources {
            let loaded =
                load(id.clone(), &resource.bytes).unwrap_or_else(|error| panic!("{id} does not load: {error}"));
            assert_eq!(loaded.id, resource.id);
            for digest in &resource.secrets {
                assert!(fleet.secrets.contains_key(digest), "{id} names a secret that does not travel with it");
            }
        }
    }
}

pub(crate) fn run(data: &[u8]) {
    let objects = objects(data);
    if objects.is_empty() {
        return;
    }
    let settings = Settings::local(80, 443);
    let (mut engine, mut world) = (Engine::new(settings.clone()), World::new(settings));
    for object in &objects {
        let change = Change::Put(Arc::clone(object));
        world.apply(&change);
        engine.apply(vec![change]);
    }
    let whole = translate(&world);
    all_load(&whole);
    assert!(*engine.translation() == whole, "change by change gives the same as all at once");
    for object in objects.iter().step_by(2) {
        let change = Change::Delete(object.reference());
        world.apply(&change);
        engine.apply(vec![change]);
    }
    assert!(*engine.translation() == translate(&world), "and so after deletes");
}
