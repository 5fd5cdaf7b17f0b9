//! Enrolment of pods at a real API server: whoever is not a live pod of a fleet that is declared and served gets nothing, and whoever
//! stops being one loses its stream.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use e2e::cluster::{ControlPlane, Pod, Settings};
use e2e::process::{program, until};
use e2e::replicas::proxy::Proxy;
use e2e::replicas::relay::Relay;
use prost::Message as _;
use proto::codec::SmallBuffers;
use proto::v1::{EnrollRequest, EnrollResponse};
use push::authority::{Authority, bundle_from_pem};
use push::grpc::client::{self, ClientError, Credentials};
use push::grpc::tls;
use push::identity::AgentIdentity;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use zeroize::Zeroizing;

/// The rights that are documented.
const RIGHTS: &str = include_str!("../../docs/reference/controller-rights.yaml");
/// The API server, in its own network.
const SERVER: &str = "127.0.0.1:6443";
/// The controller's way there: an address that the server's certificate names.
const WAY: &str = "127.0.0.1:7443";
/// Where the controller listens.
const CONTROLLER: &str = "127.0.0.1";
const ENROLL: u16 = 9443;
const PUSH: u16 = 9444;
/// Within this anything happens that needs no waiting, on a slow machine.
const SOON: Duration = Duration::from_secs(30);
/// A kind that is not served is looked for every 15 to 30 s.
const LOOKED_FOR: Duration = Duration::from_secs(50);
/// A stream whose reason is gone ends within this.
const REVOKED: Duration = Duration::from_secs(10);
/// The API server keeps what it found of a token for 10 s.
const KEPT: Duration = Duration::from_secs(30);
/// What an agent's token is for.
const AUDIENCE: &[&str] = &["--audience", "scalws.io/agent"];

const CLASS: &str = "
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: edge}
spec:
  controller: scalws.io/ingress-controller
  parameters: {apiGroup: scalws.io, kind: ProxyFleet, scope: Namespace, namespace: proxies, name: edge}
";

/// The cluster, with a controller, and the fleets `proxies/edge`, which a class names, and `tenant/edge`, which none does.
struct Scene {
    pod: Pod,
    way: Relay,
    plane: ControlPlane,
    folder: TempDir,
    runtime: Runtime,
}

/// Makes an object and gives its UID.
fn create(plane: &ControlPlane, object: &Value) -> Result<String> {
    plane.kubectl_reading(&object.to_string(), &["create", "--filename", "-", "--output", "jsonpath={.metadata.uid}"])
}

/// An owner reference, as a controller writes it.
fn owned_by(kind: &str, name: &str, uid: &str) -> Value {
    json!([{ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true }])
}

fn template() -> Value {
    let containers = json!([{ "name": "agent", "image": "localhost/agent:1" }]);
    json!({
        "metadata": { "labels": { "app": "edge" } }, "spec": { "serviceAccountName": "edge", "containers": containers },
    })
}

/// A Deployment or a ReplicaSet. Nobody here acts on it.
fn workload(kind: &str, namespace: &str, name: &str, owners: Value) -> Value {
    let spec = json!({ "replicas": 1, "selector": { "matchLabels": { "app": "edge" } }, "template": template() });
    let metadata = json!({ "name": name, "namespace": namespace, "ownerReferences": owners });
    json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec })
}

/// A pod with the labels, the service account and the image of the fleet's pods.
fn pod(namespace: &str, name: &str, owners: Value) -> Value {
    let mut pod = template();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"] = json!({
        "name": name, "namespace": namespace, "labels": { "app": "edge" }, "ownerReferences": owners,
    });
    pod
}

/// A fleet of the Deployment `edge`.
fn fleet(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "scalws.io/v1alpha1", "kind": "ProxyFleet", "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "workload": { "kind": "Deployment", "name": "edge" },
            "listeners": [
                { "name": "http", "port": 8080, "protocol": "HTTP" }, { "name": "https", "port": 8443, "protocol": "HTTPS" },
            ],
        },
    })
}

