//! The core against a volume and a `scalwsd` in memory: every step, and a death before every step.

mod world;

use agent::core::{CallError, Effect, Input, MemberChange, Report, ScalwsdState, refusals};
use agent::volume;
use bytes::Bytes;
use journal::admin::NotLive;
use journal::members::MemberSet;
use journal::{Digest, digest};
use push::agent_session::{Holdings, MembersChange, Timings};
use push::{Prefix, Version};
use world::{Death, Wanted, World, resource, root_of};

/// Five wanted states with keys that come and go, and member sets between them.
fn script(world: &mut World) -> Vec<Wanted> {
    let (one, two) = (world.secret("key one"), world.secret("key two"));
    let mut states = Vec::new();
    let mut wanted = Wanted::new();
    resource(&mut wanted, "a", "1", &[]);
    resource(&mut wanted, "b", "1", &[one]);
    states.push(wanted.clone());
    resource(&mut wanted, "b", "2", &[two]);
    resource(&mut wanted, "c", "1", &[one, two]);
    states.push(wanted.clone());
    wanted.remove(&journal::Key::new("fragment", "c"));
    states.push(wanted.clone());
    resource(&mut wanted, "b", "3", &[]);
    resource(&mut wanted, "d", "1", &[]);
    states.push(wanted.clone());
    states.push(Wanted::new());
    states
}

fn run(world: &mut World, states: &[Wanted]) {
    let mut seq = 0;
    for (i, wanted) in states.iter().enumerate() {
        let generation = i as u64 + 1;
        world.push(wanted, (1, generation));
        if world.core.facts().root != root_of(wanted) {
            // The death took the transfer with it: the next stream brings it again.
            world.feed(Input::StreamEnded);
            world.push(wanted, (1, generation));
        }
        assert_eq!(world.core.facts().applied, Some((Version::new(1, generation), root_of(wanted))));
        world.assert_in_step();
        for _ in 0..2 {
            seq += 1;
            let members = [format!("10.0.0.{i}:80"), "10.0.1.1:80".to_owned()];
            world.put_set(seq, &format!("ns/svc:{}/tcp", i % 2), &members.each_ref().map(String::as_str));
        }
        world.assert_in_step();
    }
}

#[test]
fn every_state_of_a_script_is_applied() {
    let mut world = World::new();
    let states = script(&mut world);
    run(&mut world, &states);
    assert_eq!(world.scalwsd.deaths, 0);
    let applied = world.reports.iter().filter(|r| matches!(r, Report::Applied { .. })).count();
    assert_eq!(applied, states.len());
}

#[test]
fn a_death_before_any_effect_loses_nothing_and_blames_nothing() {
    let mut world = World::new();
    let first = world.effects;
    let states = script(&mut world);
    run(&mut world, &states);
    let last = world.effects;
    for death in [Death::Agent, Death::AgentTorn, Death::Both, Death::Scalwsd] {
        for at in first + 1..=last {
            let mut world = World::new();
            let states = script(&mut world);
            world.kill = Some((at, death));
            run(&mut world, &states);
            assert!(world.kill.is_none(), "{death:?} before effect {at} happened");
            let refused: Vec<_> = world.reports.iter().filter(|r| matches!(r, Report::Refused { .. })).collect();
            assert!(refused.is_empty(), "{death:?} before effect {at}: {refused:?}");
            assert!(world.core.facts().condemned.is_empty(), "{death:?} before effect {at}");
        }
    }
}

/// One good resource and one on which `scalwsd` dies.
fn poisoned(world: &mut World) -> (Wanted, Wanted, Digest) {
    let mut good = Wanted::new();
    resource(&mut good, "good", "1", &[]);
    let mut bad = good.clone();
    resource(&mut bad, "fine", "1", &[]);
    resource(&mut bad, "poison", "kill", &[]);
    let key = journal::Key::new("fragment", "poison");
    let body: Bytes = bad[&key].0.clone();
    world.scalwsd.deadly.insert(body.clone());
    (good, bad, digest::leaf(&key, &body))
}

fn last_refusal(world: &World) -> Option<(&'static str, Vec<Digest>, bool)> {
    world.reports.iter().rev().find_map(|report| match report {
        Report::Refused { code, leaves, transient, .. } => Some((*code, leaves.clone(), *transient)),
        _ => None,
    })
}

