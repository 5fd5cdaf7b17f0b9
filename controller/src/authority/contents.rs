//! What the Secret with the authority holds, and what becomes of it.
//!
//! `ca.crt` holds every certificate that is trusted, the one that signs first; `ca.key` its key; `next.key` the key of the last one while
//! that is announced. Nothing of a key is ever in a message.

use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use push::authority::{Authority, AuthorityError, bundle_from_pem, bundle_to_pem, validity_of};
use push::authority_folder::{CERTIFICATE, KEY};
use zeroize::{Zeroize as _, Zeroizing};

use super::rotation::{Held, Lifetimes, Step};

/// The key of the announced authority.
const NEXT_KEY: &str = "next.key";
/// Since when the first certificate signs, RFC 3339.
const SIGNS_SINCE: &str = "scalws.io/signs-since";
/// The name in the certificates.
const NAME: &str = "ScalWS controller";

/// Why a Secret holds no authority.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContentsError {
    #[error("it has no key {0} with text in it")]
    Missing(&'static str),
    #[error("{0} cannot be used: {1}")]
    Unusable(&'static str, AuthorityError),
}

/// An authority with all that is needed to replace it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Contents {
    certificates: String,
    key: Zeroizing<String>,
    next_key: Option<Zeroizing<String>>,
    signs_since: Option<SystemTime>,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contents").field("certificates", &self.certificates).finish_non_exhaustive()
    }
}

impl Contents {
    /// A new authority, alone.
    pub(super) fn mint(now: SystemTime, lifetime: Duration) -> Result<Contents, AuthorityError> {
        let minted = Authority::mint(NAME, now, lifetime)?;
        Ok(Contents { certificates: minted.certificate_pem, key: minted.key_pem, next_key: None, signs_since: None })
    }

    /// Reads a Secret, and wipes the keys out of it.
    pub(super) fn read(secret: &mut Secret) -> Result<Contents, ContentsError> {
        let mut data = secret.data.take().unwrap_or_default();
        let mut text = |name| {
            let ByteString(bytes) = data.remove(name)?;
            match String::from_utf8(bytes) {
                Ok(text) => Some(Zeroizing::new(text)).filter(|text| !text.trim().is_empty()),
                Err(error) => {
                    error.into_bytes().zeroize();
                    None
                }
            }
        };
        let certificates = text(CERTIFICATE).ok_or(ContentsError::Missing(CERTIFICATE))?.to_string();
        let key = text(KEY).ok_or(ContentsError::Missing(KEY))?;
        let next_key = text(NEXT_KEY);
        // What others put there stays when it is written again.
        secret.data = Some(data);
        let since = secret.metadata.annotations.as_ref().and_then(|all| all.get(SIGNS_SINCE));
        let signs_since = since.and_then(|text| text.parse::<Timestamp>().ok()).map(SystemTime::from);
        let contents = Contents { certificates, key, next_key, signs_since };
        contents.authority()?;
        if let Some(next) = &contents.next_key {
            let announced = contents.bundle()?.pop().map(|last| bundle_to_pem(&[last])).unwrap_or_default();
            Authority::from_pem(&announced, next).map_err(|error| ContentsError::Unusable(NEXT_KEY, error))?;
        }
        Ok(contents)
    }

    /// Writes into a Secret what it is to hold; all else in it stays.
    pub(super) fn write(&self, secret: &mut Secret) {
        let keep = |text: &str| ByteString(text.as_bytes().to_vec());
        let data = secret.data.get_or_insert_default();
        data.insert(CERTIFICATE.to_owned(), keep(&self.certificates));
        data.insert(KEY.to_owned(), keep(&self.key));
        match &self.next_key {
            Some(next) => drop(data.insert(NEXT_KEY.to_owned(), keep(next))),
            None => drop(data.remove(NEXT_KEY)),
        }
        if let Some(since) = self.signs_since.and_then(|since| Timestamp::try_from(since).ok()) {
            let annotations = secret.metadata.annotations.get_or_insert_default();
            annotations.insert(SIGNS_SINCE.to_owned(), since.to_string());
        }
    }

    /// A Secret of this name that holds it.
    pub(super) fn secret(&self, namespace: &str, name: &str) -> Secret {
        let metadata =
            ObjectMeta { namespace: Some(namespace.to_owned()), name: Some(name.to_owned()), ..ObjectMeta::default() };
        let mut secret = Secret { metadata, type_: Some("Opaque".to_owned()), ..Secret::default() };
        self.write(&mut secret);
        secret
    }

    /// The authority that signs, with all that is trusted.
    pub(super) fn authority(&self) -> Result<Authority, ContentsError> {
        Authority::from_pem(&self.certificates, &self.key).map_err(|error| ContentsError::Unusable(KEY, error))
    }

    /// All certificates that are trusted, PEM: public.
    pub(super) fn trust(&self) -> &str {
        &self.certificates
    }

