//! Single answers of an API server, and what they prove.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::authentication::v1::UserInfo;
use serde_json::{Value, json};

use super::super::declared::Workload;
use super::*;

fn status() -> TokenReviewStatus {
    let extra = [(POD_NAME, "edge-7f-x"), (POD_UID, "u-1"), (NODE_NAME, "node-1")];
    let extra: BTreeMap<_, _> = extra.map(|(key, value)| (key.to_owned(), vec![value.to_owned()])).into();
    TokenReviewStatus {
        authenticated: Some(true),
        audiences: Some(vec![AUDIENCE.to_owned()]),
        user: Some(UserInfo {
            username: Some("system:serviceaccount:proxies:edge".to_owned()),
            extra: Some(extra),
            ..UserInfo::default()
        }),
        ..TokenReviewStatus::default()
    }
}

fn user(change: impl FnOnce(&mut UserInfo)) -> TokenReviewStatus {
    let mut status = status();
    change(status.user.as_mut().unwrap());
    status
}

fn extra(key: &str, values: &[&str]) -> TokenReviewStatus {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    user(|user| drop(user.extra.as_mut().unwrap().insert(key.to_owned(), values)))
}

fn pod(change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": {
            "name": "edge-7f-x", "namespace": "proxies", "uid": "u-1",
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "edge-7f", "uid": "r-1", "controller": true,
            }],
        },
        "spec": { "serviceAccountName": "edge", "nodeName": "node-1", "containers": [] },
        "status": { "phase": "Running" },
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

#[test]
fn a_token_of_a_pod_for_our_audience_is_bound_to_it() {
    let bound = bound(&status()).unwrap();
    assert_eq!((&*bound.namespace, &*bound.service_account, &*bound.pod), ("proxies", "edge", "edge-7f-x"));
    assert_eq!((&*bound.uid, bound.node.as_deref()), ("u-1", Some("node-1")));
    let owner = controller_of(&bound, Some(&pod(|_| {}))).unwrap();
    assert_eq!((&*owner.kind, &*owner.name, &*owner.uid), ("ReplicaSet", "edge-7f", "r-1"));
}

#[test]
fn every_doubt_about_a_token_is_a_refusal() {
    let refused = |status: TokenReviewStatus| bound(&status).unwrap_err();
    let of = |change: fn(&mut TokenReviewStatus)| {
        let mut status = status();
        change(&mut status);
        refused(status)
    };
    assert_eq!(refused(TokenReviewStatus::default()), Refusal::NotAuthenticated);
    assert_eq!(of(|s| s.authenticated = None), Refusal::NotAuthenticated);
    assert_eq!(of(|s| s.authenticated = Some(false)), Refusal::NotAuthenticated);
    assert_eq!(of(|s| s.error = Some("expired".to_owned())), Refusal::NotAuthenticated);
    // An authenticator that knows nothing of audiences.
    assert_eq!(of(|s| s.audiences = None), Refusal::Audience);
    assert_eq!(of(|s| s.audiences = Some(Vec::new())), Refusal::Audience);
    assert_eq!(of(|s| s.audiences = Some(vec!["https://kubernetes.default.svc".to_owned()])), Refusal::Audience);
    assert_eq!(of(|s| s.user = None), Refusal::NotServiceAccount);
    for name in [
        "",
        "admin",
        "system:node:a",
        "system:serviceaccount:a",
        "system:serviceaccount::b",
        "system:serviceaccount:a/b:c",
    ] {
        assert_eq!(refused(user(|user| user.username = Some(name.to_owned()))), Refusal::NotServiceAccount, "{name}");
    }
    assert_eq!(refused(user(|user| user.extra = None)), Refusal::NotPodBound);
    for key in [POD_NAME, POD_UID] {
        let without = user(|user| drop(user.extra.as_mut().unwrap().remove(key)));
        assert_eq!(refused(without), Refusal::NotPodBound, "without {key}");
        for values in [&[][..], &[""], &["a", "b"], &["../secrets"], &["a/b"], &["A"]] {
            assert_eq!(refused(extra(key, values)), Refusal::NotPodBound, "{key}: {values:?}");
        }
    }
}

