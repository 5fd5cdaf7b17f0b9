//! What the configuration lane tells the controller.

use journal::Digest;
use journal::admin::NotLive;
use push::Version;
use push::agent_session::Timings;

use super::{ConfigLane, version_of};
use crate::core::types::{Effect, Report};

impl ConfigLane {
    pub(super) fn applied_report(&mut self, timings: Timings, out: &mut Vec<Effect>) {
        if let Some(head) = self.head {
            let not_live = self.not_live.clone();
            self.say(Report::Applied { version: version_of(&head), root: head.root, timings, not_live }, out);
        }
    }

    /// A list that differs without a reload: the verdict for what is applied is said again.
    pub(super) fn take_not_live(&mut self, mut list: Vec<NotLive>, out: &mut Vec<Effect>) {
        list.sort_unstable();
        if list == self.not_live {
            return;
        }
        self.not_live = list;
        if self.scalwsd_runs_head() && self.work.is_none() {
            self.say(Report::NotLiveChanged(self.not_live.clone()), out);
        }
    }

    pub(super) fn refuse(
        &mut self,
        version: Version,
        root: Digest,
        code: &'static str,
        message: String,
        transient: bool,
        out: &mut Vec<Effect>,
    ) {
        self.say(Report::Refused { version, root, code, message, leaves: Vec::new(), transient }, out);
    }

    pub(super) fn say(&mut self, report: Report, out: &mut Vec<Effect>) {
        out.push(Effect::Report(report));
    }
}
