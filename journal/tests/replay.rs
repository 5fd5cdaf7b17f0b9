//! What a journal means when it is cut, damaged or followed.

use std::collections::BTreeMap;

use bytes::Bytes;
use journal::record::{check_body, encode_transaction};
use journal::{Digest, Follower, JournalError, JournalFile, Key, Record, Replay, Tree, digest};
use proptest::prelude::*;

/// A state that transactions are written against.
#[derive(Clone, Default)]
struct State {
    bodies: BTreeMap<Key, Bytes>,
    tree: Tree,
}

type Step = Vec<(u8, Option<u16>)>;

impl State {
    fn apply(&mut self, step: &Step) -> Vec<Record> {
        let mut records = Vec::new();
        for (name, value) in step {
            let key = Key::new("pool", &format!("ns/\"svc\"-{name}"));
            match value {
                Some(value) => {
                    let body = Bytes::from(format!("{{\"v\":\"\\\"}} {value}\"}}"));
                    self.tree.insert(key.clone(), digest::leaf(&key, &body));
                    self.bodies.insert(key.clone(), body.clone());
                    records.push(Record::Put { key, secrets: vec![Digest::of(&[*name])].into(), body });
                }
                None => {
                    self.tree.remove(&key);
                    self.bodies.remove(&key);
                    records.push(Record::Remove { key });
                }
            }
        }
        records
    }
}

fn line(record: Record) -> Vec<u8> {
    let mut out = Vec::new();
    record.encode_into(&mut out);
    out
}

fn head() -> Vec<u8> {
    line(Record::Journal { id: "one".to_owned() })
}