#[test]
fn a_resource_that_kills_scalwsd_is_found_refused_and_remembered() {
    let mut world = World::new();
    let (good, bad, leaf) = poisoned(&mut world);
    world.push(&good, (1, 1));
    world.push(&bad, (1, 2));
    assert_eq!(last_refusal(&world), Some((refusals::CRASHED, vec![leaf], false)));
    assert_eq!(world.scalwsd.deaths, 1);
    world.assert_in_step();
    assert_eq!(world.core.facts().applied, Some((Version::new(1, 1), root_of(&good))));
    world.restart_agent();
    assert_eq!(world.core.facts().condemned, vec![leaf]);
    // The same leaf again never reaches scalwsd.
    world.reports.clear();
    world.push(&bad, (1, 3));
    assert_eq!(last_refusal(&world), Some((refusals::CRASHED, vec![leaf], false)));
    assert_eq!(world.scalwsd.deaths, 1);
    // Other bytes are tried.
    resource(&mut good.clone(), "poison", "mended", &[]);
    let mut mended = good;
    resource(&mut mended, "poison", "mended", &[]);
    world.push(&mended, (1, 4));
    assert_eq!(world.core.facts().root, root_of(&mended));
    world.assert_in_step();
}

#[test]
fn a_death_of_the_agent_while_it_settles_a_poisoned_commit_changes_nothing_about_the_verdict() {
    let mut world = World::new();
    let first = world.effects;
    let (good, bad, _) = poisoned(&mut world);
    world.push(&good, (1, 1));
    world.push(&bad, (1, 2));
    let last = world.effects;
    for at in first + 1..=last {
        let mut world = World::new();
        let (good, bad, leaf) = poisoned(&mut world);
        world.kill = Some((at, Death::Agent));
        world.push(&good, (1, 1));
        if world.core.facts().applied.is_none() {
            world.push(&good, (1, 1));
        }
        world.push(&bad, (1, 2));
        if last_refusal(&world).is_none() {
            world.push(&bad, (1, 3));
        }
        assert!(world.kill.is_none());
        assert!(world.scalwsd.deaths <= 2, "effect {at}: {} deaths", world.scalwsd.deaths);
        assert_eq!(world.core.facts().condemned, vec![leaf], "effect {at}");
        assert_eq!(last_refusal(&world).map(|r| r.1), Some(vec![leaf]), "effect {at}");
        world.assert_in_step();
    }
}

#[test]
fn when_check_finds_nothing_one_more_reload_is_tried_and_then_all_puts_are_named_and_none_remembered() {
    let mut world = World::new();
    let (good, bad, _) = poisoned(&mut world);
    world.scalwsd.check_is_blind = true;
    world.push(&good, (1, 1));
    world.push(&bad, (1, 2));
    assert_eq!(world.scalwsd.deaths, 2);
    let mut blamed: Vec<Digest> = bad
        .iter()
        .filter(|(key, _)| !good.contains_key(*key))
        .map(|(key, (body, _))| digest::leaf(key, body))
        .collect();
    let (code, mut leaves, transient) = last_refusal(&world).unwrap();
    blamed.sort_unstable();
    leaves.sort_unstable();
    assert_eq!((code, leaves, transient), (refusals::CRASHED, blamed, false));
    assert_eq!(world.core.facts().condemned, [], "nothing is proven");
    world.assert_in_step();
    // The deaths came from outside: the controller, which knows that others have it live, sends it again.
    world.scalwsd.deadly.clear();
    world.push(&bad, (1, 3));
    assert_eq!(world.core.facts().root, root_of(&bad));
    world.assert_in_step();
}

#[test]
fn deaths_while_much_is_loaded_blame_nothing_and_it_is_tried_again() {
    let mut world = World::new();
    let (_, mut bad, _) = poisoned(&mut world);
    world.scalwsd.check_is_blind = true;
    for number in 0..64 {
        resource(&mut bad, &format!("r{number}"), "1", &[]);
    }
    world.push(&bad, (1, 1));
    assert_eq!(last_refusal(&world), Some((refusals::DIED, Vec::new(), true)));
    assert_eq!((world.scalwsd.deaths, world.core.facts().condemned), (2, Vec::new()));
    world.scalwsd.deadly.clear();
    world.push(&bad, (1, 1));
    assert_eq!(world.core.facts().root, root_of(&bad));
    world.assert_in_step();
}

