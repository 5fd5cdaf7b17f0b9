//! Conversations as an agent follows them, message by message.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod model;

use std::sync::Arc;

use bytes::Bytes;
use journal::digest::{leaf, members};
use journal::members::MemberSet;
use journal::{Digest, Key, MemberTree, Tree};
use model::Volume;
use prost::Message;
use proto::v1::agent_message::Message as Up;
use proto::v1::controller_message::Message as Down;
use proto::v1::{
    Abort, Begin, Blob, Change, Chunk, Commit, ControllerMessage, Drop, Heartbeat, Members, MembersDelta, MembersFull,
    NotLeader, Patch, Put, Remove, SendBuckets, SendMemberSets, Standby, Superseded, Target, Unsupported, Unsure,
    Welcome, change,
};
use push::agent_session::{AgentSession, Close, Effect, Input, MembersChange, Transfer};
use push::{Secret, Version, limits};

struct Talk {
    now: u64,
    volume: Volume,
    session: AgentSession,
    transfers: u64,
}

fn raw(digest: Digest) -> Bytes {
    Bytes::copy_from_slice(&digest.0)
}

fn beginning(digest: Digest) -> Bytes {
    raw(digest).slice(..16)
}

fn put(name: &str, body: &str, secrets: &[Digest]) -> Change {
    let secrets = secrets.iter().map(|digest| raw(*digest)).collect();
    let (kind, name, body) = ("fragment".to_owned(), name.to_owned(), Bytes::from(body.to_owned()));
    Change { change: Some(change::Change::Put(Put { kind, name, body, secrets })) }
}

fn remove(name: &str) -> Change {
    Change { change: Some(change::Change::Remove(Remove { kind: "fragment".to_owned(), name: name.to_owned() })) }
}

fn blob(bytes: &[u8]) -> Change {
    let digest = raw(Digest::of(bytes));
    Change { change: Some(change::Change::Blob(Blob { digest, data: Bytes::copy_from_slice(bytes) })) }
}

/// The root after these puts and removes.
fn after(tree: &Tree, changes: &[Change]) -> Digest {
    let mut tree = tree.clone();
    for change in changes {
        let Some(change) = &change.change else { continue };
        match change {
            change::Change::Put(put) => {
                let key = Key::new(&put.kind, &put.name);
                let leaf = leaf(&key, &put.body);
                tree.insert(key, leaf);
            }
            change::Change::Remove(remove) => {
                tree.remove(&Key::new(&remove.kind, &remove.name));
            }
            change::Change::Patch(_) | change::Change::Blob(_) => {}
        }
    }
    tree.root()
}

fn encoded(changes: &[Change]) -> Bytes {
    changes.iter().flat_map(Message::encode_length_delimited_to_vec).collect()
}

/// The one message that was sent, if it is only one.
fn sent(effects: &[Effect]) -> Vec<&Up> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Send(message) => message.message.as_ref(),
            _ => None,
        })
        .collect()
}

fn closed(effects: &[Effect]) -> Option<&Close> {
    effects.iter().find_map(|effect| match effect {
        Effect::Close(close) => Some(close),
        _ => None,
    })
}

impl Talk {
    /// At version 5.1 with `a` = 1, welcomed to it.
    fn new() -> Talk {
        let mut talk = Talk::unwelcome();
        let effects = talk.welcome(5, 1);
        let [Effect::Welcomed { .. }, Effect::Adopt { version, root }] = effects[..] else { panic!("{effects:?}") };
        talk.applied(version, root);
        talk
    }

    fn unwelcome() -> Talk {
        let mut volume = Volume { epoch: 5, applied: Some(Version::new(5, 1)), ..Volume::default() };
        let key = Key::new("fragment", "a");
        volume.tree.insert(key.clone(), leaf(&key, b"1"));
        volume.bodies.insert(key, Bytes::from_static(b"1"));
        let mut talk = Talk { now: 1_000, volume, session: AgentSession::new(1 << 20), transfers: 0 };
        let facts = talk.volume.facts(1);
        let effects = talk.input(Input::Connected(facts));
        let said = sent(&effects);
        let [Up::Hello(hello)] = &said[..] else { panic!("{effects:?}") };
        assert_eq!((hello.highest_epoch, &hello.applied_root), (5, &raw(talk.volume.tree.root())));
        talk
    }

    fn welcome(&mut self, epoch: u64, generation: u64) -> Vec<Effect> {
        let target = Some(Target { generation, root: raw(self.volume.tree.root()) });
        let member_root = raw(MemberTree::default().root());
        self.hear(Down::Welcome(Welcome {
            epoch,
            protocol: 1,
            heartbeat_ms: 5_000,
            target,
            member_root,
            ..Welcome::default()
        }))
    }

    fn input(&mut self, input: Input) -> Vec<Effect> {
        self.session.step(self.now, input, &self.volume)
    }

    fn hear(&mut self, message: Down) -> Vec<Effect> {
        self.input(Input::Received(ControllerMessage { message: Some(message) }))
    }