/// A Deployment with one ReplicaSet; gives the owners of its pods.
fn deploy(plane: &ControlPlane, namespace: &str, name: &str) -> Result<Value> {
    let deployment = create(plane, &workload("Deployment", namespace, name, json!([])))?;
    let set = format!("{name}-1");
    let owners = owned_by("Deployment", name, &deployment);
    let uid = create(plane, &workload("ReplicaSet", namespace, &set, owners))?;
    Ok(owned_by("ReplicaSet", &set, &uid))
}

/// A token of the service account `edge`.
fn token(plane: &ControlPlane, namespace: &str, arguments: &[&str]) -> Result<String> {
    let token = plane.kubectl(&[&["create", "token", "edge", "--namespace", namespace], arguments].concat())?;
    Ok(token.trim().to_owned())
}

/// The token that a kubelet would give a pod for our audience.
fn token_of(plane: &ControlPlane, namespace: &str, pod: &str) -> Result<String> {
    token(plane, namespace, &[AUDIENCE, &["--bound-object-kind", "Pod", "--bound-object-name", pod]].concat())
}

/// The same token as the API server would have signed it so long ago, good for ten minutes, with its own key.
fn aged(plane: &ControlPlane, token: &str, age: Duration) -> Result<String> {
    let mut parts = token.split('.');
    let (head, claims) = parts.next().zip(parts.next()).context("a token has three parts")?;
    let mut claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims)?)?;
    let signed_at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.saturating_sub(age).as_secs();
    (claims["iat"], claims["nbf"], claims["exp"]) = (signed_at.into(), signed_at.into(), (signed_at + 600).into());
    let signed = format!("{head}.{}", BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()));
    let key = PrivateKeyDer::from_pem_file(plane.keys().join("sa.key"))?;
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.secret_der(), &random);
    let key = key.map_err(|why| anyhow::anyhow!("the key of service accounts: {why}"))?;
    let signature = key.sign(&random, signed.as_bytes()).map_err(|_| anyhow::anyhow!("it does not sign"))?;
    Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
}

