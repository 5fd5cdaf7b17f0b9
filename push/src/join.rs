//! Join tokens: whoever holds the authority can make and check them, and needs no memory of those that are out.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::authority::Authority;
use crate::identity::{AgentIdentity, FleetId};

/// What the key of the authority is used for here, and nowhere else (`blake3::derive_key`).
const CONTEXT: &str = "scalws 2026-11-30 join tokens: key of the keyed hash over the claims";
/// The longest token, in bytes: two names of 253 bytes, a UID of as many, a label, and the words around them, in base64.
const LONGEST: usize = 2_048;

/// What a token says, once its code was found to be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The agent that it proves; its pod has a name.
    pub agent: AgentIdentity,
    /// The last second at which it is good, since 1970.
    pub not_after: u64,
}

/// Why a token proves nobody. The words are fixed: nothing of the token is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// Not of the form of a join token.
    #[error("not a join token")]
    Form,
    /// Made with another authority, or changed since.
    #[error("the join token is not of this authority")]
    Foreign,
    /// Its time is over.
    #[error("the join token has expired")]
    Expired,
    /// It is genuine, and names an agent that cannot be.
    #[error("the join token names no valid agent")]
    Name,
}

/// The claims as they are written.
#[derive(Serialize, Deserialize)]
struct Written {
    namespace: String,
    fleet: String,
    pod: String,
    uid: String,
    not_after: u64,
}

/// Makes and checks tokens. Never printed.
pub struct JoinKey(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for JoinKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JoinKey")
    }
}

impl JoinKey {
    /// The key of everybody who holds this authority.
    pub fn of(authority: &Authority) -> JoinKey {
        JoinKey(Zeroizing::new(blake3::derive_key(CONTEXT, &authority.key_bytes())))
    }

    /// Makes a token: the claims as JSON and a keyed hash over what was made of them, both in base64.
    ///
    /// # Errors
    /// [`JoinError::Name`] when the agent is none that [`JoinKey::verify`] would let through.
    pub fn issue(&self, claims: &Claims) -> Result<Zeroizing<String>, JoinError> {
        let Claims { agent, not_after } = claims;
        let written = Written {
            namespace: agent.fleet.namespace.clone(),
            fleet: agent.fleet.name.clone(),
            pod: agent.pod.clone(),
            uid: agent.uid.clone(),
            not_after: *not_after,
        };
        let json = serde_json::to_vec(&written).map_err(|_| JoinError::Form)?;
        written.agent()?;
        let mut token = Zeroizing::new(URL_SAFE_NO_PAD.encode(json));
        let code = self.code(&token);
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(code.as_bytes()));
        Ok(token)
    }

    /// Whom a token proves at this second (since 1970).
    ///
    /// # Errors
    /// See [`JoinError`]. Nothing of a token is read before its code was found to be right.
    pub fn verify(&self, token: &str, now_unix_s: u64) -> Result<AgentIdentity, JoinError> {
        if token.len() > LONGEST {
            return Err(JoinError::Form);
        }
        let (claims, code) = token.split_once('.').ok_or(JoinError::Form)?;
        let code = URL_SAFE_NO_PAD.decode(code).map_err(|_| JoinError::Form)?;
        let code = blake3::Hash::from_bytes(code.try_into().map_err(|_| JoinError::Form)?);
        // `==` of a hash takes the same time wherever the first difference is.
        if self.code(claims) != code {
            return Err(JoinError::Foreign);
        }
        let json = URL_SAFE_NO_PAD.decode(claims).map_err(|_| JoinError::Form)?;
        let written: Written = serde_json::from_slice(&json).map_err(|_| JoinError::Form)?;
        if now_unix_s > written.not_after {
            return Err(JoinError::Expired);
        }
        written.agent()
    }

    fn code(&self, claims: &str) -> blake3::Hash {
        blake3::keyed_hash(&self.0, claims.as_bytes())
    }
}

impl Written {
    fn agent(&self) -> Result<AgentIdentity, JoinError> {
        if self.pod.is_empty() {
            return Err(JoinError::Name);
        }
        AgentIdentity::new(FleetId::new(&self.namespace, &self.fleet), &self.pod, &self.uid)
            .map_err(|_| JoinError::Name)
    }
}
