//! What is known of objects and agents, and what is said of it: statuses, events, log lines.
//!
//! Findings come from the translation, verdicts from the agents. An agent has an object live when it applied the
//! generation that brought its present bytes, or a later one, and does not list any resource of it as not live.

mod agents;
mod events;
pub(crate) mod fleet_status;
mod objects;
mod status;
mod stream;
pub mod writer;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use config::{Kind, Name, ObjectRef, ResourceId};
use translate::few::Set;
use translate::{BackendRef, Change, Delta, Draft, FleetName, Members, ObjectId};

pub use agents::{Agent, AgentNews, Refusal};
pub use events::{Event, EventType};
pub use status::StatusDocument;
pub use stream::Stream;

use crate::watch::directory::{FileFinding, shown};

/// Kinds that are always in the status document, whether they are ours or not.
const LISTED_KINDS: [&str; 7] = ["Ingress", "Gateway", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"];

/// What a fleet has published.
#[derive(Clone, Debug, Default)]
pub struct FleetReport {
    /// The present epoch and generation.
    pub version: push::Version,
    /// The root of the present configuration, in short form for people.
    pub root: String,
    /// The member version.
    pub member_version: u64,
    /// Its agents, by name.
    pub agents: BTreeMap<String, Agent>,
    /// Where the connected ones of them stand.
    standing: agents::Standing,
    /// Resources that killed a proxy and are claims only, by `kind/name`.
    pub condemned: BTreeMap<String, BTreeSet<ObjectRef>>,
    /// Of those, whose proxy they stopped.
    pub stopped: BTreeMap<String, String>,
    /// For each generation that not every agent has: the objects that it changed.
    waiting: BTreeMap<u64, Waiting>,
}

impl FleetReport {
    /// Whether a resource killed a proxy and is claims only.
    fn is_condemned(&self, id: &ResourceId) -> bool {
        // Mostly none is, and then its name need not be written out.
        !self.condemned.is_empty() && self.condemned.contains_key(&id.to_string())
    }
}

#[derive(Clone, Debug, Default)]
struct Waiting {
    published_at_us: u64,
    objects: BTreeSet<ObjectId>,
}

/// Everything that is known.
#[derive(Clone, Debug, Default)]
pub struct Report {
    drafts: BTreeMap<ObjectId, Arc<Draft>>,
    /// Objects in force, of all kinds.
    in_force: BTreeSet<ObjectId>,
    objects_by_kind: BTreeMap<String, usize>,
    /// Objects whose last change the translation could not take.
    faults: BTreeSet<ObjectId>,
    backends: BTreeMap<BackendRef, Members>,
    /// Findings of files, by the path relative to the folder.
    files: BTreeMap<String, Vec<FileFinding>>,
    /// Files with a finding about an object.
    files_about: BTreeMap<ObjectId, BTreeSet<String>>,
    /// For each resource, the objects that need it. Only looked up.
    users: HashMap<(FleetName, ResourceId), Set<ObjectId>>,
    fleets: BTreeMap<FleetName, FleetReport>,
    /// Every ProxyFleet in force, with the generation of its spec.
    proxy_fleets: BTreeMap<ObjectId, i64>,
    held: Option<String>,
    /// The stream that ended last did so because its agent did not answer.
    lost_in_silence: bool,
    /// Raised by everything above.
    revision: u64,
}

impl Report {
    /// How often something changed.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Why the world is held, if it is.
    pub fn held(&self) -> Option<&str> {
        self.held.as_deref()
    }

    /// The fleets.
    pub fn fleets(&self) -> &BTreeMap<FleetName, FleetReport> {
        &self.fleets
    }

    /// Whether any agent has a stream.
    pub fn is_anyone_connected(&self) -> bool {
        self.fleets.values().any(|fleet| !fleet.standing.is_empty())
    }

    /// Whether nobody has a stream, and the last to have one did not end it: as when the network to all of them is cut.
    pub fn is_cut_off(&self) -> bool {
        self.lost_in_silence && !self.is_anyone_connected()
    }

    /// How many objects of each kind are in force.
    pub fn objects_by_kind(&self) -> &BTreeMap<String, usize> {
        &self.objects_by_kind
    }

    /// How many findings there are now, by reason.
    pub fn findings_by_reason(&self) -> BTreeMap<&'static str, usize> {
        let of_objects = self.drafts.values().flat_map(|draft| draft.findings.iter().map(|f| f.reason));
        let of_files = self.files.values().flatten().map(|f| f.reason);
        let mut counts = BTreeMap::new();
        for reason in of_objects.chain(of_files) {
            *counts.entry(reason).or_default() += 1;
        }
        counts
    }

    /// Notes why the world is held, or that it is not any more.
    pub fn set_held(&mut self, held: Option<String>) {
        if self.held == held {
            return;
        }
        match &held {
            Some(why) => tracing::warn!(why, "the world is held"),
            None => tracing::info!("the world is not held any more"),
        }
        self.held = held;
        self.revision += 1;
    }

    /// Notes what came into force, and of which objects the translation could not take the change.
    pub fn changed(&mut self, changes: &[Change], faults: &[ObjectId]) {
        for change in changes {
            let Some(id) = crate::pipeline::subject(change) else { continue };
            self.faults.remove(&id);
            if !self.objects_by_kind.contains_key(id.kind()) {
                self.objects_by_kind.insert(id.kind().to_owned(), 0);
            }
            let Some(count) = self.objects_by_kind.get_mut(id.kind()) else { continue };
            match change {
                Change::Put(object) if id.kind() == "ProxyFleet" => {
                    self.proxy_fleets.insert(id.clone(), object.metadata().generation);
                }
                _ => drop(self.proxy_fleets.remove(&id)),
            }
            if matches!(change, Change::Put(_)) {
                *count += usize::from(self.in_force.insert(id));
            } else {
                *count -= usize::from(self.in_force.remove(&id));
            }
            self.revision += 1;
        }
        self.faults.extend(faults.iter().cloned());
    }

    /// Notes what the translation says now.
    pub fn translated(&mut self, delta: &Delta) {
        let talk = delta.drafts.len() <= objects::TALK;
        for (reference, draft) in &delta.drafts {
            let old = match draft {
                Some(draft) => self.drafts.insert(reference.clone(), Arc::clone(draft)),
                None => self.drafts.remove(reference),
            };
            self.relink(reference, old.as_deref(), draft.as_deref());
            if talk {
                objects::log_draft(reference, old.as_deref(), draft.as_deref());
            }
        }
        if !talk {
            let refused = delta.drafts.values().flatten().filter(|d| d.served != translate::Served::Full).count();
            tracing::info!(objects = delta.drafts.len(), not_fully_served = refused, "statuses changed");
        }
        for (backend, members) in &delta.backends {
            match members {
                Some(members) => self.backends.insert(backend.clone(), Arc::clone(members)),
                None => self.backends.remove(backend),
            };
        }
        if !delta.is_empty() {
            self.revision += 1;
        }
    }

    fn relink(&mut self, object: &ObjectId, old: Option<&Draft>, new: Option<&Draft>) {
        if let (Some(old), Some(new)) = (old, new)
            && old.resources == new.resources
        {
            return;
        }
        for key in old.iter().flat_map(|draft| &draft.resources) {
            if let Some(users) = self.users.get_mut(key) {
                users.remove(object);
                if users.is_empty() {
                    self.users.remove(key);
                }
            }
        }
        for key in new.iter().flat_map(|draft| &draft.resources) {
            self.users.entry(key.clone()).or_default().insert(object.clone(), ());
        }
    }

    /// Notes what is wrong with files now.
    pub fn files(&mut self, findings: Vec<(std::path::PathBuf, Vec<FileFinding>)>) {
        for (path, findings) in findings {
            let path = shown(&path);
            let old = self.files.get(&path).cloned().unwrap_or_default();
            if old == findings {
                continue;
            }
            for object in old.iter().filter_map(|f| f.object.as_ref()) {
                let object = ObjectId::from(object);
                if let Some(paths) = self.files_about.get_mut(&object) {
                    paths.remove(&path);
                    if paths.is_empty() {
                        self.files_about.remove(&object);
                    }
                }
            }
            for finding in &findings {
                if !old.contains(finding) {
                    let FileFinding { document, line, reason, message, .. } = finding;
                    tracing::warn!(file = %path, document, line, reason, "{message}");
                }
                if let Some(object) = &finding.object {
                    self.files_about.entry(object.into()).or_default().insert(path.clone());
                }
            }
            if findings.is_empty() {
                tracing::info!(file = %path, "the file has no findings any more");
                self.files.remove(&path);
            } else {
                self.files.insert(path, findings);
            }
            self.revision += 1;
        }
    }

    /// A fleet from now on.
    pub fn begin_fleet(&mut self, name: &FleetName, version: push::Version) {
        self.revision += 1;
        self.fleets.insert(name.clone(), FleetReport { version, ..FleetReport::default() });
    }

    /// No fleet from now on. What its agents say after that is about nothing.
    pub fn end_fleet(&mut self, name: &FleetName) {
        self.revision += 1;
        self.fleets.remove(name);
        // They are told to go, so that nobody is there any more is no sign of a cut network.
        self.lost_in_silence = false;
    }

    /// What is in a fleet, if it is one.
    pub fn fleet_mut(&mut self, name: &FleetName) -> Option<&mut FleetReport> {
        self.revision += 1;
        self.fleets.get_mut(name)
    }

    /// Notes a publication. `objects` are those that it changed.
    pub fn published(
        &mut self,
        name: &FleetName,
        published: &push::fleet::Published,
        now_us: u64,
        objects: BTreeSet<ObjectId>,
    ) {
        let Some(fleet) = self.fleet_mut(name) else { return };
        let grew = published.version > fleet.version;
        if published.version.epoch != fleet.version.epoch {
            // Generations begin anew.
            fleet.waiting.clear();
        }
        fleet.version = published.version;
        fleet.root = published.root.short();
        fleet.member_version = published.member_version;
        if grew && !objects.is_empty() {
            fleet.waiting.insert(published.version.generation, Waiting { published_at_us: now_us, objects });
            while fleet.waiting.len() > objects::GENERATIONS {
                fleet.waiting.pop_first();
            }
        }
    }

    /// The objects that need a resource (`kind/name`) of a fleet.
    pub fn users_of(&self, fleet: &FleetName, resource: &str) -> BTreeSet<ObjectId> {
        let id = resource.split_once('/').and_then(|(kind, name)| {
            let kind: Kind = kind.parse().ok()?;
            Some(ResourceId { kind, name: Name::from_wire(name) })
        });
        id.into_iter().flat_map(|id| self.users(fleet, &id)).cloned().collect()
    }

    fn users<'a>(&'a self, fleet: &FleetName, resource: &ResourceId) -> impl Iterator<Item = &'a ObjectId> + use<'a> {
        self.users.get(&(fleet.clone(), resource.clone())).into_iter().flat_map(Set::keys)
    }

    /// Objects that a change of these resources changes.
    pub fn objects_of<'a>(
        &self,
        fleet: &FleetName,
        resources: impl IntoIterator<Item = &'a ResourceId>,
    ) -> BTreeSet<ObjectId> {
        resources.into_iter().flat_map(|id| self.users(fleet, id)).cloned().collect()
    }
}