#[test]
fn an_accepted_resource_that_turns_out_deadly_is_named() {
    let mut world = World::new();
    let mut good = Wanted::new();
    resource(&mut good, "good", "of its own", &[]);
    world.push(&good, (1, 1));
    let mut next = good.clone();
    let key = journal::Key::new("fragment", "good");
    world.scalwsd.deadly.insert(good[&key].0.clone());
    resource(&mut next, "more", "1", &[]);
    world.push(&next, (1, 2));
    let leaf = digest::leaf(&key, &good[&key].0);
    assert_eq!(last_refusal(&world), Some((refusals::CRASHED, vec![leaf], false)));
}

#[test]
fn a_configuration_that_kills_scalwsd_is_not_laid_at_a_member_set() {
    let reload = || Input::Reloaded { result: Err(CallError::Gone), timings: Timings::default() };
    let members = || Input::MembersAnswered(Err(CallError::Gone));
    // Each call has a connection of its own, and there is one that only watches.
    nothing_is_laid_at_a_member_set(&|| vec![Input::Down]);
    nothing_is_laid_at_a_member_set(&|| vec![members(), reload(), Input::Down]);
    nothing_is_laid_at_a_member_set(&|| vec![reload(), members(), Input::Down]);
    nothing_is_laid_at_a_member_set(&|| vec![reload(), Input::Down]);
}

fn nothing_is_laid_at_a_member_set(ends: &dyn Fn() -> Vec<Input>) {
    let mut world = World::new();
    let mut wanted = Wanted::new();
    resource(&mut wanted, "a", "1", &[]);
    let transfer = world.transfer_to(&wanted, (1, 1));
    // Both calls are under way when scalwsd dies, twice.
    let set = MemberSet::new("ns/svc:80/tcp", vec!["10.0.0.1:80".into()]);
    let change = MembersChange::Full(vec!["10.0.0.1:80".into()]);
    let change = MemberChange { seq: 1, set: "ns/svc:80/tcp".into(), change, digest: Prefix::of(&set.digest) };
    let mut said = world.core.step(Input::Transfer(Box::new(transfer)));
    said.extend(world.core.step(Input::Members(change)));
    for start in ["x", "y", "z"] {
        assert!(said.iter().any(|effect| matches!(effect, Effect::Reload { .. })), "{start}: {said:?}");
        said = ends().into_iter().flat_map(|end| world.core.step(end)).collect();
        let answer = journal::admin::ConfigAnswer { start: start.to_owned(), ..world.scalwsd.config() };
        said.extend(world.core.step(Input::Up(answer)));
        if said.iter().any(|effect| matches!(effect, Effect::Check { .. })) {
            said.extend(world.core.step(Input::Checked { dead: Vec::new() }));
        }
        if said.iter().any(|effect| matches!(effect, Effect::ListUpstreams)) {
            said.extend(world.core.step(Input::Upstreams(Ok(Vec::new()))));
        }
        let refused = |effect: &Effect| matches!(effect, Effect::Report(Report::MembersRefused { .. }));
        assert!(!said.iter().any(refused), "{start}: {said:?}");
        if said.iter().any(|effect| matches!(effect, Effect::Report(Report::Refused { .. }))) {
            return;
        }
    }
    panic!("the configuration was never given up");
}

#[test]
fn a_refused_commit_is_cut_and_its_keys_go() {
    let mut world = World::new();
    let mut wanted = Wanted::new();
    resource(&mut wanted, "a", "1", &[]);
    world.push(&wanted, (1, 1));
    let before = world.volume.config.clone();
    let good = wanted.clone();
    let secret = world.secret("a key");
    resource(&mut wanted, "bad", "2", &[secret]);
    world.scalwsd.refused.insert(wanted[&journal::Key::new("fragment", "bad")].0.clone());
    world.push(&wanted, (1, 2));
    assert_eq!(last_refusal(&world), Some((refusals::UNUSABLE, Vec::new(), false)));
    assert_eq!(world.volume.config, before);
    world.assert_in_step();
    assert_eq!(world.core.facts().root, root_of(&good));
}

