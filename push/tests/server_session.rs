//! Conversations as the controller leads them, message by message.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use bytes::Bytes;
use journal::{Digest, Key, MemberTree, Tree};
use proto::v1::agent_message::Message as Up;
use proto::v1::controller_message::Message as Down;
use proto::v1::{
    AgentMessage, Applied, BlobRequest, ControllerMessage, Hello, MemberBuckets, Members, MembersAck, MembersRefused,
    MembersResync, Refused, Resync, members,
};
use push::fleet::{Admission, Fleet, FleetChange, Item};
use push::server_session::{Agent, Close, Event, Input, Role, ServerSession};
use push::{Secret, Version, limits};

/// One agent, one fleet, one clock.
struct Talk {
    now: u64,
    fleet: Fleet,
    session: ServerSession,
    events: Vec<Event>,
}

fn raw(digest: Digest) -> Bytes {
    Bytes::copy_from_slice(&digest.0)
}

fn hello() -> Hello {
    Hello {
        protocol_min: 1,
        protocol_max: 1,
        schema_version: 1,
        member_root: raw(MemberTree::default().root()),
        ..Hello::default()
    }
}

fn put(name: &str, body: &str) -> FleetChange {
    let item = Item { key: Key::new("fragment", name), body: Bytes::from(body.to_owned()), secrets: Vec::new() };
    FleetChange { puts: vec![item], ..FleetChange::default() }
}

fn set(name: &str, all: &[&str]) -> FleetChange {
    let all: Vec<Arc<str>> = all.iter().map(|member| Arc::from(*member)).collect();
    FleetChange { members: vec![(name.into(), Some(all.into()))], ..FleetChange::default() }
}

fn gone(name: &str) -> FleetChange {
    FleetChange { members: vec![(name.into(), None)], ..FleetChange::default() }
}

impl Talk {
    fn new(change: FleetChange) -> Talk {
        let mut fleet = Fleet::new(5);
        fleet.publish(change);
        Talk::with(fleet)
    }

    fn with(fleet: Fleet) -> Talk {
        let agent = Agent { uid: "uid".into(), name: "replica-0".to_owned() };
        Talk { now: 1_000, fleet, session: ServerSession::new(agent, Role::Leading, 1_000), events: Vec::new() }
    }

    fn input(&mut self, input: Input) {
        let events = self.session.step(self.now, input, &mut self.fleet);
        self.events.extend(events);
    }

    fn hear(&mut self, message: Up) {
        self.input(Input::Received(AgentMessage { message: Some(message) }));
    }

    /// Everything it wants to say now, by name.
    fn say(&mut self) -> Vec<Down> {
        let mut said = Vec::new();
        while let Some(message) = self.session.poll(self.now, &mut self.fleet) {
            said.push(message.message.unwrap());
            assert!(said.len() < 10_000, "it never stops");
        }
        self.events.extend(self.session.take_events());
        said
    }

    fn names(&mut self) -> Vec<&'static str> {
        self.say().iter().map(name).collect()
    }

    fn later(&mut self, ms: u64) {
        self.now += ms;
        self.input(Input::Tick);
    }

    fn applied(&mut self) {
        let (version, root) = (self.fleet.version(), self.fleet.root());
        self.applied_as(version, root);
    }

    fn applied_as(&mut self, version: Version, root: Digest) {
        let version = Some(version.to_wire());
        self.hear(Up::Applied(Applied { version, root: raw(root), ..Applied::default() }));
    }

    fn refuse(&mut self, code: &str, transient: bool, leaves: &[Digest]) {
        self.hear(Up::Refused(Refused {
            version: Some(self.fleet.version().to_wire()),
            root: raw(self.fleet.root()),
            code: code.to_owned(),
            transient,
            leaves: leaves.iter().map(|leaf| raw(*leaf)).collect(),
            ..Refused::default()
        }));
    }

    fn closed(&self) -> Option<&Close> {
        self.session.closed()
    }

    fn ack(&mut self, seq: u64) {
        self.hear(Up::MembersAck(MembersAck { seq }));
    }
}

fn name(message: &Down) -> &'static str {
    match message {
        Down::Welcome(_) => "Welcome",
        Down::Standby(_) => "Standby",
        Down::NotLeader(_) => "NotLeader",
        Down::Superseded(_) => "Superseded",
        Down::Unsupported(_) => "Unsupported",
        Down::RetryAfter(_) => "RetryAfter",
        Down::Unsure(_) => "Unsure",
        Down::Begin(_) => "Begin",
        Down::Chunk(_) => "Chunk",
        Down::Commit(_) => "Commit",
        Down::Abort(_) => "Abort",
        Down::Members(_) => "Members",
        Down::Drop(_) => "Drop",
        Down::Heartbeat(_) => "Heartbeat",
        Down::SendBuckets(_) => "SendBuckets",
        Down::SendMemberBuckets(_) => "SendMemberBuckets",
        Down::SendMemberSets(_) => "SendMemberSets",
    }
}

#[test]
fn an_empty_agent_is_welcomed_and_gets_everything() {
    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(hello()));
    let said = talk.say();
    assert_eq!(said.iter().map(name).collect::<Vec<_>>(), ["Welcome", "Begin"]);
    let Down::Welcome(welcome) = &said[0] else { panic!() };
    assert_eq!((welcome.epoch, welcome.protocol, welcome.heartbeat_ms, &*welcome.agent), (5, 1, 5_000, "replica-0"));
    let Down::Begin(begin) = &said[1] else { panic!() };
    assert_eq!(begin.base_root, raw(Tree::default().root()).slice(..16));
    assert_eq!(begin.root, raw(talk.fleet.root()));
    talk.applied();
    assert!(
        talk.events
            .iter()
            .any(|event| matches!(event, Event::Applied { version, .. } if *version == Version::new(5, 1)))
    );
    assert_eq!(talk.names(), Vec::<&str>::new());
}

#[test]
fn an_agent_at_the_root_gets_no_configuration_message() {
    let mut talk = Talk::new(put("a", "1"));
    let applied = Some(Version::new(4, 17).to_wire());
    talk.hear(Up::Hello(Hello { applied, applied_root: raw(talk.fleet.root()), highest_epoch: 4, ..hello() }));
    assert_eq!(talk.names(), ["Welcome"]);
    talk.applied();
    assert_eq!(talk.names(), Vec::<&str>::new());
}

#[test]
fn what_was_sent_is_not_what_was_applied() {
    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(hello()));
    talk.say();
    // Newer targets wait while one is in flight, and only the newest is sent then.
    talk.fleet.publish(put("a", "2"));
    talk.fleet.publish(put("a", "3"));
    assert_eq!(talk.names(), Vec::<&str>::new(), "one generation in flight");
    let one = Version::new(5, 1);
    let mut old = Fleet::new(5);
    let root = old.publish(put("a", "1")).root;
    talk.applied_as(one, root);
    let said = talk.say();
    let Down::Begin(begin) = &said[0] else { panic!("{said:?}") };
    assert_eq!(begin.version.unwrap(), Version::new(5, 3).to_wire());
    assert_eq!(begin.base_root, raw(root).slice(..16), "the base is what was applied");
}

