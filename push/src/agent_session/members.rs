//! The member lane as the agent sees it: numbers without gaps, ids to names, and what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use journal::Digest;
use journal::digest::members;
use proto::v1::members::Content;
use proto::v1::{Drop, Members};

use super::MembersChange;
use crate::Prefix;
use crate::limits;
use crate::wire::{self, Broken};

/// A message that is to be carried out.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) seq: u64,
    pub(super) set: Arc<str>,
    pub(super) change: MembersChange,
    pub(super) digest: Prefix,
}

/// What becomes of a message.
#[derive(Debug)]
pub(super) enum Taken {
    /// A second copy.
    Nothing,
    /// To be carried out.
    Change(Change),
    /// Its content cannot be used; the set stays as it is.
    Unusable { seq: u64, set: Arc<str>, why: &'static str },
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct MemberLane {
    received: u64,
    applied: u64,
    /// Of each id the name, and what the last message made of the set.
    names: BTreeMap<u32, (Arc<str>, Prefix)>,
    /// Numbers that needed nothing from `scalwsd`, above `applied`.
    settled: BTreeSet<u64>,
    /// What the controller expects after a number; compared when exactly that was applied.
    expected: Option<(u64, Digest)>,
}

impl MemberLane {
    /// Everything up to here is done.
    pub(super) fn applied(&self) -> u64 {
        self.applied
    }

    /// Whether the number is new; a gap is a lost message.
    fn next(&mut self, seq: u64) -> Result<bool, Broken> {
        if seq <= self.received {
            return Ok(false);
        }
        if seq != self.received + 1 {
            return Err(Broken("a member message is missing"));
        }
        if seq - self.applied > 2 * limits::MEMBER_WINDOW {
            return Err(Broken("too many member messages without an acknowledgement"));
        }
        self.received = seq;
        Ok(true)
    }

    pub(super) fn take(&mut self, message: Members) -> Result<Taken, Broken> {
        if !self.next(message.seq)? {
            return Ok(Taken::Nothing);
        }
        let digest = Prefix::from_wire(&message.digest)?;
        let (set, before) = self.name(message.set_id, &message.set_name, digest)?;
        let seq = message.seq;
        let change = match message.content.ok_or(Broken("a member message without content"))? {
            Content::Full(full) => sorted(full.members).and_then(|all| {
                let right = digest.fits(&members(&set, all.iter().map(|member| &**member)));
                if right { Ok(MembersChange::Full(all)) } else { Err("the members do not have their digest") }
            }),
            Content::Delta(delta) => {
                let base = match &delta.base[..] {
                    [] => before.ok_or(Broken("a difference of a member set names no base"))?,
                    base => Prefix::from_wire(base)?,
                };
                let remove = delta.remove;
                sorted(delta.add).and_then(|add| {
                    let ascending = remove.len() <= limits::MEMBERS && remove.is_sorted_by(|a, b| a < b);
                    if ascending { Ok(MembersChange::Delta { base, add, remove }) } else { Err(POSITIONS) }
                })
            }
        };
        Ok(match change {
            Ok(change) => Taken::Change(Change { seq, set, change, digest }),
            Err(why) => Taken::Unusable { seq, set, why },
        })
    }

    pub(super) fn take_drop(&mut self, message: &Drop) -> Result<Taken, Broken> {
        if !self.next(message.seq)? {
            return Ok(Taken::Nothing);
        }
        wire::name(&message.set_name, limits::SET_NAME)?;
        let set: Arc<str> = message.set_name.as_str().into();
        let digest = Prefix::of(&members(&set, []));
        Ok(Taken::Change(Change { seq: message.seq, set, change: MembersChange::Drop, digest }))
    }

    /// The first message for a set brings its name. Gives it, and what the message before made of the set.
    fn name(&mut self, id: u32, name: &str, digest: Prefix) -> Result<(Arc<str>, Option<Prefix>), Broken> {
        if name.is_empty() {
            let (name, last) = self.names.get_mut(&id).ok_or(Broken("the id of a member set is not known"))?;
            return Ok((Arc::clone(name), Some(std::mem::replace(last, digest))));
        }
        wire::name(name, limits::SET_NAME)?;
        let name: Arc<str> = name.into();
        self.names.insert(id, (Arc::clone(&name), digest));
        Ok((name, None))
    }

    /// Everything up to this number is done; gives what can be acknowledged now, if that is news.
    pub(super) fn done(&mut self, seq: u64) -> Option<u64> {
        let before = self.applied;
        self.applied = self.applied.max(seq.min(self.received));
        while self.settled.remove(&(self.applied + 1)) {
            self.applied += 1;
        }
        let applied = self.applied;
        self.settled.retain(|number| *number > applied);
        (applied > before).then_some(applied)
    }

    /// This one needs nothing from `scalwsd`.
    pub(super) fn settle(&mut self, seq: u64) -> Option<u64> {
        self.settled.insert(seq);
        self.done(0)
    }

    /// A heartbeat names the root after a number.
    pub(super) fn expect(&mut self, seq: u64, root: Option<Digest>) -> Result<(), Broken> {
        if seq > self.received {
            return Err(Broken("a member message is missing"));
        }
        self.expected = root.map(|root| (seq, root));
        Ok(())
    }

    /// Whether the root differs from what is expected at exactly this point; told once.
    pub(super) fn differs(&mut self, root: Digest) -> bool {
        match self.expected {
            Some((seq, expected)) if seq <= self.applied => {
                self.expected = None;
                seq == self.applied && expected != root
            }
            _ => false,
        }
    }
}

/// Why a difference cannot be used.
const POSITIONS: &str = "the positions of members are not ascending, or too many";

/// Sorted, each once, within bounds.
fn sorted(members: Vec<String>) -> Result<Vec<Arc<str>>, &'static str> {
    if members.len() > limits::MEMBERS {
        return Err("too many members");
    }
    if members.iter().any(|member| member.is_empty() || member.len() > limits::MEMBER) {
        return Err("a member is empty or too long");
    }
    if !members.is_sorted_by(|a, b| a < b) {
        return Err("members are not sorted");
    }
    Ok(members.into_iter().map(Arc::from).collect())
}
