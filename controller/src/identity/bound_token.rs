//! Whom a bound ServiceAccount token proves: what the API server said of it, its pod and its owners in, a fleet or a refusal out.
//!
//! The checks are those of the protocol, in its order, and each doubt is a refusal (KEP-1205, KEP-4193; TokenReview v1).

use k8s_openapi::api::authentication::v1::TokenReviewStatus;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use translate::FleetName;

use super::declared::{Declared, WorkloadKind};

/// The audience that an agent's token must be for. A token for the API server, or for somebody else, proves nobody here.
pub const AUDIENCE: &str = "scalws.io/agent";

/// What the API server puts into the extra values of a token's user.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Why a token proves nobody. The words are fixed, and the caller hears none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message says it")]
pub enum Refusal {
    #[error("the API server does not know the token, or it has expired")]
    NotAuthenticated,
    #[error("the token is not for the audience {AUDIENCE}")]
    Audience,
    #[error("the token is not of a service account")]
    NotServiceAccount,
    #[error("the token is not bound to a pod")]
    NotPodBound,
    #[error("there is no pod of this name and UID")]
    NoPod,
    #[error("the pod has ended or is ending")]
    PodEnded,
    #[error("the pod runs as another service account")]
    OtherServiceAccount,
    #[error("the pod runs on another node")]
    OtherNode,
    #[error("no Deployment, DaemonSet or StatefulSet controls the pod")]
    NoWorkload,
    #[error("no ProxyFleet in the pod's namespace declares its workload")]
    NotDeclared,
    #[error("several ProxyFleets declare the pod's workload")]
    Ambiguous,
    #[error("no IngressClass or GatewayClass names the fleet in its parameters")]
    NoConsent,
    #[error("too many tokens were presented; this one was not looked at")]
    Throttled,
    #[error("the API server gave no usable answer in time")]
    Unavailable,
}

impl Refusal {
    /// The value of the label `result` in the metrics.
    pub fn label(self) -> &'static str {
        match self {
            Refusal::NotAuthenticated => "not_authenticated",
            Refusal::Audience => "audience",
            Refusal::NotServiceAccount => "not_service_account",
            Refusal::NotPodBound => "not_pod_bound",
            Refusal::NoPod => "no_pod",
            Refusal::PodEnded => "pod_ended",
            Refusal::OtherServiceAccount => "other_service_account",
            Refusal::OtherNode => "other_node",
            Refusal::NoWorkload => "no_workload",
            Refusal::NotDeclared => "not_declared",
            Refusal::Ambiguous => "ambiguous",
            Refusal::NoConsent => "no_consent",
            Refusal::Throttled => "throttled",
            Refusal::Unavailable => "unavailable",
        }
    }

    /// Whether the same token will be refused again, whatever happens in the cluster.
    pub fn is_of_the_token(self) -> bool {
        use Refusal::{Audience, NotAuthenticated, NotPodBound, NotServiceAccount};
        matches!(self, NotAuthenticated | Audience | NotServiceAccount | NotPodBound)
    }
}

/// What a token says that the API server vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The namespace of the service account, and so of the pod.
    pub namespace: String,
    /// The service account.
    pub service_account: String,
    /// The pod.
    pub pod: String,
    /// Its UID.
    pub uid: String,
    /// Its node; API servers before 1.30 do not say it.
    pub node: Option<String>,
}

