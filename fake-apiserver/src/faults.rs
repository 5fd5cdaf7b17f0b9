//! What goes wrong on purpose, set by a test while requests come in.

use crate::request::Verb;
use crate::status::Failure;

/// What a fault does to a request that it meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It is answered with this status code and, if there is one, `Retry-After` in seconds. Nothing is done.
    Refuse(u16, Option<u32>),
    /// It waits for so many milliseconds first.
    Delay(u64),
    /// It is not answered while the fault is there, and then as if nothing had been.
    Hang,
    /// A list is answered empty, with the version of the present.
    EmptyList,
    /// It is done, but the connection ends without an answer.
    LoseAnswer,
}

/// A fault and which requests it meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Only this verb; None for all.
    pub verb: Option<Verb>,
    /// Only this resource, such as `ingresses.networking.k8s.io`; None for all.
    pub resource: Option<String>,
    /// Only so many requests; None for all until it is removed. A hang does not count.
    pub times: Option<u32>,
    /// What it does.
    pub what: What,
}

impl Fault {
    /// A fault of every request until it is removed.
    pub fn of_all(what: What) -> Fault {
        Fault { verb: None, resource: None, times: None, what }
    }

    /// A fault of one resource until it is removed.
    pub fn of(resource: &str, what: What) -> Fault {
        Fault { resource: Some(resource.to_owned()), ..Fault::of_all(what) }
    }

    /// The same for one verb only.
    pub fn verb(self, verb: Verb) -> Fault {
        Fault { verb: Some(verb), ..self }
    }

    /// The same for the next request only.
    pub fn once(self) -> Fault {
        Fault { times: Some(1), ..self }
    }
}

/// Names a fault, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

/// The faults that there are.
#[derive(Debug, Default)]
pub struct Faults {
    faults: Vec<(FaultId, Fault)>,
    next: u64,
    paused: bool,
}

/// What the faults that a request has met make of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Met {
    met: Vec<FaultId>,
    pub(crate) refusal: Option<Failure>,
    pub(crate) empty: bool,
    pub(crate) lost: bool,
}

/// How a request goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is answered now.
    Go,
    /// It asks again after so many milliseconds.
    After(u64),
    /// It asks again when anything has changed.
    Hold,
}

impl Faults {
    /// Adds one. Of several that meet a request the oldest acts first.
    pub fn add(&mut self, fault: Fault) -> FaultId {
        self.next += 1;
        self.faults.push((FaultId(self.next), fault));
        FaultId(self.next)
    }

    /// Removes one; says whether it was still there.
    pub fn remove(&mut self, id: FaultId) -> bool {
        let before = self.faults.len();
        self.faults.retain(|(one, _)| *one != id);
        self.faults.len() < before
    }

    /// Removes all, and resumes.
    pub fn clear(&mut self) {
        self.faults.clear();
        self.paused = false;
    }

    /// Stops all answers and all watches, with their connections open, until [`Faults::resume`].
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Goes on: requests that came meanwhile are answered, and watches catch up.
    pub fn resume(&mut self) {
        self.paused = false;
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(crate) fn admit(&mut self, verb: Verb, resource: &str, met: &mut Met) -> Admission {
        if self.paused {
            return Admission::Hold;
        }
        let mut admission = Admission::Go;
        for (id, fault) in &mut self.faults {
            let meant = fault.verb.is_none_or(|one| one == verb)
                && fault.resource.as_ref().is_none_or(|one| one == resource)
                && (fault.what != What::EmptyList || verb == Verb::List);
            if !meant || fault.times == Some(0) || met.met.contains(id) {
                continue;
            }
            if fault.what != What::Hang {
                met.met.push(*id);
                fault.times = fault.times.map(|times| times - 1);
            }
            match fault.what {
                What::Refuse(code, retry_after) => met.refusal = Some(Failure::injected(code, retry_after, resource)),
                What::EmptyList => met.empty = true,
                What::LoseAnswer => met.lost = true,
                What::Delay(milliseconds) => admission = Admission::After(milliseconds),
                What::Hang => admission = Admission::Hold,
            }
            if admission != Admission::Go || met.refusal.is_some() {
                break;
            }
        }
        self.faults.retain(|(_, fault)| fault.times != Some(0));
        admission
    }
}

#[cfg(test)]
mod tests {
    use super::{Admission, Fault, Faults, Met, What};
    use crate::request::Verb;

    #[test]
    fn a_fault_meets_only_what_it_names_and_only_so_often() {
        let mut faults = Faults::default();
        faults.add(Fault::of("secrets", What::Refuse(403, None)).verb(Verb::List).once());
        let mut code = |verb, resource| {
            let mut met = Met::default();
            faults.admit(verb, resource, &mut met);
            met.refusal.map(|failure| failure.code)
        };
        assert_eq!(code(Verb::Get, "secrets"), None);
        assert_eq!(code(Verb::List, "pods"), None);
        assert_eq!(code(Verb::List, "secrets"), Some(403));
        assert_eq!(code(Verb::List, "secrets"), None, "it was for once");
    }

    #[test]
    fn a_request_that_was_delayed_once_goes_on() {
        let mut faults = Faults::default();
        faults.add(Fault::of_all(What::Delay(5)));
        let hang = faults.add(Fault::of_all(What::Hang));
        let mut met = Met::default();
        assert_eq!(faults.admit(Verb::Get, "pods", &mut met), Admission::After(5));
        assert_eq!(faults.admit(Verb::Get, "pods", &mut met), Admission::Hold);
        assert_eq!(faults.admit(Verb::Get, "pods", &mut met), Admission::Hold);
        faults.remove(hang);
        assert_eq!(faults.admit(Verb::Get, "pods", &mut met), Admission::Go);
    }
}
