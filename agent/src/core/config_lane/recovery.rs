//! The ways on from a commit that was cut short: accept it, try it again, or find what killed `scalwsd`.

use std::collections::BTreeSet;

use journal::admin::ReloadAnswer;
use journal::{Digest, Key, Record, digest};

use super::{CONDEMNED, ConfigLane, Phase, leaves, version_of};
use crate::core::types::{CallError, Effect, Report, refusals};

impl ConfigLane {
    /// Finds out what became of the open commit. `scalwsd` has said what it runs.
    pub(super) fn settle(&mut self, out: &mut Vec<Effect>) {
        let (Some(up), Some(work)) = (&self.up, &self.work) else { return };
        let runs = up.root == work.head.root
            && (up.commit == work.head.commit && up.journal.as_deref() == Some(&*self.journal)
                || work.changes.is_empty() && self.head.is_some());
        if runs {
            return self.accept(out);
        }
        let deaths: BTreeSet<&String> = work.tries.iter().filter(|start| **start != up.start).collect();
        if deaths.is_empty() {
            return self.attempt(out);
        }
        if work.checked_for < deaths.len() {
            let commit = work.head.commit;
            self.phase = Phase::Checking;
            out.push(Effect::Check { journal: self.journal.clone(), commit });
            return;
        }
        let message = match deaths.len() {
            1 => "scalwsd died while it loaded it".to_owned(),
            n => format!("scalwsd died {n} times while it loaded it"),
        };
        if !work.dead.is_empty() {
            // A resource that was accepted before may be it too: a new process loads it for the first time.
            let body = |key: &Key| match work.changes.get(key) {
                Some(change) => change.as_ref().map(|stored| &stored.body),
                None => self.resources.get(key).map(|stored| &stored.body),
            };
            let leaf = |key: &Key| body(key).map(|body| digest::leaf(key, body));
            let blamed: Vec<Digest> = work.dead.iter().filter_map(leaf).take(CONDEMNED).collect();
            self.condemn(&blamed);
            return self.abandon(refusals::CRASHED, message, blamed, false, out);
        }
        if deaths.len() < 2 {
            return self.attempt(out);
        }
        // Nothing is proven: the deaths may have come from outside. The controller knows what others have live and
        // blames the rest, so this agent remembers nothing. So many that it would be a guess are not named at all.
        let suspects: Vec<Digest> = leaves(&work.changes).collect();
        if suspects.is_empty() || suspects.len() > CONDEMNED {
            let message = format!("{message}, and no single resource is to blame");
            return self.abandon(refusals::DIED, message, Vec::new(), true, out);
        }
        self.abandon(refusals::CRASHED, message, suspects, false, out);
    }

    /// Remembers leaves that proved deadly. Written with the end of the work under way.
    fn condemn(&mut self, leaves: &[Digest]) {
        let new: BTreeSet<Digest> = leaves.iter().copied().collect();
        self.condemned.retain(|leaf| !new.contains(leaf));
        self.condemned.splice(0..0, new);
        self.condemned.truncate(CONDEMNED);
        self.condemned_unwritten = true;
    }

    pub(in crate::core) fn checked(&mut self, dead: &[Key], out: &mut Vec<Effect>) {
        if self.phase != Phase::Checking {
            return;
        }
        self.phase = Phase::Idle;
        if let Some(work) = &mut self.work {
            let now = self.up.as_ref().map(|up| up.start.as_str());
            let deaths: BTreeSet<&str> = work.tries.iter().map(String::as_str).filter(|s| Some(*s) != now).collect();
            work.checked_for = deaths.len();
            work.dead = dead.to_vec();
        }
        self.pump(out);
    }

    pub(super) fn repaired(&mut self, result: Result<ReloadAnswer, CallError>, out: &mut Vec<Effect>) {
        match result {
            Ok(answer) => {
                let good = self.head.is_some_and(|head| head.root == answer.root);
                if let Some(up) = &mut self.up {
                    up.root = answer.root;
                    up.repair_failed = !good;
                }
                self.phase = Phase::Idle;
                self.take_not_live(answer.not_live, out);
            }
            Err(CallError::Refused(_) | CallError::Conflict(_)) => {
                self.phase = Phase::Idle;
                if let Some(up) = &mut self.up {
                    up.repair_failed = true;
                }
            }
            Err(CallError::Gone) => return self.down(),
        }
        self.pump(out);
    }

    /// The open commit never happened.
    pub(super) fn abandon(
        &mut self,
        code: &'static str,
        message: String,
        leaves: Vec<Digest>,
        transient: bool,
        out: &mut Vec<Effect>,
    ) {
        let Some(work) = self.work.take() else { return };
        self.phase = Phase::Idle;
        self.cut_to(self.settled, out);
        if std::mem::take(&mut self.condemned_unwritten) {
            self.append_settled(&[Record::Condemned { leaves: self.condemned.clone() }], out);
        }
        let (version, root) = (version_of(&work.head), work.head.root);
        if work.stream == self.stream {
            self.say(Report::Refused { version, root, code, message, leaves, transient }, out);
        }
        self.unlink_unnamed(out);
        self.pump(out);
    }

    /// Whether it was the work under way that could not be written. Anything else leaves file and core apart, and only
    /// a new start brings them together.
    pub(in crate::core) fn volume_failed(&mut self, message: &str, out: &mut Vec<Effect>) {
        if self.phase == Phase::Reloading && self.work.is_some() {
            // What was written of it is not known: the next write cuts it away.
            self.len = u64::MAX;
            return self.abandon(refusals::VOLUME, message.to_owned(), Vec::new(), true, out);
        }
        out.push(Effect::Fatal(format!("cannot write the configuration journal: {message}")));
    }
}