#[test]
fn a_full_volume_refuses_for_now_and_leaves_what_was_there() {
    let mut world = World::new();
    let mut wanted = Wanted::new();
    resource(&mut wanted, "a", "1", &[]);
    world.push(&wanted, (1, 1));
    let used = world.volume.config.len() + world.volume.members.len();
    let secret = world.secret("a key of some length");
    resource(&mut wanted, "b", "a body that needs room", &[secret]);
    for room in 0..1_000 {
        world.volume.limit = Some(used + room);
        world.reports.clear();
        world.push(&wanted, (1, 2));
        match last_refusal(&world) {
            Some(refusal) => assert_eq!(refusal, (refusals::VOLUME, Vec::new(), true)),
            // Once everything but `accepted` fits, only a new start can go on; it finds what scalwsd runs.
            None if world.fatal.is_some() => {
                world.volume.limit = None;
                world.fatal = None;
                world.restart_agent();
                break;
            }
            None => break,
        }
        world.assert_in_step();
    }
    assert_eq!(world.core.facts().root, root_of(&wanted));
    world.assert_in_step();
}

#[test]
fn lower_epochs_and_versions_are_refused_across_a_restart() {
    let mut world = World::new();
    let mut wanted = Wanted::new();
    resource(&mut wanted, "a", "1", &[]);
    world.push(&wanted, (3, 5));
    world.feed(Input::Epoch(4));
    world.restart_agent();
    assert_eq!(world.core.facts().highest_epoch, 4);
    resource(&mut wanted, "a", "2", &[]);
    for version in [(3, 6), (3, 4), (2, 9)] {
        world.reports.clear();
        world.push(&wanted, version);
        // An order that came too late, not bytes that are bad: whoever leads later may send the same again.
        assert_eq!(last_refusal(&world), Some((refusals::FENCED, Vec::new(), true)), "{version:?}");
    }
    world.push(&wanted, (4, 1));
    assert_eq!(world.core.facts().applied, Some((Version::new(4, 1), root_of(&wanted))));
    world.reports.clear();
    resource(&mut wanted, "a", "3", &[]);
    world.push(&wanted, (4, 1));
    assert_eq!(last_refusal(&world).map(|r| r.0), Some(refusals::FENCED), "the same version with another root");
}

#[test]
fn an_equal_root_at_a_new_generation_is_journaled_without_a_reload() {
    let mut world = World::new();
    let mut wanted = Wanted::new();
    resource(&mut wanted, "a", "1", &[]);
    world.push(&wanted, (1, 1));
    let root = root_of(&wanted);
    let effects = world.core.step(Input::Adopt { version: Version::new(2, 1), root });
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Reload { .. })));
    for effect in effects {
        world.volume.perform(&effect);
    }
    world.assert_in_step();
    assert_eq!(world.core.facts().applied, Some((Version::new(2, 1), root)));
}

#[test]
fn an_empty_configuration_on_an_empty_volume_is_loaded_once() {
    let mut world = World::new();
    let root = root_of(&Wanted::new());
    world.feed(Input::Adopt { version: Version::new(1, 1), root });
    assert_eq!(world.core.facts().applied, Some((Version::new(1, 1), root)));
    assert_eq!(world.scalwsd.config().commit, 1);
    assert_eq!(world.core.facts().scalwsd, ScalwsdState::Ready);
    world.assert_in_step();
    world.feed(Input::Adopt { version: Version::new(2, 1), root });
    assert_eq!(world.core.facts().applied, Some((Version::new(2, 1), root)));
    assert_eq!(world.scalwsd.config().commit, 1);
}

#[test]
fn a_body_that_a_journal_may_not_hold_is_refused() {
    let mut world = World::new();
    for body in ["{ }", "{}\n", "{", "{\"a\":\"\u{1}\"}"] {
        let mut wanted = Wanted::new();
        wanted.insert(journal::Key::new("pool", "x"), (Bytes::from(body), Vec::new()));
        world.reports.clear();
        world.push(&wanted, (1, 1));
        assert_eq!(last_refusal(&world).map(|r| r.0), Some(refusals::BODY), "{body:?}");
        world.assert_in_step();
    }
}

