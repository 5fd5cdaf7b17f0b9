//! The bytes of a manifest file: reading ends, and what it holds is translated, whatever it says.

use std::path::Path;
use std::sync::Arc;

use config::load;
use translate::manifest::{Content, FAULT, Folder, Outcome, documents};
use translate::{Change, Engine, Object, Settings, Translation, World, translate};

/// The objects of a file. Each of its documents has a place, and what is refused has a reason.
fn objects(data: &[u8]) -> Vec<Arc<Object>> {
    let documents = documents(data);
    let lines = 1 + data.iter().filter(|byte| **byte == b'\n').count();
    for pair in documents.windows(2) {
        assert!(pair[0].number <= pair[1].number && pair[0].line <= pair[1].line, "documents are in their order");
    }
    for document in &documents {
        assert!((1..=lines).contains(&document.line), "a document begins in its file");
        if let Outcome::Refused { message, .. } = &document.outcome {
            assert!(!message.is_empty(), "what is refused has a reason");
            assert_ne!(message, FAULT, "reading panicked");
        }
    }
    let mut folder = Folder::default();
    let (file, copy) = (Path::new("a.yaml"), Path::new("b.yaml"));
    folder.update(file, Content::Documents(documents.clone()));
    let objects: Vec<Arc<Object>> = folder.objects().cloned().collect();
    folder.take_changes();
    folder.update(copy, Content::Documents(documents.clone()));
    folder.update(file, Content::Documents(documents));
    folder.mark_gone(&file.into());
    folder.sweep(|_| true);
    assert!(folder.take_changes().is_empty(), "a copy takes over everything as it is");
    assert_eq!(folder.len(), objects.len());
    objects
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
    assert!(engine.translation() == whole, "change by change gives the same as all at once");
    for object in objects.iter().step_by(2) {
        let change = Change::Delete(object.reference());
        world.apply(&change);
        engine.apply(vec![change]);
    }
    assert!(engine.translation() == translate(&world), "and so after deletes");
}
