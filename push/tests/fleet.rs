//! The desired state of a fleet: generations, differences, what is shared, what is condemned.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use journal::{Digest, Key, Tree};
use proptest::prelude::*;
use prost::Message;
use proto::v1::{Change, change};
use push::fleet::{Admission, Fleet, FleetChange, Frames, Item, Retry};
use push::{Secret, Version};

fn key(name: &str) -> Key {
    Key::new("fragment", name)
}

fn put(name: &str, body: &str) -> Item {
    Item { key: key(name), body: Bytes::from(body.to_owned()), secrets: Vec::new() }
}

fn puts(items: Vec<Item>) -> FleetChange {
    FleetChange { puts: items, ..FleetChange::default() }
}

fn removes(names: &[&str]) -> FleetChange {
    FleetChange { removes: names.iter().map(|name| key(name)).collect(), ..FleetChange::default() }
}

/// What the chunks say, decoded: `+name body`, `-name` or `*secret`.
fn said(frames: &Frames) -> Vec<String> {
    let bytes: Vec<u8> = (0..frames.chunks()).flat_map(|at| frames.chunk(at).unwrap().to_vec()).collect();
    assert_eq!(bytes.len() as u64, frames.len());
    let mut bytes = Bytes::from(bytes);
    let mut said = Vec::new();
    while !bytes.is_empty() {
        said.push(match Change::decode_length_delimited(&mut bytes).unwrap().change.unwrap() {
            change::Change::Put(put) => format!("+{} {}", put.name, String::from_utf8(put.body.to_vec()).unwrap()),
            change::Change::Remove(remove) => format!("-{}", remove.name),
            change::Change::Patch(patch) => {
                let middle = String::from_utf8(patch.middle.to_vec()).unwrap();
                format!("~{} {} {} {middle}", patch.name, patch.head, patch.tail)
            }
            change::Change::Blob(blob) => format!("*{}", String::from_utf8(blob.data.to_vec()).unwrap()),
        });
    }
    said
}

#[test]
fn a_generation_is_raised_only_when_the_root_changed() {
    let mut fleet = Fleet::new(7);
    assert_eq!(fleet.version(), Version::new(7, 0));
    assert!(!fleet.is_published());
    assert_eq!(fleet.publish(FleetChange::default()).version, Version::new(7, 1), "an empty world is a world");
    assert_eq!(fleet.publish(puts(vec![put("a", "1")])).version, Version::new(7, 2));
    assert_eq!(fleet.publish(puts(vec![put("a", "1")])).version, Version::new(7, 2), "the same bytes");
    let members = vec![("s".into(), Some(vec![Arc::from("m")].into()))];
    let published = fleet.publish(FleetChange { members, ..FleetChange::default() });
    assert_eq!(published.version, Version::new(7, 2), "members never raise it");
    assert_eq!(published.member_version, 1);
    fleet.raise_epoch(9);
    assert_eq!(fleet.version(), Version::new(9, 1), "the present root is the first of a new epoch");
    fleet.raise_epoch(8);
    assert_eq!(fleet.version(), Version::new(9, 1), "an epoch never falls");
    assert_eq!(fleet.publish(puts(vec![put("b", "1")])).version, Version::new(9, 2));
    assert_eq!(fleet.generation_of(&key("a")), Some(1));
    assert_eq!(fleet.generation_of(&key("b")), Some(2));
}

#[test]
fn a_difference_holds_what_changed_and_nothing_else() {
    let mut fleet = Fleet::new(1);
    let one = fleet.publish(puts(vec![put("a", "1"), put("b", "1"), put("c", "1")])).root;
    let two = fleet.publish(puts(vec![put("a", "2")])).root;
    assert_eq!(said(&fleet.delta(&one).unwrap()), ["+a 2"]);
    fleet.publish(removes(&["b"]));
    assert_eq!(said(&fleet.delta(&one).unwrap()), ["+a 2", "-b"]);
    assert_eq!(said(&fleet.delta(&two).unwrap()), ["-b"]);
    // Something that came and went is not mentioned; something that is as it was is not either.
    fleet.publish(puts(vec![put("d", "1"), put("a", "1")]));
    fleet.publish(removes(&["d"]));
    assert_eq!(said(&fleet.delta(&one).unwrap()), ["-b"]);
    assert_eq!(said(&fleet.delta(&fleet.root().clone()).unwrap()), Vec::<String>::new());
    let empty = fleet.empty_root();
    assert_eq!(said(&fleet.delta(&empty).unwrap()), ["+a 1", "+c 1"]);
    assert!(fleet.delta(&Digest::of(b"unknown")).is_none());
}

