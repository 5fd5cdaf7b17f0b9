//! Join tokens, and the authority's folder that they are made from.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::fs::PermissionsExt as _;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use push::authority::Authority;
use push::authority_folder::{self, FolderError};
use push::identity::{AgentIdentity, FleetId};
use push::join::{Claims, JoinError, JoinKey};

fn authority() -> Authority {
    let minted = Authority::mint("test", SystemTime::now(), Duration::from_secs(3_600)).unwrap();
    Authority::from_pem(&minted.certificate_pem, &minted.key_pem).unwrap()
}

/// One authority for all cases: making one takes longer than a case.
static KEY: LazyLock<JoinKey> = LazyLock::new(|| JoinKey::of(&authority()));
static OTHER: LazyLock<JoinKey> = LazyLock::new(|| JoinKey::of(&authority()));

fn agents() -> impl Strategy<Value = AgentIdentity> {
    let word = |longest: usize| {
        let pattern = format!("[a-z0-9]([a-z0-9.-]{{0,{}}}[a-z0-9])?", longest - 2);
        proptest::string::string_regex(&pattern).unwrap()
    };
    (word(63), word(253), word(253), word(253)).prop_map(|(namespace, name, pod, uid)| {
        AgentIdentity::new(FleetId::new(&namespace, &name), &pod, &uid).unwrap()
    })
}

proptest! {
    #[test]
    fn a_token_proves_its_agent_until_its_time_is_over_and_only_to_holders_of_the_authority(
        agent in agents(),
        not_after in 1..u64::MAX,
        away in any::<u64>(),
    ) {
        let token = KEY.issue(&Claims { agent: agent.clone(), not_after }).unwrap();
        let before = not_after - away % not_after;
        prop_assert_eq!(KEY.verify(&token, before), Ok(agent.clone()));
        prop_assert_eq!(KEY.verify(&token, not_after), Ok(agent));
        prop_assert_eq!(KEY.verify(&token, not_after + 1), Err(JoinError::Expired));
        prop_assert_eq!(OTHER.verify(&token, before), Err(JoinError::Foreign));
    }

    #[test]
    fn a_token_with_any_byte_changed_added_or_taken_proves_nobody(agent in agents(), at in any::<usize>(), to in any::<u8>()) {
        let token = KEY.issue(&Claims { agent, not_after: 1_000 }).unwrap();
        let at = at % token.len();
        let mut changed = token.as_bytes().to_vec();
        changed[at] = to;
        if let Ok(changed) = String::from_utf8(changed) && changed != *token {
            prop_assert!(KEY.verify(&changed, 1).is_err(), "byte {} changed", at);
        }
        let mut longer = token.as_bytes().to_vec();
        longer.insert(at, to);
        if let Ok(longer) = String::from_utf8(longer) {
            prop_assert!(KEY.verify(&longer, 1).is_err(), "byte {} added", at);
        }
        let mut shorter = token.to_string();
        shorter.remove(at);
        prop_assert!(KEY.verify(&shorter, 1).is_err(), "byte {} taken", at);
        prop_assert!(KEY.verify(&token[..at], 1).is_err(), "cut at {}", at);
    }

    #[test]
    fn no_text_makes_it_panic_or_proves_anybody(text in ".{0,3000}", form in "[A-Za-z0-9_-]{0,80}\\.[A-Za-z0-9_-]{43}") {
        prop_assert!(KEY.verify(&text, 0).is_err());
        prop_assert!(KEY.verify(&form, 0).is_err());
    }
}

#[test]
fn a_token_without_a_pod_or_with_names_that_cannot_be_is_not_made() {
    let good = AgentIdentity::new(FleetId::new("scalws", "default"), "replica-0", "uid-0").unwrap();
    let refused = |agent| KEY.issue(&Claims { agent, not_after: 1 }).err();
    assert_eq!(refused(AgentIdentity { pod: String::new(), ..good.clone() }), Some(JoinError::Name));
    assert_eq!(refused(AgentIdentity { uid: "a/b".to_owned(), ..good.clone() }), Some(JoinError::Name));
    assert_eq!(refused(AgentIdentity { fleet: FleetId::new("A", "b"), ..good }), Some(JoinError::Name));
}

#[test]
fn what_is_said_of_a_bad_token_does_not_hold_any_of_it() {
    let agent = AgentIdentity::new(FleetId::new("scalws", "default"), "replica-0", "uid-0").unwrap();
    let token = KEY.issue(&Claims { agent, not_after: 5 }).unwrap();
    assert_eq!(KEY.verify(&token, 6).unwrap_err().to_string(), "the join token has expired");
    assert_eq!(OTHER.verify(&token, 1).unwrap_err().to_string(), "the join token is not of this authority");
    assert_eq!(KEY.verify("x", 1).unwrap_err().to_string(), "not a join token");
    assert_eq!(format!("{:?}", *KEY), "JoinKey");
}

#[test]
fn an_authority_is_made_once_read_by_its_owner_and_its_tokens_are_everywhere_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("new/authority");
    let make = || authority_folder::make(&folder, "test", SystemTime::now(), Duration::from_secs(3_600));
    make().unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (certificate, key) = (folder.join("ca.crt"), folder.join("ca.key"));
    assert_eq!((mode(&folder), mode(&certificate), mode(&key)), (0o700, 0o600, 0o600));

    // Two controllers that read it take each other's tokens.
    let (one, other) = (authority_folder::read(&folder).unwrap(), authority_folder::read(&folder).unwrap());
    let agent = AgentIdentity::new(FleetId::new("scalws", "default"), "replica-0", "uid-0").unwrap();
    let token = JoinKey::of(&one).issue(&Claims { agent: agent.clone(), not_after: 5 }).unwrap();
    assert_eq!(JoinKey::of(&other).verify(&token, 5), Ok(agent));

    // Neither half is ever overwritten, and no half stays.
    let before = std::fs::read(&key).unwrap();
    assert!(matches!(make(), Err(FolderError::Exists { path }) if path == certificate));
    std::fs::rename(&certificate, folder.join("old.crt")).unwrap();
    assert!(matches!(make(), Err(FolderError::Exists { path }) if path == key));
    assert!(!certificate.exists(), "a certificate without its key stayed behind");
    assert_eq!(std::fs::read(&key).unwrap(), before, "the key was touched");
    std::fs::rename(folder.join("old.crt"), &certificate).unwrap();

    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let said = authority_folder::read(&folder).unwrap_err().to_string();
    assert!(said.contains("0644") && said.contains(&format!("chmod 600 {}", key.display())), "{said}");
    std::fs::remove_file(&key).unwrap();
    let said = authority_folder::read(&folder).unwrap_err().to_string();
    assert!(said.contains("ca.key"), "{said}");
}