    fn applied(&mut self, version: Version, root: Digest) -> Vec<Effect> {
        self.volume.applied = Some(version);
        self.input(Input::Applied { version, root, timings: Default::default(), not_live: Vec::new() })
    }

    fn begin(&self, generation: u64, changes: &[Change]) -> Begin {
        Begin {
            version: Some(Version::new(5, generation).to_wire()),
            base_root: beginning(after(&self.volume.tree, &[])),
            root: raw(after(&self.volume.tree, changes)),
            bytes: encoded(changes).len() as u64,
            transfer: self.transfers + 1,
            ..Begin::default()
        }
    }

    /// A whole transfer; what came of its Commit.
    fn transfer(&mut self, begin: Begin, changes: &[Change]) -> Vec<Effect> {
        self.transfers = begin.transfer;
        let transfer = begin.transfer;
        let mut effects = self.hear(Down::Begin(begin));
        effects.extend(self.hear(Down::Chunk(Chunk { transfer, data: encoded(changes), offset: 0 })));
        effects.extend(self.hear(Down::Commit(Commit { transfer })));
        effects
    }

    fn push(&mut self, generation: u64, changes: &[Change]) -> Vec<Effect> {
        let begin = self.begin(generation, changes);
        self.transfer(begin, changes)
    }

    fn refusal(&mut self, generation: u64, changes: &[Change]) -> String {
        let effects = self.push(generation, changes);
        let said = sent(&effects);
        let [Up::Refused(refused)] = &said[..] else { panic!("{effects:?}") };
        assert!(!refused.transient);
        refused.code.clone()
    }
}

