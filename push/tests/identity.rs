//! Identities and the authority: one form of name, the public key only, client authentication only, a short life.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use push::authority::{Authority, RequestError, bundle_from_pem, key_and_request};
use push::identity::{AgentIdentity, FleetId, IdentityError};
use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
};

fn agent() -> AgentIdentity {
    AgentIdentity::new(FleetId::new("scalws", "default"), "replica-0", "0f3c-77").unwrap()
}

fn authority() -> Authority {
    let minted = Authority::mint("test", SystemTime::now(), Duration::from_secs(3600)).unwrap();
    Authority::from_pem(&minted.certificate_pem, &minted.key_pem).unwrap()
}

#[test]
fn only_one_spelling_names_an_agent() {
    let id = "spiffe://scalws.local/fleet/scalws/default/pod/0f3c-77";
    let parsed: AgentIdentity = id.parse().unwrap();
    assert_eq!(parsed.spiffe_id(), id);
    assert_eq!((&*parsed.fleet.namespace, &*parsed.fleet.name, &*parsed.uid), ("scalws", "default", "0f3c-77"));
    for (wrong, why) in [
        ("spiffe://other.local/fleet/scalws/default/pod/u", IdentityError::Form),
        ("spiffe://scalws.local.evil/fleet/scalws/default/pod/u", IdentityError::Form),
        ("SPIFFE://scalws.local/fleet/scalws/default/pod/u", IdentityError::Form),
        ("spiffe://scalws.local/fleet/scalws/pod/u", IdentityError::Form),
        ("spiffe://scalws.local/fleet/scalws/default/pod/u/", IdentityError::Form),
        ("spiffe://scalws.local/fleet/scalws/default/pod/u/pod/v", IdentityError::Form),
        ("spiffe://scalws.local/fleet/scalws/default/Pod/u", IdentityError::Form),
        ("spiffe://scalws.local/fleet/scalws/default/pod/", IdentityError::Name),
        ("spiffe://scalws.local/fleet//default/pod/u", IdentityError::Name),
        ("spiffe://scalws.local/fleet/scalws/../pod/u", IdentityError::Name),
        ("spiffe://scalws.local/fleet/scalws/default/pod/u?x", IdentityError::Name),
        ("spiffe://scalws.local/fleet/scalws/def%2fault/pod/u", IdentityError::Name),
        ("spiffe://scalws.local/fleet/Scalws/default/pod/u", IdentityError::Name),
        ("https://scalws.local/fleet/scalws/default/pod/u", IdentityError::Form),
        ("", IdentityError::Form),
    ] {
        assert_eq!(wrong.parse::<AgentIdentity>(), Err(why), "{wrong}");
    }
}

#[test]
fn a_signed_certificate_says_what_the_authority_decided_and_nothing_of_the_request() {
    let authority = authority();
    // A request that asks for everything.
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["kubernetes.default".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "system:masters");
    let other = "spiffe://scalws.local/fleet/other/fleet/pod/x".to_owned();
    params.subject_alt_names.push(SanType::URI(other.try_into().unwrap()));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let request = params.serialize_request(&key).unwrap();
    let now = SystemTime::now();
    let signed = authority.sign(request.der(), &agent(), now).unwrap();
    assert_eq!(signed.chain.len(), 1);
    assert_eq!(signed.renew_after, Duration::from_secs(12 * 3600), "half of its life");
    let (_, leaf) = x509_parser::parse_x509_certificate(&signed.chain[0]).unwrap();
    assert_eq!(AgentIdentity::from_certificate(&signed.chain[0]).unwrap().spiffe_id(), agent().spiffe_id());
    assert_eq!(leaf.subject().to_string(), "");
    assert_eq!(leaf.public_key().subject_public_key.data.as_ref(), key.public_key_raw());
    let usage = leaf.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && !usage.server_auth && !usage.any && usage.other.is_empty());
    assert!(!leaf.is_ca());
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    let (from, to) = (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
    assert!(
        (seconds - 86_401..=seconds - 86_399).contains(&from),
        "backdated by a day, so that a clock may be set back"
    );
    assert!((seconds + 86_399..=seconds + 86_401).contains(&to), "a day long");
}

