//! Loading: which faults break an envelope, which only make a resource not live, and that nothing panics.

use config::*;
use proptest::prelude::*;

const DIGEST: &str = "abababababababababababababababababababababababababababababababab";

fn id(kind: Kind, name: &str) -> ResourceId {
    ResourceId { kind, name: Name::from_wire(name) }
}

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Listener => "tcp/443",
        Kind::Host => "tcp/443/shop.io",
        Kind::Fragment => "Ingress/demo/shop/shop.io",
        Kind::Pool => "demo/web/80/",
        Kind::Certificate => "demo/tls",
        Kind::Policy => "demo/shop/allow",
    }
}

/// A fragment with one prefix match and this action.
fn fragment(matched: &str, action: &str) -> String {
    format!(
        r#"{{"claims":{{"listeners":["tcp/80"],"host":"shop.io","matches":[{matched}]}},"body":{{"actions":[{action}]}}}}"#
    )
}

const PREFIX: &str = r#"{"path":{"prefix":"/a"},"key":{"rank":[],"created":0,"tie":["","",0]}}"#;

/// The message of a resource that is not live, with its code.
fn not_live(kind: Kind, bytes: &str) -> (&'static str, String) {
    match load(id(kind, name_of(kind)), bytes.as_bytes()).map(|loaded| loaded.state) {
        Ok(State::NotLive { code, message }) => (code, message),
        other => panic!("{bytes}: {other:?}"),
    }
}

