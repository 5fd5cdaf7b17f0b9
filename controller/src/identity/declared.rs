//! Which fleets are declared, by what, and whether a class consents: what decides whether a pod may have an identity.

use std::collections::{BTreeMap, BTreeSet};

pub use translate::objects::{Workload, WorkloadKind};
use translate::{FleetName, World};

/// Every fleet that is declared. A fleet that is not among them is none, and its pods are nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// By name.
    pub fleets: BTreeMap<FleetName, Declaration>,
}

/// What is declared about one fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declaration {
    /// The workload that its pods must belong to, in the namespace of the fleet (`ProxyFleet.spec.workload`). None: the fleet is
    /// declared by a flag, which names no workload.
    pub workload: Option<Workload>,
    /// Whether a class of ours names the fleet, or means it by having no parameters. Without consent it receives nothing.
    pub consented: bool,
}

impl Declared {
    /// Of fleets with their workloads, and of the fleets that classes name. A name that only a class gives declares nothing.
    pub fn new(
        fleets: impl IntoIterator<Item = (FleetName, Option<Workload>)>,
        named_by_classes: &BTreeSet<FleetName>,
    ) -> Declared {
        let declaration = |(name, workload)| {
            let consented = named_by_classes.contains(&name);
            (name, Declaration { workload, consented })
        };
        Declared { fleets: fleets.into_iter().map(declaration).collect() }
    }

    /// What a world declares.
    pub fn of(world: &World) -> Declared {
        Declared::new(world.fleets(), &world.fleets_named_by_classes())
    }

    /// Whether a change of an object of this kind may change what is declared.
    pub fn depends_on(kind: &str) -> bool {
        matches!(kind, "ProxyFleet" | "IngressClass" | "GatewayClass")
    }

    /// What is declared about a fleet, if it is one.
    pub fn get(&self, name: &FleetName) -> Option<&Declaration> {
        self.fleets.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_consents_to_a_fleet_and_declares_none() {
        let [edge, idle, dream] = ["edge", "idle", "dream"].map(|name| FleetName::new("proxies", name));
        let workload = Workload { kind: WorkloadKind::DaemonSet, name: "edge".to_owned() };
        let fleets = [(edge.clone(), Some(workload.clone())), (idle.clone(), None)];
        let declared = Declared::new(fleets, &BTreeSet::from([edge.clone(), dream.clone()]));
        assert_eq!(declared.get(&edge), Some(&Declaration { workload: Some(workload), consented: true }));
        assert_eq!(declared.get(&idle), Some(&Declaration { workload: None, consented: false }));
        assert_eq!(declared.get(&dream), None, "no object and no flag makes it a fleet");
    }
}