#[test]
fn a_request_with_a_wrong_signature_or_another_kind_of_key_is_refused() {
    let authority = authority();
    let refused = |request: &[u8]| authority.sign(request, &agent(), SystemTime::now()).err();
    let (_, request) = key_and_request().unwrap();
    let mut broken = request.clone();
    *broken.last_mut().unwrap() ^= 1;
    assert_eq!(refused(&broken), Some(RequestError::Request));
    let p384 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let p384 = CertificateParams::default().serialize_request(&p384).unwrap();
    assert_eq!(refused(p384.der()), Some(RequestError::Key));
    let ed25519 = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let ed25519 = CertificateParams::default().serialize_request(&ed25519).unwrap();
    assert_eq!(refused(ed25519.der()), Some(RequestError::Key));
    assert_eq!(refused(b""), Some(RequestError::Request));
    assert_eq!(refused(&[0x30; 100_000]), Some(RequestError::Request));
    assert!(CertificateSigningRequestParams::from_der(&request.as_slice().into()).is_ok(), "the good one is good");
}

#[test]
fn a_certificate_with_several_names_or_none_is_nobody() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::NoCa;
    let none = params.self_signed(&key).unwrap();
    assert_eq!(AgentIdentity::from_certificate(none.der()), Err(IdentityError::Names));
    let uri = || SanType::URI(agent().spiffe_id().try_into().unwrap());
    params.subject_alt_names = vec![uri(), SanType::DnsName("x".to_owned().try_into().unwrap())];
    let two = params.self_signed(&key).unwrap();
    assert_eq!(AgentIdentity::from_certificate(two.der()), Err(IdentityError::Names));
    params.subject_alt_names = vec![uri()];
    let one = params.self_signed(&key).unwrap();
    assert!(AgentIdentity::from_certificate(one.der()).is_ok());
    let mut longer = one.der().to_vec();
    longer.push(0);
    assert_eq!(AgentIdentity::from_certificate(&longer), Err(IdentityError::Certificate));
}

#[test]
fn an_authority_needs_a_matching_pair_and_trusts_all_it_is_given() {
    let now = SystemTime::now();
    let old = Authority::mint("old", now, Duration::from_secs(60)).unwrap();
    let new = Authority::mint("new", now, Duration::from_secs(60)).unwrap();
    assert!(Authority::from_pem(&old.certificate_pem, &new.key_pem).is_err(), "another's key");
    assert!(Authority::from_pem("", &old.key_pem).is_err());
    let both = Authority::from_pem(&format!("{}{}", new.certificate_pem, old.certificate_pem), &new.key_pem).unwrap();
    assert_eq!(both.bundle().len(), 2);
    assert_eq!(both.certificate(), &both.bundle()[0]);
    assert_eq!(bundle_from_pem(&old.certificate_pem).unwrap()[0], both.bundle()[1]);
    // A leaf is no authority.
    let leaf = both.server_identity("controller.scalws.internal", now, Duration::from_secs(60)).unwrap();
    assert!(AgentIdentity::from_certificate(&leaf.chain[0]).is_err());
}

proptest! {
    #[test]
    fn reading_identities_and_requests_never_panics(bytes: Vec<u8>, text: String) {
        let _ = AgentIdentity::from_certificate(&bytes);
        let _ = text.parse::<AgentIdentity>();
        let _ = push::authority::check_request(&bytes);
    }

    #[test]
    fn whatever_is_accepted_is_spelt_the_same_again(text in "spiffe://scalws\\.local/fleet/[a-zA-Z0-9./%-]{0,20}/pod/[a-z0-9/.-]{0,10}") {
        if let Ok(identity) = text.parse::<AgentIdentity>() {
            prop_assert_eq!(identity.spiffe_id(), text);
        }
    }
}