fn bodies(replay: &Replay) -> BTreeMap<Key, Bytes> {
    replay.resources.iter().map(|(k, s)| (k.clone(), s.body.clone())).collect()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = (0u8..12, proptest::option::weighted(0.8, 0u16..50));
    proptest::collection::vec(proptest::collection::vec(change, 0..6), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_journal_cut_at_any_byte_of_a_transaction_is_the_state_before_it(steps in steps()) {
        let (mut text, mut state) = (head(), State::default());
        let mut before = State::default();
        let (mut last_start, mut last_end) = (0, 0);
        for (i, step) in steps.iter().enumerate() {
            let id = i as u64 + 1;
            before = state.clone();
            last_start = text.len();
            let records = state.apply(step);
            encode_transaction(records, id, (1, id), state.tree.root(), &mut text);
            text.extend(line(Record::Try { commit: id, start: "s".to_owned() }));
            text.extend(line(Record::Accepted { id }));
            last_end = text.len();
        }
        for cut in last_start..=last_end {
            let replay = Replay::of(&text[..cut]);
            let want = if cut == last_end { &state } else { &before };
            prop_assert_eq!(&bodies(&replay), &want.bodies);
            prop_assert_eq!(replay.tree.clone().root(), want.tree.clone().root());
            prop_assert_eq!(replay.settled as usize, if cut == last_end { last_end } else { last_start });
            prop_assert!(replay.corrupt.is_none());
        }
    }

    #[test]
    fn a_flipped_byte_never_gives_a_state_that_was_not_accepted(steps in steps(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let (mut text, mut state) = (head(), State::default());
        let mut states = vec![state.bodies.clone()];
        for (i, step) in steps.iter().enumerate() {
            let id = i as u64 + 1;
            let records = state.apply(step);
            encode_transaction(records, id, (1, id), state.tree.root(), &mut text);
            text.extend(line(Record::Accepted { id }));
            states.push(state.bodies.clone());
        }
        let at = at.index(text.len());
        text[at] ^= 1 << bit;
        let replay = Replay::of(&text);
        prop_assert!(states.contains(&bodies(&replay)));
    }

    #[test]
    fn arbitrary_bytes_never_panic(noise in proptest::collection::vec(any::<u8>(), 0..400), keep in 0usize..200) {
        let mut text = head();
        encode_transaction(State::default().apply(&vec![(1, Some(1))]), 1, (1, 1), Digest([0; 32]), &mut text);
        text.truncate(keep);
        text.extend(&noise);
        Replay::of(&text);
        journal::members::MembersReplay::of(&text);
        let _ = Record::decode(&noise);
        let _ = check_body(&Key::new("a", "b"), &noise);
    }

    #[test]
    fn a_record_reads_back_as_it_was_written(name in "\\PC{0,12}", start in ".{0,12}", n in any::<u64>()) {
        let key = Key::new("fragment", &name);
        let body = Bytes::from(serde_json::to_vec(&start).unwrap());
        let digest = Digest::of(&body);
        for record in [
            Record::Journal { id: start.clone() },
            Record::Epoch { highest: n },
            Record::Put { key: key.clone(), secrets: vec![digest].into(), body },
            Record::Remove { key },
            Record::Try { commit: n, start: start.clone() },
            Record::Accepted { id: n },
            Record::Condemned { leaves: vec![digest] },
            Record::Set { name: name.as_str().into(), members: vec!["10.0.0.1:80".into()].into(), digest },
            Record::Drop { name: name.as_str().into() },
        ] {
            let mut text = line(record.clone());
            prop_assert_eq!(text.pop(), Some(b'\n'));
            prop_assert!(text.iter().all(|b| *b >= 0x20));
            prop_assert_eq!(Record::decode(&text).unwrap(), record);
        }
    }

    /// A writer that accepts, refuses (cuts), voids and compacts; the follower must hold what the writer holds.
    #[test]
    fn a_follower_holds_what_the_writer_committed(steps in steps(), fates in proptest::collection::vec(0u8..6, 5)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.jsonl");
        let mut file = JournalFile::open(&path).unwrap();
        let mut id = "one".to_owned();
        file.append(&head()).unwrap();
        let (mut follower, accepted) = Follower::open(&path).unwrap();
        prop_assert!(accepted.is_none());
        let mut state = State::default();
        let mut held: BTreeMap<Key, Bytes> = BTreeMap::new();
        let mut commit = 0;
        for (step, fate) in steps.iter().zip(fates) {
            let settled = file.len();
            let before = state.clone();
            let records = state.apply(step);
            commit += 1;
            let mut text = Vec::new();
            encode_transaction(records, commit, (1, commit), state.tree.root(), &mut text);
            file.append(&text).unwrap();
            file.append(&line(Record::Try { commit, start: "s".to_owned() })).unwrap();
            let staged = follower.read_to(&id, commit).unwrap();
            prop_assert_eq!(staged.root, state.tree.root());
            match fate {
                // Refused by scalwsd, then cut, or left behind as a commit that never happened.
                0 => {
                    drop(staged);
                    file.cut(settled).unwrap();
                    state = before;
                    continue;
                }
                1 => {
                    drop(staged);
                    state = before;
                    continue;
                }
                _ => {
                    for change in &staged.changes {
                        match &change.body {
                            Some(body) => held.insert(change.key.clone(), body.clone()),
                            None => held.remove(&change.key),
                        };
                    }
                    follower.keep(staged);
                    file.append(&line(Record::Accepted { id: commit })).unwrap();
                }
            }
            prop_assert_eq!(&held, &state.bodies);
            prop_assert_eq!(follower.root(), state.tree.root());
            if fate == 5 {
                id = format!("journal-{commit}");
                let old = Replay::of(&std::fs::read(&path).unwrap());
                let compacted = file.compaction(&id, file.len()).run().unwrap();
                drop(file.adopt(compacted).unwrap());
                let text = std::fs::read(&path).unwrap();
                let new = Replay::of(&text);
                prop_assert_eq!((new.settled, file.len(), new.journal.as_deref()), (text.len() as u64, text.len() as u64, Some(&*id)));
                prop_assert_eq!((new.head, new.resources), (old.head, old.resources), "the same state in one transaction");
            }
        }
        let (reopened, accepted) = Follower::open(&path).unwrap();
        prop_assert_eq!(reopened.root(), state.tree.root());
        prop_assert_eq!(accepted.is_some(), reopened.commit() > 0);
        for follower in [&follower, &reopened] {
            let read = follower.keys().map(|key| (key.clone(), follower.body(key).unwrap().unwrap()));
            prop_assert_eq!(read.collect::<BTreeMap<_, _>>(), state.bodies.clone(), "bodies are read back as they were put");
        }
    }
}

#[test]
fn a_commit_followed_by_anything_but_its_tries_and_accepted_never_happened() {
    let mut state = State::default();
    let mut text = head();
    encode_transaction(state.apply(&vec![(1, Some(1))]), 1, (1, 1), state.tree.root(), &mut text);
    text.extend(line(Record::Accepted { id: 1 }));
    let accepted = state.clone();
    let settled = text.len() as u64;
    encode_transaction(state.apply(&vec![(2, Some(2))]), 2, (1, 2), state.tree.root(), &mut text);
    let open = Replay::of(&text);
    assert_eq!(open.open.as_ref().map(|t| t.commit.id), Some(2));
    assert_eq!((bodies(&open), open.settled), (accepted.bodies.clone(), settled));
    for next in [
        Record::Epoch { highest: 9 },
        Record::Condemned { leaves: vec![Digest([1; 32])] },
        Record::Remove { key: Key::new("pool", "x") },
    ] {
        let mut text = text.clone();
        text.extend(line(next));
        text.extend(line(Record::Accepted { id: 2 }));
        let replay = Replay::of(&text);
        assert!(replay.open.is_none());
        assert_eq!(bodies(&replay), accepted.bodies);
        assert!(replay.corrupt.is_some(), "an accepted record without its commit is damage");
    }
}

#[test]
fn an_epoch_and_condemned_leaves_survive_without_a_transaction() {
    let mut text = head();
    text.extend(line(Record::Epoch { highest: 7 }));
    text.extend(line(Record::Condemned { leaves: vec![Digest([1; 32]), Digest([2; 32])] }));
    text.extend(line(Record::Condemned { leaves: vec![Digest([2; 32])] }));
    let replay = Replay::of(&text);
    assert_eq!(replay.highest_epoch, 7);
    assert_eq!(replay.condemned.into_iter().collect::<Vec<_>>(), vec![Digest([2; 32])]);
    assert_eq!(replay.settled as usize, text.len());
}

#[test]
fn a_follower_skips_the_whole_state_of_a_compacted_journal_that_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.jsonl");
    let mut state = State::default();
    let mut text = head();
    encode_transaction(state.apply(&vec![(1, Some(1)), (2, Some(2))]), 1, (1, 1), state.tree.root(), &mut text);
    text.extend(line(Record::Accepted { id: 1 }));
    std::fs::write(&path, &text).unwrap();
    let (mut follower, _) = Follower::open(&path).unwrap();
    // The second commit is held and its `accepted` was not read yet when the journal is written anew.
    encode_transaction(state.apply(&vec![(2, Some(3))]), 2, (1, 2), state.tree.root(), &mut text);
    std::fs::write(&path, &text).unwrap();
    let staged = follower.read_to("one", 2).unwrap();
    follower.keep(staged);
    let root = state.tree.root();
    let compacted = |good: bool| {
        let mut text = line(Record::Journal { id: "two".to_owned() });
        text.extend(line(Record::Epoch { highest: 1 }));
        let puts = state.bodies.iter().map(|(key, body)| {
            let body = body.clone();
            Record::Put { key: key.clone(), secrets: Vec::new().into(), body }
        });
        encode_transaction(puts, 2, (1, 2), root, &mut text);
        if !good {
            // Damage in a body: the checksum no longer fits.
            let at = text.windows(3).position(|w| w == b"} 1").unwrap();
            text[at + 2] = b'9';
        }
        text.extend(line(Record::Accepted { id: 2 }));
        text
    };
    let rename = |text: &[u8]| {
        std::fs::write(dir.path().join("new"), text).unwrap();
        std::fs::rename(dir.path().join("new"), &path).unwrap();
    };
    rename(&compacted(false));
    assert!(matches!(follower.read_to("two", 2), Err(JournalError::NoCommit { .. })));
    let mut text = compacted(true);
    rename(&text);
    let staged = follower.read_to("two", 2).unwrap();
    assert!(staged.changes.is_empty());
    encode_transaction(
        state.clone().apply(&vec![(1, None)]),
        3,
        (1, 3),
        {
            let mut after = state.clone();
            after.apply(&vec![(1, None)]);
            after.tree.root()
        },
        &mut text,
    );
    rename(&text);
    let staged = follower.read_to("two", 3).unwrap();
    assert_eq!(staged.changes.len(), 1);
    follower.keep(staged);
    assert_eq!((follower.journal(), follower.commit()), (Some("two"), 3));
    let staged = follower.read_to("two", 2).unwrap();
    assert_eq!((staged.changes.len(), staged.root), (1, root), "back to the accepted state");
}

#[test]
fn a_follower_goes_back_to_the_accepted_state_when_a_kept_commit_was_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.jsonl");
    let mut state = State::default();
    let mut text = head();
    encode_transaction(state.apply(&vec![(1, Some(1))]), 1, (1, 1), state.tree.root(), &mut text);
    text.extend(line(Record::Accepted { id: 1 }));
    std::fs::write(&path, &text).unwrap();
    let (mut follower, _) = Follower::open(&path).unwrap();
    let (root, settled) = (follower.root(), text.len());
    encode_transaction(state.apply(&vec![(1, Some(2)), (2, Some(2))]), 2, (1, 2), state.tree.root(), &mut text);
    std::fs::write(&path, &text).unwrap();
    let staged = follower.read_to("one", 2).unwrap();
    follower.keep(staged);
    assert_eq!((follower.commit(), follower.root()), (2, state.tree.root()));
    std::fs::write(&path, &text[..settled]).unwrap();
    let staged = follower.read_to("one", 1).unwrap();
    assert_eq!(staged.changes.len(), 2);
    follower.keep(staged);
    assert_eq!((follower.commit(), follower.root()), (1, root));
}

