//! Peers that send anything at all: no panic, no endless talk, no memory beyond the bounds.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod model;

use bytes::Bytes;
use journal::{Digest, Key};
use model::Volume;
use proptest::prelude::*;
use prost::Message;
use proto::v1::agent_message::Message as Up;
use proto::v1::controller_message::Message as Down;
use proto::v1::*;
use push::agent_session::{AgentSession, Effect, Input};
use push::fleet::{Fleet, FleetChange, Item};
use push::server_session::{self, Agent, Role, ServerSession};

/// A digest that is right, known, or nonsense.
fn digest() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        Just(raw(&journal::Tree::default().root())),
        Just(raw(&fleet().root())),
        Just(raw(&Digest::of(b"any"))),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from),
    ]
}

fn raw(digest: &Digest) -> Bytes {
    Bytes::copy_from_slice(&digest.0)
}

fn fleet() -> Fleet {
    let mut fleet = Fleet::new(3);
    let item = Item { key: Key::new("fragment", "a"), body: Bytes::from_static(b"1"), secrets: Vec::new() };
    let members = vec![("s".into(), Some(vec!["10.0.0.1:80".into()].into()))];
    fleet.publish(FleetChange { puts: vec![item], members, ..FleetChange::default() });
    fleet
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..6u64, any::<u64>()]
}

fn version() -> impl Strategy<Value = Option<Version>> {
    prop::option::of((number(), number()).prop_map(|(epoch, generation)| Version { epoch, generation }))
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just("s".to_owned()), Just("epoch".to_owned()), "\\PC{0,8}"]
}

fn bytes() -> impl Strategy<Value = Bytes> {
    let some = prop::collection::vec(any::<u8>(), 0..64).prop_map(Bytes::from);
    prop_oneof![some, Just(wide()), Just((0..=255u8).collect::<Bytes>())]
}

/// Digests of 256 buckets.
fn wide() -> Bytes {
    Bytes::from(vec![7; 256 * 32])
}

fn up() -> impl Strategy<Value = Up> {
    prop_oneof![
        (0..3u32, 0..3u32, number(), version(), digest(), digest()).prop_map(
            |(min, max, epoch, applied, root, members)| {
                Up::Hello(Hello {
                    protocol_min: min,
                    protocol_max: max,
                    highest_epoch: epoch,
                    applied,
                    applied_root: root,
                    member_root: members,
                    ..Hello::default()
                })
            }
        ),
        (version(), digest()).prop_map(|(version, root)| Up::Applied(Applied { version, root, ..Applied::default() })),
        (version(), digest(), any::<bool>(), prop::collection::vec(digest(), 0..3)).prop_map(
            |(version, root, transient, leaves)| {
                Up::Refused(Refused {
                    version,
                    root,
                    transient,
                    leaves,
                    code: "crashed".to_owned(),
                    ..Refused::default()
                })
            }
        ),
        (bytes(), number()).prop_map(|(bucket_digests, transfer)| Up::Resync(Resync { bucket_digests, transfer })),
        (number(), prop::collection::vec(digest(), 0..3))
            .prop_map(|(transfer, digests)| Up::BlobRequest(BlobRequest { transfer, digests })),
        number().prop_map(|seq| Up::MembersAck(MembersAck { seq })),
        text().prop_map(|set_name| Up::MembersResync(MembersResync { set_name })),
        (number(), text()).prop_map(|(seq, set_name)| Up::MembersRefused(MembersRefused {
            seq,
            set_name,
            ..MembersRefused::default()
        })),
        (version(), digest(), number(), digest()).prop_map(|(applied, root, member_seq, member_root)| {
            Up::HeartbeatReply(HeartbeatReply { applied, root, member_seq, member_root })
        }),
        bytes().prop_map(|bucket_digests| Up::MemberBuckets(MemberBuckets { bucket_digests })),
        (prop::collection::vec((text(), digest()), 0..4), any::<bool>()).prop_map(|(sets, last)| {
            let sets = sets.into_iter().map(|(name, digest)| MemberSet { name, digest }).collect();
            Up::MemberSets(MemberSets { sets, last })
        }),
    ]
}