fn update(effects: Vec<Effect>) -> Transfer {
    match effects.into_iter().next() {
        Some(Effect::Apply(transfer)) => *transfer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_difference_is_applied_and_answered_after_the_agent_said_so() {
    let mut talk = Talk::new();
    let changes = [put("b", "{\"n\":1}", &[]), remove("a")];
    let transfer = update(talk.push(2, &changes));
    assert_eq!(transfer.version, Version::new(5, 2));
    assert_eq!((transfer.puts.len(), &transfer.removes[..]), (1, &[Key::new("fragment", "a")][..]));
    talk.volume.apply(&transfer);
    let effects = talk.applied(transfer.version, transfer.root);
    let said = sent(&effects);
    let [Up::Applied(applied)] = &said[..] else { panic!("{effects:?}") };
    assert_eq!((applied.version.unwrap(), &applied.root), (Version::new(5, 2).to_wire(), &raw(transfer.root)));
    // The list changes without a reload: the verdict is said again.
    let not_live = vec![journal::admin::NotLive {
        resource: "listener/tcp/80".to_owned(),
        code: "port_taken".to_owned(),
        message: "taken".to_owned(),
    }];
    let effects = talk.input(Input::NotLiveChanged(not_live));
    let said = sent(&effects);
    let [Up::Applied(again)] = &said[..] else { panic!("{effects:?}") };
    assert_eq!((again.version, again.not_live.len()), (applied.version, 1));
}

#[test]
fn a_difference_on_another_base_is_answered_with_all_bucket_digests() {
    let mut talk = Talk::new();
    let changes = [put("b", "1", &[])];
    let begin = Begin { base_root: beginning(Digest::of(b"other")), ..talk.begin(2, &changes) };
    let effects = talk.transfer(begin, &changes);
    let said = sent(&effects);
    let [Up::Resync(resync)] = &said[..] else { panic!("{effects:?}") };
    assert_eq!((resync.bucket_digests.len(), resync.transfer), (256 * 32, 1));
}

#[test]
fn a_base_that_is_lost_between_begin_and_commit_is_found_at_commit() {
    let mut talk = Talk::new();
    let changes = [put("b", "1", &[])];
    let begin = talk.begin(2, &changes);
    talk.hear(Down::Begin(begin));
    talk.volume.tree.insert(Key::new("fragment", "x"), Digest::of(b"x"));
    talk.hear(Down::Chunk(Chunk { transfer: 1, data: encoded(&changes), offset: 0 }));
    let effects = talk.hear(Down::Commit(Commit { transfer: 1 }));
    assert!(matches!(sent(&effects)[..], [Up::Resync(_)]), "{effects:?}");
}

#[test]
fn a_wrong_root_is_never_applied() {
    let mut talk = Talk::new();
    let changes = [put("b", "1", &[])];
    let begin = Begin { root: raw(Digest::of(b"wrong")), ..talk.begin(2, &changes) };
    let effects = talk.transfer(begin, &changes);
    assert!(matches!(sent(&effects)[..], [Up::Resync(_)]), "a difference: whole buckets may put it right");
    let mut begin = Begin { root: raw(Digest::of(b"wrong")), ..talk.begin(3, &changes) };
    begin.replaced_buckets = vec![Key::new("fragment", "b").bucket()].into();
    let effects = talk.transfer(begin, &changes);
    let said = sent(&effects);
    let [Up::Refused(refused)] = &said[..] else { panic!("{effects:?}") };
    assert_eq!(refused.code, "root_mismatch");
}

#[test]
fn whole_buckets_remove_what_they_do_not_name() {
    let mut talk = Talk::new();
    for n in 0..300 {
        let key = Key::new("fragment", &format!("old{n}"));
        talk.volume.tree.insert(key.clone(), leaf(&key, b"1"));
        talk.volume.bodies.insert(key, Bytes::from_static(b"1"));
    }
    talk.volume.tree.root();
    let changes = [put("a", "1", &[]), put("new", "1", &[])];
    let mut tree = Tree::default();
    let root = {
        tree.insert(Key::new("fragment", "a"), leaf(&Key::new("fragment", "a"), b"1"));
        after(&tree, &changes)
    };
    let all: Vec<u8> = (0..=255).collect();
    let begin = Begin { root: raw(root), replaced_buckets: all.into(), ..talk.begin(2, &changes) };
    let transfer = update(talk.transfer(begin, &changes));
    assert_eq!(transfer.removes.len(), 300);
    assert_eq!(transfer.puts.len(), 1, "what is held already is not written again");
    talk.volume.apply(&transfer);
}

#[test]
fn bodies_and_names_that_could_break_a_journal_are_refused() {
    let too_long = "x".repeat(limits::NAME + 1);
    for (what, changes, code) in [
        ("two lines", vec![put("b", "{\n}", &[])], "invalid_body"),
        ("no JSON", vec![put("b", "{", &[])], "invalid_body"),
        ("two values", vec![put("b", "1 2", &[])], "invalid_body"),
        ("a value that closes the record", vec![put("b", "1}{\"put\":1", &[])], "invalid_body"),
        ("spaces around", vec![put("b", " 1", &[])], "invalid_body"),
        ("nothing", vec![put("b", "", &[])], "invalid_body"),
        ("a delimiter in a string", vec![put("b", "\"\u{1}\"", &[])], "invalid_body"),
        ("twice", vec![put("b", "1", &[]), put("b", "1", &[])], "broken"),
        ("put and removed", vec![put("a", "2", &[]), remove("a")], "broken"),
        ("no name", vec![put("", "1", &[])], "broken"),
        ("a long name", vec![put(&too_long, "1", &[])], "broken"),
        ("no change", vec![Change::default()], "broken"),
    ] {
        assert_eq!(Talk::new().refusal(2, &changes), code, "{what}");
    }
}

#[test]
fn missing_secrets_are_asked_for_once() {
    let mut talk = Talk::new();
    let key = Secret::new(b"private".to_vec());
    let changes = [put("c", "1", &[key.digest()])];
    let effects = talk.push(2, &changes);
    let said = sent(&effects);
    let [Up::BlobRequest(request)] = &said[..] else { panic!("{effects:?}") };
    assert_eq!((request.transfer, &request.digests[..]), (1, &[raw(key.digest())][..]));
    // A second copy of Commit changes nothing.
    assert!(talk.hear(Down::Commit(Commit { transfer: 1 })).is_empty());
    let offset = encoded(&changes).len() as u64;
    talk.hear(Down::Chunk(Chunk { transfer: 1, data: encoded(&[blob(b"private")]), offset }));
    let transfer = update(talk.hear(Down::Commit(Commit { transfer: 1 })));
    assert_eq!(transfer.blobs, [(key.digest(), key.clone())]);

    let mut talk = Talk::new();
    talk.push(2, &changes);
    talk.hear(Down::Chunk(Chunk { transfer: 1, data: encoded(&[blob(b"other")]), offset }));
    let effects = talk.hear(Down::Commit(Commit { transfer: 1 }));
    let said = sent(&effects);
    let [Up::Refused(refused)] = &said[..] else { panic!("{effects:?}") };
    assert_eq!((&*refused.code, refused.transient), ("secret_missing", true), "what got lost may come the next time");

    let mut talk = Talk::new();
    let mut lying = blob(b"private");
    if let Some(change::Change::Blob(blob)) = &mut lying.change {
        blob.data = Bytes::from_static(b"something else");
    }
    assert_eq!(talk.refusal(2, &[lying, put("c", "1", &[key.digest()])]), "broken");
}

#[test]
fn a_transfer_above_the_limit_is_refused_before_a_byte_of_it_is_kept() {
    let mut talk = Talk::new();
    let begin = Begin { bytes: u64::MAX, ..talk.begin(2, &[]) };
    let effects = talk.hear(Down::Begin(begin));
    let said = sent(&effects);
    let [Up::Refused(refused)] = &said[..] else { panic!("{effects:?}") };
    assert_eq!(refused.code, "too_large");
    // More than Begin announced.
    let begin = Begin { bytes: 3, transfer: 2, ..talk.begin(3, &[]) };
    talk.hear(Down::Begin(begin));
    let effects = talk.hear(Down::Chunk(Chunk { transfer: 2, data: Bytes::from_static(b"four"), offset: 0 }));
    assert!(matches!(closed(&effects), Some(Close::Protocol(_))));
}

#[test]
fn chunks_count_once_and_a_lost_one_is_noticed() {
    let changes = [put("b", "\"a body of some length\"", &[])];
    let data = encoded(&changes);
    let parts = [data.slice(..7), data.slice(7..)];
    let chunk = |part: usize, offset| Down::Chunk(Chunk { transfer: 1, data: parts[part].clone(), offset });
    let mut talk = Talk::new();
    let begin = talk.begin(2, &changes);
    talk.hear(Down::Begin(begin.clone()));
    for message in [chunk(0, 0), chunk(0, 0), Down::Begin(begin.clone()), chunk(1, 7), chunk(1, 7)] {
        assert!(talk.hear(message).is_empty());
    }
    talk.hear(Down::Abort(Abort { transfer: 9, reason: String::new() }));
    update(talk.hear(Down::Commit(Commit { transfer: 1 })));
    let mut talk = Talk::new();
    talk.hear(Down::Begin(begin.clone()));
    assert!(closed(&talk.hear(chunk(1, 7))).is_some());
    let mut talk = Talk::new();
    talk.hear(Down::Begin(begin));
    talk.hear(chunk(0, 0));
    assert!(closed(&talk.hear(Down::Commit(Commit { transfer: 1 }))).is_some());
}

#[test]
fn a_deposed_leader_changes_nothing() {
    let fenced = |effects: &[Effect]| matches!(closed(effects), Some(Close::Fenced { .. }));
    assert!(fenced(&Talk::unwelcome().welcome(4, 9)), "a lower epoch");
    assert!(fenced(&Talk::unwelcome().welcome(5, 0)), "a lower generation");
    let version = Some(Version::new(4, 9).to_wire());
    let mut talk = Talk::new();
    let begin = Begin { version, ..talk.begin(2, &[]) };
    assert!(fenced(&talk.hear(Down::Begin(begin))));
    let message = Members { epoch: 4, seq: 1, set_name: "s".to_owned(), ..Members::default() };
    assert!(fenced(&Talk::new().hear(Down::Members(message))));
    assert!(fenced(&Talk::new().hear(Down::Drop(Drop { epoch: 4, seq: 1, set_name: "s".to_owned() }))));
    let target = Some(Target { generation: 9, root: raw(Digest::of(b"")) });
    assert!(fenced(&Talk::new().hear(Down::Heartbeat(Heartbeat { epoch: 4, target, ..Heartbeat::default() }))));
    // The same version with another root.
    let mut talk = Talk::new();
    let changes = [put("b", "1", &[])];
    let begin = talk.begin(1, &changes);
    assert!(fenced(&talk.hear(Down::Begin(begin))));
    // A transfer of a lower version.
    let mut talk = Talk::new();
    let transfer = update(talk.push(7, &changes));
    talk.volume.apply(&transfer);
    talk.applied(transfer.version, transfer.root);
    let begin = talk.begin(6, &[remove("b")]);
    assert!(fenced(&talk.hear(Down::Begin(begin))));
}

#[test]
fn a_higher_epoch_is_recorded_before_anything_of_it_is_done() {
    let mut talk = Talk::unwelcome();
    let effects = talk.welcome(8, 1);
    assert!(
        matches!(effects[..], [Effect::RecordEpoch(8), Effect::Welcomed { .. }, Effect::Adopt { .. }]),
        "{effects:?}"
    );
    let mut talk = Talk::new();
    let message = Members {
        epoch: 6,
        seq: 1,
        set_name: "s".to_owned(),
        content: Some(proto::v1::members::Content::Full(MembersFull::default())),
        digest: beginning(members("s", [])),
        ..Members::default()
    };
    let effects = talk.hear(Down::Members(message));
    assert!(matches!(effects[..], [Effect::RecordEpoch(6), Effect::Members { .. }]), "{effects:?}");
}

#[test]
fn a_duplicate_delivery_gives_the_same_answer() {
    let mut talk = Talk::new();
    let changes = [put("b", "1", &[])];
    let transfer = update(talk.push(2, &changes));
    talk.volume.apply(&transfer);
    let effects = talk.applied(transfer.version, transfer.root);
    let first = format!("{:?}", sent(&effects));
    // The controller lost the answer and begins again from the old base.
    let begin = Begin {
        base_root: beginning(transfer.base_root),
        root: raw(transfer.root),
        bytes: 0,
        transfer: 2,
        ..talk.begin(2, &[])
    };
    let effects = talk.hear(Down::Begin(begin));
    let [Effect::Adopt { version, root }] = effects[..] else { panic!("{effects:?}") };
    let effects = talk.applied(version, root);
    assert_eq!(format!("{:?}", sent(&effects)), first);
}

#[test]
fn one_application_at_a_time_and_the_next_waits() {
    let mut talk = Talk::new();
    let first = update(talk.push(2, &[put("b", "1", &[])]));
    // The controller gave up waiting, and begins the next on what it believes comes.
    let changes = [put("c", "1", &[])];
    let mut tree = talk.volume.tree.clone();
    let key = Key::new("fragment", "b");
    tree.insert(key.clone(), leaf(&key, b"1"));
    let root = after(&tree, &changes);
    let begin = Begin { base_root: beginning(first.root), root: raw(root), ..talk.begin(3, &changes) };
    assert!(talk.transfer(begin, &changes).is_empty());
    assert!(talk.hear(Down::SendBuckets(SendBuckets {})).is_empty(), "digests in the middle of a change say nothing");
    talk.volume.apply(&first);
    let effects = talk.applied(first.version, first.root);
    assert!(matches!(effects[..], [Effect::Send(_), Effect::Apply(_)]), "{effects:?}");
}

#[test]
fn the_swap_waits_a_second_for_the_members_that_it_names() {
    let full = |seq| {
        Down::Members(Members {
            epoch: 5,
            seq,
            set_id: seq as u32,
            set_name: format!("s{seq}"),
            content: Some(proto::v1::members::Content::Full(MembersFull { members: vec!["10.0.0.1:80".to_owned()] })),
            digest: beginning(members(&format!("s{seq}"), ["10.0.0.1:80"])),
        })
    };
    let changes = [put("b", "1", &[])];
    let mut talk = Talk::new();
    talk.hear(full(1));
    let begin = Begin { member_seq: 1, ..talk.begin(2, &changes) };
    assert!(talk.transfer(begin.clone(), &changes).is_empty());
    let effects = talk.input(Input::MembersApplied { seq: 1, root: Digest::of(b"") });
    assert!(matches!(effects[..], [Effect::Send(_), Effect::Apply(_)]), "{effects:?}");
    let mut talk = Talk::new();
    talk.hear(full(1));
    assert!(talk.transfer(begin, &changes).is_empty());
    assert_eq!(talk.session.deadline(), Some(talk.now + limits::MEMBER_WAIT_MS));
    talk.now += limits::MEMBER_WAIT_MS;
    update(talk.input(Input::Tick));
}

#[test]
fn member_messages_are_numbered_without_gaps_and_acknowledged_in_order() {
    let full = |seq, id, name: &str, digest| {
        let content = Some(proto::v1::members::Content::Full(MembersFull { members: vec!["m".to_owned()] }));
        Down::Members(Members { epoch: 5, seq, set_id: id, set_name: name.to_owned(), content, digest })
    };
    let right = || beginning(members("s", ["m"]));
    let mut talk = Talk::new();
    let effects = talk.hear(full(1, 7, "s", right()));
    let [Effect::Members { seq: 1, set, change: MembersChange::Full(_), .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(&**set, "s");
    assert!(talk.hear(full(1, 7, "s", right())).is_empty(), "a second copy");
    let effects = talk.hear(full(2, 7, "", right()));
    let [Effect::Members { seq: 2, set, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(&**set, "s", "later ones carry the id only");
    // One that cannot be used is refused by itself, and acknowledged after those before it.
    let effects = talk.hear(full(3, 7, "", beginning(Digest::of(b"wrong"))));
    assert!(matches!(sent(&effects)[..], [Up::MembersRefused(_)]), "{effects:?}");
    let effects = talk.input(Input::MembersApplied { seq: 2, root: Digest::of(b"") });
    let said = sent(&effects);
    let [Up::MembersAck(ack)] = &said[..] else { panic!("{effects:?}") };
    assert_eq!(ack.seq, 3);
    assert!(closed(&talk.hear(full(5, 7, "", right()))).is_some(), "a gap");
    assert!(closed(&Talk::new().hear(full(1, 7, "", right()))).is_some(), "an id that was never named");
}

#[test]
fn a_short_transfer_is_one_message_with_every_check_of_a_long_one() {
    let changes = [put("a", "2", &[])];
    let whole = Some(encoded(&changes));
    let mut talk = Talk::new();
    let begin = Begin { whole: whole.clone(), ..talk.begin(2, &changes) };
    let effects = talk.hear(Down::Begin(begin.clone()));
    let [Effect::Apply(transfer)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((transfer.version, transfer.puts.len()), (Version::new(5, 2), 1));
    assert!(talk.hear(Down::Begin(begin)).is_empty(), "a second copy");

    let mut talk = Talk::new();
    let effects = talk.hear(Down::Begin(Begin { whole: Some(Bytes::new()), ..talk.begin(2, &[]) }));
    assert!(matches!(effects[..], [Effect::Adopt { .. }]), "nothing changes but the version: {effects:?}");

    let mut talk = Talk::new();
    let base_root = beginning(Digest::of(b"other"));
    let effects = talk.hear(Down::Begin(Begin { base_root, whole: whole.clone(), ..talk.begin(2, &changes) }));
    assert!(matches!(sent(&effects)[..], [Up::Resync(_)]), "the base at Begin: {effects:?}");

    let mut talk = Talk::new();
    let root = raw(Digest::of(b"wrong"));
    let effects = talk.hear(Down::Begin(Begin { root, whole: whole.clone(), ..talk.begin(2, &changes) }));
    assert!(matches!(sent(&effects)[..], [Up::Resync(_)]), "the root at Commit: {effects:?}");

    let mut talk = Talk::new();
    let effects = talk.hear(Down::Begin(Begin { bytes: 100, whole: whole.clone(), ..talk.begin(2, &changes) }));
    assert_eq!(closed(&effects), Some(&Close::Protocol("a chunk is missing")), "it is shorter than it says");

    let mut talk = Talk::new();
    let long = Some(Bytes::from(vec![0; limits::CHUNK + 1]));
    let effects = talk.hear(Down::Begin(Begin { bytes: 300_000, whole: long, ..talk.begin(2, &changes) }));
    assert_eq!(closed(&effects), Some(&Close::Protocol("a chunk is too long")));

    let mut talk = Talk::new();
    let mut begin = Begin { whole, ..talk.begin(2, &changes) };
    begin.base_root = begin.base_root.slice(..8);
    assert!(closed(&talk.hear(Down::Begin(begin))).is_some(), "half of the beginning of a digest");
}

#[test]
fn a_difference_of_a_body_makes_the_body_it_stands_for_or_asks_for_whole_buckets() {
    let old = "{\"host\":\"a.example\",\"path\":\"/v1\"}";
    let new = "{\"host\":\"a.example\",\"path\":\"/v22\"}";
    let middle = || Bytes::from_static(b"22");
    let patch = |head, tail, middle, secrets: &[Digest]| {
        let secrets = secrets.iter().map(|digest| raw(*digest)).collect();
        let (kind, name) = ("fragment".to_owned(), "b".to_owned());
        Change { change: Some(change::Change::Patch(Patch { kind, name, head, tail, middle, secrets })) }
    };
    let holding = || {
        let mut talk = Talk::new();
        let key = Key::new("fragment", "b");
        talk.volume.tree.insert(key.clone(), leaf(&key, old.as_bytes()));
        talk.volume.tree.root();
        talk.volume.bodies.insert(key, old.into());
        talk
    };
    let head = old.find('1').unwrap() as u32;
    let promised = |talk: &Talk, changes: &[Change]| {
        let root = raw(after(&talk.volume.tree, &[put("b", new, &[])]));
        Begin { root, whole: Some(encoded(changes)), ..talk.begin(2, changes) }
    };
    let mut talk = holding();
    let begin = promised(&talk, &[patch(head, 2, middle(), &[])]);
    let effects = talk.hear(Down::Begin(begin));
    let [Effect::Apply(transfer)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(transfer.puts[0].body, new);
    assert_eq!(transfer.puts[0].leaf, leaf(&Key::new("fragment", "b"), new.as_bytes()));

    // A secret that it names is asked for as that of a put.
    let mut talk = holding();
    let begin = promised(&talk, &[patch(head, 2, middle(), &[Digest::of(b"key")])]);
    let effects = talk.hear(Down::Begin(begin));
    assert!(matches!(sent(&effects)[..], [Up::BlobRequest(_)]), "{effects:?}");

    for (what, change) in [
        ("longer than the body", patch(u32::MAX, u32::MAX, middle(), &[])),
        ("both ends overlap", patch(head, old.len() as u32, middle(), &[])),
        ("not what was promised", patch(head, 2, Bytes::from_static(b"23"), &[])),
        ("no JSON", patch(head, 0, middle(), &[])),
    ] {
        let mut talk = holding();
        let begin = promised(&talk, &[change]);
        let effects = talk.hear(Down::Begin(begin));
        assert!(matches!(sent(&effects)[..], [Up::Resync(_)]), "{what}: {effects:?}");
    }
    let mut talk = Talk::new();
    let begin = promised(&talk, &[patch(head, 2, middle(), &[])]);
    let effects = talk.hear(Down::Begin(begin));
    assert!(matches!(sent(&effects)[..], [Up::Resync(_)]), "there is no such body: {effects:?}");

    for other in [put("b", "1", &[]), remove("b"), patch(0, 0, middle(), &[])] {
        let mut talk = holding();
        let begin = promised(&talk, &[patch(head, 2, middle(), &[]), other]);
        let effects = talk.hear(Down::Begin(begin));
        let said = sent(&effects);
        let [Up::Refused(refused)] = &said[..] else { panic!("{effects:?}") };
        assert_eq!((&*refused.code, &*refused.message), ("broken", "a resource is named twice"));
    }
}

#[test]
fn a_difference_of_a_set_goes_on_from_the_message_before_it() {
    let message = |seq, name: &str, base: Bytes, remove: Vec<u32>, all: &[&str]| {
        let content = Some(proto::v1::members::Content::Delta(MembersDelta { base, add: Vec::new(), remove }));
        let digest = beginning(members("s", all.iter().copied()));
        Down::Members(Members { epoch: 5, seq, set_id: 7, set_name: name.to_owned(), content, digest })
    };
    let three = ["a", "b", "c"];
    let mut talk = Talk::new();
    let held = MemberSet::new("s", three.map(Arc::from).to_vec());
    let first = talk.hear(message(1, "s", beginning(held.digest), vec![1], &["a", "c"]));
    let second = talk.hear(message(2, "", Bytes::new(), vec![0], &["c"]));
    let mut held = held;
    for (effects, left) in [(first, vec!["a", "c"]), (second, vec!["c"])] {
        let [Effect::Members { change, digest, .. }] = &effects[..] else { panic!("{effects:?}") };
        held = change.result("s", Some(&held)).expect("the base is the message before");
        assert!(digest.fits(&held.digest));
        assert_eq!(held.members.iter().map(|member| &**member).collect::<Vec<_>>(), left);
        assert_eq!(change.result("s", None), None, "nothing is held");
    }
    let effects = talk.hear(message(3, "", Bytes::new(), vec![1], &["c"]));
    let [Effect::Members { change, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(change.result("s", Some(&held)), None, "there is no second member");
    let effects = talk.hear(message(4, "", Bytes::new(), vec![1, 0], &["c"]));
    assert!(matches!(sent(&effects)[..], [Up::MembersRefused(_), ..]), "not ascending: {effects:?}");
    let mut talk = Talk::new();
    let why = Close::Protocol("a difference of a member set names no base");
    assert_eq!(closed(&talk.hear(message(1, "s", Bytes::new(), vec![0], &[]))), Some(&why), "nothing came before");
}

#[test]
fn a_missing_base_of_a_set_asks_for_the_whole_set() {
    let mut talk = Talk::new();
    let delta = MembersDelta { base: beginning(Digest::of(b"base")), add: vec!["m".to_owned()], remove: Vec::new() };
    let content = Some(proto::v1::members::Content::Delta(delta));
    let digest = beginning(members("s", ["m"]));
    let message = Members { epoch: 5, seq: 1, set_id: 1, set_name: "s".to_owned(), content, digest };
    let effects = talk.hear(Down::Members(message));
    assert!(matches!(effects[..], [Effect::Members { change: MembersChange::Delta { .. }, .. }]));
    let effects = talk.input(Input::MembersBaseUnknown { set: Arc::from("s") });
    let said = sent(&effects);
    let [Up::MembersResync(resync)] = &said[..] else { panic!("{effects:?}") };
    assert_eq!(resync.set_name, "s");
}

#[test]
fn a_heartbeat_is_answered_and_finds_what_differs() {
    let mut talk = Talk::new();
    let root = talk.volume.tree.root();
    let beat = |generation, root, member_root: Bytes| {
        Down::Heartbeat(Heartbeat { epoch: 5, target: Some(Target { generation, root }), member_seq: 0, member_root })
    };
    let effects = talk.hear(beat(1, raw(root), raw(MemberTree::default().root())));
    let said = sent(&effects);
    let [Up::HeartbeatReply(reply)] = &said[..] else { panic!("{effects:?}") };
    assert_eq!((reply.applied.unwrap(), &reply.root), (Version::new(5, 1).to_wire(), &raw(root)));
    // Member sets that differ at an equal number.
    let effects = talk.hear(beat(1, raw(root), raw(Digest::of(b"other"))));
    assert!(matches!(sent(&effects)[..], [Up::MemberBuckets(_), Up::HeartbeatReply(_)]), "{effects:?}");
    // A configuration that differs for longer than a push may take.
    let other = raw(Digest::of(b"other"));
    for _ in 0..2 {
        let effects = talk.hear(beat(2, other.clone(), Bytes::new()));
        assert!(matches!(sent(&effects)[..], [Up::HeartbeatReply(_)]), "{effects:?}");
        talk.now += limits::HEARTBEAT_MS;
    }
    let effects = talk.hear(beat(2, other, Bytes::new()));
    assert!(matches!(sent(&effects)[..], [Up::HeartbeatReply(_), Up::Resync(_)]), "{effects:?}");
}

#[test]
fn a_refused_root_is_not_asked_for_again() {
    let mut talk = Talk::new();
    let changes = [put("b", "1", &[])];
    let transfer = update(talk.push(2, &changes));
    let effects = talk.input(Input::Refused {
        version: transfer.version,
        root: transfer.root,
        code: "invalid".to_owned(),
        message: String::new(),
        leaves: Vec::new(),
        transient: false,
    });
    assert!(matches!(sent(&effects)[..], [Up::Refused(_)]));
    for _ in 0..10 {
        talk.now += limits::HEARTBEAT_MS;
        let target = Some(Target { generation: 2, root: raw(transfer.root) });
        let effects = talk.hear(Down::Heartbeat(Heartbeat { epoch: 5, target, ..Heartbeat::default() }));
        assert!(matches!(sent(&effects)[..], [Up::HeartbeatReply(_)]), "{effects:?}");
    }
}

#[test]
fn three_missing_heartbeats_close_the_stream() {
    let mut talk = Talk::new();
    talk.now += 14_999;
    assert!(talk.input(Input::Tick).is_empty());
    talk.now += 1;
    assert_eq!(closed(&talk.input(Input::Tick)), Some(&Close::Silent));
    assert!(talk.welcome(5, 1).is_empty(), "nothing follows");
}

#[test]
fn typed_answers_say_what_to_do_next() {
    let close = |message| closed(&Talk::unwelcome().hear(message)).cloned();
    let to = NotLeader { leader_address: "10.0.0.1:1".to_owned(), retry_ms: 5 };
    let expected = Close::NotLeader { leader_address: Some("10.0.0.1:1".to_owned()), retry_ms: 5 };
    assert_eq!(close(Down::NotLeader(to)), Some(expected));
    assert_eq!(close(Down::Superseded(Superseded {})), Some(Close::Superseded));
    let unsupported = |what: &str| Down::Unsupported(Unsupported { what: what.to_owned() });
    assert_eq!(close(unsupported("epoch")), Some(Close::EpochRejected));
    assert_eq!(close(unsupported("protocol")), Some(Close::Unsupported { what: "protocol".to_owned() }));
    assert!(matches!(Talk::new().hear(Down::Unsure(Unsure {}))[..], [Effect::LookElsewhere]));
    // Parked, then served.
    let mut talk = Talk::unwelcome();
    assert!(talk.hear(Down::Standby(Standby::default())).is_empty());
    let effects = talk.hear(Down::Heartbeat(Heartbeat::default()));
    assert!(matches!(sent(&effects)[..], [Up::HeartbeatReply(_)]));
    assert!(matches!(talk.welcome(5, 1)[..], [Effect::Welcomed { .. }, Effect::Adopt { .. }]));
    // A push before Welcome is nobody's.
    assert!(closed(&Talk::unwelcome().hear(Down::SendBuckets(SendBuckets {}))).is_some());
}

#[test]
fn silence_is_measured_with_the_heartbeat_that_the_controller_named_parked_or_served() {
    // An older controller parks without naming one.
    for (heartbeat_ms, silent) in [(0, 15_000), (200, 600), (1, 300)] {
        let mut talk = Talk::unwelcome();
        talk.hear(Down::Standby(Standby { heartbeat_ms }));
        talk.now += silent - 1;
        assert!(closed(&talk.input(Input::Tick)).is_none(), "parked: {heartbeat_ms} ms");
        talk.now += 1;
        assert_eq!(closed(&talk.input(Input::Tick)), Some(&Close::Silent), "parked: {heartbeat_ms} ms");
    }
}

#[test]
fn an_agent_that_may_go_elsewhere_waits_less_for_the_first_answer_and_only_for_that() {
    let limited = || {
        let mut talk = Talk::unwelcome();
        talk.session = AgentSession::new(1 << 20).with_answer_limit(2_000);
        let facts = talk.volume.facts(1);
        talk.input(Input::Connected(facts));
        talk
    };
    let mut talk = limited();
    assert_eq!(talk.session.deadline(), Some(talk.now + 2_000));
    talk.now += 1_999;
    assert!(closed(&talk.input(Input::Tick)).is_none());
    talk.now += 1;
    assert_eq!(closed(&talk.input(Input::Tick)), Some(&Close::Silent));
    let mut talk = limited();
    talk.hear(Down::Heartbeat(Heartbeat::default()));
    talk.now += 14_999;
    assert!(closed(&talk.input(Input::Tick)).is_none(), "a first answer came");
}

#[test]
fn keys_that_turn_out_bad_are_fetched_again() {
    let mut talk = Talk::new();
    talk.volume.tree.remove(&Key::new("fragment", "a"));
    let effects = talk.input(Input::HoldingsChanged);
    assert!(matches!(sent(&effects)[..], [Up::MemberBuckets(_), Up::Resync(_)]), "{effects:?}");
}

#[test]
fn member_sets_are_listed_in_bounded_messages() {
    let mut talk = Talk::new();
    for n in 0..3_000 {
        talk.volume.member_tree.insert(format!("s{n}").into(), Digest::of(b""));
    }
    let buckets = (0..=255).collect::<Vec<u8>>().into();
    let effects = talk.hear(Down::SendMemberSets(SendMemberSets { buckets }));
    let mut sizes = Vec::new();
    for message in sent(&effects) {
        let Up::MemberSets(sets) = message else { panic!("{message:?}") };
        sizes.push((sets.sets.len(), sets.last));
    }
    assert_eq!(sizes, [(1_024, false), (1_024, false), (952, true)]);
}