/// Every method of every service that the protocol has, and some that it does not have.
fn methods() -> Result<Vec<String>> {
    let descriptors = prost_types::FileDescriptorSet::decode(proto::DESCRIPTORS)?;
    let services =
        descriptors.file.iter().flat_map(|file| file.service.iter().map(|service| (file.package(), service)));
    let known = services.flat_map(|(package, service)| {
        service.method.iter().map(move |method| format!("/{package}.{}/{}", service.name(), method.name()))
    });
    let others = ["/scalws.push.v1.Push/Other", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/"];
    Ok(known.chain(others.map(str::to_owned)).collect())
}

fn start(what: &str, arguments: &[&str]) -> Result<Option<Scene>> {
    let Some(plane) = ControlPlane::start(what, &Settings::default())? else { return Ok(None) };
    plane.enter()?;
    // After the move, so that its threads are there too.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    plane.kubectl_reading(RIGHTS, &["apply", "--filename", "-"])?;
    let definition = Command::new(program("scalwsctl")?).arg("crds").output()?;
    plane.kubectl_reading(&String::from_utf8(definition.stdout)?, &["create", "--filename", "-"])?;
    plane.kubectl(&["wait", "--for=condition=Established", "crd/proxyfleets.scalws.io", "--timeout=30s"])?;
    for namespace in ["proxies", "tenant"] {
        plane.kubectl(&["create", "namespace", namespace])?;
        plane.kubectl(&["create", "serviceaccount", "edge", "--namespace", namespace])?;
        create(&plane, &fleet(namespace, "edge"))?;
    }
    plane.kubectl_reading(CLASS, &["apply", "--filename", "-"])?;
    let way = Relay::start(runtime.handle(), WAY.parse()?, SERVER.parse()?)?;
    let pod = controller(&plane, &runtime, arguments)?;
    let scene = Scene { pod, way, plane, folder: tempfile::tempdir()?, runtime };
    scene.until(SOON, "the controller is ready", || Ok(scene.pod.is_well()))?;
    scene.until(LOOKED_FOR, "it leads, and has the fleets", || {
        Ok(scene.pod.metric("scalws_controller_leader", "")? == 1.0 && scene.has_fleet("proxies/edge")?)
    })?;
    Ok(Some(scene))
}

fn controller(plane: &ControlPlane, runtime: &Runtime, arguments: &[&str]) -> Result<Pod> {
    let own = plane.kubectl(&["create", "token", "scalws-controller", "--namespace", "scalws"])?;
    let arguments = [&["--enrolment", "pod-token"], arguments].concat();
    Pod::start(runtime.handle(), plane, WAY.parse()?, own.trim(), &arguments)
}

impl Scene {
    fn until(&self, limit: Duration, what: &str, holds: impl FnMut() -> Result<bool>) -> Result<Duration> {
        let began = Instant::now();
        until(limit, what, holds).with_context(|| format!("{:?}\n{}", self.pod.readyz(), self.pod.log()))?;
        Ok(began.elapsed())
    }

    fn has_fleet(&self, name: &str) -> Result<bool> {
        let config = self.pod.view("/debug/config")?;
        Ok(config["fleets"].as_array().context("no fleets")?.iter().any(|fleet| fleet["name"] == name))
    }

    fn results(&self, result: &str) -> Result<f64> {
        self.pod.metric("scalws_controller_enrolments_total", &format!("result=\"{result}\""))
    }

    /// Asks for a certificate as a stranger would.
    fn enrol(&self, token: &str) -> Result<Result<Credentials, ClientError>> {
        self.enrol_at(ENROLL, &self.pod.trust()?, token)
    }

    fn enrol_at(&self, port: u16, trust: &str, token: &str) -> Result<Result<Credentials, ClientError>> {
        let trust = bundle_from_pem(trust)?;
        let address = format!("{CONTROLLER}:{port}");
        Ok(self.runtime.block_on(client::enroll(&address, &trust, Zeroizing::new(token.to_owned()))))
    }

    /// What agents are told to trust.
    fn bundle(&self) -> Result<String> {
        let get = ["get", "configmap", "trust", "--namespace", "scalws", "--output", r"jsonpath={.data.ca\.crt}"];
        self.plane.kubectl(&get)
    }

    /// How many authorities are trusted, and whether this one is among them, and signs.
    fn trusts(&self, known: &str) -> Result<(usize, bool, bool)> {
        let (bundle, known) = (bundle_from_pem(&self.bundle()?)?, bundle_from_pem(known)?);
        Ok((bundle.len(), bundle.contains(&known[0]), bundle[0] == known[0]))
    }

    /// It is refused, for one of these reasons, and the caller does not hear for which.
    fn is_refused(&self, what: &str, token: &str, reasons: &[&str]) -> Result<()> {
        let count = || reasons.iter().map(|reason| self.results(reason)).sum::<Result<f64>>();
        let (before, enrolled) = (count()?, self.results("enrolled")?);
        match self.enrol(token)? {
            Ok(_) => bail!("{what}: it got a certificate\n{}", self.pod.log()),
            Err(ClientError::Refused(said)) => ensure!(said == "enrolment refused", "{what}: it is told {said:?}"),
            Err(other) => bail!("{what}: {other}"),
        }
        let why = || format!("{what}: not refused for {reasons:?}\n{}", self.pod.log());
        ensure!(reasons.is_empty() || count()? > before, why());
        ensure!(self.results("enrolled")? == enrolled, "{what}: counted as enrolled");
        Ok(())
    }

    /// Calls a method with an empty message, and with a token as other products take it; gives the words of the refusal, none when it
    /// is one of TLS.
    fn call(&self, port: u16, method: &str, own: Option<&Credentials>, token: Option<&str>) -> Result<Option<String>> {
        let own = own.map(|own| (&*own.chain, &*own.key));
        let config = tls::client(&bundle_from_pem(&self.pod.trust()?)?, own)?;
        let mut request = tonic::Request::new(EnrollRequest::default());
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
        }
        self.runtime.block_on(async {
            let address = format!("{CONTROLLER}:{port}");
            let Ok(channel) = client::channel(&address, config).await else { return Ok(None) };
            let mut client = tonic::client::Grpc::new(channel);
            if client.ready().await.is_err() {
                return Ok(None);
            }
            let codec = SmallBuffers::<EnrollRequest, EnrollResponse>::default();
            match client.unary(request, method.parse()?, codec).await {
                Ok(_) => bail!("{method} at port {port} answered"),
                // The client is done with TLS 1.3 before the server has looked at its certificate.
                Err(status) if std::error::Error::source(&status).is_some() => Ok(None),
                Err(status) => Ok(Some(status.message().to_owned())),
            }
        })
    }

    /// How many agents have a stream.
    fn connected(&self) -> Result<f64> {
        let agents = self.pod.view("/debug/agents")?;
        let fleets = agents["fleets"].as_array().context("no fleets")?;
        let all = fleets.iter().filter_map(|fleet| fleet["agents"].as_array()).flatten();
        Ok(all.filter(|agent| agent["connected"] == true).count() as f64)
    }

    fn proxy(&self, bundle: &str, token: &str) -> Result<Proxy> {
        let trust = self.folder.path().join("ca.crt");
        fs::write(&trust, bundle)?;
        Proxy::start(self.folder.path(), &[CONTROLLER.to_owned()], [ENROLL, PUSH], &trust, token)
    }
}

