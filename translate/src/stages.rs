//! What the units have made so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::FleetName;
use crate::backend::BackendState;
use crate::certificate::CertificateState;
use crate::claims::{Certificates, Claimant, Claims, Contender, HostKey, PathSlot};
use crate::fleet::FleetState;
use crate::host::HostState;
use crate::objects::NamespacedName;
use crate::output::Output;
use crate::parse::Parsed;
use crate::table::Table;
use crate::tls::TlsChoices;
use crate::view::Key;

/// The results of all units.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stages {
    /// Every fleet that is declared.
    pub(crate) fleets: Table<FleetName, FleetState>,
    /// Everything of one Ingress stands in one place, so that a change of it looks for it once.
    pub(crate) ingresses: Table<NamespacedName, IngressStages>,
    pub(crate) backends: Table<NamespacedName, BackendState>,
    pub(crate) certificates: Table<NamespacedName, CertificateState>,
    pub(crate) claims: Claims,
    pub(crate) hosts: Table<HostKey, Arc<HostState>>,
}

/// What the units of one Ingress have made.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct IngressStages {
    pub(crate) parsed: Option<Arc<Parsed>>,
    pub(crate) tls: Option<Arc<TlsChoices>>,
    pub(crate) output: Option<Arc<Output>>,
    /// What stands in the indexes of claims: all that [`Registration::new`] makes of these.
    pub(crate) registered: Option<(Arc<Parsed>, Option<Arc<TlsChoices>>)>,
    /// What its units declare to read, as far as that is indexed, sorted: to parse, for certificates, for its output.
    pub(crate) reads: [Box<[Key]>; 3],
}

/// What an Ingress has in the indexes of claims.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Registration {
    pub(crate) hosts: BTreeMap<HostKey, (Claimant, Certificates)>,
    /// Sorted, each once.
    pub(crate) slots: Vec<(PathSlot, Contender)>,
}

impl Registration {
    /// What an Ingress claims, given what it asks for and brings.
    pub(crate) fn new(parsed: &Parsed, choices: Option<&TlsChoices>) -> Registration {
        let hosts = parsed.hosts().filter_map(|key| {
            let claim = parsed.domains.get(&key.domain)?;
            let certificates = choices.and_then(|choices| choices.certificates.get(&key.domain)).cloned();
            Some((key, (parsed.claimant(claim), certificates)))
        });
        let mut slots: Vec<_> = parsed.slots().collect();
        slots.sort_unstable();
        slots.dedup();
        Registration { hosts: hosts.collect(), slots }
    }
}

impl Stages {
    pub(crate) fn parsed(&self, key: &NamespacedName) -> Option<&Arc<Parsed>> {
        self.ingresses.get(key)?.parsed.as_ref()
    }

    pub(crate) fn tls(&self, key: &NamespacedName) -> Option<&Arc<TlsChoices>> {
        self.ingresses.get(key)?.tls.as_ref()
    }

    /// The Ingresses of ours, sorted.
    pub(crate) fn ours(&self) -> impl Iterator<Item = (&NamespacedName, &Arc<Parsed>)> {
        self.ingresses.sorted().into_iter().filter_map(|(key, stages)| Some((key, stages.parsed.as_ref()?)))
    }
}
