//! The certificate authority: it signs agents' keys and the controller's own, and knows every authority trusted now.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use journal::mutants::{self, Mutant};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::identity::AgentIdentity;

/// How long a certificate of an agent is valid.
pub const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// How far back validity begins, for clocks that differ or are set back. It gives nothing away: the key is new.
pub const BACKDATED: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest signing request that is read, in bytes. One for a P-256 key has about 250.
const LONGEST_CSR: usize = 4_096;

/// Why the authority cannot work.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The certificate or key of the authority cannot be used.
    #[error("the authority's {0} cannot be used")]
    Material(&'static str),
    /// A certificate could not be made.
    #[error("no certificate could be made")]
    Sign,
}

/// Why a signing request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It is not a PKCS#10 request whose signature is right.
    #[error("not a signing request, or its signature is wrong")]
    Request,
    /// Only P-256 keys are signed.
    #[error("the key is not an ECDSA P-256 key")]
    Key,
    /// The authority failed.
    #[error("the certificate could not be made")]
    Sign,
}

/// The authority's two halves as PEM, freshly made.
pub struct Minted {
    /// The certificate.
    pub certificate_pem: String,
    /// The key.
    pub key_pem: Zeroizing<String>,
}

/// A certificate with its key.
pub struct ServerIdentity {
    /// The chain, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key, PKCS#8 in DER.
    pub key: Zeroizing<Vec<u8>>,
}

impl ServerIdentity {
    /// The key as rustls takes it.
    pub fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.to_vec()))
    }
}

/// What enrolment gives back.
pub struct Signed {
    /// The chain, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// When to renew: at half life.
    pub renew_after: Duration,
}

/// Signs keys. Never printed.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    bundle: Vec<CertificateDer<'static>>,
    lifetime: Duration,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("bundle", &self.bundle.len()).finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes a new P-256 authority in memory.
    pub fn mint(name: &str, now: SystemTime, lifetime: Duration) -> Result<Minted, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|_| AuthorityError::Sign)?;
        let mut params = validity(now, lifetime);
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(|_| AuthorityError::Sign)?;
        Ok(Minted { certificate_pem: certificate.pem(), key_pem: Zeroizing::new(key.serialize_pem()) })
    }

    /// Reads an authority. The PEM text may hold several certificates: the first is the one that signs, all are trusted,
    /// so that agents trust old and new while an authority is replaced.
    pub fn from_pem(certificates: &str, key: &str) -> Result<Authority, AuthorityError> {
        let bundle = bundle_from_pem(certificates)?;
        let certificate = bundle.first().cloned().ok_or(AuthorityError::Material("certificate"))?;
        let key = KeyPair::from_pem(key).map_err(|_| AuthorityError::Material("key"))?;
        let (_, parsed) =
            x509_parser::parse_x509_certificate(&certificate).map_err(|_| AuthorityError::Material("certificate"))?;
        if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(AuthorityError::Material("key: it does not belong to the certificate"));
        }
        if !parsed.is_ca() {
            return Err(AuthorityError::Material("certificate: it is not an authority's"));
        }
        let issuer =
            Issuer::from_ca_cert_der(&certificate, key).map_err(|_| AuthorityError::Material("certificate"))?;
        Ok(Authority { issuer, certificate, bundle, lifetime: LIFETIME })
    }

    /// Signs for this long instead of [`LIFETIME`].
    pub fn with_lifetime(mut self, lifetime: Duration) -> Authority {
        self.lifetime = lifetime;
        self
    }

    /// Every authority that is trusted now, the signing one first.
    pub fn bundle(&self) -> &[CertificateDer<'static>] {
        &self.bundle
    }

    /// Signs the public key of a request for this agent. Nothing else of the request is used: no name, no extension.
    pub fn sign(&self, request: &[u8], agent: &AgentIdentity, now: SystemTime) -> Result<Signed, RequestError> {
        let key = public_key(request)?;
        let mut params = validity(now, self.lifetime);
        let uri = agent.spiffe_id().try_into().map_err(|_| RequestError::Sign)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        if mutants::active(Mutant::FleetFromTheRequest) {
            params.subject_alt_names = asked_names(request)?;
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&key, &self.issuer).map_err(|_| RequestError::Sign)?;
        Ok(Signed { chain: vec![leaf.into()], renew_after: self.lifetime / 2 })
    }

    /// A certificate for the controller's own listeners, for server authentication only, with a new key.
    pub fn server_identity(
        &self,
        name: &str,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<ServerIdentity, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|_| AuthorityError::Sign)?;
        let mut params = validity(now, lifetime);
        let dns = name.try_into().map_err(|_| AuthorityError::Sign)?;
        params.subject_alt_names = vec![SanType::DnsName(dns)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&key, &self.issuer).map_err(|_| AuthorityError::Sign)?;
        Ok(ServerIdentity { chain: vec![leaf.into()], key: Zeroizing::new(key.serialize_der()) })
    }

    /// The private key, PKCS#8 in DER: what other keys of this authority are derived from.
    pub(crate) fn key_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.issuer.key().serialize_der())
    }

    /// The certificate that signs.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }
}