#[test]
fn only_a_live_pod_of_a_fleet_that_is_declared_and_served_gets_a_certificate() -> Result<()> {
    let Some(scene) = start("tokens of pods at a real API server, good ones and bad ones", &[])? else { return Ok(()) };
    let plane = &scene.plane;
    let owners = deploy(plane, "proxies", "edge")?;
    let uid = create(plane, &pod("proxies", "edge-1-a", owners.clone()))?;
    let good = token_of(plane, "proxies", "edge-1-a")?;

    scene.is_refused("no token", "", &[])?;
    scene.is_refused("no token at all, in words", "let me in", &["not_authenticated"])?;
    let (head, _) = good.rsplit_once('.').context("a token has a signature")?;
    scene.is_refused("a token with another signature", &format!("{head}.AAAA"), &["not_authenticated"])?;
    let ended = aged(plane, &good, Duration::from_secs(3_600))?;
    scene.is_refused("the pod's token, which has expired", &ended, &["not_authenticated"])?;
    let of_pod = ["--bound-object-kind", "Pod", "--bound-object-name", "edge-1-a"];
    let for_api = token(plane, "proxies", &of_pod)?;
    scene.is_refused("the pod's token for the API server", &for_api, &["not_authenticated", "audience"])?;
    let for_other = token(plane, "proxies", &[&["--audience", "vault"], &of_pod[..]].concat())?;
    scene.is_refused("the pod's token for somebody else", &for_other, &["not_authenticated", "audience"])?;
    let unbound = token(plane, "proxies", AUDIENCE)?;
    scene.is_refused("a token of the service account, of no pod", &unbound, &["not_pod_bound"])?;

    create(plane, &pod("proxies", "labelled", json!([])))?;
    let token = token_of(plane, "proxies", "labelled")?;
    scene.is_refused("a pod that has the fleet's labels and service account", &token, &["no_workload"])?;
    create(plane, &pod("proxies", "forged", owned_by("ReplicaSet", "edge-1", "00000000-0000-0000-0000-000000000000")))?;
    let token = token_of(plane, "proxies", "forged")?;
    scene.is_refused("a pod that names the fleet's ReplicaSet with another UID", &token, &["no_workload"])?;
    let others = deploy(plane, "proxies", "other")?;
    create(plane, &pod("proxies", "other-1-a", others))?;
    let token = token_of(plane, "proxies", "other-1-a")?;
    scene.is_refused("a pod of a workload beside the fleet's", &token, &["not_declared"])?;
    let tenants = deploy(plane, "tenant", "edge")?;
    create(plane, &pod("tenant", "edge-1-a", tenants))?;
    let token = token_of(plane, "tenant", "edge-1-a")?;
    scene.is_refused("a pod of a fleet that no class names", &token, &["no_consent"])?;
    create(plane, &fleet("proxies", "twin"))?;
    scene.until(SOON, "the twin is there", || scene.has_fleet("proxies/twin"))?;
    scene.is_refused("a pod whose workload two fleets declare", &good, &["ambiguous"])?;
    plane.kubectl(&["delete", "proxyfleet", "twin", "--namespace", "proxies"])?;
    scene.until(SOON, "the twin is gone", || Ok(!scene.has_fleet("proxies/twin")?))?;
    let mut ending = pod("proxies", "ending", owners.clone());
    ending["metadata"]["finalizers"] = json!(["test.scalws.io/held"]);
    create(plane, &ending)?;
    let token = token_of(plane, "proxies", "ending")?;
    plane.kubectl(&["delete", "pod", "ending", "--namespace", "proxies", "--wait=false"])?;
    scene.is_refused("a pod that is ending", &token, &["pod_ended"])?;
    create(plane, &pod("proxies", "ended", owners.clone()))?;
    let token = token_of(plane, "proxies", "ended")?;
    let ended = r#"{"status": {"phase": "Failed"}}"#;
    plane.kubectl(&["patch", "pod", "ended", "--namespace", "proxies", "--subresource", "status", "--patch", ended])?;
    scene.is_refused("a pod that has ended", &token, &["pod_ended"])?;
    create(plane, &pod("proxies", "gone", owners))?;
    let token = token_of(plane, "proxies", "gone")?;
    plane.kubectl(&["delete", "pod", "gone", "--namespace", "proxies", "--force", "--grace-period=0"])?;
    scene.is_refused("a pod that is gone", &token, &["not_authenticated", "no_pod"])?;

    // So it was the age alone that the expired one was refused for.
    let fresh = aged(plane, &good, Duration::ZERO)?;
    scene.enrol(&fresh)?.with_context(|| format!("a fresh token of that key\n{}", scene.pod.log()))?;
    let credentials = scene.enrol(&good)?.map_err(|error| anyhow::anyhow!("{error}\n{}", scene.pod.log()))?;
    let leaf = credentials.chain.first().context("an empty chain")?;
    let agent = AgentIdentity::from_certificate(leaf)?;
    let expected = format!("spiffe://scalws.local/fleet/proxies/edge/pod/{uid}");
    ensure!(agent.spiffe_id() == expected, "{} instead of {expected}", agent.spiffe_id());
    let log = scene.pod.log();
    ensure!(!log.contains(&good) && !log.contains(head), "a token is in the log");
    Ok(())
}

