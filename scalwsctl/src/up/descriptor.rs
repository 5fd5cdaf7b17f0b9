//! What the supervisor and its children say to each other on the children's stdin and stdout: one JSON object a line.
//!
//! Secrets travel on these pipes only: never as arguments, in the environment or in files.

use serde::{Deserialize, Deserializer, Serialize};
use zeroize::Zeroizing;

/// The longest line that is read from a child, in bytes.
pub const LINE_LIMIT: usize = 64 * 1024;

/// What the controller says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromController {
    /// Its two gRPC listeners are open.
    Listening(Addresses),
    /// An agent enrols with this token.
    Redeem(Redeem),
}

/// Where the controller listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// For enrolment.
    pub enroll: String,
    /// For the push stream.
    pub push: String,
}

/// A token to be judged.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct Redeem {
    /// Repeated in the answer.
    pub id: u64,
    /// The token.
    #[serde(deserialize_with = "secret")]
    pub token: Zeroizing<String>,
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Zeroizing<String>, D::Error> {
    String::deserialize(deserializer).map(Zeroizing::new)
}

impl std::fmt::Debug for Redeem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redeem").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What the controller is told.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToController<'a> {
    /// The first line: what it signs with.
    Authority {
        /// PEM.
        ca_certificate_pem: &'a str,
        /// PKCS#8 PEM.
        ca_key_pem: &'a str,
    },
    /// The answer to [`FromController::Redeem`].
    Redeemed {
        /// From the question.
        id: u64,
        /// Whose token it was; `None` if it is not good.
        agent: Option<Agent>,
    },
}

/// Who an agent is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Agent {
    /// Its fleet.
    pub fleet: Fleet,
    /// The name of its pod.
    pub pod: String,
    /// The uid of its pod.
    pub uid: String,
}

/// A fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fleet {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Fleet {
    /// The only fleet outside a cluster.
    pub fn local() -> Fleet {
        Fleet { namespace: "scalws".to_owned(), name: "default".to_owned() }
    }
}

/// What an agent says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromAgent {
    /// It needs something.
    Need(Need),
}

/// What an agent can need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// A token, and where and whom to enrol with.
    Credentials,
    /// Where the controller is now.
    Addresses,
}

/// What an agent is told.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToAgent<'a> {
    /// The answer to [`Need::Credentials`].
    Credentials {
        /// Good once.
        token: &'a str,
        /// For enrolment.
        enroll: &'a str,
        /// For the push stream.
        push: &'a str,
        /// Whom to trust.
        trust_bundle_pem: &'a str,
    },
    /// The answer to [`Need::Addresses`]; `None` while the controller is down.
    Addresses(Option<&'a Addresses>),
}

/// One line, ended, wiped when it is dropped.
///
/// # Errors
///
/// Never for the types of this module.
pub fn line(message: &impl Serialize) -> serde_json::Result<Zeroizing<Vec<u8>>> {
    // Large enough for a certificate and a key, so that no half-filled buffer is left behind by growing.
    let mut bytes = Zeroizing::new(Vec::with_capacity(16 * 1024));
    serde_json::to_writer(&mut *bytes, message)?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(message: &impl Serialize) -> String {
        String::from_utf8(line(message).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn lines_to_children_have_their_fixed_form() {
        assert_eq!(
            text(&ToController::Authority { ca_certificate_pem: "c", ca_key_pem: "k\n" }),
            "{\"authority\":{\"ca_certificate_pem\":\"c\",\"ca_key_pem\":\"k\\n\"}}\n"
        );
        let agent = Some(Agent { fleet: Fleet::local(), pod: "replica-0".into(), uid: "u".into() });
        assert_eq!(
            text(&ToController::Redeemed { id: 1, agent }),
            "{\"redeemed\":{\"id\":1,\"agent\":{\"fleet\":{\"namespace\":\"scalws\",\"name\":\"default\"},\"pod\":\"replica-0\",\"uid\":\"u\"}}}\n"
        );
        assert_eq!(text(&ToController::Redeemed { id: 2, agent: None }), "{\"redeemed\":{\"id\":2,\"agent\":null}}\n");
        let addresses = Addresses { enroll: "127.0.0.1:1".into(), push: "127.0.0.1:2".into() };
        assert_eq!(
            text(&ToAgent::Addresses(Some(&addresses))),
            "{\"addresses\":{\"enroll\":\"127.0.0.1:1\",\"push\":\"127.0.0.1:2\"}}\n"
        );
        assert_eq!(text(&ToAgent::Addresses(None)), "{\"addresses\":null}\n");
        assert_eq!(
            text(&ToAgent::Credentials { token: "t", enroll: "a", push: "b", trust_bundle_pem: "p" }),
            "{\"credentials\":{\"token\":\"t\",\"enroll\":\"a\",\"push\":\"b\",\"trust_bundle_pem\":\"p\"}}\n"
        );
    }

    #[test]
    fn lines_from_children_are_understood() {
        assert_eq!(
            serde_json::from_str::<FromController>(r#"{"listening":{"enroll":"127.0.0.1:1","push":"127.0.0.1:2"}}"#)
                .unwrap(),
            FromController::Listening(Addresses { enroll: "127.0.0.1:1".into(), push: "127.0.0.1:2".into() })
        );
        let redeem = serde_json::from_str::<FromController>(r#"{"redeem":{"id":9,"token":"secret"}}"#).unwrap();
        assert!(matches!(&redeem, FromController::Redeem(r) if r.id == 9 && *r.token == "secret"));
        assert!(!format!("{redeem:?}").contains("secret"));
        assert_eq!(
            serde_json::from_str::<FromAgent>(r#"{"need":"credentials"}"#).unwrap(),
            FromAgent::Need(Need::Credentials)
        );
        assert!(serde_json::from_str::<FromAgent>(r#"{"need":"money"}"#).is_err());
    }
}
