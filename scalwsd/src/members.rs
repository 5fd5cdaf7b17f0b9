//! The member sets: set at run time, kept whether a pool names them or not, without touching the configuration.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use journal::members::MemberSet;
use journal::{Digest, MemberTree};

use crate::member::Member;

/// The addresses that requests to a pool go to now. Pools hold it; changes of the set are seen at once.
#[derive(Debug)]
pub struct Targets(ArcSwap<Vec<Arc<Member>>>);

impl Targets {
    /// No addresses.
    pub fn empty() -> Arc<Targets> {
        Arc::new(Targets(ArcSwap::default()))
    }

    /// The members now.
    pub fn load(&self) -> arc_swap::Guard<Arc<Vec<Arc<Member>>>> {
        self.0.load()
    }

    /// Replaces the addresses. A member that stays keeps its connections, its load and what is known of its health.
    pub fn set(&self, mut addresses: Vec<SocketAddr>) {
        addresses.sort_unstable();
        addresses.dedup();
        let old = self.0.load();
        let members = addresses.into_iter().map(|address| match old.binary_search_by_key(&address, |m| m.address) {
            Ok(at) => Arc::clone(&old[at]),
            Err(_) => Arc::new(Member::new(address)),
        });
        self.0.store(Arc::new(members.collect()));
    }
}

/// All member sets, by name.
#[derive(Debug, Default)]
pub struct Members {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    sets: BTreeMap<Arc<str>, Set>,
    tree: MemberTree,
}

#[derive(Debug)]
struct Set {
    /// What was set, as it was spelled: sorted, with a space between two. Nothing while only a pool names it.
    stored: Option<Box<str>>,
    targets: Arc<Targets>,
}

impl Set {
    fn members(&self) -> Option<Vec<Arc<str>>> {
        self.stored.as_ref().map(|text| text.split_ascii_whitespace().map(Arc::from).collect())
    }
}

/// Why a set was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembersError {
    /// A member is no address.
    #[error("member set {set}: {member:?} is not address:port (IPv6 in brackets)")]
    Address {
        /// The set.
        set: String,
        /// The member.
        member: String,
    },
    /// The change is for another state of the set.
    #[error("the set has another digest")]
    Base(Digest),
}

impl Members {
    /// The live addresses of a set. They are empty until the set is there.
    pub fn targets(&self, name: &str) -> Arc<Targets> {
        let mut inner = self.lock();
        let set = inner.sets.entry(name.into()).or_insert_with(|| Set { stored: None, targets: Targets::empty() });
        Arc::clone(&set.targets)
    }

    /// Replaces a set; gives its digest.
    ///
    /// # Errors
    /// When a member is no address; then nothing changes.
    pub fn put(&self, name: &str, members: Vec<Arc<str>>) -> Result<Digest, MembersError> {
        let set = MemberSet::new(name, members);
        self.take(name.into(), set)
    }

    /// As [`Members::put`], for a set whose digest is known.
    ///
    /// # Errors
    /// As there.
    pub fn take(&self, name: Arc<str>, set: MemberSet) -> Result<Digest, MembersError> {
        self.lock().store(name, &set)
    }

    /// Changes a set that has the digest `base`; gives the digest it has then.
    ///
    /// # Errors
    /// [`MembersError::Base`] with the digest it has, and as [`Members::put`].
    pub fn patch(
        &self,
        name: &str,
        base: Digest,
        add: &[Arc<str>],
        remove: &[Arc<str>],
    ) -> Result<Digest, MembersError> {
        let mut inner = self.lock();
        let changed = match inner.get(name) {
            Some(stored) if stored.digest == base => stored.changed(name, add, remove),
            Some(stored) => return Err(MembersError::Base(stored.digest)),
            None => return Err(MembersError::Base(journal::digest::members(name, []))),
        };
        inner.store(name.into(), &changed)
    }

    /// Takes a set away. Pools that name it have no members then. Says whether it was there.
    pub fn drop_set(&self, name: &str) -> bool {
        let mut inner = self.lock();
        let Some(set) = inner.sets.get_mut(name) else { return false };
        let there = set.stored.take().is_some();
        set.targets.set(Vec::new());
        let unused = Arc::strong_count(&set.targets) == 1;
        inner.tree.remove(&Arc::from(name));
        if unused {
            inner.sets.remove(name);
        }
        there
    }

    /// Digest and members of a set.
    pub fn get(&self, name: &str) -> Option<MemberSet> {
        self.lock().get(name)
    }

    /// The member root, and the digest of every set by name.
    pub fn digests(&self) -> (Digest, Vec<(String, Digest)>) {
        let mut inner = self.lock();
        let mut sets: Vec<_> = inner.tree.iter().map(|(name, digest)| (name.to_string(), *digest)).collect();
        sets.sort_unstable();
        (inner.tree.root(), sets)
    }

