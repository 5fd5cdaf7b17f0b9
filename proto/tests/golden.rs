//! Bytes that were on the wire once stay readable: field numbers and types never change their meaning.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use bytes::Bytes;
use prost::Message;
use proto::v1::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn messages_are_encoded_as_they_always_were() {
    let version = Some(Version { epoch: 3, generation: 9 });
    let begin = controller_message::Message::Begin(Begin {
        version,
        base_root: Bytes::from_static(b"base"),
        root: Bytes::from_static(b"root"),
        bytes: 5,
        member_seq: 7,
        replaced_buckets: Bytes::from_static(&[1, 255]),
        transfer: 2,
        whole: Some(Bytes::from_static(b"w")),
    });
    let members = controller_message::Message::Members(Members {
        epoch: 3,
        seq: 4,
        set_id: 5,
        set_name: "s".to_owned(),
        content: Some(members::Content::Delta(MembersDelta {
            base: Bytes::from_static(b"b"),
            add: vec!["a".to_owned()],
            remove: vec![1, 300],
        })),
        digest: Bytes::from_static(b"d"),
    });
    let put = Change {
        change: Some(change::Change::Put(Put {
            kind: "k".to_owned(),
            name: "n".to_owned(),
            body: Bytes::from_static(b"{}"),
            secrets: vec![Bytes::from_static(b"s")],
        })),
    };
    let patch = Change {
        change: Some(change::Change::Patch(Patch {
            kind: "k".to_owned(),
            name: "n".to_owned(),
            head: 3,
            tail: 4,
            middle: Bytes::from_static(b"m"),
            secrets: vec![Bytes::from_static(b"s")],
        })),
    };
    let hello = agent_message::Message::Hello(Hello {
        protocol_min: 1,
        protocol_max: 2,
        schema_version: 3,
        boot_id: "b".to_owned(),
        highest_epoch: 4,
        applied: version,
        applied_root: Bytes::from_static(b"r"),
        member_root: Bytes::from_static(b"m"),
        condemned: vec![Bytes::from_static(b"c")],
        scalwsd_version: "v".to_owned(),
        scalwsd_state: "s".to_owned(),
    });
    let applied = agent_message::Message::Applied(Applied {
        version,
        root: Bytes::from_static(b"r"),
        timings: Some(Timings { journal_us: 1, reload_us: 2, read_back_us: 3 }),
        not_live: vec![NotLive { resource: "k/n".to_owned(), code: "c".to_owned(), message: "m".to_owned() }],
    });
    let down = |message| hex(&ControllerMessage { message: Some(message) }.encode_to_vec());
    let up = |message| hex(&AgentMessage { message: Some(message) }.encode_to_vec());
    let seen = [
        ("Begin", down(begin)),
        ("Members", down(members)),
        ("Put", hex(&put.encode_to_vec())),
        ("Patch", hex(&patch.encode_to_vec())),
        ("Hello", up(hello)),
        ("Applied", up(applied)),
    ];
    let golden = include_str!("golden.txt");
    let golden: Vec<(&str, String)> =
        golden.lines().filter_map(|line| line.split_once(' ')).map(|(name, hex)| (name, hex.to_owned())).collect();
    assert_eq!(seen.to_vec(), golden);
}

#[test]
fn what_a_newer_peer_adds_is_skipped() {
    let mut bytes = Commit { transfer: 3 }.encode_to_vec();
    // Field 100, a string.
    bytes.extend([0xa2, 0x06, 0x01, b'x']);
    assert_eq!(Commit::decode(&*bytes).unwrap(), Commit { transfer: 3 });
    // A message that this side does not know is empty, which a session answers by closing.
    let unknown = [0xa2, 0x06, 0x00];
    assert_eq!(ControllerMessage::decode(&unknown[..]).unwrap(), ControllerMessage { message: None });
}

#[test]
fn no_secret_is_printed() {
    let key = Bytes::from_static(b"PRIVATE");
    let chunk = ControllerMessage {
        message: Some(controller_message::Message::Chunk(Chunk { transfer: 1, data: key.clone(), offset: 0 })),
    };
    let begin = controller_message::Message::Begin(Begin { whole: Some(key.clone()), ..Begin::default() });
    let begin = ControllerMessage { message: Some(begin) };
    let blob = Change { change: Some(change::Change::Blob(Blob { digest: Bytes::new(), data: key })) };
    let request = EnrollRequest { csr: Bytes::new(), token: "PRIVATE".to_owned() };
    for text in [format!("{begin:?}"), format!("{chunk:?}"), format!("{blob:?}"), format!("{request:?}")] {
        assert!(!text.contains("PRIVATE") && !text.contains("80, 82"), "{text}");
    }
}