#[test]
fn a_push_without_a_verdict_ends_at_its_deadline_in_a_resync() {
    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(hello()));
    talk.say();
    talk.later(limits::PUSH_MS - 1);
    talk.hear(Up::HeartbeatReply(reply(&talk)));
    assert!(!talk.names().contains(&"Abort"));
    talk.later(1);
    assert!(talk.events.contains(&Event::Overdue { version: Version::new(5, 1) }));
    assert_eq!(talk.names(), ["Abort", "SendBuckets"]);
    talk.hear(Up::Resync(Resync { bucket_digests: Bytes::new(), transfer: 0 }));
    let said = talk.say();
    assert_eq!(said.iter().map(name).collect::<Vec<_>>(), ["Begin"]);
    let Down::Begin(begin) = &said[0] else { panic!() };
    assert!(!begin.replaced_buckets.is_empty(), "whole buckets");
}

/// An agent whose connection takes one chunk of a transfer in so many milliseconds. `answers`: heartbeats too.
fn slowly(bytes: usize, ms_per_chunk: u64, answers: bool) -> (Talk, usize) {
    let mut talk = Talk::new(put("a", &"x".repeat(bytes)));
    talk.hear(Up::Hello(hello()));
    let (mut chunks, mut heard) = (0, talk.now);
    while let Some(message) = talk.session.poll(talk.now, &mut talk.fleet) {
        match message.message.unwrap() {
            Down::Commit(_) => break,
            Down::Chunk(_) => chunks += 1,
            _ => continue,
        }
        let next = talk.now + ms_per_chunk;
        while talk.now < next {
            talk.later((next - talk.now).min(1_000));
            if answers && talk.now >= heard + limits::HEARTBEAT_MS {
                heard = talk.now;
                talk.hear(Up::HeartbeatReply(reply(&talk)));
            }
        }
        if talk.closed().is_some() || overdue(&talk) > 0 {
            break;
        }
    }
    (talk, chunks)
}

fn overdue(talk: &Talk) -> usize {
    talk.events.iter().filter(|event| matches!(event, Event::Overdue { .. })).count()
}

/// How long a chunk takes at the lowest rate, in milliseconds.
const CHUNK_MS: u64 = limits::SENT_CHUNK as u64 * 1_000 / limits::PUSH_BYTES_PER_S;

#[test]
fn a_transfer_over_a_slow_link_goes_on_as_long_as_the_connection_takes_parts_of_it() {
    let bytes = 3 << 20;
    // The agent answers to nothing: what it would answer to waits behind the transfer.
    let (mut talk, chunks) = slowly(bytes, CHUNK_MS * 9 / 10, false);
    assert_eq!((talk.closed(), overdue(&talk)), (None, 0), "after {chunks} chunks and {} ms", talk.now - 1_000);
    assert!(chunks * limits::SENT_CHUNK >= bytes, "{chunks} chunks");
    let patience = limits::push_deadline_ms(3 << 20);
    assert!(talk.now - 1_000 > 10 * patience, "{} ms are no long time", talk.now - 1_000);
    talk.later(patience - 100);
    assert_eq!(overdue(&talk), 0, "the verdict has time too");
    talk.later(100);
    assert_eq!(overdue(&talk), 1, "it stands still");
    // What was sent may still be on its way, and counts when it arrives.
    talk.names();
    talk.later(limits::UNDER_WAY * 1_000 / limits::PUSH_BYTES_PER_S - patience - 1);
    assert_eq!(talk.closed(), None);
    talk.applied();
    assert_eq!(talk.session.applied().map(|(version, _)| version), Some(talk.fleet.version()));
}

#[test]
fn a_transfer_that_trickles_ends_whether_the_agent_answers_or_not() {
    let patience = limits::push_deadline_ms(30 << 20);
    for (slower, answers) in [(2, true), (2, false), (10, true), (10, false), (60, true), (60, false)] {
        let (mut talk, chunks) = slowly(30 << 20, slower * CHUNK_MS, answers);
        let (took, what) = (talk.now - 1_000, format!("{slower} times too slow, answers: {answers}"));
        // At half of the lowest rate it has its time twice, and less when it is slower.
        assert!(took <= 2 * patience + 2 * slower * CHUNK_MS, "{what}: {took} ms, {chunks} chunks");
        if answers {
            assert_eq!((talk.closed(), overdue(&talk)), (None, 1), "{what}: after {took} ms");
            assert!(took >= patience, "{what}: {took} ms");
            continue;
        }
        // It is not waited for what was sent for longer than that may take.
        let mut silent = 0;
        while talk.closed().is_none() {
            silent += 1_000;
            assert!(silent <= limits::UNDER_WAY * 1_000 / limits::PUSH_BYTES_PER_S, "{what}: {silent} ms more");
            talk.later(1_000);
        }
        assert_eq!(talk.closed(), Some(&Close::Silent), "{what}");
    }
}

#[test]
fn a_transfer_that_went_fast_has_no_more_time_when_it_stands_still() {
    let bytes = 30 << 20;
    let mut talk = Talk::new(put("a", &"x".repeat(bytes)));
    talk.hear(Up::Hello(hello()));
    talk.say();
    let began = talk.now;
    while overdue(&talk) == 0 {
        assert!(talk.now - began <= limits::push_deadline_ms(bytes as u64), "it earned time by being fast");
        talk.later(1_000);
        talk.hear(Up::HeartbeatReply(reply(&talk)));
    }
}

#[test]
fn no_agent_holds_a_place_for_longer_than_a_push_has_at_first() {
    type Next = fn(&mut Talk);
    // One answers heartbeats and gives no verdict, one asks for everything again and again, one takes a chunk in a second,
    // one may be sent nothing.
    let silent: Next = |talk| drop(talk.say());
    let again: Next = |talk| {
        talk.say();
        talk.hear(Up::Resync(Resync { bucket_digests: Bytes::new(), transfer: 0 }));
    };
    let slow: Next = |talk| drop(talk.session.poll(talk.now, &mut talk.fleet));
    let refused: Next = |talk| {
        if talk.now == 1_000 {
            let root = talk.fleet.root();
            talk.fleet.refusals(&"uid".into(), "").add(root, false, talk.now);
        }
        talk.say();
    };
    let bytes = 3 << 20;
    for (number, next) in [silent, again, slow, refused].into_iter().enumerate() {
        let mut fleet = Fleet::new(5).with_admission(Arc::new(Admission::new(2)));
        fleet.publish(put("a", &"x".repeat(bytes)));
        let mut talk = Talk::with(fleet);
        talk.hear(Up::Hello(hello()));
        next(&mut talk);
        let other = talk.fleet.admission().admit(true);
        assert!(other.is_some() && talk.fleet.admission().admit(true).is_none(), "agent {number} has no place");
        let mut held = 0;
        while talk.fleet.admission().admit(true).is_none() {
            assert!(held < limits::PUSH_MS + limits::push_deadline_ms(bytes as u64), "agent {number} keeps its place");
            held += 1_000;
            talk.later(1_000);
            talk.hear(Up::HeartbeatReply(reply(&talk)));
            next(&mut talk);
        }
        assert_eq!(talk.closed(), None, "agent {number} is served without it");
    }
}

