//! From a transfer and what is held to the changes that a journal transaction must make.

use std::collections::{BTreeMap, BTreeSet};

use journal::mutants::{self, Mutant};
use journal::record::{RecordError, check_body};
use journal::{Digest, Key, Stored, Tree, digest};
use push::agent_session::Transfer;

/// Why a transfer cannot be used on what is held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// It is based on something else, or does not lead to its root.
    #[error("it does not lead to its root from what is held")]
    BaseLost,
    /// It names secrets that are neither on the volume nor in it.
    #[error("{} secrets that it names are not there", .0.len())]
    SecretsMissing(Vec<Digest>),
    /// A body may not stand in a journal.
    #[error(transparent)]
    Body(RecordError),
}

/// The changes of a transfer, by key; `None` removes. What would change nothing is left out.
///
/// `tree` is put back as it was before this returns. `absent` are keys that the journal holds and the tree does not.
///
/// # Errors
/// When it cannot be used.
pub fn plan(
    transfer: &Transfer,
    resources: &BTreeMap<Key, Stored>,
    tree: &mut Tree,
    absent: &BTreeSet<Key>,
    keys: &BTreeSet<Digest>,
) -> Result<BTreeMap<Key, Option<Stored>>, TransferError> {
    if tree.root() != transfer.base_root {
        return Err(TransferError::BaseLost);
    }
    let mut changes: BTreeMap<Key, Option<Stored>> = BTreeMap::new();
    // What is absent is in the journal; unless it is put again, it must go from there.
    changes.extend(absent.iter().map(|key| (key.clone(), None)));
    changes.extend(transfer.removes.iter().map(|key| (key.clone(), None)));
    let came: BTreeSet<Digest> = transfer.blobs.iter().map(|(digest, _)| *digest).collect();
    let mut missing = BTreeSet::new();
    for put in &transfer.puts {
        check_body(&put.key, &put.body).map_err(TransferError::Body)?;
        missing.extend(put.secrets.iter().filter(|d| !came.contains(d) && !keys.contains(d)));
        let stored = Stored { body: put.body.clone(), secrets: put.secrets.as_slice().into() };
        changes.insert(put.key.clone(), Some(stored));
    }
    if !missing.is_empty() && !mutants::active(Mutant::KeyIsNotWaitedFor) {
        return Err(TransferError::SecretsMissing(missing.into_iter().collect()));
    }
    let undo: Vec<_> = changes.keys().map(|key| (key.clone(), tree.get(key))).collect();
    plant(tree, &changes);
    let root = tree.root();
    for (key, leaf) in undo {
        match leaf {
            Some(leaf) => tree.insert(key, leaf),
            None => tree.remove(&key),
        };
    }
    if root != transfer.root {
        return Err(TransferError::BaseLost);
    }
    changes.retain(|key, new| resources.get(key) != new.as_ref());
    Ok(changes)
}

/// Puts changes into a tree.
pub(super) fn plant(tree: &mut Tree, changes: &BTreeMap<Key, Option<Stored>>) {
    for (key, change) in changes {
        match change {
            Some(stored) => tree.insert(key.clone(), digest::leaf(key, &stored.body)),
            None => tree.remove(key),
        };
    }
}