#[test]
fn whoever_loses_its_pod_its_fleet_or_its_class_loses_its_stream() -> Result<()> {
    let Some(scene) = start("a proxy at a real API server whose pod, fleet and class go", &[])? else { return Ok(()) };
    let plane = &scene.plane;
    let owners = deploy(plane, "proxies", "edge")?;
    create(plane, &pod("proxies", "edge-1-a", owners))?;
    let token = token_of(plane, "proxies", "edge-1-a")?;
    let proxy = scene.proxy(&scene.pod.trust()?, &token)?;
    let has_stream = |has: bool| scene.connected().map(|connected| (connected == 1.0) == has);
    let said = || proxy.said();
    scene.until(SOON, "the proxy is served", || has_stream(true)).with_context(said)?;

    plane.kubectl(&["delete", "ingressclass", "edge"])?;
    let took = scene.until(REVOKED, "without a class it has no stream", || has_stream(false)).with_context(said)?;
    eprintln!("class gone: stream ended after {:.1} s", took.as_secs_f64());
    plane.kubectl_reading(CLASS, &["apply", "--filename", "-"])?;
    scene.until(SOON, "with the class it is served again", || has_stream(true)).with_context(said)?;

    plane.kubectl(&["delete", "proxyfleet", "edge", "--namespace", "proxies"])?;
    let took = scene.until(REVOKED, "without a fleet it has no stream", || has_stream(false)).with_context(said)?;
    eprintln!("fleet gone: stream ended after {:.1} s", took.as_secs_f64());
    create(plane, &fleet("proxies", "edge"))?;
    scene.until(SOON, "with the fleet it is served again", || has_stream(true)).with_context(said)?;

    let credentials = scene.enrol(&token)?.map_err(|error| anyhow::anyhow!("{error}\n{}", scene.pod.log()))?;
    plane.kubectl(&["delete", "pod", "edge-1-a", "--namespace", "proxies", "--force", "--grace-period=0"])?;
    let took = scene.until(REVOKED, "without a pod it has no stream", || has_stream(false)).with_context(said)?;
    eprintln!("pod gone: stream ended after {:.1} s", took.as_secs_f64());
    // A certificate that is good for a day is good for nothing.
    let address = format!("{CONTROLLER}:{PUSH}");
    match scene.runtime.block_on(client::connect(&address, &credentials)) {
        Ok(_) => bail!("a certificate of a pod that is gone opens a stream\n{}", scene.pod.log()),
        Err(error) => ensure!(matches!(&error, ClientError::Refused(said) if said == "not permitted"), "{error}"),
    }
    scene.until(KEPT, "its token is refused", || {
        Ok(matches!(scene.enrol(&token)?, Err(ClientError::Refused(said)) if said == "enrolment refused"))
    })?;
    ensure!(has_stream(false)?, "it has a stream again\n{}", proxy.said());
    Ok(())
}