#[test]
fn an_agent_that_takes_nothing_more_of_a_transfer_is_noticed_as_soon_as_any_other() {
    for bytes in [1, 30 << 20] {
        let mut talk = Talk::new(put("a", &"x".repeat(bytes)));
        talk.hear(Up::Hello(hello()));
        for _ in 0..4 {
            // The small one is overdue long before.
            talk.session.poll(talk.now, &mut talk.fleet);
        }
        for _ in 0..limits::MISSES * limits::HEARTBEAT_MS / 1_000 {
            assert_eq!(talk.closed(), None, "{bytes} bytes");
            talk.later(1_000);
        }
        assert_eq!(talk.closed(), Some(&Close::Silent), "{bytes} bytes");
    }
}

#[test]
fn after_each_push_that_was_overdue_the_next_one_has_twice_the_time() {
    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(hello()));
    talk.say();
    for turn in 0..4 {
        let before = overdue(&talk);
        for _ in 0..(2_u64.pow(turn) * limits::PUSH_MS / 5_000) - 1 {
            talk.later(5_000);
            talk.hear(Up::HeartbeatReply(reply(&talk)));
            talk.say();
        }
        assert_eq!(overdue(&talk), before, "push {turn} is given up too early");
        talk.later(5_000);
        assert_eq!(overdue(&talk), before + 1, "push {turn} is never given up");
        talk.say();
        talk.hear(Up::Resync(Resync { bucket_digests: Bytes::new(), transfer: 0 }));
        talk.say();
    }
}

fn reply(talk: &Talk) -> proto::v1::HeartbeatReply {
    let root = talk.session.applied().map_or(Tree::default().root(), |(_, root)| root);
    proto::v1::HeartbeatReply { root: raw(root), member_root: raw(Digest::of(b"")), ..Default::default() }
}

#[test]
fn the_deadline_grows_with_the_size() {
    assert_eq!(limits::push_deadline_ms(0), 10_000);
    assert_eq!(limits::push_deadline_ms(30 << 20), 40_000);
}

#[test]
fn a_refused_root_is_sent_once_and_the_next_one_is_sent() {
    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(hello()));
    talk.say();
    talk.refuse("invalid", false, &[]);
    for _ in 0..20 {
        talk.later(4_000);
        talk.hear(Up::HeartbeatReply(reply(&talk)));
        assert!(talk.names().iter().all(|name| *name == "Heartbeat"), "never again");
    }
    talk.fleet.publish(put("a", "2"));
    assert!(talk.names().contains(&"Begin"));
    talk.applied();
    // Back to the bytes that were refused.
    talk.fleet.publish(put("a", "1"));
    assert_eq!(talk.names(), Vec::<&str>::new());
    // Another stream of the same agent remembers.
    let agent = Agent { uid: "uid".into(), name: "replica-0".to_owned() };
    talk.session = ServerSession::new(agent, Role::Leading, talk.now);
    talk.hear(Up::Hello(hello()));
    assert_eq!(talk.names(), ["Welcome"]);
}

#[test]
fn a_passing_refusal_is_tried_again_by_its_own_timer() {
    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(hello()));
    talk.say();
    let mut tries = 0;
    for _ in 0..4 {
        talk.refuse("volume", true, &[]);
        assert_eq!(talk.names(), Vec::<&str>::new(), "not at once");
        let mut timers = 0;
        while !talk.names().contains(&"Begin") {
            timers += 1;
            assert!(timers < 20, "it is never tried again");
            talk.now = talk.session.deadline().unwrap();
            talk.input(Input::Tick);
            talk.hear(Up::HeartbeatReply(reply(&talk)));
        }
        tries += 1;
    }
    assert_eq!(tries, 4);
    assert!(talk.now < 1_000 + 250 + 500 + 1_000 + 2_000 + 100, "{}", talk.now);
}

#[test]
fn a_leaf_that_killed_scalwsd_is_not_pushed_again_as_it_was() {
    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(hello()));
    talk.say();
    let leaf = talk.fleet.tree().get(&Key::new("fragment", "a")).unwrap();
    talk.refuse("crashed", true, &[leaf]);
    let condemned = Event::Condemned { leaves: vec![leaf], keys: vec![Key::new("fragment", "a")] };
    assert!(talk.events.contains(&condemned));
    assert!(
        talk.events.iter().any(|event| matches!(event, Event::Refused { transient: false, .. })),
        "never transient"
    );
    // Another root that holds the leaf as it was does not start either.
    talk.fleet.publish(put("b", "1"));
    assert_eq!(talk.names(), Vec::<&str>::new());
    talk.fleet.publish(put("a", "claims only"));
    assert!(talk.names().contains(&"Begin"));
}

/// What kills one `scalwsd` and no other came from outside, or is that one's own fault.
#[test]
fn what_another_agent_has_live_is_not_condemned_and_is_tried_again() {
    for said_in_hello in [false, true] {
        let mut talk = Talk::new(put("a", "1"));
        let leaf = talk.fleet.tree().get(&Key::new("fragment", "a")).unwrap();
        let root = talk.fleet.root();
        talk.fleet.agent_runs(&"other".into(), &root, std::iter::empty());
        if said_in_hello {
            talk.hear(Up::Hello(Hello { condemned: vec![raw(leaf)], ..hello() }));
        } else {
            talk.hear(Up::Hello(hello()));
        }
        talk.say();
        talk.refuse("crashed", false, &[leaf]);
        assert!(!talk.events.iter().any(|event| matches!(event, Event::Condemned { .. })), "{:?}", talk.events);
        assert!(talk.fleet.may_push() && !talk.fleet.is_condemned(&leaf));
        let again = |event: &Event| matches!(event, Event::Refused { transient: true, message, .. } if message.contains("other proxies"));
        assert!(talk.events.iter().any(again), "{:?}", talk.events);
        let mut timers = 0;
        while !talk.names().contains(&"Begin") {
            timers += 1;
            assert!(timers < 20, "it is never tried again");
            talk.now = talk.session.deadline().unwrap();
            talk.input(Input::Tick);
            talk.hear(Up::HeartbeatReply(reply(&talk)));
        }
    }
}

