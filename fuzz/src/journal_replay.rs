//! Any bytes as a journal: reading ends, the root is true, and what is settled reads the same without the rest.

use journal::Record;
use journal::Replay;
use journal::Tree;
use journal::digest::leaf;

pub(crate) fn run(data: &[u8]) {
    let replay = Replay::of(data);
    let settled = usize::try_from(replay.settled).expect("an offset in a slice");
    assert!(settled <= data.len());
    let again = Replay::of(&data[..settled]);
    assert_eq!(again.head, replay.head, "leftovers behind the last transaction change nothing");
    assert_eq!(again.resources, replay.resources);
    let mut tree = Tree::default();
    for (key, stored) in &replay.resources {
        tree.insert(key.clone(), leaf(key, &stored.body));
    }
    if let Some(head) = replay.head {
        assert_eq!(tree.root(), head.root, "the state is the one that the root names");
    }
    for line in data.split(|byte| *byte == b'\n') {
        if let Ok(record) = Record::decode(line) {
            let mut out = Vec::new();
            record.encode_into(&mut out);
            let again = Record::decode(out.strip_suffix(b"\n").expect("a record is a line"));
            assert_eq!(again, Ok(record), "what was read is written and read again");
        }
    }
}