#[test]
fn a_leaf_whose_key_file_is_wrong_counts_as_absent_until_it_comes_again() {
    let mut world = World::new();
    let secret = world.secret("a key");
    let mut wanted = Wanted::new();
    resource(&mut wanted, "plain", "1", &[]);
    let without = root_of(&wanted);
    resource(&mut wanted, "tls", "1", &[secret]);
    world.push(&wanted, (1, 1));
    world.volume.keys.insert(secret, b"something else".to_vec());
    world.restart_agent();
    let facts = world.core.facts();
    assert_eq!((facts.root, facts.applied.map(|a| a.1)), (without, Some(root_of(&wanted))));
    assert!(!world.core.has_secret(&secret));
    world.push(&wanted, (1, 1));
    assert_eq!(world.core.facts().root, root_of(&wanted));
    world.assert_in_step();
}

#[test]
fn a_journal_twice_its_live_size_is_written_anew_and_followed() {
    let mut world = World::new();
    let mut wanted = Wanted::new();
    let filler = "x".repeat(4_000);
    for generation in 1..=80u64 {
        resource(&mut wanted, &format!("r{}", generation % 8), &format!("{generation}{filler}"), &[]);
        world.push(&wanted, (1, generation));
        world.assert_in_step();
        assert!(world.volume.config.len() < 160_000, "{} bytes", world.volume.config.len());
    }
    assert_eq!(world.core.facts().applied.map(|a| a.0), Some(Version::new(1, 80)));
    world.restart_agent();
    world.restart_scalwsd();
    world.assert_in_step();
}

#[test]
fn a_compaction_that_finds_no_room_leaves_the_old_journal() {
    let mut world = World::new();
    world.volume.limit = Some(100_000);
    let mut wanted = Wanted::new();
    resource(&mut wanted, "big", &"y".repeat(40_000), &[]);
    world.push(&wanted, (1, 1));
    let mut filler = 0;
    while world.volume.config.len() < 90_000 {
        filler += 1;
        resource(&mut wanted, "small", &format!("{filler}{}", "z".repeat(1_000)), &[]);
        world.push(&wanted, (1, 1 + filler));
        world.assert_in_step();
    }
    assert_eq!(world.core.facts().root, root_of(&wanted));
    world.restart_agent();
    assert_eq!(world.core.facts().root, root_of(&wanted));
}

#[test]
fn a_damaged_journal_is_replaced_by_what_could_be_read() {
    let mut world = World::new();
    let mut wanted = Wanted::new();
    resource(&mut wanted, "a", "1", &[]);
    world.push(&wanted, (1, 1));
    let good = world.volume.config.len();
    resource(&mut wanted, "b", "1", &[]);
    world.push(&wanted, (1, 2));
    world.volume.config[good + 20] ^= 0x20;
    world.restart_agent();
    assert_eq!(world.core.facts().applied.map(|a| a.0), Some(Version::new(1, 1)));
    world.assert_in_step();
    world.push(&wanted, (1, 3));
    assert_eq!(world.core.facts().root, root_of(&wanted));
    world.assert_in_step();
}

#[test]
fn a_change_of_what_is_not_live_is_said_without_a_reload() {
    let mut world = World::new();
    let mut wanted = Wanted::new();
    resource(&mut wanted, "a", "1", &[]);
    world.push(&wanted, (1, 1));
    world.reports.clear();
    world.feed(Input::Poll);
    assert!(world.reports.is_empty());
    let taken =
        NotLive { resource: "listener/tcp/80".to_owned(), code: "port_taken".to_owned(), message: "taken".to_owned() };
    world.scalwsd.not_live = vec![taken.clone()];
    world.feed(Input::Poll);
    assert_eq!(world.reports, vec![Report::NotLiveChanged(vec![taken])]);
}

#[test]
fn scalwsd_that_runs_something_else_is_put_right() {
    let mut world = World::new();
    let mut wanted = Wanted::new();
    resource(&mut wanted, "a", "1", &[]);
    world.push(&wanted, (1, 1));
    world.scalwsd.state.clear();
    world.feed(Input::Poll);
    world.assert_in_step();
    world.feed(Input::Down);
    assert_eq!(world.core.facts().scalwsd, ScalwsdState::Down);
    world.scalwsd.state.clear();
    let answer = world.scalwsd.config();
    world.feed(Input::Up(answer));
    world.assert_in_step();
    assert_eq!(world.core.facts().scalwsd, ScalwsdState::Ready);
}