#[test]
fn what_no_other_agent_has_live_is_condemned() {
    let name = "fragment/a".to_owned();
    type Before = fn(&mut Talk, String);
    let cases: [(&str, Before); 4] = [
        ("nobody runs it", |_, _| {}),
        ("the other one lists it as not live", |talk, name| {
            let root = talk.fleet.root();
            talk.fleet.agent_runs(&"other".into(), &root, std::iter::once(name));
        }),
        ("the other one left", |talk, _| {
            let root = talk.fleet.root();
            talk.fleet.agent_runs(&"other".into(), &root, std::iter::empty());
            talk.fleet.agent_left("other");
        }),
        ("the other one runs earlier bytes", |talk, _| {
            let root = talk.fleet.root();
            talk.fleet.agent_runs(&"other".into(), &root, std::iter::empty());
            talk.fleet.publish(put("a", "2"));
        }),
    ];
    for (what, before) in cases {
        let mut talk = Talk::new(put("a", "1"));
        before(&mut talk, name.clone());
        let leaf = talk.fleet.tree().get(&Key::new("fragment", "a")).unwrap();
        talk.hear(Up::Hello(hello()));
        talk.say();
        talk.refuse("crashed", false, &[leaf]);
        assert!(talk.fleet.is_condemned(&leaf), "{what}");
    }
}

#[test]
fn hello_condemns_for_the_whole_fleet() {
    let mut talk = Talk::new(put("a", "1"));
    let leaf = talk.fleet.tree().get(&Key::new("fragment", "a")).unwrap();
    talk.hear(Up::Hello(Hello { condemned: vec![raw(leaf)], ..hello() }));
    assert_eq!(talk.names(), ["Welcome"]);
    assert!(talk.events.iter().any(|event| matches!(event, Event::Condemned { .. })));
    talk.fleet.publish(put("a", "claims only"));
    assert!(talk.names().contains(&"Begin"));
}

#[test]
fn only_secrets_of_the_transfer_in_flight_are_given_and_only_after_commit() {
    let secret = Secret::new(b"private key".to_vec());
    let body = Bytes::from_static(b"1");
    let item = Item { key: Key::new("certificate", "c"), body, secrets: vec![secret.digest()] };
    let change =
        FleetChange { puts: vec![item], secrets: vec![(secret.digest(), secret.clone())], ..FleetChange::default() };
    let mut talk = Talk::new(change);
    talk.hear(Up::Hello(hello()));
    assert_eq!(talk.names(), ["Welcome", "Begin"]);
    let ask = |digest: Digest| Up::BlobRequest(BlobRequest { transfer: 1, digests: vec![raw(digest)] });
    talk.hear(ask(secret.digest()));
    let said = talk.say();
    assert_eq!(said.iter().map(name).collect::<Vec<_>>(), ["Chunk", "Commit"]);
    let Down::Chunk(chunk) = &said[0] else { panic!() };
    assert!(chunk.data.windows(11).any(|part| part == b"private key"));
    talk.hear(ask(secret.digest()));
    assert_eq!(talk.closed(), Some(&Close::Protocol("secrets are asked for twice, or before Commit")));

    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(hello()));
    talk.say();
    talk.hear(ask(secret.digest()));
    assert_eq!(talk.names(), ["Abort"], "a secret that no body of this fleet names is not to be had");
}

#[test]
fn members_go_before_the_configuration_that_names_them_and_begin_says_up_to_which() {
    let mut talk = Talk::new(put("a", "1"));
    for n in 0..5 {
        talk.fleet.publish(set(&format!("s{n}"), &["10.0.0.1:80"]));
    }
    talk.fleet.publish(FleetChange { members: set("late", &[]).members, ..put("b", "late") });
    talk.hear(Up::Hello(hello()));
    let said = talk.say();
    let begin = said.iter().position(|message| name(message) == "Begin").unwrap();
    assert_eq!(said[..begin].iter().filter(|message| name(message) == "Members").count(), 6);
    let Down::Begin(begin) = &said[begin] else { panic!() };
    assert_eq!(begin.member_seq, 6);
    let empty = said.iter().find_map(|message| match message {
        Down::Members(members) if members.set_name == "late" => members.content.clone(),
        _ => None,
    });
    assert_eq!(
        empty,
        Some(members::Content::Full(proto::v1::MembersFull { members: Vec::new() })),
        "an empty set is normal"
    );
}

#[test]
fn a_stuck_member_lane_holds_a_configuration_up_for_a_second_at_most() {
    let mut talk = Talk::new(FleetChange::default());
    for n in 0..300 {
        talk.fleet.publish(set(&format!("s{n}"), &[]));
    }
    talk.fleet.publish(put("a", "1"));
    talk.hear(Up::Hello(hello()));
    let names = talk.names();
    assert_eq!(names.iter().filter(|name| **name == "Members").count() as u64, limits::MEMBER_WINDOW, "bounded");
    assert!(!names.contains(&"Begin"));
    assert!(talk.session.deadline().unwrap() <= talk.now + limits::MEMBER_WAIT_MS);
    talk.later(limits::MEMBER_WAIT_MS);
    assert!(talk.names().contains(&"Begin"));
}

#[test]
fn a_second_message_for_a_set_is_short_and_only_the_newest_state_is_sent() {
    let mut talk = Talk::new(put("a", "1"));
    let all: Vec<String> = (0..1_000).map(|n| format!("10.0.{}.{}:8080", n / 250, n % 250)).collect();
    let all: Vec<&str> = all.iter().map(|member| &**member).collect();
    talk.fleet.publish(set("namespace/service:8080/tcp", &all));
    talk.hear(Up::Hello(hello()));
    talk.say();
    talk.ack(1);
    talk.fleet.publish(set("namespace/service:8080/tcp", &all[1..]));
    let said = talk.say();
    let [Down::Members(message)] = &said[..] else { panic!("{said:?}") };
    assert!(message.set_name.is_empty());
    let Some(members::Content::Delta(delta)) = &message.content else { panic!() };
    assert_eq!((delta.add.len(), delta.remove.len()), (0, 1));
    let length = prost::Message::encoded_len(message);
    assert!(length <= 32, "{length} bytes for one endpoint that goes");
    talk.ack(2);
    for n in 2..20 {
        talk.fleet.publish(set("namespace/service:8080/tcp", &all[n..]));
    }
    assert_eq!(talk.names(), ["Members"], "eighteen changes, one message");
}

/// What gRPC, HTTP/2 and a TLS record add to a message.
const FRAMES: usize = 5 + 9 + 22;

#[test]
fn an_endpoint_that_moves_and_a_route_that_changes_cost_few_bytes_however_much_there_is() {
    let path = |n: u32| format!("{{\"claims\":[\"/\",\"/v{n}\"],\"rest\":\"{}\"}}", "x".repeat(600));
    let mut first = put("namespace/service/app-17.example.com", &path(0));
    for n in 0..3_000 {
        first.puts.push(Item {
            key: Key::new("fragment", &format!("other-{n}")),
            body: Bytes::from_static(b"1"),
            secrets: vec![],
        });
    }
    let mut talk = Talk::new(first);
    talk.fleet.publish(set("namespace/service:8080/tcp", &["10.0.0.17:8080", "11.0.0.1:8080"]));
    talk.hear(Up::Hello(hello()));
    talk.say();
    talk.ack(1);
    talk.applied();
    talk.say();
    talk.fleet.publish(set("namespace/service:8080/tcp", &["10.0.0.17:8080", "11.0.201.1:8080"]));
    let said = talk.say();
    let [Down::Members(_)] = &said[..] else { panic!("{said:?}") };
    let bytes = prost::Message::encoded_len(&ControllerMessage { message: Some(said[0].clone()) }) + FRAMES;
    assert!(bytes <= 90, "{bytes} bytes for an endpoint");
    talk.ack(2);
    talk.fleet.publish(put("namespace/service/app-17.example.com", &path(200)));
    let said = talk.say();
    let [Down::Begin(_)] = &said[..] else { panic!("{said:?}") };
    let bytes = prost::Message::encoded_len(&ControllerMessage { message: Some(said[0].clone()) }) + FRAMES;
    assert!(bytes <= 200, "{bytes} bytes for a route");
}