    fn bundle(&self) -> Result<Vec<rustls_pki_types::CertificateDer<'static>>, ContentsError> {
        bundle_from_pem(&self.certificates).map_err(|error| ContentsError::Unusable(CERTIFICATE, error))
    }

    /// What [`super::rotation::plan`] judges.
    pub(super) fn held(&self) -> Result<Held, ContentsError> {
        let bundle = self.bundle()?;
        let validity = |at: usize| {
            let certificate = bundle.get(at).ok_or(ContentsError::Missing(CERTIFICATE))?;
            validity_of(certificate).map_err(|error| ContentsError::Unusable(CERTIFICATE, error))
        };
        let next = self.next_key.as_ref().map(|_| validity(bundle.len().saturating_sub(1))).transpose()?;
        let has_old = bundle.len() > if next.is_some() { 2 } else { 1 };
        Ok(Held { signer: validity(0)?, next, has_old, signs_since: self.signs_since })
    }

    /// What it holds after a step; none when nothing changes.
    pub(super) fn after(
        &self,
        step: Step,
        now: SystemTime,
        lifetimes: Lifetimes,
    ) -> Result<Option<Contents>, ContentsError> {
        let mut bundle = self.bundle()?;
        match step {
            Step::Keep => Ok(None),
            Step::Announce => {
                let minted = Authority::mint(NAME, now, lifetimes.authority)
                    .map_err(|error| ContentsError::Unusable(NEXT_KEY, error))?;
                let announced = bundle_from_pem(&minted.certificate_pem)
                    .map_err(|error| ContentsError::Unusable(CERTIFICATE, error))?;
                bundle.extend(announced);
                Ok(Some(Contents {
                    certificates: bundle_to_pem(&bundle),
                    next_key: Some(minted.key_pem),
                    ..self.clone()
                }))
            }
            Step::Promote => {
                let Some(key) = self.next_key.clone() else { return Ok(None) };
                bundle.rotate_right(1);
                Ok(Some(Contents { certificates: bundle_to_pem(&bundle), key, next_key: None, signs_since: Some(now) }))
            }
            Step::Drop => {
                bundle.truncate(1);
                Ok(Some(Contents { certificates: bundle_to_pem(&bundle), ..self.clone() }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIMES: Lifetimes =
        Lifetimes { authority: Duration::from_secs(80_000), certificate: Duration::from_secs(1_000) };

    fn read_back(contents: &Contents) -> Contents {
        Contents::read(&mut contents.secret("scalws", "authority")).unwrap()
    }

    #[test]
    fn it_is_in_the_secret_as_it_was_after_every_step() {
        let now = SystemTime::now();
        let first = Contents::mint(now, LIFETIMES.authority).unwrap();
        assert_eq!(read_back(&first), first);
        let announced = first.after(Step::Announce, now, LIFETIMES).unwrap().unwrap();
        assert_eq!(read_back(&announced), announced);
        let (old, new) = (first.authority().unwrap(), announced.bundle().unwrap().pop().unwrap());
        let authority = announced.authority().unwrap();
        assert_eq!((authority.certificate(), authority.bundle().len()), (old.certificate(), 2), "the old one signs");
        assert_eq!(announced.held().unwrap().next.map(|next| next.signed_at <= now), Some(true));

        let promoted = announced.after(Step::Promote, now, LIFETIMES).unwrap().unwrap();
        let authority = promoted.authority().unwrap();
        assert_eq!((authority.certificate(), authority.bundle().len()), (&new, 2), "the new one signs");
        let held = read_back(&promoted).held().unwrap();
        assert!(held.has_old && held.next.is_none() && held.signs_since.is_some(), "{held:?}");

        let alone = promoted.after(Step::Drop, now, LIFETIMES).unwrap().unwrap();
        assert_eq!(alone.authority().unwrap().bundle(), [new]);
        assert!(!alone.held().unwrap().has_old && promoted.after(Step::Keep, now, LIFETIMES).unwrap().is_none());
    }

    #[test]
    fn what_others_put_into_the_secret_stays() {
        let contents = Contents::mint(SystemTime::now(), LIFETIMES.authority).unwrap();
        let mut secret = contents.secret("scalws", "authority");
        secret.data.as_mut().unwrap().insert("note".to_owned(), ByteString(b"ours".to_vec()));
        let read = Contents::read(&mut secret).unwrap();
        assert_eq!(secret.data.as_ref().unwrap().len(), 1, "no key is left in what was read");
        read.write(&mut secret);
        let names: Vec<_> = secret.data.unwrap().into_keys().collect();
        assert_eq!(names, [CERTIFICATE, KEY, "note"]);
    }

    #[test]
    fn what_cannot_be_used_is_named_without_a_word_of_a_key() {
        let contents = Contents::mint(SystemTime::now(), LIFETIMES.authority).unwrap();
        let with = |name: &str, value: Option<&str>| {
            let mut secret = contents.secret("scalws", "authority");
            let data = secret.data.as_mut().unwrap();
            match value {
                Some(value) => drop(data.insert(name.to_owned(), ByteString(value.as_bytes().to_vec()))),
                None => drop(data.remove(name)),
            }
            Contents::read(&mut secret).unwrap_err().to_string()
        };
        let other = Contents::mint(SystemTime::now(), LIFETIMES.authority).unwrap();
        for (name, value) in [
            (CERTIFICATE, None),
            (CERTIFICATE, Some(" ")),
            (CERTIFICATE, Some("none")),
            (KEY, None),
            (KEY, Some("CANARY-key")),
            (KEY, Some(&*other.key)),
            (NEXT_KEY, Some(&*other.key)),
        ] {
            let said = with(name, value);
            assert!(said.contains("ca.") || said.contains("next.key"), "{name}: {said}");
            assert!(!said.contains("CANARY") && !said.contains("PRIVATE"), "{said}");
        }
        assert!(!format!("{contents:?}").contains("PRIVATE"));
    }
}
