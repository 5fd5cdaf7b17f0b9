//! What a `members.jsonl` means: the member sets that `scalwsd` took.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::record::Record;
use crate::replay::read_file;
use crate::transactions::{Corrupt, lines};
use crate::{Digest, MemberTree, digest};

/// One member set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSet {
    /// `address:port`, sorted, each once.
    pub members: Arc<[Arc<str>]>,
    /// [`digest::members`] of its name and members.
    pub digest: Digest,
}

impl MemberSet {
    /// Sorts the members, takes double ones out and computes the digest.
    pub fn new(name: &str, mut members: Vec<Arc<str>>) -> MemberSet {
        members.sort_unstable();
        members.dedup();
        let digest = digest::members(name, members.iter().map(|m| &**m));
        MemberSet { members: members.into(), digest }
    }

    /// The same set after a change.
    pub fn changed(&self, name: &str, add: &[Arc<str>], remove: &[Arc<str>]) -> MemberSet {
        let kept = self.members.iter().filter(|m| !remove.contains(m)).cloned();
        MemberSet::new(name, kept.chain(add.iter().cloned()).collect())
    }

    /// The record of this set.
    pub fn record(&self, name: &Arc<str>) -> Record {
        Record::Set { name: name.clone(), members: self.members.clone(), digest: self.digest }
    }
}

/// A members journal that was read from its first byte.
#[derive(Clone, Debug, Default)]
pub struct MembersReplay {
    /// Every set, by name.
    pub sets: BTreeMap<Arc<str>, MemberSet>,
    /// Their digests.
    pub tree: MemberTree,
    /// Whether the first record is there.
    pub named: bool,
    /// Everything behind this offset is leftovers.
    pub settled: u64,
    /// Why reading stopped before the end, if it did.
    pub corrupt: Option<Corrupt>,
}

impl MembersReplay {
    /// Reads the bytes of a members journal. Never fails: what cannot be read ends the journal there.
    pub fn of(text: &[u8]) -> MembersReplay {
        let mut replay = MembersReplay::default();
        for (from, to) in lines(text) {
            if let Err(why) = replay.line(text.get(from..to - 1).unwrap_or_default()) {
                replay.corrupt = Some(Corrupt { offset: from as u64, why });
                break;
            }
            replay.settled = to as u64;
        }
        replay
    }

    /// Reads a file; empty when there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(path: &Path) -> io::Result<MembersReplay> {
        Ok(read_file(path)?.map(|text| MembersReplay::of(&text)).unwrap_or_default())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let record = Record::decode(line).map_err(|e| e.to_string())?;
        if self.named == matches!(record, Record::Journal { .. }) {
            return Err("the first record, and only the first, names the journal".to_owned());
        }
        match record {
            Record::Journal { .. } => self.named = true,
            Record::Set { name, members, digest: named } => {
                let set = MemberSet::new(&name, members.to_vec());
                if set.digest != named || set.members != members {
                    return Err(format!("the digest of member set {name} does not fit its members"));
                }
                self.tree.insert(name.clone(), set.digest);
                self.sets.insert(name, set);
            }
            Record::Drop { name } => {
                self.tree.remove(&name);
                self.sets.remove(&name);
            }
            _ => return Err("a configuration record in a members journal".to_owned()),
        }
        Ok(())
    }
}