/// The state that a difference starts from is what the agent was sent, not what was the newest a moment later.
#[test]
fn a_set_that_changed_twice_around_another_goes_on_from_what_was_sent() {
    let all: Vec<String> = (0..50).map(|n| format!("10.0.0.{n}:80")).collect();
    let all: Vec<&str> = all.iter().map(|member| &**member).collect();
    let mut talk = Talk::new(put("a", "1"));
    talk.fleet.publish(set("one", &all));
    talk.fleet.publish(set("other", &all));
    talk.hear(Up::Hello(hello()));
    talk.say();
    talk.ack(2);
    talk.fleet.publish(set("one", &all[1..]));
    talk.fleet.publish(set("other", &all[1..]));
    talk.fleet.publish(set("one", &all[2..]));
    let removed = |said: &[Down]| -> Vec<usize> {
        let of = |message: &Down| match message {
            Down::Members(Members { content: Some(members::Content::Delta(delta)), .. }) => delta.remove.len(),
            other => panic!("{other:?}"),
        };
        said.iter().map(of).collect()
    };
    assert_eq!(removed(&talk.say()), [1, 2], "the other one, then both steps of the one");
    // The same while the stream is never up to date: a change comes between any two messages.
    talk.ack(4);
    let mut said = Vec::new();
    for step in 3..6 {
        talk.fleet.publish(set("one", &all[step..]));
        talk.fleet.publish(set("other", &all[step - 1..]));
        said.extend(talk.session.poll(talk.now, &mut talk.fleet).and_then(|message| message.message));
    }
    let one = said.iter().filter(|message| matches!(message, Down::Members(members) if members.set_id == 0));
    let one: Vec<Down> =
        one.cloned().chain(talk.say().into_iter().filter(|m| matches!(m, Down::Members(m) if m.set_id == 0))).collect();
    assert_eq!(removed(&one).iter().sum::<usize>(), 3, "every member goes once: {one:?}");
}

#[test]
fn an_acknowledgement_wakes_the_writer_only_when_something_waited_for_it() {
    let mut talk = Talk::new(FleetChange::default());
    talk.hear(Up::Hello(hello()));
    talk.say();
    talk.fleet.publish(set("s0", &["10.0.0.1:80"]));
    assert_eq!(talk.names(), ["Members"]);
    talk.session.take_news();
    talk.ack(1);
    assert!(!talk.session.take_news(), "the writer is woken for nothing");
    assert!(talk.names().is_empty(), "something was to be said, and the writer was not woken");
    for n in 0..2 * limits::MEMBER_WINDOW {
        talk.fleet.publish(set(&format!("t{n}"), &[]));
    }
    assert_eq!(talk.names().len() as u64, limits::MEMBER_WINDOW, "the window is full");
    talk.session.take_news();
    talk.ack(2);
    assert!(talk.session.take_news(), "a message fits again, and the writer sleeps");
    assert_eq!(talk.names(), ["Members"]);
}

#[test]
fn a_set_is_dropped_only_after_the_configuration_that_named_it_is_gone_and_applied() {
    let mut talk = Talk::new(FleetChange { members: set("s", &["10.0.0.1:80"]).members, ..put("pool", "names s") });
    talk.hear(Up::Hello(hello()));
    talk.say();
    talk.ack(1);
    talk.applied();
    let removes = vec![Key::new("fragment", "pool")];
    talk.fleet.publish(FleetChange { members: gone("s").members, removes, ..FleetChange::default() });
    assert_eq!(talk.names(), ["Begin"]);
    talk.applied();
    assert_eq!(talk.names(), ["Drop"]);
    talk.ack(2);
    let version = talk.fleet.members().version();
    assert!(talk.events.contains(&Event::MembersCurrent { member_version: version }));
    // A set that comes back before it was dropped is a set like any other.
    talk.fleet.publish(FleetChange { members: set("t", &["10.0.0.1:80"]).members, ..put("pool", "names t") });
    talk.say();
    talk.ack(3);
    talk.applied();
    let removes = vec![Key::new("fragment", "pool")];
    talk.fleet.publish(FleetChange { members: gone("t").members, removes, ..FleetChange::default() });
    talk.say();
    talk.fleet.publish(set("t", &["10.0.0.2:80"]));
    assert_eq!(talk.names(), ["Members"]);
    talk.applied();
    assert_eq!(talk.names(), Vec::<&str>::new());
}

#[test]
fn a_set_that_is_back_is_not_dropped_though_the_old_root_is_new_again() {
    let with_pool = || {
        let mut change = put("pool", "1");
        change.members = set("s", &["10.0.0.1:80"]).members;
        change
    };
    let mut talk = Talk::new(with_pool());
    talk.hear(Up::Hello(hello()));
    talk.say();
    talk.ack(1);
    talk.applied();
    // The pool and its members go, and come back before the agent has answered.
    let mut without = gone("s");
    without.removes.push(Key::new("fragment", "pool"));
    talk.fleet.publish(without);
    assert!(!talk.names().contains(&"Drop"), "what the agent runs names the set");
    talk.fleet.publish(with_pool());
    let said = talk.names();
    assert!(!said.contains(&"Drop"), "the agent runs a pool over this set: {said:?}");
    assert!(said.contains(&"Members"), "its members are sent whole: {said:?}");
}

#[test]
fn a_set_is_not_dropped_while_a_configuration_that_names_it_may_be_loading() {
    let mut talk = Talk::new(put("other", "1"));
    talk.hear(Up::Hello(hello()));
    talk.say();
    talk.applied();
    let mut with_pool = put("pool", "1");
    with_pool.members = set("s", &["10.0.0.1:80"]).members;
    let loading = talk.fleet.publish(with_pool);
    assert!(talk.names().contains(&"Begin"));
    talk.ack(1);
    // It goes again before the agent has answered, so that what the agent runs is what is desired.
    let mut without = gone("s");
    without.removes.push(Key::new("fragment", "pool"));
    talk.fleet.publish(without);
    assert!(!talk.names().contains(&"Drop"), "the agent may load a pool over this set at any moment");
    talk.applied_as(loading.version, loading.root);
    assert!(!talk.names().contains(&"Drop"), "the agent runs a pool over this set");
    talk.applied();
    assert_eq!(talk.names(), ["Drop"]);
}

