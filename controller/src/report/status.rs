//! The status document: everything that a person or a test may want to know of what is served.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serde::Serialize;
use translate::{BackendRef, Draft, FleetName, ObjectId, Served};

use super::{Event, Report};
use crate::watch::directory::FileFinding;

/// The document of `GET /v1/status` and of `STATEDIR/status/objects.json`.
#[derive(Clone, Debug, Serialize)]
pub struct StatusDocument {
    /// The fleets with their agents.
    pub fleets: Vec<FleetStatus>,
    /// Every object that is ours or of a kind that could be, and every file with a finding (`File//path`).
    pub objects: Vec<ObjectStatus>,
    /// Every Service port that something refers to.
    pub backends: Vec<BackendStatus>,
    /// Why the world is held, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// Files with findings.
    pub files: Vec<FileStatus>,
}

/// A fleet.
#[derive(Clone, Debug, Serialize)]
pub struct FleetStatus {
    /// `namespace/name`.
    pub name: String,
    /// The epoch.
    pub epoch: u64,
    /// The generation within the epoch.
    pub generation: u64,
    /// The root, shortened.
    pub root: String,
    /// Its agents.
    pub agents: Vec<AgentStatus>,
}

/// An agent.
#[derive(Clone, Debug, Serialize)]
pub struct AgentStatus {
    /// The pod's name.
    pub name: String,
    /// The generation of the present epoch that it applied; 0 if none.
    pub applied: u64,
    /// What it refused.
    pub refused: Vec<RefusedStatus>,
    /// Whether it has a stream now.
    pub connected: bool,
    /// The version of its `scalwsd`.
    pub scalwsd: String,
    /// From publication to verdict, for its last generation, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_us: Option<u64>,
}

/// Something that an agent refused.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedStatus {
    /// `kind/name`, or `*` for a generation as a whole.
    pub resource: String,
    /// A stable word.
    pub code: String,
    /// A sentence.
    pub message: String,
}

/// An object.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectStatus {
    /// `Kind/namespace/name`.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Its conditions.
    pub conditions: Vec<ConditionStatus>,
    /// Its events.
    pub events: Vec<Event>,
    /// For Gateways: its listeners.
    pub listeners: BTreeMap<String, ListenerStatus>,
    /// Where it is served.
    pub addresses: Vec<String>,
    /// `full`, `partly`, `refused`, or `not ours`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served: Option<&'static str>,
    /// How many agents have it live.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness: Option<Liveness>,
}

/// A listener of a Gateway.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// How many routes are attached.
    pub attached_routes: u32,
    /// The kinds that may be.
    pub supported_kinds: Vec<String>,
    /// Its conditions.
    pub conditions: Vec<ConditionStatus>,
}

/// A condition.
#[derive(Clone, Debug, Serialize)]
pub struct ConditionStatus {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// A stable word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
    /// For routes: the parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

/// How many agents have an object live.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Liveness {
    /// So many ...
    pub live: usize,
    /// ... of so many connected agents.
    pub of: usize,
    /// The others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lagging: Vec<String>,
}

/// A Service port.
#[derive(Clone, Debug, Serialize)]
pub struct BackendStatus {
    /// `namespace/name:port`.
    pub service: String,
    /// The addresses that may get traffic now.
    pub endpoints: Vec<String>,
}

/// A file with findings.
#[derive(Clone, Debug, Serialize)]
pub struct FileStatus {
    /// Its path, relative to the folder.
    pub path: String,
    /// What is wrong with it.
    pub findings: Vec<FileFindingStatus>,
}

