//! Second stage: which certificates an Ingress brings for each of its hosts.

use std::collections::BTreeMap;

use config::{CertificateName, Domain};

use crate::certificate::{Certificate, CertificateState};
use crate::objects::NamespacedName;
use crate::outcome::{Finding, reasons};
use crate::parse::Parsed;
use crate::view::View;

/// The most certificates of one host: a client gets the first that it can use, so more than one per kind of key are useless.
const CERTIFICATES_MAX: usize = 8;

/// What an Ingress brings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TlsChoices {
    /// By host; only hosts with TLS. Empty: no usable certificate.
    pub(crate) certificates: BTreeMap<Domain, Vec<CertificateName>>,
    /// What is wrong with its Secrets, each thing once.
    pub(crate) findings: Vec<Finding>,
}

/// Entries that name the host literally come first. If none of them has a usable certificate that covers the host, the
/// first other Secret of the Ingress that covers it is taken. Without any the host keeps TLS, with the default certificate.
pub(crate) fn choose(view: &View<'_>, key: &NamespacedName) -> Option<TlsChoices> {
    let parsed = view.parsed(key)?;
    let mut choices = TlsChoices::default();
    for (domain, claim) in &parsed.domains {
        if claim.wants_tls {
            let certificates = for_host(view, parsed, domain, &mut choices.findings);
            choices.certificates.insert(domain.clone(), certificates);
        }
    }
    Some(choices)
}

fn for_host(view: &View<'_>, parsed: &Parsed, domain: &Domain, findings: &mut Vec<Finding>) -> Vec<CertificateName> {
    let mut found = Vec::new();
    let mut say = |finding: Finding| {
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    };
    let name =
        |secret: &NamespacedName| CertificateName { namespace: secret.namespace.clone(), name: secret.name.clone() };
    let (mut named, mut secrets) = (false, false);
    for (i, entry) in parsed.tls.iter().enumerate() {
        secrets |= entry.secret.is_some();
        if !entry.hosts.contains(domain) {
            continue;
        }
        named = true;
        let Some(secret) = &entry.secret else { continue };
        let field = format!("spec.tls[{i}].secretName");
        match usable(view, secret) {
            Err(finding) => say(Finding { field, ..finding }),
            Ok(certificate) if !certificate.covers(domain) => {
                let names = certificate.names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
                let message = format!(
                    "the certificate of Secret {secret} does not cover {domain} (it covers: {names}); another one is served"
                );
                say(Finding::warning(reasons::CERTIFICATE_MISMATCH, field, message));
            }
            Ok(_) => {
                let certificate = name(secret);
                if found.len() < CERTIFICATES_MAX && !found.contains(&certificate) {
                    found.push(certificate);
                }
            }
        }
    }
    if !found.is_empty() {
        return found;
    }
    for (i, entry) in parsed.tls.iter().enumerate() {
        let Some(secret) = entry.secret.as_ref().filter(|_| !entry.hosts.contains(domain)) else { continue };
        match usable(view, secret) {
            // Entries with hosts speak up for their own hosts.
            Err(finding) if entry.hosts.is_empty() => {
                say(Finding { field: format!("spec.tls[{i}].secretName"), ..finding });
            }
            Ok(certificate) if certificate.covers(domain) => return vec![name(secret)],
            Ok(_) | Err(_) => {}
        }
    }
    if secrets && !named {
        let message = format!("no certificate of spec.tls covers {domain}; it is served with the default certificate");
        say(Finding::note(reasons::CERTIFICATE_DEFAULT, "spec.tls", message));
    }
    found
}

fn usable<'a>(view: &View<'a>, secret: &NamespacedName) -> Result<&'a Certificate, Finding> {
    match view.certificate(secret) {
        CertificateState::Usable(certificate) => Ok(certificate.as_ref()),
        CertificateState::Missing => Err(Finding::warning(
            reasons::SECRET_MISSING,
            "",
            format!("Secret {secret} does not exist; the default certificate is served until it does"),
        )),
        CertificateState::Invalid(why) => Err(Finding::warning(
            reasons::CERTIFICATE_INVALID,
            "",
            format!("Secret {secret} cannot be used: {why}; the default certificate is served"),
        )),
    }
}