#[test]
fn a_set_that_changes_while_its_pool_waits_to_be_sent_still_comes_before_it() {
    let mut talk = Talk::new(put("other", "1"));
    talk.hear(Up::Hello(hello()));
    talk.say();
    talk.applied();
    let mut pools = put("pools", "over a, b and c");
    pools.members = ["a", "b", "c"].iter().flat_map(|name| set(name, &["10.0.0.1:80"]).members).collect();
    talk.fleet.publish(pools);
    let first = talk.session.poll(talk.now, &mut talk.fleet).and_then(|message| message.message).unwrap();
    assert_eq!(name(&first), "Members", "a");
    // The one that is next changes, and changes again.
    talk.fleet.publish(set("b", &["10.0.0.2:80"]));
    talk.fleet.publish(set("b", &["10.0.0.3:80"]));
    let said = talk.say();
    let names: Vec<_> = said.iter().map(name).collect();
    let before: Vec<_> = names.iter().take_while(|name| **name != "Begin").collect();
    assert_eq!(before.len(), 2, "b and c come before the pools over them: {names:?}");
    let b = said.iter().filter(|message| matches!(message, Down::Members(members) if members.set_name == "b"));
    assert_eq!(b.count(), 1, "b comes once: {names:?}");
    // A set that went before its turn comes no more.
    talk.applied();
    let mut pools = put("more", "over d and e");
    pools.members = ["d", "e"].iter().flat_map(|name| set(name, &["10.0.0.1:80"]).members).collect();
    talk.fleet.publish(pools);
    talk.fleet.publish(set("e", &["10.0.0.2:80"]));
    talk.fleet.publish(FleetChange { removes: vec![Key::new("fragment", "more")], ..gone("e") });
    let said = talk.say();
    assert!(said.iter().all(|message| !matches!(message, Down::Members(m) if m.set_name == "e")), "{said:?}");
}

#[test]
fn sets_that_differ_after_a_reconnect_are_found_bucket_by_bucket() {
    let mut talk = Talk::new(put("a", "1"));
    let mut tree = MemberTree::default();
    for n in 0..50 {
        let (name, member) = (format!("s{n}"), format!("10.0.0.{n}:80"));
        talk.fleet.publish(set(&name, &[&member]));
        tree.insert(name.as_str().into(), journal::digest::members(&name, [&*member]));
    }
    tree.insert("s7".into(), Digest::of(b"older"));
    tree.insert("stray".into(), Digest::of(b"stray"));
    tree.remove(&"s9".into());
    let applied = Some(Version::new(4, 1).to_wire());
    let applied_root = raw(talk.fleet.root());
    talk.hear(Up::Hello(Hello { member_root: raw(tree.root()), applied, applied_root, ..hello() }));
    assert_eq!(talk.names(), ["Welcome", "SendMemberBuckets"]);
    let bucket_digests = tree.bucket_digests().iter().flat_map(|digest| digest.0).collect();
    // A change goes out at once, whatever else is being found out.
    talk.fleet.publish(set("s1", &["10.9.9.9:80"]));
    assert_eq!(talk.names(), ["Members"]);
    talk.hear(Up::MemberBuckets(MemberBuckets { bucket_digests }));
    let said = talk.say();
    let [Down::SendMemberSets(question)] = &said[..] else { panic!("{said:?}") };
    assert!(question.buckets.len() <= 4);
    let sets = question.buckets.iter().flat_map(|number| tree.bucket(*number)).collect::<Vec<_>>();
    let sets =
        sets.into_iter().map(|(name, digest)| proto::v1::MemberSet { name: name.to_string(), digest: raw(*digest) });
    talk.hear(Up::MemberSets(proto::v1::MemberSets { sets: sets.collect(), last: true }));
    let said = talk.say();
    let mut sent: Vec<&str> = said
        .iter()
        .map(|message| match message {
            Down::Members(members) => &*members.set_name,
            Down::Drop(drop) => &*drop.set_name,
            other => panic!("{other:?}"),
        })
        .collect();
    sent.sort_unstable();
    // s1 again: its bucket was looked at before its change arrived, or its name is known already.
    sent.retain(|name| !name.is_empty() && *name != "s1");
    assert_eq!(
        sent,
        ["s7", "s9", "stray"],
        "the stray one goes: the agent is at the present root, which does not name it"
    );
}

#[test]
fn a_missing_base_is_answered_with_the_whole_set_and_a_refused_set_is_left_alone() {
    let mut talk = Talk::new(put("a", "1"));
    talk.fleet.publish(set("s", &["10.0.0.1:80"]));
    talk.hear(Up::Hello(hello()));
    talk.say();
    talk.applied();
    talk.hear(Up::MembersResync(MembersResync { set_name: "s".to_owned() }));
    let said = talk.say();
    let [Down::Members(members)] = &said[..] else { panic!("{said:?}") };
    assert!(matches!(members.content, Some(members::Content::Full(_))));
    let refused =
        MembersRefused { seq: 2, set_name: "s".to_owned(), code: "crashed".to_owned(), message: String::new() };
    talk.hear(Up::MembersRefused(refused));
    talk.ack(2);
    talk.hear(Up::MembersResync(MembersResync { set_name: "s".to_owned() }));
    assert_eq!(talk.names(), Vec::<&str>::new());
    talk.fleet.publish(set("s", &["10.0.0.2:80"]));
    assert_eq!(talk.names(), ["Members"]);
}

#[test]
fn heartbeats_carry_target_and_member_root_and_three_misses_close() {
    let mut talk = Talk::new(put("a", "1"));
    talk.fleet.publish(set("s", &["10.0.0.1:80"]));
    talk.hear(Up::Hello(hello()));
    talk.say();
    talk.applied();
    talk.later(5_000);
    let said = talk.say();
    let [Down::Heartbeat(heartbeat)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(heartbeat.epoch, 5);
    assert_eq!(heartbeat.target.as_ref().unwrap().root, raw(talk.fleet.root()));
    assert_eq!((heartbeat.member_seq, &heartbeat.member_root), (1, &raw(talk.fleet.members().root())));
    talk.later(9_999);
    assert_eq!(talk.closed(), None);
    talk.later(1);
    assert_eq!(talk.closed(), Some(&Close::Silent));
    assert_eq!(talk.events.last(), Some(&Event::Closed(Close::Silent)));
}

#[test]
fn an_agent_that_holds_something_else_than_it_said_is_found_by_its_heartbeat() {
    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(hello()));
    talk.say();
    talk.applied();
    talk.say();
    let mut reply = reply(&talk);
    reply.root = raw(Digest::of(b"something else"));
    talk.hear(Up::HeartbeatReply(reply));
    assert_eq!(talk.names(), ["SendBuckets"]);
}

#[test]
fn a_higher_epoch_is_raised_before_the_answer() {
    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(Hello { highest_epoch: 9, ..hello() }));
    assert!(talk.events.contains(&Event::EpochReported(9)));
    assert_eq!(talk.names(), Vec::<&str>::new());
    talk.fleet.raise_epoch(10);
    let said = talk.say();
    let Down::Welcome(welcome) = &said[0] else { panic!("{said:?}") };
    assert_eq!((welcome.epoch, welcome.target.as_ref().unwrap().generation), (10, 1));
}

