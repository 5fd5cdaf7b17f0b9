//! The bytes of every kind, as they travel and are hashed. A change here is a change of the schema.

use config::*;

fn origin() -> Vec<ObjectRef> {
    vec![ObjectRef { kind: "Ingress".into(), namespace: "demo".into(), name: "shop".into() }]
}

fn pool() -> PoolName {
    PoolName { namespace: "demo".into(), service: "web".into(), port: 80, variant: String::new() }
}

fn certificate() -> CertificateName {
    CertificateName { namespace: "demo".into(), name: "shop-tls".into() }
}

fn digest() -> SecretDigest {
    SecretDigest("ab".repeat(32).as_str().into())
}

fn prefix(path: &str) -> Match {
    Match {
        path: PathMatch::Prefix(path.into()),
        method: None,
        headers: vec![],
        query: vec![],
        key: OrderKey { rank: vec![1, 1], created: 0, tie: ("demo".into(), "shop".into(), 0) },
    }
}

fn claims(matches: Vec<Match>) -> Claims {
    Claims { listeners: vec![ListenerName::tcp(80)], host: "shop.io".parse().expect("a domain"), matches }
}

/// Checks the bytes, that they load, and that the body is read back as it was.
fn check(kind: Kind, name: Name, claims: Option<Claims>, body: Body, wanted: &str) {
    let id = ResourceId { kind, name };
    let resource = Envelope::with_body(id.clone(), origin(), claims.clone(), &body);
    assert_eq!(std::str::from_utf8(&resource.bytes), Ok(wanted));
    assert_eq!(resource.secrets, body.secrets());
    let loaded = load(id, &resource.bytes).expect("the envelope is right");
    assert_eq!(loaded.state, State::Live(body));
    assert_eq!((loaded.claims, loaded.origin), (claims, origin()));
}

#[test]
fn a_listener_at_its_defaults_says_only_its_protocol() {
    let body = ListenerBody {
        protocol: ListenerProtocol::Http,
        unknown_name: UnknownName::Default,
        default_certificate: None,
        pool: None,
    };
    let wanted = r#"{"origin":[{"kind":"Ingress","namespace":"demo","name":"shop"}],"body":{"protocol":"http"}}"#;
    check(Kind::Listener, ListenerName::tcp(80).to_name(), None, Body::Listener(body), wanted);
}

#[test]
fn a_full_listener() {
    let body = ListenerBody {
        protocol: ListenerProtocol::Tls,
        unknown_name: UnknownName::Refuse,
        default_certificate: Some(certificate()),
        pool: None,
    };
    let wanted = concat!(
        r#"{"origin":[{"kind":"Ingress","namespace":"demo","name":"shop"}],"#,
        r#""body":{"protocol":"tls","unknownName":"refuse","defaultCertificate":"demo/shop-tls"}}"#
    );
    check(Kind::Listener, ListenerName::tcp(443).to_name(), None, Body::Listener(body), wanted);
}

