//! A certificate and its key out of a Secret: read laxly, checked strictly, written in one form.

use std::sync::Arc;

use config::{Domain, SecretDigest};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

use crate::objects::{Secret, SecretBytes};
use crate::pem;

/// A chain and its key, ready to be served.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Certificate {
    /// The chain in PEM, leaf first.
    pub(crate) chain: String,
    /// The digest of the key file.
    pub(crate) digest: SecretDigest,
    /// The key file: one PEM block.
    pub(crate) key: SecretBytes,
    /// The names that the leaf covers, lower case.
    pub(crate) names: Vec<String>,
}

/// What a Secret holds for us. Missing Secrets and unusable ones differ in what is said about them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CertificateState {
    /// There is no such Secret.
    Missing,
    /// It cannot be served, and why. Never says anything of the key but its form.
    Invalid(String),
    /// It can be served.
    Usable(Arc<Certificate>),
}

impl Certificate {
    /// Whether the leaf covers a domain: only subject alternative names count (RFC 9525 section 2), and a `*` in front
    /// covers exactly one label (RFC 9525 section 6.3). A wildcard domain needs the same wildcard in the certificate.
    pub(crate) fn covers(&self, domain: &Domain) -> bool {
        self.names.iter().any(|name| {
            if name == domain.as_str() {
                return true;
            }
            let Some(suffix) = name.strip_prefix('*') else { return false };
            !domain.is_wildcard()
                && domain.as_str().strip_suffix(suffix).is_some_and(|label| !label.is_empty() && !label.contains('.'))
        })
    }
}

/// Reads `tls.crt` and `tls.key` of a Secret, which may be of any type.
pub(crate) fn read(secret: Option<&Secret>) -> CertificateState {
    match secret {
        None => CertificateState::Missing,
        Some(secret) => match usable(secret) {
            Ok(certificate) => CertificateState::Usable(Arc::new(certificate)),
            Err(why) => CertificateState::Invalid(why),
        },
    }
}

fn usable(secret: &Secret) -> Result<Certificate, String> {
    let value = |key: &str| {
        let bytes = secret.data.get(key).map(SecretBytes::as_slice).filter(|bytes| !bytes.is_empty());
        bytes.ok_or_else(|| format!("it has no {key}"))
    };
    let (key_label, key_der, public_key) = private_key(value("tls.key")?)?;
    // Only certificates may leave the Secret with the chain, whatever else stands in tls.crt.
    let blocks = pem::parse(value("tls.crt")?).map_err(|why| format!("tls.crt: {why}"))?;
    let chain: Vec<Vec<u8>> = blocks
        .into_iter()
        .filter(|block| matches!(block.label.as_str(), "CERTIFICATE" | "X509 CERTIFICATE" | "TRUSTED CERTIFICATE"))
        .map(|block| block.der.to_vec())
        .collect();
    if chain.is_empty() {
        return Err("tls.crt holds no certificate".to_owned());
    }
    let mut links = Vec::with_capacity(chain.len());
    for (i, der) in chain.iter().enumerate() {
        let (rest, parsed) =
            X509Certificate::from_der(der).map_err(|_| format!("certificate {} of tls.crt cannot be read", i + 1))?;
        if !rest.is_empty() {
            return Err(format!("certificate {} of tls.crt has bytes behind it", i + 1));
        }
        links.push(Link::of(&parsed));
    }
    let leaf = links.iter().position(|link| link.public_key == public_key);
    let leaf = leaf.ok_or("tls.key does not belong to any certificate of tls.crt")?;
    // The same reading that the proxy does.
    let end_entity = CertificateDer::from(chain[leaf].as_slice());
    rustls::server::ParsedCertificate::try_from(&end_entity)
        .map_err(|_| "the certificate cannot be used for a TLS server".to_owned())?;
    let mut text = String::new();
    for i in order(&links, leaf) {
        text.push_str(&pem::write("CERTIFICATE", &chain[i]));
    }
    let key = pem::write(&key_label, &key_der);
    let digest = SecretDigest(blake3::hash(key.as_bytes()).to_hex().as_str().into());
    let names = std::mem::take(&mut links[leaf].names);
    Ok(Certificate { chain: text, digest, key: SecretBytes::new(key.as_bytes().to_vec()), names })
}

/// The label, content and public key (as SubjectPublicKeyInfo) of the only private key in a file.
fn private_key(bytes: &[u8]) -> Result<(String, Zeroizing<Vec<u8>>, Vec<u8>), String> {
    let blocks = pem::parse(bytes).map_err(|why| format!("tls.key: {why}"))?;
    let mut keys = blocks.into_iter().filter(|block| block.label.ends_with("PRIVATE KEY"));
    let block = keys.next().ok_or("tls.key holds no private key in PEM")?;
    if keys.next().is_some() {
        return Err("tls.key holds several private keys".to_owned());
    }
    if block.encrypted || block.label == "ENCRYPTED PRIVATE KEY" {
        return Err("tls.key is encrypted; store it without a passphrase".to_owned());
    }
    let der = match block.label.as_str() {
        "PRIVATE KEY" => PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(block.der.as_slice())),
        "RSA PRIVATE KEY" => PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(block.der.as_slice())),
        "EC PRIVATE KEY" => PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(block.der.as_slice())),
        _ => return Err("tls.key is of an unknown kind; write it as PKCS #8".to_owned()),
    };
    let signer = rustls::crypto::ring::sign::any_supported_type(&der)
        .map_err(|_| "tls.key cannot be used: RSA of at least 2048 bits, P-256, P-384 and Ed25519 are supported")?;
    let public = signer.public_key().ok_or("tls.key does not give its public key")?.to_vec();
    Ok((block.label, block.der, public))
}

/// What tells how the certificates of a chain hang together.
struct Link {
    public_key: Vec<u8>,
    subject: Vec<u8>,
    issuer: Vec<u8>,
    names: Vec<String>,
}

impl Link {
    fn of(certificate: &X509Certificate<'_>) -> Link {
        let mut names = Vec::new();
        if let Ok(Some(extension)) = certificate.subject_alternative_name() {
            for name in &extension.value.general_names {
                if let GeneralName::DNSName(name) = name {
                    names.push(name.trim_end_matches('.').to_ascii_lowercase());
                }
            }
        }
        Link {
            public_key: certificate.public_key().raw.to_vec(),
            subject: certificate.subject().as_raw().to_vec(),
            issuer: certificate.issuer().as_raw().to_vec(),
            names,
        }
    }
}

/// The leaf first (RFC 8446 section 4.4.2). A chain that already begins with it stays as it is; else each certificate is
/// followed by the one that issued it, and what hangs on nothing comes last.
fn order(links: &[Link], leaf: usize) -> Vec<usize> {
    if leaf == 0 {
        return (0..links.len()).collect();
    }
    let mut out = vec![leaf];
    let mut left: Vec<usize> = (0..links.len()).filter(|i| *i != leaf).collect();
    let mut issuer = &links[leaf].issuer;
    while let Some(at) = left.iter().position(|i| links[*i].subject == *issuer) {
        let next = left.remove(at);
        issuer = &links[next].issuer;
        out.push(next);
    }
    out.extend(left);
    out
}
