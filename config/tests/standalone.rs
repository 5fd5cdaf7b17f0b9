//! `scalws.yaml`: what a file stands for, and that a fault names its place.

use std::collections::BTreeMap;

use config::*;

/// Files in memory. Secrets get a digest that shows their path.
struct Files;

impl StandaloneFiles for Files {
    fn text(&mut self, path: &str) -> Result<String, String> {
        match path {
            "shop.pem" => Ok("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".into()),
            _ => Err(format!("{path}: no such file")),
        }
    }

    fn secret(&mut self, path: &str) -> Result<SecretDigest, String> {
        match path {
            "shop.key" => Ok(SecretDigest("ab".repeat(32).as_str().into())),
            _ => Err(format!("{path}: no such file")),
        }
    }
}

const SHOP: &str = r#"
listeners:
  - port: 8080
  - {port: 8443, protocol: tls, defaultCertificate: shop}
  - {port: 5432, protocol: raw, pool: api}
certificates:
  - {name: shop, chain: shop.pem, key: shop.key}
pools:
  - name: web
    members: ["10.0.0.2:80", "10.0.0.1:80", "10.0.0.2:80", "[2001:db8::1]:80"]
  - {name: api, dns: {host: api.example.com, port: 443}, protocol: h2}
hosts:
  - domain: shop.example.com
    certificates: [shop]
    redirectToHttps: true
    routes:
      - {path: /api/, forward: api, rewrite: {prefix: /}, timeouts: {requestMs: 1000}, retries: 0}
      - {path: {exact: /old}, redirect: {status: 301, path: {full: /new}}}
      - path: {regex: "/v[0-9]+"}
        method: GET
        headers: [{name: X-Env, value: {exact: beta}}, {name: x-any, value: present}]
        forward: [{pool: web, weight: 9}, {pool: api, weight: 1}]
      - {forward: web, toHttps: {status: 302, port: 443}, responseHeaders: {set: [[x-a, b]]}}
  - {domain: "*", listeners: [8080], routes: [{respond: 404}]}
  - {domain: db.example.com, passthrough: api}
"#;

fn read(text: &str) -> Result<Standalone, Vec<String>> {
    let file: StandaloneFile = serde_saphyr::from_str(text).expect("the file has the right shape");
    file.resources(&mut Files)
}

#[test]
fn a_file_becomes_live_resources_and_member_sets() {
    let shop = read(SHOP).expect("no errors");
    let names: Vec<String> = shop.resources.iter().map(|resource| resource.id.to_string()).collect();
    let wanted = [
        "listener/tcp/5432",
        "listener/tcp/8080",
        "listener/tcp/8443",
        "host/tcp/8080/*",
        "host/tcp/8080/shop.example.com",
        "host/tcp/8443/db.example.com",
        "host/tcp/8443/shop.example.com",
        "fragment/File//scalws.yaml/*",
        "fragment/File//scalws.yaml/shop.example.com",
        "pool/file/api/1/",
        "pool/file/web/1/",
        "certificate/file/shop",
    ];
    assert_eq!(names, wanted);
    let members: BTreeMap<String, Vec<String>> =
        shop.members.iter().map(|(set, members)| (set.to_string(), members.clone())).collect();
    let web = ["10.0.0.1:80", "10.0.0.2:80", "[2001:db8::1]:80"].map(str::to_owned).to_vec();
    assert_eq!(members, BTreeMap::from([("file/web:1/tcp".to_owned(), web)]));
    let certificate =
        shop.resources.iter().find(|resource| resource.id.kind == Kind::Certificate).expect("there is one");
    assert_eq!(certificate.secrets.len(), 1);
}

#[test]
fn routes_of_a_file_are_tried_exact_first_then_expressions_then_the_longest_prefix() {
    let shop = read(SHOP).expect("no errors");
    let fragment = shop
        .resources
        .iter()
        .find(|resource| resource.id.name.as_str().ends_with("shop.example.com") && resource.id.kind == Kind::Fragment);
    let fragment = fragment.expect("there is one");
    let loaded = load(fragment.id.clone(), &fragment.bytes).expect("the envelope is right");
    let mut matches = loaded.claims.expect("a fragment").matches;
    matches.sort_by(|a, b| a.key.cmp(&b.key));
    let paths: Vec<PathMatch> = matches.iter().map(|one| one.path.clone()).collect();
    let wanted = [
        PathMatch::Exact("/old".into()),
        PathMatch::Regex("/v[0-9]+".into()),
        PathMatch::Prefix("/api".into()),
        PathMatch::Prefix("/".into()),
    ];
    assert_eq!(paths, wanted);
    let headers: Vec<&str> = matches[1].headers.iter().map(|header| header.name.as_str()).collect();
    assert_eq!(headers, ["x-env", "x-any"]);
    let State::Live(Body::Fragment(body)) = loaded.state else { panic!("not live") };
    assert_eq!(body.actions[0].to_https, Some(ToHttps { status: 308, port: 8443 }));
    assert_eq!(body.actions[3].to_https, Some(ToHttps { status: 302, port: 443 }));
}