#[test]
fn a_delta_of_members_is_patched_put_on_conflict_and_asked_for_anew_on_an_unknown_base() {
    let mut world = World::new();
    world.put_set(1, "ns/svc:80/tcp", &["10.0.0.1:80"]);
    let base = MemberSet::new("ns/svc:80/tcp", vec!["10.0.0.1:80".into()]);
    let next = MemberSet::new("ns/svc:80/tcp", vec!["10.0.0.1:80".into(), "10.0.0.2:80".into()]);
    let delta = |seq, base: Digest, digest: Digest| {
        let change =
            MembersChange::Delta { base: Prefix::of(&base), add: vec!["10.0.0.2:80".into()], remove: Vec::new() };
        Input::Members(MemberChange { seq, set: "ns/svc:80/tcp".into(), change, digest: Prefix::of(&digest) })
    };
    // scalwsd lost the set: the patch conflicts and the whole set is put.
    world.scalwsd.sets.clear();
    world.feed(delta(2, base.digest, next.digest));
    world.assert_in_step();
    assert_eq!(world.core.member_set("ns/svc:80/tcp"), Some(&next));
    world.reports.clear();
    world.feed(delta(3, Digest([9; 32]), next.digest));
    let root = world.core.facts().member_root;
    let asked = Report::MembersBaseUnknown { set: "ns/svc:80/tcp".into() };
    assert_eq!(world.reports, vec![asked, Report::MembersApplied { seq: 3, root }]);
    world.feed(Input::Members(MemberChange {
        seq: 4,
        set: "ns/svc:80/tcp".into(),
        change: MembersChange::Drop,
        digest: Prefix::of(&Digest([0; 32])),
    }));
    world.assert_in_step();
    assert_eq!(world.core.member_sets().count(), 0);
}

#[test]
fn a_member_set_on_which_scalwsd_died_twice_is_refused_and_the_old_one_stays() {
    let mut world = World::new();
    world.put_set(1, "ns/svc:80/tcp", &["10.0.0.1:80"]);
    world.scalwsd.deadly_member = Some("10.6.6.6:80".into());
    world.reports.clear();
    world.put_set(2, "ns/svc:80/tcp", &["10.6.6.6:80"]);
    assert_eq!(world.scalwsd.deaths, 2);
    assert!(matches!(
        &world.reports[..],
        [Report::MembersRefused { seq: 2, code: refusals::CRASHED, .. }, Report::MembersApplied { seq: 2, .. }]
    ));
    world.assert_in_step();
    // Others go on, and the same set is not tried again.
    world.put_set(3, "ns/other:80/tcp", &["10.0.0.3:80"]);
    world.put_set(4, "ns/svc:80/tcp", &["10.6.6.6:80"]);
    assert_eq!(world.scalwsd.deaths, 2);
    world.assert_in_step();
    assert_eq!(world.core.member_sets().count(), 2);
}

#[test]
fn member_sets_that_scalwsd_lost_or_invented_are_put_right_after_its_restart() {
    let mut world = World::new();
    world.put_set(1, "ns/a:80/tcp", &["10.0.0.1:80"]);
    world.put_set(2, "ns/b:80/tcp", &[]);
    world.feed(Input::Down);
    world.scalwsd.sets.remove("ns/a:80/tcp");
    world.scalwsd.sets.insert("ns/c:80/tcp".into(), MemberSet::new("ns/c:80/tcp", Vec::new()));
    let answer = world.scalwsd.config();
    world.feed(Input::Up(answer));
    world.assert_in_step();
}

#[test]
fn a_torn_members_journal_is_cut_and_the_set_is_compared() {
    let mut world = World::new();
    world.put_set(1, "ns/a:80/tcp", &["10.0.0.1:80"]);
    world.put_set(2, "ns/a:80/tcp", &["10.0.0.2:80"]);
    for len in (1..world.volume.members.len()).rev() {
        world.volume.members.truncate(len);
        world.restart_agent();
        world.assert_in_step();
    }
}

/// A world whose journal is being written anew, and what is wanted in it.
fn world_that_compacts() -> (World, Wanted, u64) {
    let mut world = World::new();
    world.slow_compaction = true;
    let mut wanted = Wanted::new();
    let secret = world.secret("key");
    resource(&mut wanted, "kept", "1", &[secret]);
    let mut generation = 0;
    while world.compacting.is_none() {
        generation += 1;
        resource(&mut wanted, "big", &format!("{generation}{}", "y".repeat(9_000)), &[]);
        world.push(&wanted, (1, generation));
        assert!(generation < 100, "a journal that grows is written anew");
    }
    (world, wanted, generation)
}

