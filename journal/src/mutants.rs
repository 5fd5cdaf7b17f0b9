//! Bugs of other products, planted in our own code, to prove that our tests would catch them.
//!
//! Without the feature `mutants`, [`active`] is `false` at compile time and nothing of this is left in a program. With
//! it, one bug at a time can be switched on for the thread that asks. Only the simulation does.

/// A planted bug: the public bug that it recreates, and what it does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// nginx/nginx-gateway-fabric#5334: what was sent counts as applied, so a failed apply is never repeated.
    SentIsApplied,
    /// istio/istio#21111: bytes that an agent refused for good are sent to it again at once.
    RefusedIsSentAgain,
    /// The class of jepsen's etcd analysis and of kube-leader-election's patch without a precondition: a deposed
    /// leader's pushes are applied.
    NoFence,
    /// projectcontour/contour#1280, apisix#2489: configuration is published
    /// before everything was listed.
    PublishedBeforeTheList,
    /// kubernetes/ingress-nginx#2195, Kong/kubernetes-ingress-controller#4207: a list that shows almost
    /// nothing empties the proxies.
    ShrunkenListIsBelieved,
    /// kumahq/kuma#14912: a half-open connection is waited on for ever.
    SilenceIsIgnored,
    /// Envoy Gateway CVE-2026-53719: one object that cannot be used stops publication for all.
    PoisonIsNotSetAside,
    /// istio/istio#41494, kmesh-net/kmesh#415: a removal never reaches the proxies.
    RemovalIsLost,
    /// istio/istio#14349: endpoints wait behind configuration.
    MembersWaitForConfiguration,
    /// The class of a half-written state that is loaded after a restart: a commit counts without its acceptance.
    CommitCountsAsAccepted,
    /// envoyproxy/envoy#33607: a key that is missing is never asked for, so its listener cannot come to life.
    MissingKeyIsNotAskedFor,
}

impl Mutant {
    /// Every planted bug.
    pub const ALL: [Mutant; 11] = [
        Mutant::SentIsApplied,
        Mutant::RefusedIsSentAgain,
        Mutant::NoFence,
        Mutant::PublishedBeforeTheList,
        Mutant::ShrunkenListIsBelieved,
        Mutant::SilenceIsIgnored,
        Mutant::PoisonIsNotSetAside,
        Mutant::RemovalIsLost,
        Mutant::MembersWaitForConfiguration,
        Mutant::CommitCountsAsAccepted,
        Mutant::MissingKeyIsNotAskedFor,
    ];
}

#[cfg(feature = "mutants")]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Switches a bug on for this thread, or all off.
#[cfg(feature = "mutants")]
pub fn activate(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}

/// Whether this bug is on.
#[cfg(feature = "mutants")]
pub fn active(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// Whether this bug is on: never, in a program that is not built to test tests.
#[cfg(not(feature = "mutants"))]
#[inline]
pub const fn active(_: Mutant) -> bool {
    false
}
