//! What must hold of a pod at every moment, and what must hold of it in the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent::core::ScalwsdState;
use bytes::Bytes;
use journal::{Digest, Key};
use proto::v1::ControllerMessage;
use push::Version;
use push::agent_session::MembersChange;

use super::Node;
use crate::sim::manifests::{KEPT, NAMESPACES, mark_of_body, mark_of_member};
use crate::sim::proxy::{Reading, Readings};

/// The mark that a member set comes with. What of it is lost with the agent's volume is told again, and never an older one.
pub(super) fn marks_of(set: &str, change: &MembersChange) -> Option<(String, u64)> {
    let members = match change {
        MembersChange::Full(members) => members,
        MembersChange::Delta { add, .. } => add,
        MembersChange::Drop => return None,
    };
    let mark = members.iter().filter_map(|member| mark_of_member(member)).max()?;
    Some((format!("member set {set}"), mark))
}

impl Node {
    pub(super) fn count_resends(&mut self, message: &ControllerMessage) {
        let Some(proto::v1::controller_message::Message::Begin(begin)) = &message.message else { return };
        let Some(count) = Digest::from_slice(&begin.root).and_then(|root| self.refused.get_mut(&root)) else { return };
        *count += 1;
        assert!(*count <= 1, "{}: the same refused bytes came again and again", self.name);
    }

    /// What must hold at every moment.
    pub(super) fn look(&mut self) {
        let facts = self.core.facts();
        let ready = facts.scalwsd == ScalwsdState::Ready;
        assert!(!ready || facts.applied.is_some(), "{} is ready and has no configuration", self.name);
    }

    /// Without faults no route comes before the members that it leads to.
    pub(super) fn look_at_members(&self, readings: &mut Readings) {
        for (key, body) in self.proxy.state.iter().filter(|_| self.calm) {
            if let Some(set) = &readings.of(key, body).set {
                assert!(self.proxy.sets.contains_key(set), "{}: {key} came before its members", self.name);
            }
        }
    }

    /// Without faults no member set goes while a pool still names it.
    pub(super) fn look_at_drop(&self, set: &str, readings: &mut Readings) {
        for (key, body) in self.proxy.state.iter().filter(|_| self.calm) {
            let named = readings.of(key, body).set.as_deref() == Some(set);
            assert!(!named, "{}: the members of {key} went before it", self.name);
        }
    }

    /// What the objects said at an earlier time never comes again: a new leader has seen at least what the one before had.
    pub(super) fn mark(&mut self, what: String, mark: u64) {
        let newest = self.marks.entry(what.clone()).or_insert(mark);
        assert!(*newest <= mark || !self.in_order, "{}: {what} goes back from edit {newest} to edit {mark}", self.name);
        *newest = mark;
    }

    /// What must hold of every configuration that it says it applied.
    pub(super) fn check(&mut self, version: Version, root: Digest, readings: &mut Readings) {
        assert!(self.applied.is_none_or(|before| before <= version), "{} went back to {version}", self.name);
        let marks: Vec<(String, u64)> = self
            .core
            .config()
            .resources()
            .iter()
            .filter_map(|(key, stored)| {
                let kept = &*key.kind == "fragment" && key.name.contains(&format!("/{KEPT}/"));
                kept.then_some(())?;
                Some((key.to_string(), mark_of_body(&stored.body)?))
            })
            .collect();
        marks.into_iter().for_each(|(what, mark)| self.mark(what, mark));
        let resources = self.core.config().resources();
        let runs = resources.iter().map(|(key, stored)| (key, &stored.body)).eq(self.proxy.state.iter());
        assert!(runs, "{} says that it applied {version}, and its proxy runs something else", self.name);
        let first = *readings.roots.entry((self.fleet, version)).or_insert(root);
        assert!(first == root || !self.counted, "{} applied another {version} than others did", self.name);
        if self.applied == Some(version) {
            return;
        }
        self.applied = Some(version);
        let foreign = NAMESPACES[1 - self.fleet];
        for (key, stored) in resources {
            assert!(
                !foreign.iter().any(|namespace| key.name.contains(namespace)),
                "{} of fleet {} holds {key} of the other fleet",
                self.name,
                self.fleet
            );
            let Reading { names, .. } = &*readings.of(key, &stored.body);
            for name in names {
                assert!(resources.contains_key(name), "{}: {key} names {name}, which is not there", self.name);
            }
            if &*key.kind == "fragment" && key.name.contains(&format!("/{KEPT}/")) {
                self.seen_kept.insert(key.clone());
            }
        }
        for kept in &self.seen_kept {
            assert!(resources.contains_key(kept), "{}: {kept} is gone, and nobody removed it", self.name);
        }
    }

    /// Where it stands, for a report of what did not agree.
    pub(crate) fn describe(&self) -> String {
        let stream = self.stream.as_ref().map(|s| {
            (
                s.controller,
                s.server.closed(),
                s.server.applied(),
                s.down.len(),
                s.up.len(),
                s.close.as_ref(),
                s.session.deadline(),
                s.server.deadline(),
            )
        });
        format!(
            "settled {}, {} answers, stream {stream:?}, waiting {}, {} proxy deaths, connects at {}",
            self.core.is_settled(),
            self.answers.len(),
            self.waiting.is_some(),
            self.proxy.deaths,
            self.connect_at
        )
    }

    /// Why it does not hold what is desired; nothing when it does.
    pub(crate) fn difference(&mut self, fleet: &mut push::fleet::Fleet) -> Option<String> {
        let facts = self.core.facts();
        let applied = facts.applied.map(|(version, _)| version);
        if applied != Some(fleet.version()) {
            let at = applied.map_or_else(|| "nothing".to_owned(), |version| version.to_string());
            return Some(format!("{} is at {at}, not at {}", self.name, fleet.version()));
        }
        let held: Vec<(&Key, &Bytes)> = self.core.config().resources().iter().map(|(k, s)| (k, &s.body)).collect();
        if !held.iter().copied().eq(fleet.resources()) {
            return Some(format!("{} does not hold the bytes that are desired", self.name));
        }
        if facts.member_root != fleet.members().root() {
            return Some(format!("{} does not hold the members that are desired", self.name));
        }
        if !held.iter().map(|(k, b)| (*k, *b)).eq(self.proxy.state.iter()) {
            return Some(format!("the proxy of {} does not run what its agent holds", self.name));
        }
        let ours: Vec<(Arc<str>, Digest)> = self.core.member_sets().map(|(n, d)| (Arc::clone(n), d)).collect();
        if !ours.iter().map(|(n, d)| (n, *d)).eq(self.proxy.sets.iter().map(|(n, s)| (n, s.digest))) {
            return Some(format!("the proxy of {} does not have the members that its agent holds", self.name));
        }
        let stored = self.core.config().resources().values();
        let named: BTreeSet<Digest> = stored.flat_map(|stored| stored.secrets.iter().copied()).collect();
        if !self.volume.keys.keys().copied().eq(named) {
            return Some(format!("{} has other key files than its configuration names", self.name));
        }
        None
    }
}