#[test]
fn a_root_that_came_again_is_a_base_from_its_last_time() {
    let mut fleet = Fleet::new(1);
    let first = fleet.publish(puts(vec![put("a", "1")])).root;
    fleet.publish(puts(vec![put("a", "2")]));
    let again = fleet.publish(puts(vec![put("a", "1")]));
    assert_eq!(again.root, first);
    assert_eq!(again.version, Version::new(1, 3), "going back is a new generation");
    fleet.publish(puts(vec![put("b", "1")]));
    assert_eq!(said(&fleet.delta(&first).unwrap()), ["+b 1"]);
}

#[test]
fn sessions_that_need_the_same_difference_share_its_bytes() {
    let mut fleet = Fleet::new(1);
    let one = fleet.publish(puts(vec![put("a", "1")])).root;
    fleet.publish(puts(vec![put("a", "2"), put("b", "1")]));
    let (first, second) = (fleet.delta(&one).unwrap(), fleet.delta(&one).unwrap());
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(first.chunk(0).unwrap().as_ptr(), second.chunk(0).unwrap().as_ptr());
    // An encoded resource is a part of the chunk as it is when it is alone in it.
    fleet.publish(puts(vec![put("a", "3")]));
    let two = fleet.root();
    fleet.publish(puts(vec![put("a", "4")]));
    let body = fleet.body(&key("a")).unwrap().clone();
    let chunk = fleet.delta(&two).unwrap().chunk(0).unwrap();
    assert!(chunk.as_ptr_range().contains(&body.as_ptr()), "no copy between a body and the wire");
}

#[test]
fn whole_buckets_are_sent_for_what_differs() {
    let mut fleet = Fleet::new(1);
    fleet.publish(puts((0..500).map(|n| put(&format!("r{n}"), "1")).collect()));
    let mut agent = fleet.tree().clone();
    agent.insert(key("r7"), Digest::of(b"other"));
    agent.insert(key("stray"), Digest::of(b"stray"));
    let frames = fleet.replacement(agent.bucket_digests());
    assert_eq!(frames.base(), agent.root());
    let (of_r7, of_stray) = (key("r7").bucket(), key("stray").bucket());
    let mut expected = vec![of_r7, of_stray];
    expected.sort_unstable();
    expected.dedup();
    assert_eq!(frames.replaced(), expected);
    let sent = said(&frames);
    assert!(sent.contains(&"+r7 1".to_owned()));
    assert_eq!(sent.len(), expected.iter().map(|n| fleet.tree().bucket(*n).len()).sum::<usize>());
}

#[test]
fn a_secret_travels_with_the_first_body_that_names_it_and_goes_with_the_last() {
    let secret = Secret::new(b"key".to_vec());
    let named = |name: &str, body: &str| Item { secrets: vec![secret.digest()], ..put(name, body) };
    let mut fleet = Fleet::new(1);
    let one = fleet.publish(puts(vec![put("x", "1")])).root;
    let given = vec![(secret.digest(), secret.clone())];
    let two = fleet.publish(FleetChange { puts: vec![named("a", "1")], secrets: given, ..FleetChange::default() }).root;
    assert_eq!(said(&fleet.delta(&one).unwrap()), ["*key", "+a 1"]);
    fleet.publish(puts(vec![named("b", "1")]));
    let frames = fleet.delta(&two).unwrap();
    assert_eq!(said(&frames), ["+b 1"], "whoever has the base has the key");
    assert_eq!(frames.blobs(&[secret.digest()]).unwrap().len(), 1, "but it may ask");
    let unnamed = Digest::of(b"another fleet's key");
    assert_eq!(frames.blobs(&[unnamed]), Err(unnamed));
    // Dropped while named: it stays until nobody names it.
    let drop = FleetChange { drop_secrets: vec![secret.digest()], removes: vec![key("a")], ..FleetChange::default() };
    assert_eq!(fleet.publish(drop).missing_secrets, []);
    let empty = fleet.empty_root();
    assert_eq!(said(&fleet.delta(&empty).unwrap())[0], "*key");
    fleet.publish(removes(&["b"]));
    let missing = fleet.publish(puts(vec![named("c", "1")])).missing_secrets;
    assert_eq!(missing, [secret.digest()], "it was forgotten, and the caller is told");
}