/// Reads the answer to a TokenReview with our audience.
///
/// # Errors
/// When it does not vouch for a token of ours that is bound to a pod.
pub fn bound(status: &TokenReviewStatus) -> Result<Bound, Refusal> {
    if status.authenticated != Some(true) || status.error.as_ref().is_some_and(|error| !error.is_empty()) {
        return Err(Refusal::NotAuthenticated);
    }
    // An authenticator that knows nothing of audiences leaves this empty: the token is then for the API server.
    if !status.audiences.iter().flatten().any(|audience| audience == AUDIENCE) {
        return Err(Refusal::Audience);
    }
    let user = status.user.as_ref().ok_or(Refusal::NotServiceAccount)?;
    let name = user.username.as_deref().and_then(|name| name.strip_prefix("system:serviceaccount:"));
    let (namespace, service_account) = name.and_then(|name| name.split_once(':')).ok_or(Refusal::NotServiceAccount)?;
    if !is_name(namespace) || !is_name(service_account) {
        return Err(Refusal::NotServiceAccount);
    }
    let extra = |key: &str| match user.extra.as_ref()?.get(key)?.as_slice() {
        [value] if is_name(value) => Some(value.clone()),
        _ => None,
    };
    let (pod, uid) = extra(POD_NAME).zip(extra(POD_UID)).ok_or(Refusal::NotPodBound)?;
    let (namespace, service_account) = (namespace.to_owned(), service_account.to_owned());
    Ok(Bound { namespace, service_account, pod, uid, node: extra(NODE_NAME) })
}

/// Whether the pod, as the API server has it now, is the one that the token is bound to, and alive. Gives its controller.
///
/// # Errors
/// When it is another one, none, or on its way out.
pub fn controller_of(bound: &Bound, pod: Option<&Pod>) -> Result<OwnerReference, Refusal> {
    let pod = pod.filter(|pod| pod.metadata.uid.as_deref() == Some(&*bound.uid)).ok_or(Refusal::NoPod)?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed")) {
        return Err(Refusal::PodEnded);
    }
    let spec = pod.spec.as_ref().ok_or(Refusal::NoPod)?;
    if spec.service_account_name.as_deref() != Some(&*bound.service_account) {
        return Err(Refusal::OtherServiceAccount);
    }
    if let (Some(said), Some(node)) = (&bound.node, &spec.node_name)
        && said != node
    {
        return Err(Refusal::OtherNode);
    }
    controller(&pod.metadata)
}

/// The owner that controls an object, if it is one of apps/v1.
///
/// # Errors
/// When nobody controls it, or somebody else.
pub fn controller(metadata: &ObjectMeta) -> Result<OwnerReference, Refusal> {
    let mut owners = metadata.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true));
    let owner = owners.next().filter(|owner| owner.api_version == "apps/v1").ok_or(Refusal::NoWorkload)?;
    // The API server lets no object have two.
    if owners.next().is_some() || !is_name(&owner.name) {
        return Err(Refusal::NoWorkload);
    }
    Ok(owner.clone())
}

/// The kind of a workload that a fleet may declare.
pub fn workload_kind(owner: &OwnerReference) -> Option<WorkloadKind> {
    match owner.kind.as_str() {
        "Deployment" => Some(WorkloadKind::Deployment),
        "DaemonSet" => Some(WorkloadKind::DaemonSet),
        "StatefulSet" => Some(WorkloadKind::StatefulSet),
        _ => None,
    }
}

/// The fleet whose workload this is.
///
/// # Errors
/// When it is none's, several fleets', or one that no class names.
pub fn fleet(declared: &Declared, namespace: &str, kind: WorkloadKind, name: &str) -> Result<FleetName, Refusal> {
    let mut fleets = declared.fleets.iter().filter(|(fleet, declaration)| {
        let workload = declaration.workload.as_ref();
        *fleet.namespace == *namespace
            && workload.is_some_and(|workload| workload.kind == kind && workload.name == name)
    });
    let (fleet, declaration) = fleets.next().ok_or(Refusal::NotDeclared)?;
    if fleets.next().is_some() {
        return Err(Refusal::Ambiguous);
    }
    if !declaration.consented {
        return Err(Refusal::NoConsent);
    }
    Ok(fleet.clone())
}

/// What may stand in a path of a request: the characters that names of Kubernetes objects and UIDs have.
fn is_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
    (1..=253).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('.')
}

#[cfg(test)]
mod tests;
