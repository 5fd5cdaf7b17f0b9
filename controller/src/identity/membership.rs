//! Whether an agent that proved who it is is still a proxy of its fleet.

use std::sync::Arc;
use std::time::Instant;

use push::identity::AgentIdentity;
use tokio::sync::watch;

use super::declared::Declared;
use super::presence::Presence;
use crate::pipeline::convert;

/// A certificate says what was true when it was signed. This says what is true now.
#[derive(Clone, Debug)]
pub struct Membership {
    declared: watch::Receiver<Arc<Declared>>,
    presence: Arc<Presence>,
}

impl Membership {
    /// As these have it.
    pub fn new(declared: watch::Receiver<Arc<Declared>>, presence: Arc<Presence>) -> Membership {
        Membership { declared, presence }
    }

    /// Whether its fleet is declared with a workload, a class names the fleet, and its pod is there.
    pub fn holds(&self, agent: &AgentIdentity, now: Instant) -> bool {
        let declared = self.declared.borrow();
        let declaration = declared.get(&convert::fleet_name(&agent.fleet));
        declaration.is_some_and(|declaration| declaration.workload.is_some() && declaration.consented)
            && self.presence.is_there(&agent.fleet.namespace, &agent.uid, now)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use push::identity::FleetId;
    use translate::FleetName;

    use super::super::declared::{Workload, WorkloadKind};
    use super::*;

    #[test]
    fn whoever_lost_its_pod_its_fleet_or_its_class_is_no_proxy_any_more() {
        let now = Instant::now();
        let fleet = FleetName::new("proxies", "edge");
        let workload = Some(Workload { kind: WorkloadKind::Deployment, name: "edge".to_owned() });
        let of = |workload: Option<Workload>, named: bool| {
            let named: BTreeSet<_> = named.then(|| fleet.clone()).into_iter().collect();
            Arc::new(Declared::new([(fleet.clone(), workload)], &named))
        };
        let sender = watch::Sender::new(of(workload.clone(), true));
        let presence = Arc::new(Presence::default());
        let membership = Membership::new(sender.subscribe(), Arc::clone(&presence));
        let agent = AgentIdentity::new(FleetId::new("proxies", "edge"), "edge-1", "u-1").expect("a valid name");
        assert!(!membership.holds(&agent, now), "nobody has seen its pod");
        presence.listed("proxies", ["u-1".to_owned()], now);
        assert!(membership.holds(&agent, now));
        sender.send_replace(of(workload.clone(), false));
        assert!(!membership.holds(&agent, now), "no class names the fleet any more");
        sender.send_replace(of(None, true));
        assert!(!membership.holds(&agent, now), "a fleet of a flag has no pods");
        sender.send_replace(Arc::default());
        assert!(!membership.holds(&agent, now), "the fleet is gone");
        sender.send_replace(of(workload, true));
        presence.went("proxies", "u-1");
        assert!(!membership.holds(&agent, now), "its pod is gone");
    }
}
