//! The local certificate authority and the single-use tokens of agents. Both live in this process's memory only.

use std::time::{Duration, Instant};

use rand::TryRngCore as _;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose};
use zeroize::Zeroizing;

/// How long a token lives.
pub const TOKEN_LIFE: Duration = Duration::from_secs(30);
/// A token is this many random bytes, written in hexadecimal.
const TOKEN_BYTES: usize = 32;

/// A P-256 authority that signs the controller's and the agents' certificates of one `up`.
pub struct Authority {
    certificate_pem: String,
    key_pem: Zeroizing<String>,
}

impl Authority {
    /// Mints a new one. Its own validity does not matter: it ends with the process.
    ///
    /// # Errors
    ///
    /// When no key can be made.
    pub fn mint() -> Result<Authority, rcgen::Error> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::default();
        let mut name = DistinguishedName::new();
        name.push(DnType::CommonName, "ScalWS local authority");
        params.distinguished_name = name;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?;
        Ok(Authority { certificate_pem: certificate.pem(), key_pem: Zeroizing::new(key.serialize_pem()) })
    }

    /// The certificate, PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The key, PKCS#8 PEM. For the controller's descriptor only.
    pub fn key_pem(&self) -> &Zeroizing<String> {
        &self.key_pem
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// The tokens that are out, each for one replica.
#[derive(Default)]
pub struct Tokens {
    out: Vec<Token>,
}

struct Token {
    text: Zeroizing<String>,
    replica: u16,
    end: Instant,
}

impl Tokens {
    /// Makes a token for a replica. It is good once, for [`TOKEN_LIFE`].
    ///
    /// # Errors
    ///
    /// When the system gives no random bytes.
    pub fn mint(&mut self, replica: u16, now: Instant) -> std::io::Result<Zeroizing<String>> {
        self.out.retain(|t| t.end > now);
        let mut bytes = Zeroizing::new([0u8; TOKEN_BYTES]);
        rand::rngs::OsRng.try_fill_bytes(bytes.as_mut()).map_err(std::io::Error::other)?;
        let mut text = Zeroizing::new(String::with_capacity(2 * TOKEN_BYTES));
        for byte in bytes.iter() {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
            }
        }
        self.out.push(Token { text: text.clone(), replica, end: now + TOKEN_LIFE });
        Ok(text)
    }

    /// Takes a token back: the replica it was made for, or `None` if it is unknown, used or too old.
    pub fn redeem(&mut self, text: &str, now: Instant) -> Option<u16> {
        self.out.retain(|t| t.end > now);
        let place = self.out.iter().position(|t| equal(&t.text, text))?;
        Some(self.out.swap_remove(place).replica)
    }
}

/// Compares without telling by its time where the first difference is.
fn equal(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |sum, (x, y)| sum | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_once() {
        let (mut tokens, now) = (Tokens::default(), Instant::now());
        let first = tokens.mint(0, now).unwrap();
        let second = tokens.mint(1, now).unwrap();
        assert_ne!(*first, *second);
        assert_eq!(tokens.redeem(&second, now), Some(1));
        assert_eq!(tokens.redeem(&second, now), None);
        assert_eq!(tokens.redeem("", now), None);
        assert_eq!(tokens.redeem(&first[1..], now), None);
        assert_eq!(tokens.redeem(&first, now), Some(0));
    }

    #[test]
    fn a_token_dies_after_its_time() {
        let (mut tokens, now) = (Tokens::default(), Instant::now());
        let token = tokens.mint(0, now).unwrap();
        assert_eq!(tokens.redeem(&token, now + TOKEN_LIFE), None);
    }

    #[test]
    fn the_key_is_not_in_debug_output() {
        let authority = Authority::mint().unwrap();
        assert!(authority.certificate_pem().starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(authority.key_pem().contains("PRIVATE KEY"));
        assert_eq!(format!("{authority:?}"), "Authority { .. }");
    }
}