#[test]
fn a_version_beyond_ours_in_our_own_epoch_raises_the_epoch_too() {
    for (generation, same_root) in [(2, true), (1, false)] {
        let mut talk = Talk::new(put("a", "1"));
        let root = if same_root { talk.fleet.root() } else { Digest::of(b"other") };
        let applied = Some(Version::new(5, generation).to_wire());
        talk.hear(Up::Hello(Hello { highest_epoch: 5, applied, applied_root: raw(root), ..hello() }));
        assert!(talk.events.contains(&Event::EpochReported(5)), "{generation}");
        assert_eq!(talk.names(), Vec::<&str>::new());
        talk.fleet.raise_epoch(6);
        assert_eq!(talk.names()[0], "Welcome");
    }
}

#[test]
fn an_owner_that_does_not_raise_the_epoch_leaves_no_silent_stream() {
    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(Hello { highest_epoch: 9, ..hello() }));
    talk.later(limits::EPOCH_MS);
    assert_eq!(talk.names(), ["RetryAfter"]);
    assert_eq!(talk.closed(), Some(&Close::Farewell("retry_after")));
}

#[test]
fn an_absurd_epoch_is_not_adopted() {
    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(Hello { highest_epoch: 5 + limits::EPOCH_JUMP + 1, ..hello() }));
    let said = talk.say();
    let [Down::Unsupported(unsupported)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(unsupported.what, "epoch");
    assert!(talk.events.iter().any(|event| matches!(event, Event::EpochAlarm(_))));
}

#[test]
fn a_new_epoch_in_the_middle_of_a_transfer_aborts_it() {
    let body = format!("\"{}\"", "x".repeat(600_000));
    let mut talk = Talk::new(put("a", &body));
    talk.hear(Up::Hello(hello()));
    let mut before = Vec::new();
    while before.last() != Some(&"Chunk") {
        before.push(name(&talk.session.poll(talk.now, &mut talk.fleet).unwrap().message.unwrap()));
    }
    talk.fleet.raise_epoch(6);
    let said = talk.say();
    assert_eq!(name(&said[0]), "Abort");
    let Down::Begin(begin) = &said[1] else { panic!("{said:?}") };
    assert_eq!(begin.version.unwrap(), Version::new(6, 1).to_wire());
}

#[test]
fn typed_answers_for_those_who_cannot_be_served() {
    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(Hello { protocol_min: 2, protocol_max: 3, ..hello() }));
    let said = talk.say();
    let [Down::Unsupported(unsupported)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(unsupported.what, "protocol");
    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(Hello { protocol_min: 1, protocol_max: 9, ..hello() }));
    let Some(Down::Welcome(welcome)) = talk.say().into_iter().next() else { panic!("a newer agent is served") };
    assert_eq!(welcome.protocol, 1, "the highest version that both speak");

    let mut talk = Talk::new(put("a", "1"));
    talk.input(Input::Role(Role::NotLeader { leader_address: Some("10.0.0.1:1".to_owned()), retry_ms: 70 }));
    talk.hear(Up::Hello(hello()));
    let said = talk.say();
    let [Down::NotLeader(answer)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((&*answer.leader_address, answer.retry_ms), ("10.0.0.1:1", 70));

    let mut fleet = Fleet::new(5).with_admission(Arc::new(Admission::new(2)));
    fleet.publish(put("a", "1"));
    let places: Vec<_> = (0..2).filter_map(|_| fleet.admission().admit(true)).collect();
    let mut talk = Talk::with(fleet);
    talk.hear(Up::Hello(hello()));
    let said = talk.say();
    let [Down::RetryAfter(answer)] = &said[..] else { panic!("{said:?}") };
    assert!((200..2_000).contains(&answer.ms));
    drop(places);
}

#[test]
fn before_the_first_publication_and_without_a_lead_a_stream_is_parked_and_kept_alive() {
    let mut talk = Talk::with(Fleet::new(5));
    talk.hear(Up::Hello(hello()));
    assert_eq!(talk.names(), ["Standby"]);
    talk.later(5_000);
    let said = talk.say();
    let [Down::Heartbeat(heartbeat)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(heartbeat.target, None);
    talk.fleet.publish(put("a", "1"));
    assert_eq!(talk.names(), ["Welcome", "Begin"]);
    talk.applied();
    talk.input(Input::Role(Role::Unsure));
    talk.fleet.publish(put("a", "2"));
    assert_eq!(talk.names(), ["Unsure"], "nothing is pushed by a leader that is not sure");
    talk.fleet.raise_epoch(6);
    talk.input(Input::Role(Role::Leading));
    assert_eq!(talk.names(), ["Welcome", "Begin"]);
}

fn to_not_leader(at: &str) -> Input {
    Input::Role(Role::NotLeader { leader_address: Some(at.to_owned()), retry_ms: 70 })
}

#[test]
fn a_controller_that_stops_leading_sends_its_agents_to_the_leader_whatever_their_streams_are_at() {
    let told = |talk: &mut Talk, when: &str| {
        let said = talk.say();
        let [Down::NotLeader(answer)] = &said[..] else { panic!("{when}: {said:?}") };
        assert_eq!((&*answer.leader_address, answer.retry_ms), ("10.0.0.2:1", 70), "{when}");
        assert_eq!(talk.closed(), Some(&Close::Farewell("not_leader")), "{when}");
    };
    // In the middle of a transfer.
    let mut live = Talk::new(put("a", "1"));
    live.hear(Up::Hello(hello()));
    assert_eq!(live.names(), ["Welcome", "Begin"]);
    live.input(to_not_leader("10.0.0.2:1"));
    live.fleet.publish(put("a", "2"));
    told(&mut live, "live");
    // Parked by a follower, which hears who won.
    let mut parked = Talk::with(Fleet::new(5));
    parked.input(Input::Role(Role::Standby));
    parked.hear(Up::Hello(hello()));
    assert_eq!(parked.names(), ["Standby"]);
    parked.input(to_not_leader("10.0.0.2:1"));
    told(&mut parked, "parked");
    // Parked by a leader that was not sure.
    let mut unsure = Talk::new(put("a", "1"));
    unsure.hear(Up::Hello(hello()));
    unsure.say();
    unsure.input(Input::Role(Role::Unsure));
    assert_eq!(unsure.names(), ["Unsure"]);
    unsure.input(to_not_leader("10.0.0.2:1"));
    told(&mut unsure, "unsure");
    // Waiting for a higher epoch.
    let mut waiting = Talk::new(put("a", "1"));
    waiting.hear(Up::Hello(Hello { highest_epoch: 9, ..hello() }));
    waiting.input(to_not_leader("10.0.0.2:1"));
    told(&mut waiting, "waiting for an epoch");
    // Before Hello nothing is said; the role counts that it has when Hello comes.
    let mut early = Talk::new(put("a", "1"));
    early.input(to_not_leader("10.0.0.9:1"));
    assert_eq!(early.names(), Vec::<&str>::new());
    early.input(to_not_leader("10.0.0.2:1"));
    early.hear(Up::Hello(hello()));
    told(&mut early, "before Hello");
    let mut won = Talk::new(put("a", "1"));
    won.input(to_not_leader("10.0.0.2:1"));
    won.input(Input::Role(Role::Leading));
    won.hear(Up::Hello(hello()));
    assert_eq!(won.names(), ["Welcome", "Begin"]);
    // Who is on the way out is not called back.
    let mut late = Talk::new(put("a", "1"));
    late.hear(Up::Hello(hello()));
    late.input(to_not_leader("10.0.0.2:1"));
    late.input(Input::Role(Role::Leading));
    told(&mut late, "leading again");
}

#[test]
fn a_controller_can_have_a_heartbeat_of_its_own_and_says_so_to_whom_it_serves_and_parks() {
    for (given, taken) in [(333, 333), (1, 100), (60_000, 5_000)] {
        let mut talk = Talk::with(Fleet::new(5));
        let agent = Agent { uid: "uid".into(), name: "replica-0".to_owned() };
        talk.session = ServerSession::new(agent, Role::Leading, talk.now).with_heartbeat(given);
        talk.hear(Up::Hello(hello()));
        let said = talk.say();
        let [Down::Standby(standby)] = &said[..] else { panic!("{said:?}") };
        assert_eq!(u64::from(standby.heartbeat_ms), taken);
        talk.later(taken);
        assert_eq!(talk.names(), ["Heartbeat"], "parked");
        talk.fleet.publish(put("a", "1"));
        let said = talk.say();
        let Some(Down::Welcome(welcome)) = said.first() else { panic!("{said:?}") };
        assert_eq!(u64::from(welcome.heartbeat_ms), taken);
        talk.applied();
        talk.later(taken);
        assert_eq!(talk.names(), ["Heartbeat"], "served");
        // Silence is measured with it too.
        assert!(talk.session.deadline().is_some_and(|at| at <= talk.now + taken));
        talk.later(limits::MISSES * taken - 1 - taken);
        talk.later(taken + 1);
        assert_eq!(talk.closed(), Some(&Close::Silent));
    }
}

#[test]
fn a_controller_that_waits_for_its_epoch_says_something_meanwhile() {
    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(Hello { highest_epoch: 9, ..hello() }));
    assert_eq!(talk.names(), Vec::<&str>::new());
    talk.later(limits::FIRST_WORD_MS);
    assert_eq!(talk.names(), ["Heartbeat"]);
}