#[test]
fn no_push_starts_while_a_condemned_leaf_is_desired() {
    let mut fleet = Fleet::new(1);
    fleet.publish(puts(vec![put("a", "1"), put("b", "1")]));
    assert!(fleet.may_push());
    let leaf = fleet.tree().get(&key("a")).unwrap();
    assert_eq!(fleet.condemn(&[leaf]), [key("a")]);
    assert!(!fleet.may_push());
    assert_eq!(fleet.condemn(&[leaf]), [key("a")], "told again, the same answer");
    fleet.publish(puts(vec![put("a", "claims only")]));
    assert!(fleet.may_push());
    fleet.publish(puts(vec![put("a", "1")]));
    assert!(!fleet.may_push(), "the same bytes are condemned for good");
    fleet.publish(removes(&["a"]));
    assert!(fleet.may_push());
}

#[test]
fn history_is_bounded_and_an_old_base_is_forgotten() {
    let mut fleet = Fleet::new(1);
    let oldest = fleet.publish(puts(vec![put("a", "0")])).root;
    let mut recent = oldest;
    for n in 1..=5_000 {
        recent = fleet.root();
        fleet.publish(puts(vec![put("a", &n.to_string())]));
    }
    assert!(fleet.delta(&oldest).is_none());
    assert_eq!(said(&fleet.delta(&recent).unwrap()), ["+a 5000"]);
}