/// Something that is wrong with a file.
#[derive(Clone, Debug, Serialize)]
pub struct FileFindingStatus {
    /// The document, counted from 1; 0 for the file as a whole.
    pub document: usize,
    /// The line on which it begins.
    pub line: usize,
    /// The object, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// A stable word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

impl From<&FileFinding> for FileFindingStatus {
    fn from(finding: &FileFinding) -> FileFindingStatus {
        FileFindingStatus {
            document: finding.document,
            line: finding.line,
            object: finding.object.as_ref().map(ToString::to_string),
            reason: finding.reason,
            message: finding.message.clone(),
        }
    }
}

impl Report {
    /// The status document without what [`Report::objects_after`] and [`Report::backends_after`] give.
    pub fn document(&self) -> StatusDocument {
        let files = self.files.iter().map(|(path, findings)| FileStatus {
            path: path.clone(),
            findings: findings.iter().map(FileFindingStatus::from).collect(),
        });
        StatusDocument {
            fleets: self.fleets.iter().map(|(name, fleet)| fleet_status(name, fleet)).collect(),
            objects: Vec::new(),
            backends: Vec::new(),
            held: self.held.clone(),
            files: files.collect(),
        }
    }

    /// The next `count` objects after this one, in order. `generation_of` gives the generation that brought the present
    /// bytes of a resource.
    pub fn objects_after(
        &self,
        after: Option<&ObjectId>,
        count: usize,
        generation_of: &dyn Fn(&FleetName, &config::ResourceId) -> Option<u64>,
    ) -> Vec<(ObjectId, ObjectStatus)> {
        let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let listed = self.in_force.range::<ObjectId, _>(range);
        let listed = listed.filter(|object| super::LISTED_KINDS.contains(&object.kind()));
        let drafts = self.drafts.range::<ObjectId, _>(range).map(|(object, _)| object);
        let files = self.files_about.range::<ObjectId, _>(range).map(|(object, _)| object);
        let faults = self.faults.range::<ObjectId, _>(range);
        // The first of all are among the first of each.
        let mut next: BTreeSet<&ObjectId> = drafts.take(count).collect();
        next.extend(listed.take(count));
        next.extend(files.take(count));
        next.extend(faults.take(count));
        let next = next.into_iter().take(count);
        next.map(|object| (object.clone(), self.object_status(object, generation_of))).collect()
    }

    /// Every file with a finding, as an object.
    pub fn file_objects(&self) -> Vec<ObjectStatus> {
        self.files.iter().map(|(path, findings)| file_object(path, findings)).collect()
    }

    /// The next `count` Service ports after this one, in order.
    pub fn backends_after(&self, after: Option<&BackendRef>, count: usize) -> Vec<(BackendRef, BackendStatus)> {
        let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let next = self.backends.range::<BackendRef, _>(range).take(count).map(|(backend, members)| {
            let endpoints = members.iter().map(ToString::to_string).collect();
            (backend.clone(), BackendStatus { service: backend.to_string(), endpoints })
        });
        next.collect()
    }

    fn object_status(
        &self,
        reference: &ObjectId,
        generation_of: &dyn Fn(&FleetName, &config::ResourceId) -> Option<u64>,
    ) -> ObjectStatus {
        let draft = self.drafts.get(reference);
        let conditions = draft.iter().flat_map(|draft| &draft.conditions).map(|condition| ConditionStatus {
            kind: condition.kind,
            status: if condition.status { "True" } else { "False" },
            reason: condition.reason,
            message: condition.message.clone(),
            parent: condition.parent.clone(),
        });
        let served = match draft.map(|draft| (draft.served, self.left_of(draft))) {
            Some((Served::Full, Served::Full)) => "full",
            Some((Served::Refused, _) | (_, Served::Refused)) => "refused",
            Some(_) => "partly",
            None if self.in_force.contains(reference) => "not ours",
            None => "refused",
        };
        ObjectStatus {
            reference: reference.to_string(),
            conditions: conditions.collect(),
            events: self.events(reference),
            listeners: BTreeMap::new(),
            addresses: Vec::new(),
            served: Some(served),
            liveness: draft.map(|draft| self.liveness(draft, generation_of)),
        }
    }