#[test]
fn no_method_takes_a_token_for_a_certificate_or_a_certificate_of_a_pod_that_is_gone() -> Result<()> {
    let what = "every method of a controller at a real API server, with tokens and certificates of pods";
    let Some(scene) = start(what, &[])? else { return Ok(()) };
    let plane = &scene.plane;
    let owners = deploy(plane, "proxies", "edge")?;
    create(plane, &pod("proxies", "edge-1-a", owners.clone()))?;
    create(plane, &pod("proxies", "edge-1-b", owners))?;
    let (token, other) = (token_of(plane, "proxies", "edge-1-a")?, token_of(plane, "proxies", "edge-1-b")?);
    let good = scene.enrol(&token)?.with_context(|| scene.pod.log())?;
    let gone = scene.enrol(&other)?.with_context(|| scene.pod.log())?;
    // The same names, signed by somebody else.
    let minted = Authority::mint("another", SystemTime::now(), Duration::from_secs(3_600))?;
    let stranger = Authority::from_pem(&minted.certificate_pem, &minted.key_pem)?;
    let (key, request) = push::authority::key_and_request()?;
    let agent = AgentIdentity::from_certificate(good.chain.first().context("an empty chain")?)?;
    let signed = stranger.sign(&request, &agent, SystemTime::now())?;
    let foreign = Credentials { chain: signed.chain, key: key.into(), ..good.clone() };
    plane.kubectl(&["delete", "pod", "edge-1-b", "--namespace", "proxies", "--force", "--grace-period=0"])?;
    let sync = "/scalws.push.v1.Push/Sync";
    scene.until(REVOKED, "the certificate of the pod that is gone opens nothing", || {
        let connected = scene.runtime.block_on(client::connect(&format!("{CONTROLLER}:{PUSH}"), &gone));
        Ok(matches!(connected, Err(ClientError::Refused(said)) if said == "not permitted"))
    })?;

    let mut calls = 0;
    let all = methods()?;
    ensure!(all.iter().any(|method| method == sync) && all.len() > 4, "{all:?}");
    for method in &all {
        let credentials = [
            ("nothing", None, None),
            ("a pod's token", None, Some(&*token)),
            ("another authority's certificate and a pod's token", Some(&foreign), Some(&*token)),
            ("the certificate of a pod that is gone", Some(&gone), None),
            ("that, and the token of a pod that is there", Some(&gone), Some(&*token)),
        ];
        for (what, own, token) in credentials {
            let said = scene.call(PUSH, method, own, token).with_context(|| format!("{method}, {what}"))?;
            let fixed = said.as_deref().is_none_or(|said| said == "not permitted" || said == "no credentials");
            ensure!(fixed, "{method}, {what}: it is told {said:?}");
            // Where TLS asks for no certificate the token in the head is as good as none.
            let said = scene.call(ENROLL, method, own, token).with_context(|| format!("{method}, {what}"))?;
            let expected = if method.ends_with("/Enroll") { "enrolment refused" } else { "not permitted" };
            ensure!(said.as_deref() == Some(expected), "{method} of enrolment, {what}: it is told {said:?}");
            calls += 2;
        }
        if method != sync {
            let said = scene.call(PUSH, method, Some(&good), Some(&token))?;
            ensure!(said.as_deref() == Some("not permitted"), "{method}, a good certificate: it is told {said:?}");
        }
    }
    // And the good one, of which the others are copies, does open a stream.
    scene.runtime.block_on(client::connect(&format!("{CONTROLLER}:{PUSH}"), &good))?;
    eprintln!("{calls} calls of {} methods without live credentials, none answered", all.len());
    Ok(())
}

