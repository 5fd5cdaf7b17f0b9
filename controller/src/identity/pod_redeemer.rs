//! Checks bound ServiceAccount tokens against the API server: one TokenReview, the pod, and its owners.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client};
use push::grpc::enrol;
use push::identity::{AgentIdentity, FleetId};
use tokio::sync::watch;
use zeroize::Zeroizing;

use super::bound_token::{self, AUDIENCE, Bound, Refusal};
use super::declared::{Declared, WorkloadKind};
use super::presence::Presence;
use crate::hub::Hub;
use crate::hub::names::Names;

/// How long the API server may take for all that one token needs.
const LIMIT: Duration = Duration::from_secs(5);
/// So many tokens are reviewed each second, and so many at once after a quiet time: the API server is not ours alone.
const REVIEWS_PER_SECOND: f64 = 100.0;
const REVIEWS_AT_ONCE: f64 = 200.0;
/// A token that was refused for what it is is not reviewed again for so long.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// The most refused tokens that are remembered.
const MOST_REFUSED: usize = 4_096;

/// Turns bound tokens into identities.
pub(crate) struct PodRedeemer {
    client: Client,
    declared: watch::Receiver<Arc<Declared>>,
    presence: Arc<Presence>,
    names: Arc<Names>,
    hub: Arc<Hub>,
    gate: Mutex<Gate>,
}

impl PodRedeemer {
    /// With a client whose service account may create TokenReviews, and get pods and the workloads of apps/v1.
    pub(crate) fn new(client: Client, presence: Arc<Presence>, names: Arc<Names>, hub: Arc<Hub>) -> PodRedeemer {
        let declared = hub.declared();
        PodRedeemer { client, declared, presence, names, hub, gate: Mutex::new(Gate::new(Instant::now())) }
    }

    async fn check(&self, token: &Zeroizing<String>) -> Result<AgentIdentity, Refusal> {
        let digest = blake3::hash(token.as_bytes());
        self.gate().pass(&digest, Instant::now())?;
        let bound = self.review(token).await.inspect_err(|refusal| {
            if refusal.is_of_the_token() {
                self.gate().refused(digest, *refusal, Instant::now());
            }
        })?;
        let agent = self.agent(&bound).await;
        if let Err(refusal) = &agent {
            let Bound { namespace, service_account, pod, uid, .. } = &bound;
            tracing::warn!(namespace, service_account, pod, uid, reason = %refusal, "a pod's enrolment was refused");
        }
        agent
    }

    async fn review(&self, token: &Zeroizing<String>) -> Result<Bound, Refusal> {
        let spec = TokenReviewSpec { audiences: Some(vec![AUDIENCE.to_owned()]), token: Some(String::clone(token)) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let review = api.create(&PostParams::default(), &review).await.map_err(unavailable)?;
        bound_token::bound(&review.status.ok_or(Refusal::Unavailable)?)
    }

    async fn agent(&self, bound: &Bound) -> Result<AgentIdentity, Refusal> {
        let namespace = &*bound.namespace;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pod = pods.get_opt(&bound.pod).await.map_err(unavailable)?;
        let mut owner = bound_token::controller_of(bound, pod.as_ref())?;
        if owner.kind == "ReplicaSet" {
            let replica_set = self.owner::<ReplicaSet>(namespace, &owner).await?;
            owner = bound_token::controller(&replica_set)?;
        }
        let kind = bound_token::workload_kind(&owner).ok_or(Refusal::NoWorkload)?;
        // Before the last request: most strangers end here.
        let fleet = bound_token::fleet(&self.declared.borrow(), namespace, kind, &owner.name)?;
        match kind {
            WorkloadKind::Deployment => self.owner::<Deployment>(namespace, &owner).await?,
            WorkloadKind::DaemonSet => self.owner::<DaemonSet>(namespace, &owner).await?,
            WorkloadKind::StatefulSet => self.owner::<StatefulSet>(namespace, &owner).await?,
        };
        let fleet = FleetId::new(&fleet.namespace, &fleet.name);
        AgentIdentity::new(fleet, &bound.pod, &bound.uid).map_err(|_| Refusal::NoPod)
    }

    /// The metadata of an owner, which has to be the very object that the reference means.
    async fn owner<K>(&self, namespace: &str, owner: &OwnerReference) -> Result<ObjectMeta, Refusal>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let found = api.get_metadata_opt(&owner.name).await.map_err(unavailable)?.ok_or(Refusal::NoWorkload)?;
        if found.metadata.uid.as_deref() != Some(&*owner.uid) || found.metadata.deletion_timestamp.is_some() {
            return Err(Refusal::NoWorkload);
        }
        Ok(found.metadata)
    }