#[test]
fn every_fault_is_named_with_its_place() {
    let errors = read(
        r#"
listeners: [{port: 8080}, {port: 0}, {port: 8080}, {port: 53, transport: udp}]
certificates: [{name: a, chain: none.pem, key: shop.key}, {name: b, chain: shop.pem, key: none.key}]
pools: [{name: web, members: ["10.0.0.1"]}, {name: both}, {name: dns, dns: {host: "*.io", port: 1}}]
hosts:
  - {domain: a.io, routes: [{forward: nope}, {forward: web, respond: 404}, {respond: 404, retries: 1}, {path: /a}]}
  - {domain: "a b", routes: []}
  - {domain: b.io, listeners: [9], routes: []}
  - {domain: c.io, passthrough: web}
  - {domain: d.io, redirectToHttps: true}
  - {domain: e.io, routes: [{path: x, respond: 404}]}
  - {domain: e.io}
  - {domain: f.io, certificates: [z]}
"#,
    )
    .expect_err("full of errors");
    let wanted = [
        "listeners[1]: \"0\" is not a port",
        "listeners[2]: there already is a listener tcp/8080",
        "listeners[3]: protocol: a udp listener",
        "certificates[0].chain: none.pem",
        "certificates[1].key: none.key",
        "pools[0].members[0]: \"10.0.0.1\"",
        "pools[1]: exactly one of members and dns",
        "pools[2]: members.dns.host: \"*.io\"",
        "hosts[0].routes[0].forward: there is no pool \"nope\"",
        "hosts[0].routes[1]: exactly one of forward",
        "hosts[0].routes[2]: rewrite, host,",
        "hosts[0].routes[3]: exactly one of forward",
        "hosts[1].domain: \"a b\"",
        "hosts[2].listeners: no listener with port 9",
        "hosts[3]: no listener can serve this host",
        "hosts[4].redirectToHttps: there is no tls listener",
        "hosts[5]: claims.matches[0].path: \"x\"",
        "hosts[6]: there already is a host",
        "hosts[7].certificates: there is no certificate \"z\"",
    ];
    assert_eq!(errors.len(), wanted.len(), "{errors:#?}");
    for (error, wanted) in errors.iter().zip(wanted) {
        assert!(error.starts_with(wanted), "wanted {wanted:?}, seen {error:?}");
    }
}

#[test]
fn a_path_that_no_request_can_have_is_an_error_and_no_spelling_makes_a_prefix_longer() {
    let file =
        |routes: &str| read(&format!("listeners: [{{port: 8080}}]\nhosts: [{{domain: a.io, routes: [{routes}]}}]\n"));
    let errors = file(
        r#"{path: /a/../b, respond: 404}, {path: "/a?b", respond: 404}, {path: {exact: "/a#b"}, respond: 404},
           {path: /a b, respond: 404}, {path: {regex: "/a?b"}, respond: 404}"#,
    )
    .expect_err("three paths that no request has");
    assert_eq!(errors.len(), 3, "{errors:#?}");
    for (n, wanted) in ["write \"/b\"", "write %3F", "write %23"].iter().enumerate() {
        let at = format!("hosts[0].routes[{n}].path: no request can match");
        assert!(errors[n].starts_with(&at) && errors[n].contains(wanted), "{errors:#?}");
    }
    let file = file(r#"{path: /%61%64%6d%69n, respond: 404}, {path: /admin/x, respond: 403}"#).expect("no errors");
    let fragment = file.resources.iter().find(|resource| resource.id.kind == Kind::Fragment).expect("there is one");
    let loaded = load(fragment.id.clone(), &fragment.bytes).expect("the envelope is right");
    let matches = loaded.claims.expect("a fragment").matches;
    assert!(matches[1].key < matches[0].key, "/admin/x is tried before the spelling of /admin: {matches:?}");
}

#[test]
fn unknown_fields_of_a_file_are_errors() {
    for text in ["listeners: []\nrouts: []\n", "listeners: [{port: 80, prot: http}]\n", "{}"] {
        assert!(serde_saphyr::from_str::<StandaloneFile>(text).is_err(), "{text}");
    }
}