#[test]
fn a_pod_that_goes_unseen_on_a_dead_connection_loses_its_stream_in_time() -> Result<()> {
    let what = "a pod that goes while the controller's connections to a real API server are dead";
    let Some(scene) = start(what, &[])? else { return Ok(()) };
    let owners = deploy(&scene.plane, "proxies", "edge")?;
    create(&scene.plane, &pod("proxies", "edge-1-a", owners))?;
    let token = token_of(&scene.plane, "proxies", "edge-1-a")?;
    let proxy = scene.proxy(&scene.pod.trust()?, &token)?;
    let said = || proxy.said();
    scene.until(SOON, "the proxy is served", || Ok(scene.connected()? == 1.0)).with_context(said)?;

    // The lead may be lost and won again by this: that ends no stream, and the reason in the log tells one from the other.
    scene.way.forget();
    scene.plane.kubectl(&["delete", "pod", "edge-1-a", "--namespace", "proxies", "--force", "--grace-period=0"])?;
    let took = scene
        .until(REVOKED, "its stream ends because the pod is gone", || Ok(scene.pod.log().contains("its pod is gone")));
    eprintln!("pod gone unseen: stream ended after {:.1} s", took.with_context(said)?.as_secs_f64());
    Ok(())
}

/// An authority that lives for 80 s, and certificates for 10 s.
const SHORT: [&str; 8] = [
    "--authority-secret",
    "scalws/authority",
    "--trust-configmap",
    "scalws/trust",
    "--authority-lifetime",
    "80s",
    "--certificate-lifetime",
    "10s",
];

