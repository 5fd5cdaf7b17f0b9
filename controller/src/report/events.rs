//! The events of an object: its findings, those of its files, and the verdicts of agents, each said once.

use journal::admin::codes;
use serde::Serialize;
use translate::{ObjectId, Served, Severity};

use super::Report;

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum EventType {
    /// Everything works.
    Normal,
    /// Something does not work as the object says.
    Warning,
}

/// An event as it would be written for an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Event {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// A stable word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

/// A proxy cannot serve a resource of the object.
const NOT_LIVE: &str = "NotLive";
/// A resource of the object killed a proxy.
const CONDEMNED: &str = "Condemned";
/// The controller itself failed on the object.
const FAULT: &str = "TranslationFault";
/// Nothing of the object is served (`Rejected` of the cases' contract).
const REJECTED: &str = translate::reasons::REJECTED;

impl Report {
    /// All events of an object, each once.
    pub fn events(&self, object: &ObjectId) -> Vec<Event> {
        let mut events = Vec::new();
        let draft = self.drafts.get(object);
        for finding in draft.iter().flat_map(|draft| &draft.findings) {
            let kind = match finding.severity {
                Severity::Warning => EventType::Warning,
                Severity::Note => EventType::Normal,
            };
            let message = match finding.field.as_str() {
                "" => finding.message.clone(),
                field => format!("{field}: {}", finding.message),
            };
            events.push(Event { kind, reason: finding.reason.to_owned(), message });
        }
        if self.faults.contains(object) {
            let in_force = self.in_force.contains(object);
            let (reason, stays) = match in_force {
                true => (FAULT, "the version before stays in force"),
                false => (REJECTED, "nothing of it is served"),
            };
            let message =
                format!("a fault of the controller: it cannot translate this version, so {stays}; please report it");
            events.push(Event { kind: EventType::Warning, reason: reason.to_owned(), message });
        }
        events.extend(self.file_events(object));
        events.extend(self.not_live(object));
        let mut seen = std::collections::BTreeSet::new();
        events.retain(|event| seen.insert(event.clone()));
        events
    }

    /// What is wrong with the manifests of an object. Without a version in force nothing of it is served.
    fn file_events(&self, object: &ObjectId) -> Vec<Event> {
        let in_force = self.in_force.contains(object);
        let files = self.files_about.get(object).into_iter().flatten();
        files
            .flat_map(|path| self.files.get(path).into_iter().flatten().map(move |finding| (path, finding)))
            .filter(|(_, finding)| finding.object.as_ref().is_some_and(|about| ObjectId::from(about) == *object))
            .map(|(path, finding)| {
                let reason = if in_force { finding.reason } else { REJECTED };
                let stays = if in_force { "; the last good version stays in force" } else { "" };
                let place = match finding.document {
                    0 => path.clone(),
                    document => format!("{path}, document {document} at line {}", finding.line),
                };
                let message = format!("{place}: {}{stays}", finding.message);
                Event { kind: EventType::Warning, reason: reason.to_owned(), message }
            })
            .collect()
    }

    /// Verdicts of agents against resources of an object. Faults of the environment blame no object.
    pub(super) fn not_live(&self, object: &ObjectId) -> Vec<Event> {
        let mut events = Vec::new();
        let Some(draft) = self.drafts.get(object) else { return events };
        if draft.served == Served::Refused {
            // Its claims are all there is, and the reason is said already.
            return events;
        }
        let warning = |reason: &str, message| Event { kind: EventType::Warning, reason: reason.to_owned(), message };
        for (fleet, id) in &draft.resources {
            let Some(fleet) = self.fleets.get(fleet) else { continue };
            if fleet.condemned.is_empty() && fleet.agents.values().all(|agent| agent.not_live.is_empty()) {
                continue;
            }
            let resource = id.to_string();
            if fleet.condemned.contains_key(&resource) {
                let whose = fleet.stopped.get(&resource).map(|agent| format!(" ({agent})")).unwrap_or_default();
                events.push(warning(
                    CONDEMNED,
                    format!("{resource} stopped a proxy{whose} and all answer it with 503 until the object changes"),
                ));
                continue;
            }
            let verdicts = fleet.agents.iter().filter_map(|(name, agent)| Some((name, agent.not_live.get(&resource)?)));
            for (agent, entry) in verdicts.filter(|(_, entry)| !codes::is_environment(&entry.code)) {
                events.push(warning(
                    NOT_LIVE,
                    format!("{resource} is not live at {agent}: {} ({})", entry.message, entry.code),
                ));
            }
        }
        events
    }
}