/// Sixteen bytes more often than not.
fn prefix() -> impl Strategy<Value = Bytes> {
    digest().prop_map(|digest| if digest.len() == 32 { digest.slice(..16) } else { digest })
}

fn content() -> impl Strategy<Value = Option<members::Content>> {
    let names = || prop::collection::vec(text(), 0..4);
    prop_oneof![
        names().prop_map(|members| Some(members::Content::Full(MembersFull { members }))),
        (prop_oneof![Just(Bytes::new()), prefix()], names(), prop::collection::vec(any::<u32>(), 0..4))
            .prop_map(|(base, add, remove)| Some(members::Content::Delta(MembersDelta { base, add, remove }))),
        Just(None),
    ]
}

fn down() -> impl Strategy<Value = Down> {
    let target = || prop::option::of((number(), digest()).prop_map(|(generation, root)| Target { generation, root }));
    prop_oneof![
        (number(), 0..3u32, any::<u32>(), target(), digest()).prop_map(
            |(epoch, protocol, heartbeat_ms, target, member_root)| {
                Down::Welcome(Welcome { epoch, protocol, heartbeat_ms, target, member_root, ..Welcome::default() })
            }
        ),
        Just(Down::Standby(Standby::default())),
        Just(Down::Unsure(Unsure {})),
        (version(), prefix(), digest(), number(), bytes(), 0..5u64, prop::option::of(bytes())).prop_map(
            |(version, base_root, root, bytes, replaced_buckets, transfer, whole)| {
                Down::Begin(Begin { version, base_root, root, bytes, member_seq: 0, replaced_buckets, transfer, whole })
            }
        ),
        (0..5u64, bytes(), number()).prop_map(|(transfer, data, offset)| Down::Chunk(Chunk { transfer, data, offset })),
        (0..5u64).prop_map(|transfer| Down::Commit(Commit { transfer })),
        (0..5u64).prop_map(|transfer| Down::Abort(Abort { transfer, reason: String::new() })),
        (number(), number(), 0..3u32, text(), content(), prefix()).prop_map(
            |(epoch, seq, set_id, set_name, content, digest)| {
                Down::Members(Members { epoch, seq, set_id, set_name, content, digest })
            }
        ),
        (number(), number(), text()).prop_map(|(epoch, seq, set_name)| Down::Drop(Drop { epoch, seq, set_name })),
        (number(), target(), number(), digest()).prop_map(|(epoch, target, member_seq, member_root)| {
            Down::Heartbeat(Heartbeat { epoch, target, member_seq, member_root })
        }),
        Just(Down::SendBuckets(SendBuckets {})),
        Just(Down::SendMemberBuckets(SendMemberBuckets {})),
        bytes().prop_map(|buckets| Down::SendMemberSets(SendMemberSets { buckets })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_agent_makes_the_controller_panic_or_talk_for_ever(
        messages in prop::collection::vec((up(), 0..20_000u64), 0..30),
        polite: bool,
    ) {
        let mut fleet = fleet();
        let agent = Agent { uid: "uid".into(), name: "n".to_owned() };
        let mut session = ServerSession::new(agent, Role::Leading, 0);
        let mut now = 0;
        if polite {
            let member_root = raw(&journal::MemberTree::default().root());
            let hello = Hello { protocol_min: 1, protocol_max: 1, member_root, ..Hello::default() };
            let message = AgentMessage { message: Some(Up::Hello(hello)) };
            session.step(now, server_session::Input::Received(message), &mut fleet);
        }
        for (message, wait) in messages {
            now += wait;
            session.step(now, server_session::Input::Received(AgentMessage { message: Some(message) }), &mut fleet);
            session.step(now, server_session::Input::Tick, &mut fleet);
            let mut said = 0;
            while session.poll(now, &mut fleet).is_some() {
                said += 1;
                prop_assert!(said < 50, "it never stops");
            }
            if let Some(due) = session.deadline() {
                prop_assert!(due > now || now == 0, "a timer that is due again at once spins");
            }
        }
        prop_assert_eq!(fleet.version(), push::Version::new(3, 1), "no agent changes what is desired");
    }

    #[test]
    fn no_controller_makes_an_agent_panic_or_take_what_is_not_proven(
        messages in prop::collection::vec((down(), 0..20_000u64), 0..30),
        polite: bool,
    ) {
        let mut volume = Volume { epoch: 2, ..Volume::default() };
        let mut session = AgentSession::new(10_000);
        let mut now = 0;
        session.step(now, Input::Connected(volume.facts(1)), &volume);
        let welcome = Welcome {
            epoch: 2,
            protocol: 1,
            heartbeat_ms: 5_000,
            target: Some(Target { generation: 1, root: raw(&Digest::of(b"t")) }),
            member_root: raw(&journal::MemberTree::default().root()),
            ..Welcome::default()
        };
        let first = polite.then_some((Down::Welcome(welcome), 0));
        for (message, wait) in first.into_iter().chain(messages) {
            now += wait;
            let received = Input::Received(ControllerMessage { message: Some(message) });
            let mut effects = session.step(now, received, &volume);
            effects.extend(session.step(now, Input::Tick, &volume));
            let mut at = 0;
            while at < effects.len() {
                prop_assert!(effects.len() < 2_000);
                let next = match &effects[at] {
                    Effect::Apply(transfer) => {
                        // The model asserts base, root, keys and order.
                        volume.apply(transfer);
                        let (version, root) = (transfer.version, transfer.root);
                        Some(Input::Applied { version, root, timings: Default::default(), not_live: Vec::new() })
                    }
                    Effect::Adopt { version, root } => {
                        prop_assert!(volume.applied.is_none_or(|applied| applied <= *version));
                        volume.applied = Some(*version);
                        Some(Input::Applied { version: *version, root: *root, timings: Default::default(), not_live: Vec::new() })
                    }
                    Effect::RecordEpoch(epoch) => {
                        prop_assert!(*epoch > volume.epoch);
                        volume.epoch = *epoch;
                        None
                    }
                    Effect::Members { seq, set, change, digest } => {
                        let _ = volume.change_members(set, change, *digest);
                        Some(Input::MembersApplied { seq: *seq, root: volume.member_tree.root() })
                    }
                    _ => None,
                };
                if let Some(input) = next {
                    effects.extend(session.step(now, input, &volume));
                }
                at += 1;
            }
        }
    }

    #[test]
    fn decoding_arbitrary_bytes_never_panics(bytes: Vec<u8>) {
        let _ = AgentMessage::decode(&*bytes);
        let _ = ControllerMessage::decode(&*bytes);
        let _ = EnrollRequest::decode(&*bytes);
        let _ = EnrollResponse::decode(&*bytes);
        let _ = Change::decode_length_delimited(&*bytes);
    }

    #[test]
    fn arbitrary_bytes_in_chunks_are_refused_or_applied_but_never_panic(data in prop::collection::vec(any::<u8>(), 0..300)) {
        let volume = Volume::default();
        let mut session = AgentSession::new(10_000);
        session.step(0, Input::Connected(volume.facts(1)), &volume);
        let mut hear = |message| {
            session.step(0, Input::Received(ControllerMessage { message: Some(message) }), &volume)
        };
        let empty = raw(&journal::Tree::default().root());
        let target = Some(Target { generation: 1, root: raw(&Digest::of(b"t")) });
        hear(Down::Welcome(Welcome { epoch: 1, protocol: 1, target, member_root: empty.clone(), ..Welcome::default() }));
        let version = Some(Version { epoch: 1, generation: 1 });
        let root = raw(&Digest::of(b"t"));
        let bytes = data.len() as u64;
        hear(Down::Begin(Begin { version, base_root: empty.slice(..16), root, bytes, transfer: 1, ..Begin::default() }));
        hear(Down::Chunk(Chunk { transfer: 1, data: data.into(), offset: 0 }));
        let effects = hear(Down::Commit(Commit { transfer: 1 }));
        let taken = effects.iter().any(|effect| matches!(effect, Effect::Apply(_)));
        prop_assert!(!taken, "such a root comes of nothing");
        prop_assert!(!effects.is_empty(), "and never in silence");
    }
}