#[test]
fn the_authority_in_a_secret_is_one_for_all_survives_mistakes_and_is_replaced_under_a_proxy() -> Result<()> {
    let what = "an authority in a Secret at a real API server, through its whole life";
    let Some(scene) = start(what, &SHORT)? else { return Ok(()) };
    let plane = &scene.plane;
    let ports = ["--enroll-port", "9543", "--push-port", "9544"];
    let second = controller(plane, &scene.runtime, &[&SHORT[..], &ports].concat())?;
    scene.until(SOON, "the other replica is ready", || Ok(second.is_well())).with_context(|| second.log())?;
    scene.until(SOON, "the bundle is there for everybody", || Ok(scene.bundle().is_ok_and(|text| !text.is_empty())))?;
    let first = scene.bundle()?;
    let owners = deploy(plane, "proxies", "edge")?;
    create(plane, &pod("proxies", "edge-1-a", owners))?;
    let token = token_of(plane, "proxies", "edge-1-a")?;
    for port in [ENROLL, 9543] {
        scene.enrol_at(port, &first, &token)?.with_context(|| format!("port {port}: {}", scene.pod.log()))?;
    }
    let proxy = scene.proxy(&first, &token)?;
    let said = || proxy.said();
    let served = || Ok(scene.connected()? == 1.0);
    scene.until(SOON, "the proxy is served", served).with_context(said)?;

    // Deleted by mistake: a new authority would make strangers of all agents.
    let secret = ["secret", "authority", "--namespace", "scalws"];
    plane.kubectl(&[&["delete"], &secret[..]].concat())?;
    let get = [&["get"], &secret[..], &["--output", r"jsonpath={.data.ca\.key}"]].concat();
    scene.until(SOON, "the Secret is there again", || Ok(plane.kubectl(&get).is_ok_and(|text| !text.is_empty())))?;
    let key = plane.kubectl(&get)?;
    plane.kubectl(&[&["patch"], &secret[..], &["--patch", r#"{"data": {"ca.key": "Tk8gS0VZ"}}"#]].concat())?;
    scene.until(SOON, "it is said that the Secret cannot be used", || {
        Ok(scene.pod.log().contains("the Secret holds no authority") && second.log().contains("ca.key cannot be used"))
    })?;
    scene.enrol_at(ENROLL, &first, &token)?.context("a Secret that cannot be used took the authority away")?;
    plane
        .kubectl(&[&["patch"], &secret[..], &["--patch", &format!(r#"{{"data": {{"ca.key": "{key}"}}}}"#)]].concat())?;

    let life = Duration::from_secs(80);
    scene.until(life, "the next one is announced, and the first signs", || {
        Ok(scene.trusts(&first)? == (2, true, true))
    })?;
    scene.until(life, "the next one signs, and the first is trusted", || {
        Ok(scene.trusts(&first)? == (2, true, false))
    })?;
    scene.until(life, "the next one is alone", || Ok(scene.trusts(&first)? == (1, false, false)))?;
    let next = scene.bundle()?;
    for port in [ENROLL, 9543] {
        scene.enrol_at(port, &next, &token)?.with_context(|| format!("port {port}: {}", scene.pod.log()))?;
        ensure!(
            scene.enrol_at(port, &first, &token)?.is_err(),
            "port {port} still shows the first authority's certificate"
        );
    }
    // The agent that came under the first authority is still here, and has not been started again.
    scene.until(SOON, "the proxy is served under the next one", served).with_context(said)?;
    let ends = scene.pod.metric("scalws_controller_authority_expiration_timestamp_seconds", "")?;
    ensure!(ends > 1.7e9, "the end of the authority is in the metrics: {ends}");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64();
    for (whose, pod) in [("one", &scene.pod), ("the other", &second)] {
        let ends = pod.metric("scalws_controller_certificate_expiration_timestamp_seconds", "")?;
        let left = ends - now;
        ensure!((12.0 * 3600.0..=24.0 * 3600.0).contains(&left), "{whose} controller's certificate: {left} s are left");
    }
    for log in [scene.pod.log(), second.log(), proxy.said()] {
        ensure!(!log.contains("PRIVATE KEY") && !log.contains(&key), "a key is in a log");
    }
    Ok(())
}