    fn gate(&self) -> std::sync::MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unavailable(error: kube::Error) -> Refusal {
    // It names requests and statuses; tokens are only in bodies of requests.
    tracing::warn!(%error, "a token could not be checked");
    Refusal::Unavailable
}

impl enrol::Redeemer for PodRedeemer {
    async fn redeem(&self, token: Zeroizing<String>) -> Option<AgentIdentity> {
        let checked = tokio::time::timeout(LIMIT, self.check(&token)).await.unwrap_or(Err(Refusal::Unavailable));
        match checked {
            Ok(agent) => {
                self.hub.metrics().enrolment("enrolled");
                self.names.learn(&agent.uid, &agent.pod);
                self.presence.vouch(&agent.fleet.namespace, &agent.uid, Instant::now());
                Some(agent)
            }
            Err(refusal) => {
                self.hub.metrics().enrolment(refusal.label());
                tracing::debug!(reason = %refusal, "a token was refused");
                None
            }
        }
    }
}

/// What comes before any TokenReview.
struct Gate {
    left: f64,
    at: Instant,
    refused: HashMap<blake3::Hash, (Refusal, Instant)>,
}

impl Gate {
    fn new(now: Instant) -> Gate {
        Gate { left: REVIEWS_AT_ONCE, at: now, refused: HashMap::new() }
    }

    /// Whether this token is reviewed now.
    fn pass(&mut self, token: &blake3::Hash, now: Instant) -> Result<(), Refusal> {
        if let Some((refusal, until)) = self.refused.get(token)
            && now < *until
        {
            return Err(*refusal);
        }
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        (self.left, self.at) = ((self.left + since * REVIEWS_PER_SECOND).min(REVIEWS_AT_ONCE), now);
        if self.left < 1.0 {
            return Err(Refusal::Throttled);
        }
        self.left -= 1.0;
        Ok(())
    }

    fn refused(&mut self, token: blake3::Hash, refusal: Refusal, now: Instant) {
        if self.refused.len() >= MOST_REFUSED {
            self.refused.retain(|_, (_, until)| now < *until);
        }
        if self.refused.len() < MOST_REFUSED {
            self.refused.insert(token, (refusal, now + REFUSED_FOR));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_token_is_not_reviewed_again_for_a_while_and_reviews_are_paced() {
        let start = Instant::now();
        let mut gate = Gate::new(start);
        let token = |n: usize| blake3::hash(&n.to_le_bytes());
        assert_eq!(gate.pass(&token(0), start), Ok(()));
        gate.refused(token(0), Refusal::Audience, start);
        assert_eq!(gate.pass(&token(0), start + REFUSED_FOR / 2), Err(Refusal::Audience));
        assert_eq!(
            gate.pass(&token(0), start + REFUSED_FOR),
            Ok(()),
            "the clock of the API server may have been wrong"
        );
        let later = start + REFUSED_FOR * 2;
        let passed = (0..1_000).filter(|n| gate.pass(&token(*n), later).is_ok()).count();
        assert_eq!(passed, 200, "a crowd at one moment");
        assert_eq!(gate.pass(&token(0), later), Err(Refusal::Throttled));
        assert_eq!(gate.pass(&token(0), later + Duration::from_millis(11)), Ok(()));
    }

    #[test]
    fn what_is_remembered_of_refused_tokens_is_bounded() {
        let start = Instant::now();
        let mut gate = Gate::new(start);
        for n in 0..2 * MOST_REFUSED {
            gate.refused(blake3::hash(&n.to_le_bytes()), Refusal::NotAuthenticated, start);
        }
        assert_eq!(gate.refused.len(), MOST_REFUSED);
        gate.refused(blake3::hash(b"later"), Refusal::NotAuthenticated, start + REFUSED_FOR);
        assert_eq!(gate.refused.len(), 1);
    }
}
