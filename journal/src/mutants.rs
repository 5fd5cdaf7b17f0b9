//! Bugs of other products, planted in our own code, to prove that our tests would catch them.
//!
//! Without the feature `mutants`, [`active`] is `false` at compile time and nothing of this is left in a program. With
//! it, one bug at a time can be switched on for the thread that asks. Only `e2e` does; `cargo xtask tidy` sees to that.

/// Names the planted bugs once, for the type and for [`Mutant::ALL`].
macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A planted bug: the public bug that it recreates, and what it does here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[$doc])* $name,)*
        }

        impl Mutant {
            /// Every planted bug.
            pub const ALL: &[Mutant] = &[$(Mutant::$name,)*];
        }
    };
}

mutants! {
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
    /// istio/istio#41494: a removal never reaches the proxies.
    RemovalIsLost,
    /// kmesh-net/kmesh#415: what went while an agent was away stays with it.
    RemovalWhileAwayIsLost,
    /// istio/istio#14349: endpoints wait behind configuration.
    MembersWaitForConfiguration,
    /// The class of a half-written state that is loaded after a restart: a commit counts without its acceptance.
    CommitCountsAsAccepted,
    /// The class of a log that is rewritten in the background: what is appended meanwhile is not in the new one.
    RewriteForgetsWhatCame,
    /// envoyproxy/envoy#33607: a key that is missing is never asked for, so its listener cannot come to life.
    MissingKeyIsNotAskedFor,
    /// envoyproxy/envoy#47309: a listener goes live before its key is there.
    KeyIsNotWaitedFor,
    /// istio/istio#28261: a push does not wait for the answer to the one before.
    NoBackPressure,
    /// istio/istio#35263: after a failover everybody is brought up at once.
    HerdIsLetIn,
    /// istio/istio#49929: ready while there is no configuration.
    ReadyWhileEmpty,
    /// nginx/nginx-gateway-fabric#4697: applied is said whatever the proxy answered.
    RefusedByTheProxyIsApplied,
    /// NGINX Gateway Fabric's deployment lock: nobody else is served until an agent has answered.
    LockedUntilAnswered,
    /// nginx/nginx-gateway-fabric#5356: a new leader removes what it does not know yet.
    HandoverForgetsWhatWasThere,
    /// apache/apisix-ingress-controller#2774: a new leader takes the proxies to be where it is itself.
    NewLeaderKeepsItsBaseline,
    /// client-go's leader election: whoever takes the lease again does so under the same number of transitions.
    SameEpochAgain,
    /// kube-leader-election: a lease is over when the time that stands in it is, by the clock of whoever looks.
    LeaseByWallClock,
    /// kube-leader-election: the lease is written by a merge patch, without the version that was read.
    LeaseWithoutVersion,
    /// The class of a leader that looks at its lease only when it renews it: it acts though the renewal is overdue.
    LeadsPastItsDeadline,
    /// The class of a warm standby: a new leader publishes what its watches have shown so far.
    StaleFollowerPublishes,
    /// nginx CVE-2026-96615: an agent says itself which fleet it belongs to.
    FleetFromTheRequest,
    /// Envoy Gateway CVE-2026-53714: only one method asks who calls.
    OneMethodIsGuarded,
    /// kgateway GHSA-4766-x535-jw3r: nobody asks who calls.
    NobodyIsAsked,
    /// envoyproxy/go-control-plane#1356: what could not be sent at once is forgotten until something changes.
    UnansweredIsForgotten,
    /// envoyproxy/go-control-plane#1498: a message that was made for an earlier state is sent for the present one.
    SupersededIsSent,
    /// envoyproxy/go-control-plane#526: routes come before the members that they lead to.
    RoutesBeforeMembers,
    /// The xDS protocol's make before break: members go while routes still lead to them.
    BreakBeforeMake,
    /// gRPC proposal A46: one resource that cannot be used makes an agent refuse all of them.
    OneBadRefusesAll,
    /// kgateway-dev/kgateway#14264: what was refused once is never tried again, even mended.
    NoRecoveryAfterTheFix,
    /// kumahq/kuma#18329: an agent of another protocol is accepted and hears nothing.
    OtherProtocolIsAccepted,
    /// ingress-nginx CVE-2025-24513: text from outside becomes a file name.
    TextBecomesAFileName,
    /// Traefik CVE-2024-45410: a client removes the proxy's own headers by naming them in Connection.
    ConnectionTakesOurHeaders,
}

#[cfg(feature = "mutants")]
mod switch {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
        static HELD: Cell<bool> = const { Cell::new(false) };
        static ASKED: Cell<u64> = const { Cell::new(0) };
    }

    /// Switches a bug on for this thread, or all off.
    pub fn activate(mutant: Option<Mutant>) {
        ACTIVE.set(mutant);
        HELD.set(false);
        ASKED.set(0);
    }

    /// How often the code with the bug was reached since it was switched on.
    pub fn asked() -> u64 {
        ASKED.get()
    }

    /// Whether this bug is on.
    pub fn active(mutant: Mutant) -> bool {
        let active = ACTIVE.get() == Some(mutant);
        if active {
            ASKED.set(ASKED.get() + 1);
        }
        active
    }

    /// The one lock of a planted bug; given back when dropped.
    #[derive(Debug)]
    pub struct Held(bool);

    impl Drop for Held {
        fn drop(&mut self) {
            if self.0 {
                HELD.set(false);
            }
        }
    }

    /// The lock, if nobody has it; without the bug there is none to wait for.
    pub fn hold(mutant: Mutant) -> Option<Held> {
        if !active(mutant) {
            return Some(Held(false));
        }
        (!HELD.replace(true)).then(|| Held(true))
    }
}

#[cfg(feature = "mutants")]
pub use switch::{Held, activate, active, asked, hold};

/// Whether this bug is on: never, in a program that is not built to test tests.
#[cfg(not(feature = "mutants"))]
#[inline]
pub const fn active(_: Mutant) -> bool {
    false
}

/// The lock of a planted bug, which nobody waits for here.
#[cfg(not(feature = "mutants"))]
#[derive(Debug)]
pub struct Held;

/// The lock: always to be had, in a program that is not built to test tests.
#[cfg(not(feature = "mutants"))]
#[inline]
pub const fn hold(_: Mutant) -> Option<Held> {
    Some(Held)
}
