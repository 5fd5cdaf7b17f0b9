//! The engine equals the definition, whatever happens in whatever order.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod support;

use std::collections::BTreeSet;

use proptest::prelude::*;
use support::{change, settings};
use translate::{Change, Engine, FleetName, Object, Settings, Translation, World, translate};

/// Every resource loads, and every reference within a fleet holds.
fn is_sound(translation: &Translation) {
    for (name, fleet) in &translation.fleets {
        let mut named = BTreeSet::new();
        for (id, resource) in &fleet.resources {
            assert_eq!(*id, resource.id);
            let loaded = config::load(id.clone(), &resource.bytes);
            let loaded = loaded.unwrap_or_else(|error| panic!("{id} does not load: {error}"));
            assert!(!matches!(loaded.state, config::State::NotLive { .. }), "{id} is not live: {:?}", loaded.state);
            named.extend(resource.secrets.iter().cloned());
        }
        let there: BTreeSet<_> = fleet.secrets.keys().cloned().collect();
        assert_eq!(named, there, "the secrets of {name} are those that its resources name");
        for members in fleet.members.values() {
            assert!(members.is_sorted_by(|a, b| a < b));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn change_by_change_gives_what_the_whole_world_gives(
        steps in prop::collection::vec(prop::collection::vec(change(), 1..4), 1..40)
    ) {
        let mut engine = Engine::new(settings(true, false));
        let mut world = World::new(settings(true, false));
        let mut follower = Translation::default();
        for step in steps {
            step.iter().for_each(|change| world.apply(change));
            let delta = engine.apply(step);
            follower.apply(&delta);
            let whole = translate(&world);
            prop_assert_eq!(&whole, &engine.translation(), "the engine keeps what the definition gives");
            prop_assert_eq!(&whole, &follower, "the deltas lead there too");
            is_sound(&whole);
        }
        prop_assert!(engine.apply(Vec::new()).is_empty(), "no change, no difference");
    }

    #[test]
    fn the_order_of_arrival_does_not_matter(
        changes in prop::collection::vec(change(), 1..30), seed in any::<u64>()
    ) {
        let mut world = World::new(settings(true, false));
        changes.iter().for_each(|change| world.apply(change));
        let mut objects: Vec<_> = world.iter().cloned().collect();
        // Any fixed shuffle will do; this one is a multiplicative hash of the position.
        let mut order: Vec<usize> = (0..objects.len()).collect();
        order.sort_by_key(|i| (*i as u64 + 1).wrapping_mul(seed | 1));
        objects = order.into_iter().map(|i| objects[i].clone()).collect();
        let mut engine = Engine::new(world.settings().clone());
        engine.apply(Vec::new());
        for object in objects {
            engine.apply(vec![Change::Put(object)]);
        }
        prop_assert_eq!(&translate(&world), &engine.translation());
    }

    #[test]
    fn the_bytes_of_a_fleet_are_those_of_a_world_with_only_what_it_may_see(changes in prop::collection::vec(change(), 1..80)) {
        let mut world = World::new(settings(true, false));
        changes.iter().for_each(|change| world.apply(change));
        let whole = translate(&world);
        for (fleet, config) in &whole.fleets {
            let alone = translate(&closure(&world, &whole, fleet));
            prop_assert_eq!(Some(config), alone.fleets.get(fleet), "{}", fleet);
        }
    }

    #[test]
    fn the_bytes_of_a_fleet_depend_on_nothing_of_another_fleet(changes in prop::collection::vec(change(), 1..40)) {
        let mut world = World::new(settings(true, false));
        changes.iter().filter(|c| !matches!(c, Change::Settings(_))).for_each(|change| world.apply(change));
        let whole = translate(&world);
        for (fleet, config) in &whole.fleets {
            // What is left when everything of other fleets goes: their Ingresses, and every object that only they name.
            let mut closure = World::new(world.settings().clone());
            let ours: Vec<_> = whole.drafts.iter().filter(|(_, draft)| draft.fleets.contains(fleet)).map(|(r, _)| r).collect();
            for object in world.iter() {
                let keep = match object.as_ref() {
                    Object::Ingress(_) => ours.contains(&&object.id()),
                    _ => true,
                };
                if keep {
                    closure.apply(&Change::Put(object.clone()));
                }
            }
            prop_assert_eq!(config, &translate(&closure).fleets[fleet]);
            let mut engine = Engine::new(world.settings().clone());
            engine.apply(closure.iter().cloned().map(Change::Put).collect());
            let others = world.iter().filter(|o| closure.get(&o.reference()).is_none());
            for object in others {
                let delta = engine.apply(vec![Change::Put(object.clone())]);
                prop_assert!(!delta.fleets.contains_key(fleet), "{} changed {}", object.reference(), fleet);
            }
        }
    }
}

/// The world with nothing in it but what a fleet may see: itself, the classes that mean it, its Ingresses, and what these name.
fn closure(world: &World, whole: &Translation, fleet: &FleetName) -> World {
    let mut settings = world.settings().clone();
    settings.fleets.retain(|name, _| name == fleet);
    let mut closure = World::new(settings);
    let ours = |object: &Object| whole.drafts.get(&object.id()).is_some_and(|draft| draft.fleets.contains(fleet));
    let mut named = BTreeSet::new();
    for ingress in world.iter().filter(|object| matches!(object.as_ref(), Object::Ingress(_)) && ours(object)) {
        let Object::Ingress(ingress) = ingress.as_ref() else { continue };
        let rules = ingress.spec.rules.iter().flat_map(|rule| &rule.http).flat_map(|http| &http.paths);
        let backends = rules.map(|path| &path.backend).chain(ingress.spec.default_backend.as_deref());
        let services = backends.filter_map(|backend| Some(("Service", backend.service.as_ref()?.name.clone())));
        let secrets = ingress.spec.tls.iter().filter_map(|tls| Some(("Secret", tls.secret_name.clone()?)));
        named.extend(services.chain(secrets).map(|(kind, name)| (kind, ingress.metadata.namespace().to_owned(), name)));
    }
    for object in world.iter() {
        let names =
            |kind, name: &str| named.contains(&(kind, object.metadata().namespace().to_owned(), name.to_owned()));
        let keep = match object.as_ref() {
            Object::Ingress(_) => ours(object),
            Object::IngressClass(class) => match &class.spec.parameters {
                None => *fleet == world.settings().default_fleet,
                Some(p) => p.kind == "ProxyFleet" && FleetName::new(&p.namespace, &p.name) == *fleet,
            },
            Object::ProxyFleet(o) => FleetName::new(o.metadata.namespace(), o.metadata.name()) == *fleet,
            Object::Service(_) => names("Service", object.metadata().name()),
            Object::EndpointSlice(slice) => slice.service().is_some_and(|service| names("Service", &service.name)),
            Object::Secret(_) => names("Secret", object.metadata().name()),
            _ => false,
        };
        if keep {
            closure.apply(&Change::Put(object.clone()));
        }
    }
    closure
}

#[test]
fn the_first_delta_holds_everything() {
    let mut engine = Engine::new(Settings::local(80, 443));
    assert!(engine.translation().fleets.is_empty());
    let delta = engine.apply(Vec::new());
    let fleet = delta.fleets.values().next().unwrap();
    assert_eq!(
        fleet.puts.iter().map(|r| r.id.to_string()).collect::<Vec<_>>(),
        ["listener/tcp/443", "listener/tcp/80"]
    );
    assert!(engine.apply(Vec::new()).is_empty());
}
