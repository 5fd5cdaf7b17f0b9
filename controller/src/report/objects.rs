//! Log lines for transitions of objects: what a draft says now, and when a change is live everywhere.

use std::collections::BTreeSet;

use translate::{Draft, FleetName, ObjectId, Served, Severity};

use super::{FleetReport, Report};

/// Changes of more objects than this at once are told as a number.
pub(super) const TALK: usize = 20;
/// So many generations are remembered per fleet to say when their objects are live.
pub(super) const GENERATIONS: usize = 1024;

/// Says that an object's draft changed, when what its owner would see did.
pub(super) fn log_draft(reference: &ObjectId, old: Option<&Draft>, new: Option<&Draft>) {
    let said = |draft: Option<&Draft>| {
        draft.map(|d| {
            (d.served, d.findings.iter().filter(|f| f.severity == Severity::Warning).cloned().collect::<Vec<_>>())
        })
    };
    if said(old) == said(new) {
        return;
    }
    let Some(draft) = new else {
        tracing::info!(object = %reference, "gone");
        return;
    };
    let first = draft.findings.iter().find(|f| f.severity == Severity::Warning);
    let (reason, field, message) = first.map_or(("", "", ""), |f| (f.reason, f.field.as_str(), f.message.as_str()));
    match draft.served {
        Served::Full if first.is_none() => tracing::info!(object = %reference, "accepted"),
        Served::Full | Served::Partly => tracing::warn!(object = %reference, reason, field, "partly served: {message}"),
        Served::Refused => tracing::warn!(object = %reference, reason, field, "refused: {message}"),
    }
}

impl FleetReport {
    /// Takes out the generations that every connected agent has, with the objects they changed and when they were
    /// published.
    fn landed(&mut self) -> Option<(u64, u64, BTreeSet<ObjectId>)> {
        let epoch = self.version.epoch;
        let (lowest, _) = self.standing.first_key_value()?;
        let lowest = lowest.filter(|v| v.epoch == epoch).map_or(0, |v| v.generation);
        if self.waiting.first_key_value().is_none_or(|(first, _)| *first > lowest) {
            return None;
        }
        let later = self.waiting.split_off(&(lowest + 1));
        let landed = std::mem::replace(&mut self.waiting, later);
        let since = landed.values().map(|w| w.published_at_us).min()?;
        Some((lowest, since, landed.into_values().flat_map(|w| w.objects).collect()))
    }
}

impl Report {
    /// Says which objects are live everywhere now.
    pub(super) fn log_landed(&mut self, name: &FleetName, now_us: u64) {
        let Some(fleet) = self.fleets.get_mut(name) else { return };
        let Some((generation, since, objects)) = fleet.landed() else { return };
        let agents = fleet.agents.values().filter(|agent| agent.connected).count();
        let after_us = now_us.saturating_sub(since);
        if objects.len() > TALK {
            tracing::info!(fleet = %name, objects = objects.len(), generation, agents, after_us, "live");
            return;
        }
        for object in objects {
            let failing = self.not_live(&object);
            match failing.first() {
                None => tracing::info!(%object, generation, agents, after_us, "live"),
                Some(event) => tracing::warn!(%object, generation, agents, after_us, "not live: {}", event.message),
            }
        }
    }
}