/// The authorities in a PEM text, in order; an error if there is none or one cannot be read.
pub fn bundle_from_pem(pem: &str) -> Result<Vec<CertificateDer<'static>>, AuthorityError> {
    let bundle: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let bundle = bundle.map_err(|_| AuthorityError::Material("certificate"))?;
    if bundle.is_empty() { Err(AuthorityError::Material("certificate")) } else { Ok(bundle) }
}

/// Certificates as PEM text, in order (RFC 7468).
pub fn bundle_to_pem(bundle: &[CertificateDer<'_>]) -> String {
    let one = |certificate: &CertificateDer<'_>| {
        let text = STANDARD.encode(certificate);
        let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    };
    bundle.iter().map(one).collect()
}

/// The time of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// When it was signed, if it is one of ours: its validity begins [`BACKDATED`] earlier.
    pub signed_at: SystemTime,
    /// When it ends.
    pub not_after: SystemTime,
}

/// When a certificate was signed, and when it ends.
///
/// # Errors
/// When it cannot be read.
pub fn validity_of(certificate: &CertificateDer<'_>) -> Result<Validity, AuthorityError> {
    let unusable = || AuthorityError::Material("certificate");
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| unusable())?;
    let at = |seconds: i64| {
        let seconds = u64::try_from(seconds).ok()?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
    };
    let validity = parsed.validity();
    let begin = at(validity.not_before.timestamp()).ok_or_else(unusable)?;
    let not_after = at(validity.not_after.timestamp()).ok_or_else(unusable)?;
    Ok(Validity { signed_at: begin + BACKDATED, not_after })
}

/// A new P-256 key and a request to sign it; nothing but the key is in the request.
pub fn key_and_request() -> Result<(Zeroizing<Vec<u8>>, Vec<u8>), AuthorityError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|_| AuthorityError::Sign)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(|_| AuthorityError::Sign)?;
    Ok((Zeroizing::new(key.serialize_der()), request.der().to_vec()))
}

fn validity(now: SystemTime, lifetime: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.not_before = OffsetDateTime::from(now) - BACKDATED;
    params.not_after = OffsetDateTime::from(now) + lifetime;
    params
}

/// Whether a signing request could be signed.
pub fn check_request(request: &[u8]) -> Result<(), RequestError> {
    public_key(request).map(|_| ())
}

fn public_key(request: &[u8]) -> Result<impl PublicKeyData, RequestError> {
    if request.len() > LONGEST_CSR {
        return Err(RequestError::Request);
    }
    let request = CertificateSigningRequestDer::from(request);
    let request = CertificateSigningRequestParams::from_der(&request).map_err(|_| RequestError::Request)?;
    let key = request.public_key;
    // An uncompressed point (SEC 1, 2.3.3); the algorithm alone is that of the signature, not of the key.
    let point = PublicKeyData::der_bytes(&key);
    if key.algorithm() != &PKCS_ECDSA_P256_SHA256 || point.len() != 65 || point.first() != Some(&4) {
        return Err(RequestError::Key);
    }
    Ok(key)
}

/// The names that a request asks for.
fn asked_names(request: &[u8]) -> Result<Vec<SanType>, RequestError> {
    let request = CertificateSigningRequestDer::from(request);
    let request = CertificateSigningRequestParams::from_der(&request).map_err(|_| RequestError::Request)?;
    Ok(request.params.subject_alt_names)
}
