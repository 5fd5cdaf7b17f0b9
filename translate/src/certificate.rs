//! A certificate and its key out of a Secret: read laxly, checked strictly, written in one form.

use std::sync::Arc;

use config::{Domain, SecretDigest};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

use crate::objects::{Secret, SecretBytes};
use crate::pem;

/// The longest chain that is served, in PEM. Real ones have a few kilobytes, and clients take at most some 64 KiB.
const CHAIN_BYTES_MAX: usize = 256 << 10;

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
    let key = private_key(value("tls.key")?)?;
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
    let leaf = links.iter().position(|link| link.public_key == key.public);
    let leaf = leaf.ok_or("tls.key does not belong to any certificate of tls.crt")?;
    // The same reading that the proxy does.
    let end_entity = CertificateDer::from(chain[leaf].as_slice());
    rustls::server::ParsedCertificate::try_from(&end_entity)
        .map_err(|_| "the certificate cannot be used for a TLS server".to_owned())?;
    let mut text = String::new();
    for i in order(&links, leaf) {
        text.push_str(&pem::write("CERTIFICATE", &chain[i]));
    }
    if text.len() > CHAIN_BYTES_MAX {
        return Err(format!("tls.crt is longer than {CHAIN_BYTES_MAX} bytes; leave out what is no part of the chain"));
    }
    let key = pem::write(&key.label, &key.der);
    let digest = SecretDigest(blake3::hash(key.as_bytes()).to_hex().as_str().into());
    let names = std::mem::take(&mut links[leaf].names);
    Ok(Certificate { chain: text, digest, key: SecretBytes::new(key.as_bytes().to_vec()), names })
}

struct Key {
    label: String,
    der: Zeroizing<Vec<u8>>,
    /// As SubjectPublicKeyInfo.
    public: Vec<u8>,
}

