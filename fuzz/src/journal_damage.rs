//! A good journal, built as the input says and then cut and damaged: no state is read that was never accepted.

use std::sync::Arc;

use bytes::Bytes;
use journal::Replay;
use journal::digest::leaf;
use journal::record::{Record, encode_transaction};
use journal::{Digest, Key, Tree};

/// Builds a journal and remembers every root that was accepted.
struct Builder {
    text: Vec<u8>,
    tree: Tree,
    /// Not committed yet.
    changes: Vec<Record>,
    commit: u64,
    accepted: Vec<Digest>,
}

impl Builder {
    fn step(&mut self, op: u8, value: u8) {
        let key = Key::new("fragment", &format!("Ingress/demo/{}/shop.example.com", value % 16));
        match op % 5 {
            0 | 1 => {
                let body = Bytes::from(format!("{{\"v\":{value}}}"));
                self.tree.insert(key.clone(), leaf(&key, &body));
                self.changes.push(Record::Put { key, secrets: Arc::from([]), body });
            }
            2 => {
                self.tree.remove(&key);
                self.changes.push(Record::Remove { key });
            }
            _ => self.commit(value),
        }
    }

    /// Commits what has changed, and accepts it; without an attempt in between if the value is even.
    fn commit(&mut self, value: u8) {
        self.commit += 1;
        let (id, root) = (self.commit, self.tree.root());
        encode_transaction(std::mem::take(&mut self.changes), id, (1, id), root, &mut self.text);
        if value % 2 == 1 {
            Record::Try { commit: id, start: "start".to_owned() }.encode_into(&mut self.text);
        }
        Record::Accepted { id }.encode_into(&mut self.text);
        self.accepted.push(root);
    }
}

pub(crate) fn run(data: &[u8]) {
    let Some((damage, program)) = data.split_at_checked(8) else { return };
    let text = Vec::new();
    let mut builder = Builder { text, tree: Tree::default(), changes: Vec::new(), commit: 0, accepted: Vec::new() };
    Record::Journal { id: "fuzz".to_owned() }.encode_into(&mut builder.text);
    for pair in program.chunks_exact(2).take(200) {
        builder.step(pair[0], pair[1]);
    }
    let Builder { mut text, accepted, .. } = builder;
    let whole = Replay::of(&text);
    assert_eq!(
        whole.head.map(|head| head.root),
        accepted.last().copied(),
        "a journal without damage is read to its end"
    );
    let number = |i: usize| usize::from(u16::from_le_bytes([damage[i], damage[i + 1]]));
    let (cut, at, mask) = (number(0), number(2), damage[4]);
    if cut > 0 {
        text.truncate(text.len().saturating_sub(cut % (text.len() + 1)));
    }
    let length = text.len().max(1);
    if let Some(byte) = text.get_mut(at % length) {
        *byte ^= mask;
    }
    let read = Replay::of(&text);
    let root = read.head.map(|head| head.root);
    assert!(root.is_none_or(|root| accepted.contains(&root)), "only what was accepted is ever read: {root:?}");
}
