//! Names and domains: two different tuples never share a text, and no text has two readings.

use config::*;
use proptest::prelude::*;

fn part() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9-]{0,8}", "[/%.:*a]{0,6}", any::<String>()]
}

fn domain() -> impl Strategy<Value = Domain> {
    let name = "[a-z0-9_-]{1,5}(\\.[a-z0-9_-]{1,5}){0,3}";
    (prop::sample::select(vec!["", "*.", "**."]), name)
        .prop_map(|(wildcard, name)| format!("{wildcard}{name}").parse().expect("a domain"))
}

fn port() -> impl Strategy<Value = u16> {
    1u16..
}

proptest! {
    #[test]
    fn equal_names_come_from_equal_tuples(
        a in (part(), part(), port(), part()),
        b in (part(), part(), port(), part()),
    ) {
        let pool = |(namespace, service, port, variant): (String, String, u16, String)| {
            PoolName { namespace, service, port, variant }
        };
        let (a, b) = (pool(a), pool(b));
        prop_assert_eq!(a == b, a.to_name() == b.to_name());
        prop_assert_eq!(PoolName::from_name(&a.to_name()), Ok(a));
    }

    #[test]
    fn every_name_is_read_back(
        (kind, namespace, name, variant) in (part(), part(), part(), part()),
        domain in domain(), port in port(), udp in any::<bool>(),
    ) {
        let transport = if udp { Transport::Udp } else { Transport::Tcp };
        let listener = ListenerName { transport, port };
        prop_assert_eq!(ListenerName::from_name(&listener.to_name()), Ok(listener));
        let host = HostName { listener, domain: domain.clone() };
        prop_assert_eq!(HostName::from_name(&host.to_name()), Ok(host));
        let source = ObjectRef { kind, namespace: namespace.clone(), name: name.clone() };
        let fragment = FragmentName { source, domain };
        prop_assert_eq!(FragmentName::from_name(&fragment.to_name()), Ok(fragment));
        let certificate = CertificateName { namespace: namespace.clone(), name: name.clone() };
        prop_assert_eq!(CertificateName::from_name(&certificate.to_name()), Ok(certificate));
        let policy = PolicyName { namespace: namespace.clone(), name: name.clone(), variant };
        prop_assert_eq!(PolicyName::from_name(&policy.to_name()), Ok(policy));
        let set = MemberSetName { namespace, service: name, port, transport };
        prop_assert_eq!(MemberSetName::from_name(&set.to_name()), Ok(set));
    }

    #[test]
    fn a_text_that_is_read_is_the_only_text_of_its_name(
        kind in prop::sample::select(Kind::ALL.to_vec()),
        text in prop_oneof!["(tcp|TCP|udp)/0?[0-9]{1,5}(/[a-zA-Z.*]{0,6})?", "[a-z%0-9A-F]{0,4}(/[a-z%0-9A-F:]{0,4}){1,3}", any::<String>()],
    ) {
        let id = ResourceId { kind, name: Name::from_wire(text) };
        if let Ok(name) = TypedName::of(&id) {
            prop_assert_eq!(name.kind(), kind);
            let again = match name {
                TypedName::Listener(name) => name.to_name(),
                TypedName::Host(name) => name.to_name(),
                TypedName::Fragment(name) => name.to_name(),
                TypedName::Pool(name) => name.to_name(),
                TypedName::Certificate(name) => name.to_name(),
                TypedName::Policy(name) => name.to_name(),
            };
            prop_assert_eq!(again, id.name);
        }
    }

    #[test]
    fn a_domain_has_one_normal_form(text in prop_oneof![any::<String>(), "[*a-zA-Z0-9._-]{0,12}"]) {
        if let Ok(domain) = text.parse::<Domain>() {
            prop_assert_eq!(domain.as_str().parse::<Domain>(), Ok(domain.clone()));
            prop_assert_eq!(text.to_uppercase().parse::<Domain>().ok(), text.is_ascii().then_some(domain));
        }
    }

    #[test]
    fn domains_cover_what_their_form_says(name in "[a-c_]{1,2}(\\.[a-c_]{1,2}){1,4}") {
        let parse = |text: String| text.parse::<Domain>().expect("a domain");
        prop_assert!(Domain::any().covers(&name));
        prop_assert!(parse(name.clone()).covers(&name));
        let labels: Vec<&str> = name.split('.').collect();
        for cut in 1..labels.len() {
            let rest = labels[cut..].join(".");
            let (one, many) = (parse(format!("*.{rest}")), parse(format!("**.{rest}")));
            // One label for `*`, one or more for `**`, and never the rest itself.
            prop_assert_eq!(one.covers(&name), cut == 1);
            prop_assert!(many.covers(&name));
            prop_assert!(!one.covers(&rest));
            prop_assert!(!many.covers(&rest));
            prop_assert!(!parse(rest).covers(&name));
        }
    }
}

#[test]
fn texts_that_are_no_domains_are_refused() {
    let long = "a".repeat(64);
    for text in ["", ".", "a..b", ".a", "a.*", "*a.b", "***.a", "*.", "*.*.a", "a b", "a/b", "ä.io", "a:80", &long] {
        assert!(text.parse::<Domain>().is_err(), "{text:?}");
    }
    assert_eq!("SHOP.io.".parse::<Domain>().map(|domain| domain.to_string()), Ok("shop.io".to_owned()));
}