#[test]
fn a_follower_refuses_another_journal_and_a_commit_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.jsonl");
    let (mut follower, _) = Follower::open(&path).unwrap();
    assert!(matches!(follower.read_to("one", 1), Err(JournalError::Io { .. })));
    std::fs::write(&path, head()).unwrap();
    assert!(matches!(follower.read_to("two", 1), Err(JournalError::OtherJournal { .. })));
    assert!(matches!(follower.read_to("one", 1), Err(JournalError::NoCommit { .. })));
}

#[test]
fn a_follower_refuses_a_commit_whose_root_does_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.jsonl");
    let mut text = head();
    encode_transaction(State::default().apply(&vec![(1, Some(1))]), 1, (1, 1), Digest([3; 32]), &mut text);
    std::fs::write(&path, text).unwrap();
    let (mut follower, _) = Follower::open(&path).unwrap();
    assert!(matches!(follower.read_to("one", 1), Err(JournalError::Root { .. })));
}

#[test]
fn a_body_must_be_one_compact_json_value() {
    let key = Key::new("pool", "x");
    for good in ["{}", "{\"a\":\"b c\"}", "[1,\"\\\" \"]", "\"ü\"", "1"] {
        assert_eq!(check_body(&key, good.as_bytes()), Ok(()), "{good}");
    }
    for bad in ["", "{", "{} ", " {}", "{\"a\": 1}", "{}{}", "{}}},\"x\":{", "{\n}", "\"\t\""] {
        assert!(check_body(&key, bad.as_bytes()).is_err(), "{bad:?}");
    }
    assert!(check_body(&key, b"\"\xff\"").is_err());
}

