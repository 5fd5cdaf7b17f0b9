//! The engine, run so that a fault of its own stops nobody: the change that makes it panic is left out, and said.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use translate::{Change, Delta, Engine, Object, ObjectId, Settings, World};

/// What changes led to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The differences, in order.
    pub deltas: Vec<Delta>,
    /// The changes that came into force.
    pub applied: Vec<Change>,
    /// Objects whose change the engine could not take. The version before stays in force, if there is one.
    pub faults: Vec<ObjectId>,
}

/// An engine that survives itself.
#[derive(Debug)]
pub struct Translator {
    engine: Engine,
    /// Tests make the engine panic on objects of this name.
    #[cfg(test)]
    pub(super) poison: Option<&'static str>,
}

/// Objects as they were; none: not there.
type Before = BTreeMap<ObjectId, Option<Arc<Object>>>;

/// The object that a change is about; none for settings.
pub fn subject(change: &Change) -> Option<ObjectId> {
    match change {
        Change::Put(object) => Some(object.id()),
        Change::Delete(reference) => Some(reference.into()),
        Change::Settings(_) => None,
    }
}

impl Translator {
    /// Over an empty world.
    pub fn new(settings: Settings) -> Translator {
        Translator {
            engine: Engine::new(settings),
            #[cfg(test)]
            poison: None,
        }
    }

    /// What is in force.
    pub fn world(&self) -> &World {
        self.engine.world()
    }

    /// Takes in changes as one step. After a fault of the engine: one by one, without those it cannot take.
    pub fn apply(&mut self, changes: Vec<Change>) -> Outcome {
        let before = self.before(&changes);
        if let Some(delta) = self.attempt(changes.clone()) {
            return Outcome { deltas: vec![delta], applied: changes, faults: Vec::new() };
        }
        tracing::error!(changes = changes.len(), "the translation failed; taking the changes one by one");
        self.rebuild(before.as_ref());
        let mut outcome = Outcome::default();
        for change in changes {
            let before = self.before(std::slice::from_ref(&change));
            if let Some(delta) = self.attempt(vec![change.clone()]) {
                outcome.deltas.push(delta);
                outcome.applied.push(change);
                continue;
            }
            self.rebuild(before.as_ref());
            if let Some(reference) = subject(&change) {
                tracing::error!(object = %reference, "the translation fails on this change; it is left out");
                outcome.faults.push(reference);
            }
        }
        if outcome.deltas.is_empty() {
            outcome.deltas.extend(self.attempt(Vec::new()));
        }
        outcome
    }

    /// What the objects of these changes are now. None: there is nothing at all yet.
    fn before(&self, changes: &[Change]) -> Option<Before> {
        let world = self.engine.world();
        if world.is_empty() {
            return None;
        }
        let before = changes
            .iter()
            .filter_map(subject)
            .map(|id| {
                let object = world.object(&id).cloned();
                (id, object)
            })
            .collect();
        Some(before)
    }

    fn attempt(&mut self, changes: Vec<Change>) -> Option<Delta> {
        #[cfg(test)]
        let poison = self.poison;
        let engine = &mut self.engine;
        // After a panic the engine is thrown away, so nothing half-done is seen.
        catch_unwind(AssertUnwindSafe(|| {
            #[cfg(test)]
            assert!(!changes.iter().filter_map(subject).any(|o| Some(&*o.key().name) == poison), "poison");
            engine.apply(changes)
        }))
        .ok()
    }

    /// A new engine over the world as it was before the changes that failed. It comes to the same translation as the old
    /// one did, since a translation depends on its world only; so its first delta says nothing new. Over nothing it waits
    /// for the first change: what a fleet has without any object was maybe never told.
    fn rebuild(&mut self, before: Option<&Before>) {
        let world = self.engine.world();
        let mut engine = Engine::new(world.settings().clone());
        if let Some(before) = before {
            let untouched = world.iter().filter(|object| !before.contains_key(&object.id()));
            let objects = untouched.chain(before.values().flatten());
            engine.apply(objects.map(|object| Change::Put(Arc::clone(object))).collect());
        }
        self.engine = engine;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use translate::Translation;

    fn map(name: &str) -> Change {
        let value = serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
        Change::Put(Arc::new(Object::from_value(value).unwrap()))
    }

    fn ingress(name: &str, host: &str) -> Change {
        let value = serde_json::json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": name },
            "spec": { "ingressClassName": "nginx", "rules": [{ "host": host, "http": { "paths": [{
                "path": "/", "pathType": "Prefix",
                "backend": { "service": { "name": "s", "port": { "number": 80 } } },
            }] } }] },
        });
        Change::Put(Arc::new(Object::from_value(value).unwrap()))
    }

    #[test]
    fn a_first_world_that_breaks_the_engine_still_brings_what_every_fleet_has() {
        for changes in [vec![map("bad")], vec![map("bad"), ingress("a", "a.example")]] {
            let mut translator = Translator::new(Settings::local(80, 443));
            translator.poison = Some("bad");
            let outcome = translator.apply(changes);
            let mut seen = Translation::default();
            outcome.deltas.iter().for_each(|delta| seen.apply(delta));
            assert_eq!(outcome.faults.len(), 1);
            assert_eq!(seen, translate::translate(translator.world()), "its listeners among it");
        }
    }

    #[test]
    fn a_change_that_breaks_the_engine_is_left_out_and_the_others_go_on() {
        let mut translator = Translator::new(Settings::local(80, 443));
        translator.poison = Some("bad");
        let mut seen = Translation::default();
        let take =
            |seen: &mut Translation, outcome: &Outcome| outcome.deltas.iter().for_each(|delta| seen.apply(delta));
        let first = translator.apply(vec![ingress("a", "a.example"), map("m")]);
        assert!(first.faults.is_empty());
        take(&mut seen, &first);
        let second = translator.apply(vec![ingress("b", "b.example"), map("bad"), ingress("a", "c.example")]);
        assert_eq!(second.faults.iter().map(ToString::to_string).collect::<Vec<_>>(), ["ConfigMap/default/bad"]);
        assert_eq!(second.applied.len(), 2);
        take(&mut seen, &second);
        assert_eq!(seen, translate::translate(translator.world()), "the deltas still come to the whole");
        assert_eq!(translator.world().len(), 3);
        let third = translator.apply(vec![ingress("b", "d.example")]);
        take(&mut seen, &third);
        assert_eq!(seen, translate::translate(translator.world()));
    }
}