#[test]
fn a_pod_has_to_be_the_very_one_and_alive() {
    let bound = bound(&status()).unwrap();
    let refused = |change: fn(&mut Value)| controller_of(&bound, Some(&pod(change))).unwrap_err();
    assert_eq!(controller_of(&bound, None).unwrap_err(), Refusal::NoPod);
    assert_eq!(refused(|pod| pod["metadata"]["uid"] = json!("u-2")), Refusal::NoPod, "another one of its name");
    assert_eq!(refused(|pod| pod["metadata"]["deletionTimestamp"] = json!("2026-12-01T00:00:00Z")), Refusal::PodEnded);
    assert_eq!(refused(|pod| pod["status"]["phase"] = json!("Succeeded")), Refusal::PodEnded);
    assert_eq!(refused(|pod| pod["status"]["phase"] = json!("Failed")), Refusal::PodEnded);
    assert_eq!(refused(|pod| pod["spec"]["serviceAccountName"] = json!("other")), Refusal::OtherServiceAccount);
    assert_eq!(refused(|pod| pod["spec"]["nodeName"] = json!("node-2")), Refusal::OtherNode);
    // Labels and names prove nothing: who is not controlled by a workload is no proxy.
    assert_eq!(refused(|pod| pod["metadata"]["ownerReferences"] = json!([])), Refusal::NoWorkload);
    assert_eq!(refused(|pod| pod["metadata"]["ownerReferences"][0]["controller"] = json!(false)), Refusal::NoWorkload);
    assert_eq!(
        refused(|pod| pod["metadata"]["ownerReferences"][0]["apiVersion"] = json!("evil.io/v1")),
        Refusal::NoWorkload
    );
    assert_eq!(refused(|pod| pod["metadata"]["ownerReferences"][0]["name"] = json!("a/../b")), Refusal::NoWorkload);
    // A pod that is starting has no phase yet, and one of an old API server no node in its token.
    assert!(controller_of(&bound, Some(&pod(|pod| pod["status"] = json!({})))).is_ok());
    let older = Bound { node: None, ..bound };
    assert!(controller_of(&older, Some(&pod(|_| {}))).is_ok());
}

#[test]
fn a_workload_is_of_the_one_fleet_in_its_namespace_that_declares_it_and_that_a_class_names() {
    let workload = |name: &str| Some(Workload { kind: WorkloadKind::Deployment, name: name.to_owned() });
    let fleets = [
        (FleetName::new("proxies", "edge"), workload("edge")),
        (FleetName::new("proxies", "inner"), workload("inner")),
        (FleetName::new("proxies", "twin-a"), workload("twin")),
        (FleetName::new("proxies", "twin-b"), workload("twin")),
        (FleetName::new("proxies", "flag"), None),
        (FleetName::new("tenant", "edge"), workload("edge")),
    ];
    let named = ["edge", "twin-a", "twin-b", "flag"].map(|name| FleetName::new("proxies", name));
    let declared = Declared::new(fleets, &BTreeSet::from(named));
    let of = |namespace: &str, kind, name: &str| fleet(&declared, namespace, kind, name);
    let deployment = WorkloadKind::Deployment;
    assert_eq!(of("proxies", deployment, "edge"), Ok(FleetName::new("proxies", "edge")));
    assert_eq!(of("proxies", WorkloadKind::DaemonSet, "edge"), Err(Refusal::NotDeclared), "of another kind");
    assert_eq!(of("proxies", deployment, "other"), Err(Refusal::NotDeclared));
    assert_eq!(of("elsewhere", deployment, "edge"), Err(Refusal::NotDeclared), "in another namespace");
    assert_eq!(
        of("tenant", deployment, "edge"),
        Err(Refusal::NoConsent),
        "whoever may make a ProxyFleet gets nothing by it"
    );
    assert_eq!(of("proxies", deployment, "inner"), Err(Refusal::NoConsent));
    assert_eq!(of("proxies", deployment, "twin"), Err(Refusal::Ambiguous));
}
