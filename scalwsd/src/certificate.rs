//! Certificates: a chain and its key, read, checked against each other, and chosen by what a client can use.

use std::sync::Arc;

use config::CertificateBody;
use journal::admin::codes;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::keys::Keys;
use crate::not_live::Fault;

/// Reads a certificate resource.
///
/// # Errors
/// `key_missing` when the key file is not there or is another; `invalid` when chain and key cannot be used.
pub fn load(body: &CertificateBody, keys: &Keys, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, Fault> {
    let invalid = |message: String| Fault { code: codes::INVALID, message };
    let chain = CertificateDer::pem_slice_iter(body.chain.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| invalid(format!("chain: {e}")))?;
    if chain.is_empty() {
        return Err(invalid("chain: there is no certificate in it".to_owned()));
    }
    let pem = keys.read(&body.key).map_err(|why| Fault {
        code: codes::KEY_MISSING,
        message: format!("the key file {} cannot be used: {why}", body.key),
    })?;
    // What the parser says could quote the file.
    let key = PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|_| invalid("key: it is no private key in PEM (PKCS#8, PKCS#1 or SEC1)".to_owned()))?;
    let certified = CertifiedKey::from_der(chain, key, provider).map_err(|e| invalid(format!("key: {e}")))?;
    Ok(Arc::new(certified))
}

/// Serves the first of several certificates whose key the client can verify (RFC 8446 section 4.4.2.2).
#[derive(Debug)]
pub struct Candidates(pub Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for Candidates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        self.0.iter().find(|c| c.key.choose_scheme(schemes).is_some()).map(Arc::clone)
    }
}

/// A certificate for names that have none, made anew by each process and never written anywhere.
///
/// # Errors
/// When there is no randomness.
pub fn self_made(provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, String> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(|e| e.to_string())?;
    let mut params =
        rcgen::CertificateParams::new(vec!["default.scalws.invalid".to_owned()]).map_err(|e| e.to_string())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "ScalWS default certificate");
    let certificate = params.self_signed(&key).map_err(|e| e.to_string())?;
    let der = PrivateKeyDer::try_from(key.serialize_der()).map_err(str::to_owned)?;
    CertifiedKey::from_der(vec![certificate.der().clone()], der, provider).map(Arc::new).map_err(|e| e.to_string())
}