#[test]
fn while_the_journal_is_written_anew_members_go_on_and_nothing_that_comes_is_lost() {
    let (mut world, mut wanted, generation) = world_that_compacts();
    let before = world.volume.config.clone();
    // Members, a new epoch, a restart of scalwsd, a poll, a stream that ends, and a whole new configuration.
    world.put_set(7, "a/b:80/tcp", &["10.0.0.1:80"]);
    assert!(world.reports.iter().any(|r| matches!(r, Report::MembersApplied { seq: 7, .. })), "members do not wait");
    world.feed(Input::StreamEnded);
    world.feed(Input::Epoch(5));
    world.restart_scalwsd();
    world.feed(Input::Down);
    let up = world.scalwsd.config();
    world.feed(Input::Up(up));
    world.feed(Input::Poll);
    wanted.remove(&journal::Key::new("fragment", "kept"));
    resource(&mut wanted, "new", "2", &[]);
    world.push(&wanted, (5, generation + 1));
    assert_eq!(world.volume.config, before, "the old file stands still");
    let (journal, _) = world.compacting.clone().unwrap();
    world.end_compaction();
    let replay = journal::Replay::of(&world.volume.config);
    assert_eq!((replay.journal.as_deref(), replay.highest_epoch), (Some(&*journal), 5));
    assert_eq!(world.core.facts().applied, Some((Version::new(5, generation + 1), root_of(&wanted))));
    world.assert_in_step();
    world.restart_agent();
    assert_eq!(world.core.facts().highest_epoch, 5);
    world.assert_in_step();
}

#[test]
fn a_volume_whose_epoch_is_not_believed_is_served_on_and_takes_what_any_controller_gives() {
    for torn in ["", "{\"half\": \"of a li"] {
        let mut world = World::new();
        let mut wanted = Wanted::new();
        let secret = world.secret("key");
        resource(&mut wanted, "kept", "1", &[secret]);
        world.put_set(1, "a/b:80/tcp", &["10.0.0.1:80"]);
        world.push(&wanted, (3_000_000_000_001, 4));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.jsonl");
        std::fs::write(&file, [&*world.volume.config, torn.as_bytes()].concat()).unwrap();
        volume::forget_epoch(dir.path()).unwrap();
        world.volume.config = std::fs::read(&file).unwrap();
        world.restart_agent();
        let facts = world.core.facts();
        assert_eq!((facts.highest_epoch, facts.applied), (0, Some((Version::new(0, 0), root_of(&wanted)))));
        assert_eq!(facts.scalwsd, ScalwsdState::Ready, "what scalwsd runs is still what is accepted");
        assert_eq!((world.scalwsd.sets.len(), world.volume.keys.len()), (1, 1), "members and keys stay");
        world.assert_in_step();
        resource(&mut wanted, "new", "2", &[]);
        world.push(&wanted, (1, 1));
        assert_eq!(world.core.facts().applied, Some((Version::new(1, 1), root_of(&wanted))));
        world.assert_in_step();
    }
}

#[test]
fn an_agent_that_dies_while_the_journal_is_written_anew_has_what_it_had() {
    let (mut world, wanted, _) = world_that_compacts();
    let applied = world.core.facts().applied;
    world.slow_compaction = false;
    world.restart_agent();
    assert_eq!(world.core.facts().applied, applied);
    assert!(world.volume.config.len() < 40_000, "it is written anew after all: {} bytes", world.volume.config.len());
    assert_eq!(world.core.facts().root, root_of(&wanted));
    world.assert_in_step();
}

#[test]
fn what_waited_for_a_compaction_that_failed_goes_on_in_the_old_journal() {
    let (mut world, mut wanted, generation) = world_that_compacts();
    resource(&mut wanted, "new", "2", &[]);
    world.push(&wanted, (2, generation + 1));
    let len = world.volume.config.len();
    let (journal, _) = world.compacting.take().unwrap();
    world.feed(Input::Replaced { file: agent::core::File::Config, len: None });
    assert!(world.volume.config.len() > len, "it was appended to");
    assert_ne!(journal::Replay::of(&world.volume.config).journal.as_deref(), Some(&*journal));
    assert_eq!(world.core.facts().root, root_of(&wanted));
    assert_eq!(world.compacting, None, "not again before it has grown");
    world.assert_in_step();
}