#[test]
fn a_refused_root_is_never_due_again_and_a_passing_fault_ever_more_slowly() {
    let mut fleet = Fleet::new(1);
    let (agent, bad, flaky) = (Arc::from("uid"), Digest::of(b"bad"), Digest::of(b"flaky"));
    let refusals = fleet.refusals(&agent, "1.0");
    refusals.add(bad, false, 1_000);
    assert_eq!(refusals.retry(&bad), Retry::Never);
    let mut waits = Vec::new();
    for _ in 0..10 {
        refusals.add(flaky, true, 1_000);
        let Retry::At(at) = refusals.retry(&flaky) else { panic!("{:?}", refusals.retry(&flaky)) };
        waits.push(at - 1_000);
    }
    assert_eq!(waits, [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
    refusals.applied(&flaky);
    assert_eq!(refusals.retry(&flaky), Retry::Now);
    assert_eq!(fleet.refusals(&agent, "1.0").retry(&bad), Retry::Never, "over reconnects");
    assert_eq!(fleet.refusals(&agent, "1.1").retry(&bad), Retry::Now, "another scalwsd may take it");
}

#[test]
fn places_for_full_transfers_are_bounded_and_empty_agents_come_first() {
    let admission = Arc::new(Admission::new(4));
    let warm: Vec<_> = (0..4).filter_map(|_| admission.admit(false)).collect();
    assert_eq!(warm.len(), 2, "half of the places");
    let cold: Vec<_> = (0..4).filter_map(|_| admission.admit(true)).collect();
    assert_eq!(cold.len(), 2, "the rest is for those who have nothing");
    drop(warm);
    assert!(admission.admit(true).is_some());
}

#[test]
fn a_set_that_went_and_came_again_starts_anew() {
    let mut fleet = Fleet::new(1);
    let set: Arc<str> = "s".into();
    let with = |members: Option<&[&str]>| {
        let members = members.map(|members| members.iter().map(|m| Arc::from(*m)).collect::<Vec<Arc<str>>>().into());
        FleetChange { members: vec![("s".into(), members)], ..FleetChange::default() }
    };
    let many: Vec<String> = (0..50).map(|n| format!("10.0.0.{n}:80")).collect();
    let many: Vec<&str> = many.iter().map(|m| &**m).collect();
    fleet.publish(with(Some(&many)));
    let before = fleet.members().version();
    fleet.publish(with(Some(&many[1..])));
    let delta = fleet.members().get(&set).unwrap().delta_from(before).unwrap();
    assert_eq!((delta.add.len(), &*delta.remove), (0, &[0][..]));
    let again = fleet.members().get(&set).unwrap().delta_from(before).unwrap();
    assert!(Arc::ptr_eq(&delta, &again), "worked out once");
    fleet.publish(with(None));
    assert_eq!(fleet.members().iter().count(), 0);
    assert_eq!(fleet.members().root(), journal::MemberTree::default().root());
    let gone = fleet.members().get(&set).unwrap().gone().unwrap();
    assert_eq!(gone.after, fleet.serial());
    fleet.publish(with(Some(&many)));
    assert!(fleet.members().get(&set).unwrap().delta_from(before).is_none(), "whole");
}

#[test]
fn a_changed_body_travels_as_a_difference_where_that_is_shorter() {
    let text = |path: &str| format!("{{\"host\":\"app.example.com\",\"paths\":[\"/\",\"{path}\"],\"port\":80}}");
    let mut fleet = Fleet::new(1);
    let one = fleet.publish(puts(vec![put("a", &text("/v1")), put("b", "1")])).root;
    let two = fleet.publish(puts(vec![put("a", &text("/v2")), put("b", "2")])).root;
    let head = text("").find("\"]").unwrap() + 2;
    let tail = text("").len() - head + 2;
    assert_eq!(said(&fleet.delta(&one).unwrap()), [format!("~a {head} {} 2", tail), "+b 2".to_owned()]);
    fleet.publish(puts(vec![put("a", &text("/v3/more"))]));
    assert_eq!(said(&fleet.delta(&two).unwrap()), [format!("~a {head} {} 3/more", tail)]);
    let whole = said(&fleet.replacement(Tree::default().bucket_digests()));
    assert!(whole.iter().all(|change| change.starts_with('+')), "whole buckets have whole bodies: {whole:?}");
}

proptest! {
    /// A difference from any root that was published leads to the present root, and the order of work is irrelevant.
    #[test]
    fn every_difference_leads_to_the_present_root(
        steps in prop::collection::vec(prop::collection::vec((0..12u8, prop::option::of(0..4u8)), 1..5), 1..20),
    ) {
        let mut fleet = Fleet::new(1);
        let mut states: Vec<(Digest, BTreeMap<String, String>)> = vec![(fleet.empty_root(), BTreeMap::new())];
        for step in steps {
            let mut state = states.last().unwrap().1.clone();
            let mut change = FleetChange::default();
            let step: BTreeMap<u8, Option<u8>> = step.into_iter().collect();
            for (name, body) in step {
                let name = format!("r{name}");
                match body {
                    Some(body) => {
                        // Long and alike, and short: some of both travel as differences.
                        let body = if body < 2 { format!("{body:0100}") } else { body.to_string() };
                        change.puts.push(put(&name, &body));
                        state.insert(name, body);
                    }
                    None => {
                        change.removes.push(key(&name));
                        state.remove(&name);
                    }
                }
            }
            let root = fleet.publish(change).root;
            let mut tree = Tree::default();
            for (name, body) in &state {
                tree.insert(key(name), journal::digest::leaf(&key(name), body.as_bytes()));
            }
            prop_assert_eq!(tree.root(), root);
            states.push((root, state));
        }
        let (_, last) = states.last().unwrap().clone();
        for (root, mut state) in states {
            for change in said(&fleet.delta(&root).expect("remembered")) {
                match change.split_at(1) {
                    ("+", rest) => {
                        let (name, body) = rest.split_once(' ').unwrap();
                        state.insert(name.to_owned(), body.to_owned());
                    }
                    ("~", rest) => {
                        let [name, head, tail, middle] = rest.splitn(4, ' ').collect::<Vec<_>>()[..] else { panic!() };
                        let (head, tail): (usize, usize) = (head.parse().unwrap(), tail.parse().unwrap());
                        let old = &state[name];
                        let new = format!("{}{middle}{}", &old[..head], &old[old.len() - tail..]);
                        state.insert(name.to_owned(), new);
                    }
                    (_, name) => prop_assert!(state.remove(name).is_some(), "only what is there is removed"),
                }
            }
            prop_assert_eq!(&state, &last);
        }
    }
}