    /// Closes connections that were idle for too long.
    pub fn sweep(&self) {
        let all: Vec<Arc<Targets>> = self.lock().sets.values().map(|s| Arc::clone(&s.targets)).collect();
        for targets in all {
            targets.load().iter().for_each(|member| member.sweep());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn get(&self, name: &str) -> Option<MemberSet> {
        let (name, set) = self.sets.get_key_value(name)?;
        Some(MemberSet { members: set.members()?.into(), digest: self.tree.get(name)? })
    }

    fn store(&mut self, name: Arc<str>, stored: &MemberSet) -> Result<Digest, MembersError> {
        let mut addresses = Vec::with_capacity(stored.members.len());
        for member in stored.members.iter() {
            let address = member.parse::<SocketAddr>().ok().filter(|a| a.port() > 0);
            addresses.push(address.ok_or_else(|| MembersError::Address {
                set: name.chars().take(300).collect(),
                member: member.chars().take(100).collect(),
            })?);
        }
        // One copy of a name.
        let name = self.sets.get_key_value(&name).map_or(name, |(known, _)| Arc::clone(known));
        let set = self.sets.entry(Arc::clone(&name)).or_insert_with(|| Set { stored: None, targets: Targets::empty() });
        set.stored = Some(stored.members.join(" ").into());
        set.targets.set(addresses);
        self.tree.insert(name, stored.digest);
        Ok(stored.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: &str = "demo/web%3A80/tcp";

    fn texts(members: &[&str]) -> Vec<Arc<str>> {
        members.iter().map(|m| Arc::from(*m)).collect()
    }

    fn addresses(targets: &Targets) -> Vec<String> {
        targets.load().iter().map(|m| m.address.to_string()).collect()
    }

    #[test]
    fn a_set_is_kept_whether_a_pool_names_it_before_or_after() {
        let members = Members::default();
        let before = members.targets("early");
        members.put("early", texts(&["10.0.0.1:80"])).unwrap();
        members.put("late", texts(&["[2001:db8::1]:80"])).unwrap();
        assert_eq!(addresses(&before), ["10.0.0.1:80"]);
        assert_eq!(addresses(&members.targets("late")), ["[2001:db8::1]:80"]);
    }

    #[test]
    fn a_member_that_stays_keeps_what_is_known_of_it() {
        let members = Members::default();
        let targets = members.targets(SET);
        members.put(SET, texts(&["10.0.0.1:80", "10.0.0.2:80"])).unwrap();
        let kept = Arc::clone(&targets.load()[1]);
        members.put(SET, texts(&["10.0.0.2:80", "10.0.0.3:80"])).unwrap();
        assert!(Arc::ptr_eq(&kept, &targets.load()[0]));
        assert_eq!(addresses(&targets), ["10.0.0.2:80", "10.0.0.3:80"]);
    }

    #[test]
    fn a_patch_applies_only_to_the_state_it_names() {
        let members = Members::default();
        let base = members.put(SET, texts(&["10.0.0.1:80", "10.0.0.2:80"])).unwrap();
        let next = members.patch(SET, base, &texts(&["10.0.0.3:80"]), &texts(&["10.0.0.1:80"])).unwrap();
        assert_eq!(next, journal::digest::members(SET, ["10.0.0.2:80", "10.0.0.3:80"]));
        assert_eq!(members.patch(SET, base, &[], &[]), Err(MembersError::Base(next)));
        assert!(matches!(members.patch("unknown", base, &[], &[]), Err(MembersError::Base(_))));
        assert_eq!(addresses(&members.targets(SET)), ["10.0.0.2:80", "10.0.0.3:80"]);
    }

    #[test]
    fn a_member_that_is_no_address_changes_nothing() {
        let members = Members::default();
        let digest = members.put(SET, texts(&["10.0.0.1:80"])).unwrap();
        for bad in ["", "10.0.0.1", "name:80", "10.0.0.1:0", "::1:80", "10.0.0.1:99999"] {
            assert!(members.put(SET, texts(&["10.0.0.2:80", bad])).is_err(), "{bad:?}");
        }
        assert_eq!(members.get(SET).unwrap().digest, digest);
        assert_eq!(addresses(&members.targets(SET)), ["10.0.0.1:80"]);
    }

    #[test]
    fn a_dropped_set_is_gone_from_the_root_and_its_pools_are_empty() {
        let members = Members::default();
        let empty = members.digests().0;
        let targets = members.targets(SET);
        members.put(SET, texts(&["10.0.0.1:80"])).unwrap();
        assert_ne!(members.digests().0, empty);
        assert!(members.drop_set(SET));
        assert_eq!(members.digests(), (empty, Vec::new()));
        assert_eq!(addresses(&targets), [] as [&str; 0]);
        members.put(SET, texts(&["10.0.0.9:80"])).unwrap();
        assert_eq!(addresses(&targets), ["10.0.0.9:80"]);
        assert!(!members.drop_set("unknown"));
    }
}