    /// What is left of an object without its resources that killed a proxy.
    fn left_of(&self, draft: &Draft) -> Served {
        let dead = |(fleet, id): &&(FleetName, config::ResourceId)| {
            self.fleets.get(fleet).is_some_and(|fleet| fleet.is_condemned(id))
        };
        if !draft.resources.iter().any(|resource| dead(&resource)) {
            return Served::Full;
        }
        let mut routes = draft.resources.iter().filter(|(_, id)| id.kind == config::Kind::Fragment);
        if routes.all(|resource| dead(&resource)) { Served::Refused } else { Served::Partly }
    }

    fn liveness(
        &self,
        draft: &Draft,
        generation_of: &dyn Fn(&FleetName, &config::ResourceId) -> Option<u64>,
    ) -> Liveness {
        let mut liveness = Liveness { live: 0, of: 0, lagging: Vec::new() };
        for name in &draft.fleets {
            let Some(fleet) = self.fleets.get(name) else { continue };
            let resources: Vec<_> = draft.resources.iter().filter(|(fleet, _)| fleet == name).collect();
            let needed = resources.iter().filter_map(|(fleet, id)| generation_of(fleet, id)).max().unwrap_or(0);
            // They run it as what was sent, and requests get 503 all the same.
            let withheld = resources.iter().any(|(_, id)| fleet.is_condemned(id));
            for (agent_name, agent) in fleet.agents.iter().filter(|(_, agent)| agent.connected) {
                let applied = agent.applied.filter(|v| v.epoch == fleet.version.epoch).map_or(0, |v| v.generation);
                liveness.of += 1;
                // The names are written out only where something is wrong, which is mostly nowhere.
                let is_not_live = || resources.iter().any(|(_, id)| agent.not_live.contains_key(&id.to_string()));
                if applied >= needed && !withheld && (agent.not_live.is_empty() || !is_not_live()) {
                    liveness.live += 1;
                } else {
                    liveness.lagging.push(agent_name.clone());
                }
            }
        }
        liveness
    }
}

fn fleet_status(name: &FleetName, fleet: &super::FleetReport) -> FleetStatus {
    let agents = fleet.agents.iter().map(|(name, agent)| {
        let mut refused: Vec<RefusedStatus> = agent
            .not_live
            .values()
            .map(|entry| RefusedStatus {
                resource: entry.resource.clone(),
                code: entry.code.clone(),
                message: entry.message.clone(),
            })
            .collect();
        refused.extend(agent.refused.iter().map(|refusal| RefusedStatus {
            resource: "*".to_owned(),
            code: refusal.code.clone(),
            message: format!("generation {}: {}", refusal.version.generation, refusal.message),
        }));
        refused.extend(agent.refused_sets.iter().map(|(set, message)| RefusedStatus {
            resource: format!("members/{set}"),
            code: "members".to_owned(),
            message: message.clone(),
        }));
        AgentStatus {
            name: name.clone(),
            applied: agent.applied.filter(|v| v.epoch == fleet.version.epoch).map_or(0, |v| v.generation),
            refused,
            connected: agent.connected,
            scalwsd: agent.scalwsd_version.clone(),
            lag_us: agent.lag_us,
        }
    });
    FleetStatus {
        name: name.to_string(),
        epoch: fleet.version.epoch,
        generation: fleet.version.generation,
        root: fleet.root.clone(),
        agents: agents.collect(),
    }
}

/// A file as an object, so that whoever looks at objects only sees it too.
fn file_object(path: &str, findings: &[FileFinding]) -> ObjectStatus {
    let events = findings.iter().map(|finding| Event {
        kind: super::EventType::Warning,
        reason: finding.reason.to_owned(),
        message: match finding.document {
            0 => finding.message.clone(),
            document => format!("document {document} at line {}: {}", finding.line, finding.message),
        },
    });
    ObjectStatus {
        reference: format!("File//{path}"),
        conditions: Vec::new(),
        events: events.collect(),
        listeners: BTreeMap::new(),
        addresses: Vec::new(),
        served: None,
        liveness: None,
    }
}