#[test]
fn a_superseded_session_says_so_and_ends() {
    let mut talk = Talk::new(put("a", "1"));
    talk.hear(Up::Hello(hello()));
    talk.input(Input::Supersede);
    assert_eq!(talk.names(), ["Superseded"]);
    assert_eq!(talk.closed(), Some(&Close::Farewell("superseded")));
}

#[test]
fn a_stream_without_hello_ends_and_nothing_is_said_before_it() {
    let mut talk = Talk::new(put("a", "1"));
    assert_eq!(talk.names(), Vec::<&str>::new());
    talk.later(limits::HELLO_MS);
    assert_eq!(talk.closed(), Some(&Close::NoHello));
}

#[test]
fn lies_end_the_stream() {
    let lies: Vec<Up> = vec![
        Up::Hello(hello()),
        Up::Applied(Applied::default()),
        Up::Applied(Applied {
            version: Some(Version::new(5, 99).to_wire()),
            root: raw(Digest::of(b"")),
            ..Applied::default()
        }),
        Up::Applied(Applied {
            version: Some(Version::new(5, 1).to_wire()),
            root: Bytes::from_static(b"x"),
            ..Applied::default()
        }),
        Up::Refused(Refused {
            version: Some(Version::new(6, 1).to_wire()),
            root: raw(Digest::of(b"")),
            ..Refused::default()
        }),
        Up::MembersAck(MembersAck { seq: 1 }),
        Up::Resync(Resync { bucket_digests: Bytes::from_static(&[0; 33]), transfer: 0 }),
        Up::MembersResync(MembersResync { set_name: "x".repeat(2_000) }),
        Up::BlobRequest(BlobRequest { transfer: 1, digests: vec![Bytes::from_static(b"short")] }),
    ];
    for lie in lies {
        let mut talk = Talk::new(put("a", "1"));
        talk.hear(Up::Hello(hello()));
        talk.say();
        let told = format!("{lie:?}");
        talk.hear(lie);
        assert!(matches!(talk.closed(), Some(Close::Protocol(_))), "{told}");
        assert_eq!(talk.names(), Vec::<&str>::new());
    }
}

#[test]
fn a_set_that_no_message_holds_is_reported_and_holds_up_nothing() {
    let mut talk = Talk::new(put("a", "1"));
    let huge: Vec<Arc<str>> = (0..=limits::MEMBERS).map(|n| Arc::from(format!("member-{n:06}:80"))).collect();
    talk.fleet.publish(FleetChange { members: vec![("huge".into(), Some(huge.into()))], ..FleetChange::default() });
    talk.fleet.publish(set("small", &["10.0.0.1:80"]));
    talk.hear(Up::Hello(hello()));
    let said = talk.say();
    let sets: Vec<&str> = said
        .iter()
        .filter_map(|message| match message {
            Down::Members(members) => Some(&*members.set_name),
            _ => None,
        })
        .collect();
    assert_eq!(sets, ["small"]);
    assert!(said.iter().any(|message| name(message) == "Begin"));
    let reported = |event: &&Event| matches!(event, Event::MembersRefused { set, .. } if set == "huge");
    assert_eq!(talk.events.iter().filter(reported).count(), 1);
}

#[test]
fn the_end_of_a_fleet_is_told_to_its_agents_and_takes_nothing_from_them() {
    let mut talk = Talk::new(put("a", "{}"));
    talk.hear(Up::Hello(hello()));
    talk.say();
    talk.fleet.end();
    let said = talk.say();
    assert!(matches!(said[..], [Down::RetryAfter(_)]), "a typed answer, and nothing removed: {said:?}");
    assert_eq!(talk.session.closed(), Some(&Close::Farewell(push::server_session::FLEET_ENDED)));
    // Whoever comes while it ends is told the same, after it said who it is.
    let mut late = Talk::with(talk.fleet);
    assert!(late.say().is_empty());
    late.hear(Up::Hello(hello()));
    let said = late.say();
    assert!(matches!(said[..], [Down::RetryAfter(_)]), "{said:?}");
}

#[test]
fn a_fleet_that_follows_another_goes_on_from_its_generation() {
    let mut fleet = Fleet::new(5).after_generation(7);
    assert_eq!(fleet.publish(put("a", "{}")).version, Version::new(5, 8));
    assert_eq!(fleet.generation_of(&Key::new("fragment", "a")), Some(8));
    fleet.raise_epoch(6);
    assert_eq!(fleet.version(), Version::new(6, 1));
    assert_eq!(fleet.generation_of(&Key::new("fragment", "a")), Some(1));
}