#[test]
fn a_body_stands_last_and_raw_in_its_line() {
    let key = Key::new("pool", "x");
    let body = Bytes::from_static(b"{\"n\":1.0e2,\"n2\":1E5}");
    let text = line(Record::Put { key: key.clone(), secrets: Vec::new().into(), body: body.clone() });
    assert_eq!(text, b"{\"put\":{\"kind\":\"pool\",\"name\":\"x\",\"body\":{\"n\":1.0e2,\"n2\":1E5}}}\n");
    assert!(Record::decode(b"{\"put\":{\"body\":{},\"kind\":\"pool\",\"name\":\"x\"}}").is_err());
    assert!(Record::decode(b"{\"put\":{\"kind\":\"pool\",\"name\":\"x\",\"body\":{},\"more\":1}}").is_err());
}

/// A journal of three commits, the second of which replaces what the first put.
fn three_commits() -> Vec<u8> {
    let mut text = line(Record::Journal { id: "old".to_owned() });
    let mut tree = Tree::default();
    for commit in 1..=3u64 {
        let (key, body) =
            (Key::new("pool", if commit == 3 { "b" } else { "a" }), Bytes::from(format!("{{\"n\":{commit}}}")));
        tree.insert(key.clone(), digest::leaf(&key, &body));
        let put = Record::Put { key, secrets: vec![Digest::of(b"key")].into(), body };
        encode_transaction([put], commit, (1, commit), tree.root(), &mut text);
        text.extend(line(Record::Accepted { id: commit }));
    }
    text
}