#[test]
fn a_broken_envelope_is_an_error_that_names_the_resource() {
    let fine = r#"{"body":{"protocol":"http"}}"#;
    let long = format!("{}/b", "a".repeat(1024));
    let cases: Vec<(Kind, &str, &str, &str)> = vec![
        (Kind::Listener, "tcp/0", fine, "not a port"),
        (Kind::Listener, "tcp/080", fine, "not a port"),
        (Kind::Listener, "sctp/80", fine, "neither tcp nor udp"),
        (Kind::Listener, "tcp/80/x", fine, "wrong number of parts"),
        (Kind::Host, "tcp/80/Shop.io", r#"{"body":{"owner":"demo"}}"#, "not in its normal form"),
        (Kind::Pool, "demo/%77eb/80/", fine, "not in its canonical form"),
        (Kind::Certificate, &long, fine, "longer than"),
        (Kind::Listener, "tcp/80", "", "not a JSON object"),
        (Kind::Listener, "tcp/80", "[]", "not a JSON object"),
        (Kind::Listener, "tcp/80", "{\"body\":\n{\"protocol\":\"http\"}}", "control byte at offset 8"),
        (Kind::Listener, "tcp/80", "{}", "exactly one of body and withheld"),
        (Kind::Listener, "tcp/80", r#"{"body":{},"withheld":{"code":"A","message":"b"}}"#, "exactly one of"),
        (Kind::Listener, "tcp/80", r#"{"body":{},"body":{}}"#, "duplicate field"),
        (Kind::Listener, "tcp/80", r#"{"v":0,"body":{}}"#, "count from 1"),
        (Kind::Listener, "tcp/80", r#"{"body":{},"more":1}"#, "unknown field"),
        (Kind::Listener, "tcp/80", r#"{"withheld":{"code":"no word","message":"b"}}"#, "is not a word"),
        (
            Kind::Listener,
            "tcp/80",
            r#"{"claims":{"listeners":[],"host":"*","matches":[]},"body":{}}"#,
            "exactly the fragments",
        ),
        (Kind::Fragment, "Ingress/demo/shop/shop.io", r#"{"body":{"actions":[]}}"#, "exactly the fragments"),
        (
            Kind::Fragment,
            "Ingress/demo/shop/other.io",
            r#"{"claims":{"listeners":[],"host":"shop.io","matches":[]},"body":{"actions":[]}}"#,
            "not the domain of the name",
        ),
        (
            Kind::Listener,
            "tcp/80",
            r#"{"origin":[{"kind":"A","namespace":"","name":"a\nb"}],"body":{}}"#,
            "no object can have",
        ),
    ];
    for (kind, name, bytes, wanted) in cases {
        let error = load(id(kind, name), bytes.as_bytes()).expect_err(bytes);
        assert!(error.why.contains(wanted), "{bytes}: {}", error.why);
        assert_eq!(error.id, id(kind, name));
    }
}

#[test]
fn claims_outside_the_frozen_grammar_break_the_envelope() {
    let key = r#""key":{"rank":[],"created":0,"tie":["","",0]}"#;
    let cases = [
        (r#""path":{"prefix":"a"}"#, "does not start with '/'"),
        (r#""path":{"exact":""}"#, "does not start with '/'"),
        (r#""path":{"prefix":"/a/"}"#, "without its last '/'"),
        (r#""path":{"suffix":"/a"}"#, "unknown variant"),
        (r#""path":{"prefix":"/"},"method":"GE T""#, "not a method"),
        (r#""path":{"prefix":"/"},"headers":[{"name":"X-A","value":"present"}]"#, "lower case"),
        (r#""path":{"prefix":"/"},"headers":[{"name":"x-a:","value":"present"}]"#, "not a header name"),
        (
            r#""path":{"prefix":"/"},"headers":[{"name":"x","value":"present"},{"name":"x","value":"present"}]"#,
            "occurs twice",
        ),
        (r#""path":{"prefix":"/"},"query":[{"name":"","value":"present"}]"#, "it is empty"),
    ];
    for (fields, wanted) in cases {
        let bytes = fragment(&format!("{{{fields},{key}}}"), r#"{"action":{"respond":404}}"#);
        let error = load(id(Kind::Fragment, name_of(Kind::Fragment)), bytes.as_bytes()).expect_err(fields);
        assert!(error.why.contains(wanted), "{fields}: {}", error.why);
    }
    let unsorted =
        r#"{"claims":{"listeners":["tcp/443","tcp/80","tcp/80"],"host":"shop.io","matches":[]},"body":{"actions":[]}}"#;
    let error = load(id(Kind::Fragment, name_of(Kind::Fragment)), unsorted.as_bytes()).expect_err("not sorted");
    assert!(error.why.contains("not sorted"), "{}", error.why);
}

#[test]
fn a_regular_expression_that_cannot_be_built_is_no_fault_of_the_envelope() {
    let matched = r#"{"path":{"regex":"/(("},"key":{"rank":[],"created":0,"tie":["","",0]}}"#;
    let bytes = fragment(matched, r#"{"action":{"respond":404}}"#);
    let loaded = load(id(Kind::Fragment, name_of(Kind::Fragment)), bytes.as_bytes()).expect("the envelope is right");
    assert!(matches!(loaded.state, State::Live(_)));
}

#[test]
fn what_a_newer_controller_may_say_is_unsupported_and_keeps_its_claims() {
    let newer = fragment(PREFIX, r#"{"action":{"respond":404}}"#).replacen('{', r#"{"v":2,"#, 1);
    let (code, message) = not_live(Kind::Fragment, &newer);
    assert_eq!(code, CODE_UNSUPPORTED);
    assert!(message.contains("schema version 2"), "{message}");
    let loaded = load(id(Kind::Fragment, name_of(Kind::Fragment)), newer.as_bytes()).expect("the envelope is right");
    assert_eq!(loaded.claims.map(|claims| claims.matches.len()), Some(1));
    for (kind, bytes) in [
        (Kind::Listener, r#"{"body":{"protocol":"quic"}}"#.to_owned()),
        (Kind::Listener, r#"{"body":{"protocol":"http","colour":"red"}}"#.to_owned()),
        (Kind::Fragment, fragment(PREFIX, r#"{"action":{"cache":1}}"#)),
        (Kind::Fragment, fragment(PREFIX, r#"{"action":{"respond":404},"cors":{}}"#)),
    ] {
        assert_eq!(not_live(kind, &bytes).0, CODE_UNSUPPORTED, "{bytes}");
    }
}

#[test]
fn a_body_against_a_rule_is_invalid_and_says_where() {
    let forward = |more: &str| {
        format!(r#"{{"action":{{"forward":{{"shares":[{{"status":{{"status":503,"weight":1}}}}]{more}}}}}}}"#)
    };
    let redirect = |fields: &str| format!(r#"{{"action":{{"redirect":{{{fields}}}}}}}"#);
    let routes = [
        (forward(r#","path":{"full":"b"}"#), "action.forward.path.full"),
        (forward(r#","path":{"full":"/b c"}"#), "must be percent-encoded"),
        (forward(r#","path":{"prefix":"/b?x=1"}"#), "must be percent-encoded"),
        (forward(r#","path":{"template":"/$1"}"#), "only a regular expression"),
        (forward(r#","host":"a/b""#), "action.forward.host"),
        (forward(r#","host":"a.io:0""#), "no valid port"),
        (forward(r#","retries":11"#), "retries: 11"),
        (forward(r#","timeouts":{"idleMs":1000000000001}"#), "timeouts.idleMs"),
        (forward(r#","requestHeaders":{"set":[["a b","c"]]}"#), "requestHeaders.set[0]"),
        (forward(r#","requestHeaders":{"set":[["A","c"]]}"#), "lower case"),
        (forward(r#","requestHeaders":{"add":[["a","b\r\nc: d"]]}"#), "control character"),
        (forward(r#","requestHeaders":{"add":[["a"," b"]]}"#), "begins or ends with a space"),
        (forward(r#","requestHeaders":{"add":[["transfer-encoding","chunked"]]}"#), "by the proxy alone"),
        (forward(r#","requestHeaders":{"remove":["host"]}"#), "by the proxy alone"),
        (forward(r#","requestHeaders":{"set":[["a","b"],["a","c"]]}"#), "occurs twice"),
        (r#"{"action":{"forward":{"shares":[]}}}"#.to_owned(), "at least one"),
        (r#"{"action":{"forward":{"shares":[{"status":{"status":99,"weight":1}}]}}}"#.to_owned(), "shares[0].status"),
        (
            r#"{"action":{"forward":{"shares":[{"status":{"status":500,"weight":1000001}}]}}}"#.to_owned(),
            "shares[0].weight",
        ),
        (r#"{"action":{"respond":101}}"#.to_owned(), "action.respond: 101"),
        (redirect(r#""status":300"#), "status: 300"),
        (redirect(r#""status":302,"scheme":"javascript""#), "scheme"),
        (redirect(r#""status":302,"host":"*.io""#), "not a wildcard"),
        (redirect(r#""status":302,"host":"[::1""#), "action.redirect.host"),
        (redirect(r#""status":302,"port":0"#), "port: 0"),
        (redirect(r#""status":302,"path":{"full":"//x\r\ny"}"#), "path.full"),
        (r#"{"action":{"respond":404},"toHttps":{"status":200,"port":443}}"#.to_owned(), "toHttps.status"),
    ];
    let mut cases: Vec<(Kind, String, &str)> =
        routes.iter().map(|(route, wanted)| (Kind::Fragment, fragment(PREFIX, route), *wanted)).collect();
    let exact = PREFIX.replace("prefix", "exact");
    cases.push((Kind::Fragment, fragment(&exact, &forward(r#","path":{"prefix":"/b"}"#)), "only a prefix match"));
    cases.push((Kind::Fragment, fragment(&exact, ""), "0 for 1 matches"));
    for (kind, body, wanted) in [
        (Kind::Listener, r#"["http"]"#, "not a JSON object"),
        (Kind::Listener, r#"{"protocol":"raw"}"#, "pool"),
        (Kind::Listener, r#"{"protocol":"http","unknownName":"refuse"}"#, "only a tls listener"),
        (Kind::Host, r#"{"owner":"a\nb"}"#, "owner"),
        (
            Kind::Host,
            r#"{"owner":"a","tls":{"terminate":{"clientAuth":{"authorities":"../../etc/passwd"}}}}"#,
            "64 lower-case",
        ),
        (Kind::Pool, r#"{"members":{"dns":{"host":"*.io","port":80}}}"#, "not a wildcard"),
        (Kind::Pool, r#"{"members":{"dns":{"host":"a.io","port":0}}}"#, "members.dns.port"),
        (Kind::Pool, r#"{"members":{"dns":{"host":"a.io","port":80000}}}"#, "u16"),
        (Kind::Pool, r#"{"members":{"set":"demo/web:80"}}"#, "wrong number of parts"),
        (Kind::Pool, r#"{"members":{"dns":{"host":"a.io","port":80}},"tls":{"serverName":""}}"#, "tls.serverName"),
        (Kind::Certificate, r#"{"chain":"x","key":"AB"}"#, "no certificate"),
        (Kind::Certificate, r#"{"chain":"-----BEGIN CERTIFICATE-----","key":"../x"}"#, "key: not 64"),
        (
            Kind::Certificate,
            r#"{"chain":"-----BEGIN CERTIFICATE----------BEGIN EC PRIVATE KEY-----"}"#,
            "missing field",
        ),
        (Kind::Policy, r#"{"allow":["10.0.0.0/8","10.0.0.0/33"]}"#, "allow[1]"),
        (Kind::Policy, r#"{"allow":"10.0.0.0/8"}"#, "expected a sequence"),
    ] {
        cases.push((kind, format!(r#"{{"body":{body}}}"#), wanted));
    }
    for (kind, bytes, wanted) in cases {
        let (code, message) = not_live(kind, &bytes);
        assert_eq!(code, CODE_INVALID, "{bytes}: {message}");
        assert!(message.contains(wanted), "{bytes}: {message}");
        assert!(!message.chars().any(char::is_control), "{message:?}");
    }
    let udp = load(id(Kind::Listener, "udp/53"), br#"{"body":{"protocol":"http"}}"#).expect("the envelope is right");
    assert!(matches!(udp.state, State::NotLive { message, .. } if message.contains("udp")));
}

#[test]
fn a_private_key_in_a_chain_is_refused_and_not_shown() {
    let chain = "-----BEGIN CERTIFICATE-----AA-----END CERTIFICATE----------BEGIN PRIVATE KEY-----c2VjcmV0";
    let (_, message) = not_live(Kind::Certificate, &format!(r#"{{"body":{{"chain":"{chain}","key":"{DIGEST}"}}}}"#));
    assert!(message.contains("private key") && !message.contains("c2VjcmV0"), "{message}");
}

#[test]
fn bounds_hold_at_the_bound_and_one_above() {
    let policy = |bytes: usize| {
        // `{"allow":["…"]}` without the text is 14 bytes.
        format!(r#"{{"body":{{"allow":["{}"]}}}}"#, "x".repeat(bytes - 14))
    };
    assert!(not_live(Kind::Policy, &policy(limits::BODY_BYTES_MAX)).1.contains("allow[0]"));
    assert!(not_live(Kind::Policy, &policy(limits::BODY_BYTES_MAX + 1)).1.contains("a body of"));
    let matches = |count: usize| {
        let matches = vec![PREFIX; count].join(",");
        format!(
            r#"{{"claims":{{"listeners":[],"host":"shop.io","matches":[{matches}]}},"withheld":{{"code":"A","message":""}}}}"#
        )
    };
    let load = |count| load(id(Kind::Fragment, name_of(Kind::Fragment)), matches(count).as_bytes());
    assert!(load(limits::MATCHES_MAX).is_ok());
    assert!(load(limits::MATCHES_MAX + 1).is_err());
}

#[test]
fn a_long_fault_gives_a_short_message() {
    let (_, message) = not_live(Kind::Listener, &format!(r#"{{"body":{{"{}":1}}}}"#, "\u{e4}\\u0001".repeat(10_000)));
    assert!(message.chars().count() <= limits::MESSAGE_CHARS_MAX + 1, "{}", message.len());
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/.]{0,6}", any::<String>()]
}

fn path_match() -> impl Strategy<Value = PathMatch> {
    prop_oneof![
        text().prop_map(PathMatch::Exact),
        text().prop_map(PathMatch::Prefix),
        text().prop_map(PathMatch::Regex)
    ]
}

fn value_match() -> impl Strategy<Value = ValueMatch> {
    prop_oneof![Just(ValueMatch::Present), text().prop_map(ValueMatch::Exact), text().prop_map(ValueMatch::Regex)]
}

fn one_match() -> impl Strategy<Value = Match> {
    let conditions = || prop::collection::vec((text(), value_match()), 0..3);
    let key = (prop::collection::vec(any::<u32>(), 0..3), any::<i64>(), (text(), text(), any::<u32>()))
        .prop_map(|(rank, created, tie)| OrderKey { rank, created, tie });
    (path_match(), prop::option::of(text()), conditions(), conditions(), key).prop_map(
        |(path, method, headers, query, key)| Match {
            path,
            method: method.map(Method),
            headers: headers.into_iter().map(|(name, value)| HeaderMatch { name, value }).collect(),
            query: query.into_iter().map(|(name, value)| QueryMatch { name, value }).collect(),
            key,
        },
    )
}

fn headers() -> impl Strategy<Value = HeaderChanges> {
    let pairs = || prop::collection::vec((text(), text()), 0..3);
    (prop::collection::vec(text(), 0..3), pairs(), pairs()).prop_map(|(remove, set, add)| HeaderChanges {
        remove,
        set,
        add,
    })
}

fn pool_name() -> impl Strategy<Value = PoolName> {
    (text(), text(), 1u16.., text()).prop_map(|(namespace, service, port, variant)| PoolName {
        namespace,
        service,
        port,
        variant,
    })
}

fn action() -> impl Strategy<Value = Action> {
    let share = prop_oneof![
        (pool_name(), any::<u32>()).prop_map(|(name, weight)| Share::Pool { name, weight }),
        (any::<u16>(), any::<u32>()).prop_map(|(status, weight)| Share::Status { status, weight }),
    ];
    let rewrite = prop_oneof![
        text().prop_map(PathRewrite::Full),
        text().prop_map(PathRewrite::Prefix),
        text().prop_map(PathRewrite::Template),
    ];
    let timeouts = (any::<Option<u64>>(), any::<Option<u64>>(), any::<Option<u64>>())
        .prop_map(|(connect_ms, idle_ms, request_ms)| Timeouts { connect_ms, idle_ms, request_ms });
    let forward = (
        prop::collection::vec(share, 0..3),
        prop::option::of(rewrite),
        prop::option::of(text()),
        headers(),
        timeouts,
        any::<u8>(),
    )
        .prop_map(|(shares, path, host, request_headers, timeouts, retries)| {
            Action::Forward(ForwardAction { shares, path, host, request_headers, timeouts, retries })
        });
    let redirect_path = prop_oneof![text().prop_map(RedirectPath::Full), text().prop_map(RedirectPath::Prefix)];
    let redirect = (
        any::<u16>(),
        prop::option::of(text()),
        prop::option::of(text()),
        any::<Option<u16>>(),
        prop::option::of(redirect_path),
    )
        .prop_map(|(status, scheme, host, port, path)| Action::Redirect(Redirect { status, scheme, host, port, path }));
    prop_oneof![3 => forward, 1 => redirect, 1 => any::<u16>().prop_map(Action::Respond)]
}

fn body() -> impl Strategy<Value = Body> {
    let route = (action(), any::<Option<(u16, u16)>>(), headers()).prop_map(|(action, to_https, response_headers)| {
        let to_https = to_https.map(|(status, port)| ToHttps { status, port });
        RouteAction { action, to_https, policies: vec![], response_headers }
    });
    let fragment = prop::collection::vec(route, 0..4).prop_map(|actions| Body::Fragment(FragmentBody { actions }));
    let certificates = || {
        let name = (text(), text()).prop_map(|(namespace, name)| CertificateName { namespace, name });
        prop::collection::vec(name, 0..3)
    };
    let client_auth = (text(), any::<bool>())
        .prop_map(|(digest, optional)| ClientAuth { authorities: SecretDigest(digest.as_str().into()), optional });
    let tls = prop_oneof![
        (certificates(), any::<bool>(), prop::option::of(client_auth)).prop_map(
            |(certificates, refuse, client_auth)| {
                let fallback = if refuse { UnknownName::Refuse } else { UnknownName::Default };
                HostTls::Terminate { certificates, fallback, client_auth }
            }
        ),
        (certificates(), pool_name()).prop_map(|(certificates, pool)| HostTls::Stream { certificates, pool }),
        pool_name().prop_map(|pool| HostTls::Passthrough { pool }),
    ];
    let host = (text(), prop::option::of(tls)).prop_map(|(owner, tls)| Body::Host(HostBody { owner, tls }));
    let certificate = (text(), text())
        .prop_map(|(chain, key)| Body::Certificate(CertificateBody { chain, key: SecretDigest(key.as_str().into()) }));
    let policy = prop::collection::vec(text(), 0..3).prop_map(|allow| Body::Policy(PolicyBody { allow }));
    let pool = (text(), any::<u16>(), prop::option::of(text())).prop_map(|(host, port, server_name)| {
        let tls = server_name.map(|server_name| BackendTls { server_name, authorities: None });
        Body::Pool(PoolBody { members: MemberSource::Dns { host, port }, protocol: UpstreamProtocol::H2, tls })
    });
    prop_oneof![4 => fragment, 2 => host, 1 => certificate, 1 => policy, 1 => pool]
}

proptest! {
    #[test]
    fn a_body_is_read_back_as_it_was(body in body()) {
        let text = body.to_json();
        prop_assert!(text.bytes().all(|byte| byte >= 0x20));
        let read = Body::from_json(body.kind(), &text);
        prop_assert_eq!(read.as_ref(), Ok(&body));
        // Equal bodies have equal bytes, so digests can be compared instead.
        prop_assert_eq!(read.map(|body| body.to_json()), Ok(text));
    }

    #[test]
    fn an_envelope_is_read_back_as_it_was(
        matches in prop::collection::vec(one_match(), 0..4),
        origin in prop::collection::vec((text(), text(), text()), 0..3),
        body in body(), withhold in any::<bool>(),
    ) {
        let origin: Vec<_> = origin.into_iter().map(|(kind, namespace, name)| ObjectRef { kind, namespace, name }).collect();
        let id = id(body.kind(), name_of(body.kind()));
        let claims = (body.kind() == Kind::Fragment)
            .then(|| Claims { listeners: vec![], host: "shop.io".parse().expect("a domain"), matches });
        let mut resource = Envelope::with_body(id.clone(), origin.clone(), claims.clone(), &body);
        if withhold {
            let reason = Withheld { code: "Condemned".into(), message: "it killed a proxy".into() };
            resource = Envelope::withhold(&resource, reason).expect("the envelope is right");
        }
        let envelope = Envelope::decode(&id, &resource.bytes).expect("what was written is read");
        prop_assert_eq!((envelope.claims, envelope.origin), (claims, origin));
        prop_assert_eq!(envelope.withheld.is_some(), withhold);
        if let Some(raw) = envelope.body {
            prop_assert_eq!(Body::from_json(id.kind, raw.get()), Ok(body));
        }
        // Loading decides, and never panics, whatever the texts hold.
        let _ = load(id, &resource.bytes);
    }

    #[test]
    fn no_bytes_make_loading_panic(
        kind in prop::sample::select(Kind::ALL.to_vec()), name in any::<String>(), own in any::<bool>(),
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..64),
            "[\\[{\"a-z:,0-9}\\]]{0,48}".prop_map(String::into_bytes),
        ],
    ) {
        let name = if own { name_of(kind) } else { name.as_str() };
        let _ = load(id(kind, name), &bytes);
    }

    #[test]
    fn no_mutation_of_valid_bytes_makes_loading_panic(
        body in body(), one in one_match(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0x20u8.., 0u8..3), 0..4),
    ) {
        let id = id(body.kind(), name_of(body.kind()));
        let claims = (body.kind() == Kind::Fragment)
            .then(|| Claims { listeners: vec![], host: "shop.io".parse().expect("a domain"), matches: vec![one] });
        let mut bytes = Envelope::with_body(id.clone(), vec![], claims, &body).bytes.to_vec();
        for (at, byte, how) in edits {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => { bytes.remove(at); }
            }
        }
        if let Ok(loaded) = load(id, &bytes) {
            prop_assert_eq!(loaded.claims.is_some(), loaded.id.kind == Kind::Fragment);
        }
    }

    #[test]
    fn deep_nesting_is_refused(depth in 100usize..4_000) {
        let bytes = format!("{{\"body\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        let _ = load(id(Kind::Listener, "tcp/80"), bytes.as_bytes());
    }
}

#[test]
fn order_keys_are_a_total_order_in_which_a_missing_number_is_zero() {
    let key =
        |rank: &[u32], created, tie: u32| OrderKey { rank: rank.to_vec(), created, tie: ("a".into(), "b".into(), tie) };
    let mut keys = [
        key(&[1, 2], 5, 0),
        key(&[2], 9, 0),
        key(&[2, 1], 9, 0),
        key(&[], 1, 0),
        key(&[1, 2], 4, 1),
        key(&[1, 2], 4, 0),
    ];
    keys.sort();
    let order: Vec<_> = keys.iter().map(|key| (key.rank.clone(), key.created, key.tie.2)).collect();
    let wanted = vec![
        (vec![2, 1], 9, 0),
        (vec![2], 9, 0),
        (vec![1, 2], 4, 0),
        (vec![1, 2], 4, 1),
        (vec![1, 2], 5, 0),
        (vec![], 1, 0),
    ];
    assert_eq!(order, wanted);
    let (short, long) = (key(&[1], 0, 0), key(&[1, 0], 0, 0));
    assert_ne!(short.cmp(&long), std::cmp::Ordering::Equal);
    assert!(key(&[1, 0], 1, 0) > short && key(&[1], 1, 0) > long);
}