#[test]
fn hosts_without_tls_with_termination_and_passed_through() {
    let name = |port| HostName { listener: ListenerName::tcp(port), domain: "*.shop.io".parse().expect("a domain") };
    let origin = r#"{"origin":[{"kind":"Ingress","namespace":"demo","name":"shop"}],"body":"#;
    let host = |tls| Body::Host(HostBody { owner: "demo".into(), tls });
    check(Kind::Host, name(80).to_name(), None, host(None), &format!(r#"{origin}{{"owner":"demo"}}}}"#));
    let tls = HostTls::Terminate { certificates: vec![], fallback: UnknownName::Default, client_auth: None };
    let wanted = format!(r#"{origin}{{"owner":"demo","tls":{{"terminate":{{}}}}}}}}"#);
    check(Kind::Host, name(443).to_name(), None, host(Some(tls)), &wanted);
    let client_auth = Some(ClientAuth { authorities: digest(), optional: true });
    let tls = HostTls::Terminate { certificates: vec![certificate()], fallback: UnknownName::Refuse, client_auth };
    let wanted = format!(
        r#"{origin}{{"owner":"demo","tls":{{"terminate":{{"certificates":["demo/shop-tls"],"fallback":"refuse","clientAuth":{{"authorities":"{}","optional":true}}}}}}}}}}"#,
        digest()
    );
    check(Kind::Host, name(443).to_name(), None, host(Some(tls)), &wanted);
    let wanted = format!(r#"{origin}{{"owner":"demo","tls":{{"passthrough":{{"pool":"demo/web/80/"}}}}}}}}"#);
    check(Kind::Host, name(443).to_name(), None, host(Some(HostTls::Passthrough { pool: pool() })), &wanted);
}

fn fragment_name() -> Name {
    FragmentName { source: origin().remove(0), domain: "shop.io".parse().expect("a domain") }.to_name()
}

#[test]
fn a_fragment_at_its_defaults() {
    let action = Action::Forward(ForwardAction::to(vec![Share::Pool { name: pool(), weight: 1 }]));
    let route = RouteAction { action, to_https: None, policies: vec![], response_headers: HeaderChanges::default() };
    let wanted = concat!(
        r#"{"origin":[{"kind":"Ingress","namespace":"demo","name":"shop"}],"#,
        r#""claims":{"listeners":["tcp/80"],"host":"shop.io","matches":[{"path":{"prefix":"/"},"#,
        r#""key":{"rank":[1,1],"created":0,"tie":["demo","shop",0]}}]},"#,
        r#""body":{"actions":[{"action":{"forward":{"shares":[{"pool":{"name":"demo/web/80/","weight":1}}]}}}]}}"#
    );
    let body = Body::Fragment(FragmentBody { actions: vec![route] });
    check(Kind::Fragment, fragment_name(), Some(claims(vec![prefix("/")])), body, wanted);
}

#[test]
fn a_full_fragment() {
    let one = Match {
        method: Some(Method("GET".into())),
        headers: vec![HeaderMatch { name: "x-a".into(), value: ValueMatch::Exact("1".into()) }],
        query: vec![
            QueryMatch { name: "q".into(), value: ValueMatch::Regex("a+".into()) },
            QueryMatch { name: "r".into(), value: ValueMatch::Present },
        ],
        ..prefix("/a")
    };
    let headers = HeaderChanges {
        remove: vec!["server".into()],
        set: vec![("x-b".into(), "2".into())],
        add: vec![("x-c".into(), "3".into())],
    };
    let forward = ForwardAction {
        path: Some(PathRewrite::Prefix("/b".into())),
        host: Some("up.io:8080".into()),
        request_headers: headers.clone(),
        timeouts: Timeouts { connect_ms: Some(1), idle_ms: Some(0), request_ms: Some(3) },
        retries: 0,
        ..ForwardAction::to(vec![Share::Status { status: 503, weight: 1 }])
    };
    let redirect = Redirect {
        status: 302,
        scheme: Some("https".into()),
        host: Some("new.io".into()),
        port: Some(8443),
        path: Some(RedirectPath::Full("/c".into())),
    };
    let route = |action| RouteAction {
        action,
        to_https: Some(ToHttps { status: 308, port: 443 }),
        policies: vec![PolicyName { namespace: "demo".into(), name: "shop".into(), variant: "allow".into() }],
        response_headers: headers.clone(),
    };
    let plain = RouteAction {
        to_https: None,
        policies: vec![],
        response_headers: HeaderChanges::default(),
        ..route(Action::Respond(404))
    };
    let actions = vec![route(Action::Forward(forward)), route(Action::Redirect(redirect)), plain];
    let wanted = concat!(
        r#"{"origin":[{"kind":"Ingress","namespace":"demo","name":"shop"}],"#,
        r#""claims":{"listeners":["tcp/80"],"host":"shop.io","matches":[{"path":{"prefix":"/a"},"method":"GET","#,
        r#""headers":[{"name":"x-a","value":{"exact":"1"}}],"#,
        r#""query":[{"name":"q","value":{"regex":"a+"}},{"name":"r","value":"present"}],"#,
        r#""key":{"rank":[1,1],"created":0,"tie":["demo","shop",0]}},"#,
        r#"{"path":{"exact":"/b"},"key":{"rank":[1,1],"created":0,"tie":["demo","shop",0]}},"#,
        r#"{"path":{"regex":"/c"},"key":{"rank":[1,1],"created":0,"tie":["demo","shop",0]}}]},"#,
        r#""body":{"actions":[{"action":{"forward":{"shares":[{"status":{"status":503,"weight":1}}],"#,
        r#""path":{"prefix":"/b"},"host":"up.io:8080","#,
        r#""requestHeaders":{"remove":["server"],"set":[["x-b","2"]],"add":[["x-c","3"]]},"#,
        r#""timeouts":{"connectMs":1,"idleMs":0,"requestMs":3},"retries":0}},"#,
        r#""toHttps":{"status":308,"port":443},"policies":["demo/shop/allow"],"#,
        r#""responseHeaders":{"remove":["server"],"set":[["x-b","2"]],"add":[["x-c","3"]]}},"#,
        r#"{"action":{"redirect":{"status":302,"scheme":"https","host":"new.io","port":8443,"path":{"full":"/c"}}},"#,
        r#""toHttps":{"status":308,"port":443},"policies":["demo/shop/allow"],"#,
        r#""responseHeaders":{"remove":["server"],"set":[["x-b","2"]],"add":[["x-c","3"]]}},"#,
        r#"{"action":{"respond":404}}]}}"#
    );
    let exact = Match { path: PathMatch::Exact("/b".into()), ..prefix("/") };
    let regex = Match { path: PathMatch::Regex("/c".into()), ..prefix("/") };
    let body = Body::Fragment(FragmentBody { actions });
    check(Kind::Fragment, fragment_name(), Some(claims(vec![one, exact, regex])), body, wanted);
}

#[test]
fn pools_certificates_and_policies() {
    let origin = r#"{"origin":[{"kind":"Ingress","namespace":"demo","name":"shop"}],"body":"#;
    let set = MemberSetName { namespace: "demo".into(), service: "web".into(), port: 80, transport: Transport::Tcp };
    let body = PoolBody { members: MemberSource::Set(set), protocol: UpstreamProtocol::Http1, tls: None };
    let wanted = format!(r#"{origin}{{"members":{{"set":"demo/web:80/tcp"}}}}}}"#);
    check(Kind::Pool, pool().to_name(), None, Body::Pool(body), &wanted);
    let tls = Some(BackendTls { server_name: "up.io".into(), authorities: Some(digest()) });
    let members = MemberSource::Dns { host: "up.io".into(), port: 443 };
    let body = PoolBody { members, protocol: UpstreamProtocol::H2, tls };
    let wanted = format!(
        r#"{origin}{{"members":{{"dns":{{"host":"up.io","port":443}}}},"protocol":"h2","tls":{{"serverName":"up.io","authorities":"{}"}}}}}}"#,
        digest()
    );
    check(Kind::Pool, pool().to_name(), None, Body::Pool(body), &wanted);
    let chain = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".to_owned();
    let wanted = format!(
        r#"{origin}{{"chain":"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n","key":"{}"}}}}"#,
        digest()
    );
    let body = CertificateBody { chain, key: digest() };
    check(Kind::Certificate, certificate().to_name(), None, Body::Certificate(body), &wanted);
    let name = PolicyName { namespace: "demo".into(), name: "shop".into(), variant: String::new() };
    let body = PolicyBody { allow: vec!["10.0.0.0/8".into()] };
    check(Kind::Policy, name.to_name(), None, Body::Policy(body), &format!(r#"{origin}{{"allow":["10.0.0.0/8"]}}}}"#));
}

#[test]
fn a_withheld_resource_keeps_its_claims_and_says_why() {
    let reason = Withheld { code: "AnnotationRefused".into(), message: "the annotation x is not known".into() };
    let id = ResourceId { kind: Kind::Fragment, name: fragment_name() };
    let resource = Envelope::without_body(id.clone(), origin(), Some(claims(vec![])), reason.clone());
    let wanted = concat!(
        r#"{"origin":[{"kind":"Ingress","namespace":"demo","name":"shop"}],"#,
        r#""claims":{"listeners":["tcp/80"],"host":"shop.io","matches":[]},"#,
        r#""withheld":{"code":"AnnotationRefused","message":"the annotation x is not known"}}"#
    );
    assert_eq!(std::str::from_utf8(&resource.bytes), Ok(wanted));
    assert_eq!(load(id, &resource.bytes).expect("the envelope is right").state, State::Withheld(reason));
}