#[test]
fn a_journal_written_anew_says_the_same_and_never_less() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.jsonl");
    let mut text = three_commits();
    let settled = text.len() as u64;
    let old = Replay::of(&text);
    text.extend_from_slice(b"leftovers of a write that was cut short");
    std::fs::write(&path, &text).unwrap();
    let mut file = JournalFile::open(&path).unwrap();
    let compacted = file.compaction("new", settled).run().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), text, "nothing happens to the old one before the rename");
    drop(file.adopt(compacted).unwrap());
    let new = Replay::of(&std::fs::read(&path).unwrap());
    assert_eq!((new.journal.as_deref(), new.settled, &new.corrupt), (Some("new"), file.len(), &None));
    assert_eq!((new.head, new.resources, new.highest_epoch), (old.head, old.resources, old.highest_epoch));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    file.append(&line(Record::Epoch { highest: 9 })).unwrap();
    assert_eq!(Replay::of(&std::fs::read(&path).unwrap()).highest_epoch, 9, "what follows goes to the new one");

    // Damage in the middle, a commit that is not accepted, a file that is too short: refused, and nothing is left.
    let good = three_commits();
    let mut damaged = good.clone();
    let middle = damaged.windows(6).position(|w| w == b"{\"n\":2").unwrap() + 5;
    damaged[middle] = b'7';
    let open = good[..good.len() - line(Record::Accepted { id: 3 }).len()].to_vec();
    for (what, text, settled) in
        [("damaged", &damaged, good.len()), ("open", &open, open.len()), ("short", &open, good.len())]
    {
        std::fs::write(&path, text).unwrap();
        let file = JournalFile::open(&path).unwrap();
        let refused = file.compaction("newer", settled as u64).run();
        assert!(refused.is_err(), "{what}: a state that is older than what was accepted");
        assert_eq!(&std::fs::read(&path).unwrap(), text, "{what}: the old one stays");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{what}");
    }
}

#[test]
fn what_a_death_left_beside_a_journal_is_removed_when_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.jsonl");
    std::fs::write(&path, three_commits()).unwrap();
    std::fs::write(JournalFile::beside(&path), b"half").unwrap();
    drop(JournalFile::open(&path).unwrap());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(std::fs::read(&path).unwrap(), three_commits());
}