/// The only private key in a file.
fn private_key(bytes: &[u8]) -> Result<Key, String> {
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
    Ok(Key { label: block.label, der: block.der, public })
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
                // What is no domain covers none, and must not reach a message.
                if let GeneralName::DNSName(name) = name
                    && let Ok(domain) = name.parse::<Domain>()
                    && !domain.is_any()
                {
                    names.push(domain.to_string());
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

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ECDSA_P384_SHA384};

    use super::*;

    struct Chain {
        leaf: String,
        intermediate: String,
        root: String,
        key: KeyPair,
    }

    fn authority(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params
    }

    fn chain(names: &[&str]) -> Chain {
        let root = CertifiedIssuer::self_signed(authority("root"), KeyPair::generate().unwrap()).unwrap();
        let intermediate =
            CertifiedIssuer::signed_by(authority("middle"), KeyPair::generate().unwrap(), &root).unwrap();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &intermediate).unwrap();
        Chain { leaf: leaf.pem(), intermediate: intermediate.pem(), root: root.pem(), key }
    }

    fn secret(chain: &str, key: &str) -> Secret {
        let data = [("tls.crt", chain), ("tls.key", key)];
        let data = data.map(|(name, text)| (name.to_owned(), SecretBytes::new(text.as_bytes().to_vec())));
        Secret { data: data.into_iter().collect(), ..Secret::default() }
    }

    fn read_ok(chain: &str, key: &str) -> Arc<Certificate> {
        match read(Some(&secret(chain, key))) {
            CertificateState::Usable(certificate) => certificate,
            other => panic!("{other:?}"),
        }
    }

    fn why_not(chain: &str, key: &str) -> String {
        match read(Some(&secret(chain, key))) {
            CertificateState::Invalid(why) => why,
            other => panic!("{other:?}"),
        }
    }

    fn ders(text: &str) -> Vec<Vec<u8>> {
        pem::parse(text.as_bytes()).unwrap().into_iter().map(|block| block.der.to_vec()).collect()
    }

    #[test]
    fn a_chain_with_the_leaf_last_is_served_leaf_first() {
        let c = chain(&["h.x.io"]);
        let read = read_ok(&format!("{}{}{}", c.root, c.intermediate, c.leaf), &c.key.serialize_pem());
        assert_eq!(ders(&read.chain), ders(&format!("{}{}{}", c.leaf, c.intermediate, c.root)));
        assert_eq!(read.names, ["h.x.io"]);
    }

    #[test]
    fn a_chain_that_begins_with_the_leaf_stays_as_it_is() {
        let c = chain(&["h.x.io"]);
        let text = format!("{}{}{}", c.leaf, c.root, c.intermediate);
        assert_eq!(ders(&read_ok(&text, &c.key.serialize_pem()).chain), ders(&text));
    }

    #[test]
    fn glued_blocks_crlf_and_a_missing_line_break_give_the_same_bytes() {
        let c = chain(&["h.x.io"]);
        let key = c.key.serialize_pem();
        let text = format!("{}{}", c.leaf, c.intermediate);
        let plain = read_ok(&text, &key);
        assert_eq!(*read_ok(&format!("{}{}", c.leaf.trim_end(), c.intermediate.trim_end()), key.trim_end()), *plain);
        assert_eq!(*read_ok(&text.replace('\n', "\r\n"), &key.replace('\n', "\r\n")), *plain);
    }

    #[test]
    fn keys_of_the_older_form_are_read() {
        let c = chain(&["h.x.io"]);
        // PKCS #8 holds the older form (RFC 5915) in an octet string at its end.
        let outer = c.key.serialize_der();
        let older = (1..outer.len()).filter(|at| outer[*at] == 0x30).find_map(|at| {
            let text = pem::write("EC PRIVATE KEY", &outer[at..]);
            private_key(text.as_bytes()).ok().map(|_| text)
        });
        let older = older.expect("the older form stands in the newer");
        assert_eq!(
            read_ok(
                &c.leaf,
                &format!("-----BEGIN EC PARAMETERS-----\nBgUrgQQAIg==\n-----END EC PARAMETERS-----\n{}", &*older)
            )
            .names,
            ["h.x.io"]
        );
    }

    #[test]
    fn what_cannot_be_served_says_why() {
        let (c, other) = (chain(&["h.x.io"]), chain(&["h.x.io"]));
        let key = c.key.serialize_pem();
        assert!(why_not(&c.leaf, &other.key.serialize_pem()).contains("does not belong"));
        assert!(why_not(&c.leaf[..c.leaf.len() - 30], &key).contains("does not end"));
        assert!(why_not("", &key).contains("no tls.crt"));
        assert!(why_not(&key, &key).contains("no certificate"));
        assert!(why_not(&c.leaf, &c.leaf).contains("no private key"));
        assert!(why_not(&c.leaf, &format!("{key}{key}")).contains("several"));
        let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        assert!(why_not(&c.leaf, &encrypted).contains("encrypted"));
        let older = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\neA==\n-----END RSA PRIVATE KEY-----\n";
        assert!(why_not(&c.leaf, older).contains("encrypted"));
        assert!(why_not(&c.leaf, &pem::write("PRIVATE KEY", b"nonsense")).contains("cannot be used"));
    }

    #[test]
    fn a_key_in_the_certificate_file_never_leaves_with_the_chain() {
        let c = chain(&["h.x.io"]);
        let key = c.key.serialize_pem();
        let read = read_ok(&format!("{key}{}", c.leaf), &key);
        assert!(!read.chain.contains("PRIVATE"));
        assert!(!format!("{read:?}").contains("PRIVATE"));
    }

    #[test]
    fn a_wildcard_covers_one_label() {
        let c = chain(&["*.x.io", "Upper.Y.io"]);
        let read = read_ok(&c.leaf, &c.key.serialize_pem());
        let covers = |name: &str| read.covers(&name.parse().unwrap());
        assert!(covers("a.x.io") && covers("*.x.io") && covers("upper.y.io"));
        assert!(!covers("x.io") && !covers("a.b.x.io") && !covers("*.a.x.io") && !covers("*"));
    }
}
