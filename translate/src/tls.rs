//! Second stage: which certificates an Ingress brings for each of its hosts.

use std::collections::{BTreeMap, BTreeSet};

use config::{CertificateName, Domain};

use crate::certificate::{Certificate, CertificateState};
use crate::objects::NamespacedName;
use crate::outcome::{FINDINGS_MAX, Finding, reasons};
use crate::view::View;

/// The most certificates of one host: a client gets the first that it can use, so more than one per kind of key are useless.
const CERTIFICATES_MAX: usize = 8;

/// The most Secrets of one Ingress that are searched for one that covers a host.
const SECRETS_MAX: usize = 256;

/// What an Ingress brings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    let mut search =
        Search { entries: Vec::new(), naming: BTreeMap::new(), said: BTreeSet::new(), findings: Vec::new() };
    for (i, entry) in parsed.tls.iter().enumerate() {
        // Each Secret is looked at once, however many hosts and entries there are.
        search.entries.push(entry.secret.as_ref().map(|secret| (secret, usable(view, secret))));
        entry.hosts.iter().for_each(|host| search.naming.entry(host).or_default().push(i));
        if entry.hosts.is_empty() {
            search.complain(i);
        }
    }
    let mut certificates = BTreeMap::new();
    for (domain, claim) in parsed.domains.iter() {
        if claim.wants_tls {
            certificates.insert(domain.clone(), search.host(domain));
        }
    }
    Some(TlsChoices { certificates, findings: search.findings })
}

/// The search for the certificates of one Ingress.
struct Search<'a> {
    /// The Secret of each entry, and what it holds.
    entries: Vec<Option<(&'a NamespacedName, Result<&'a Certificate, Finding>)>>,
    /// The entries that name a host.
    naming: BTreeMap<&'a Domain, Vec<usize>>,
    /// The entries whose Secret was complained about.
    said: BTreeSet<usize>,
    findings: Vec<Finding>,
}

impl Search<'_> {
    fn say(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    /// Says what is wrong with the Secret of an entry, once.
    fn complain(&mut self, entry: usize) {
        if let Some((_, Err(finding))) = &self.entries[entry]
            && self.said.insert(entry)
        {
            let field = format!("spec.tls[{entry}].secretName");
            self.say(Finding { field, ..finding.clone() });
        }
    }

    fn host(&mut self, domain: &Domain) -> Vec<CertificateName> {
        let named = self.naming.get(domain).cloned().unwrap_or_default();
        let mut found = Vec::new();
        for &i in &named {
            match &self.entries[i] {
                None => {}
                Some((_, Err(_))) => self.complain(i),
                Some((secret, Ok(certificate))) if !certificate.covers(domain) => {
                    let names = certificate.names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
                    let message = format!(
                        "the certificate of Secret {secret} does not cover {domain} (it covers: {names}); another one is served"
                    );
                    let field = format!("spec.tls[{i}].secretName");
                    self.say(Finding::warning(reasons::CERTIFICATE_MISMATCH, field, message));
                }
                Some((secret, Ok(_))) => {
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
        let usable = self.entries.iter().flatten().filter_map(|(secret, held)| Some((secret, held.as_ref().ok()?)));
        if let Some((secret, _)) = usable.take(SECRETS_MAX).find(|(_, certificate)| certificate.covers(domain)) {
            return vec![name(secret)];
        }
        if named.is_empty() && self.entries.iter().any(Option::is_some) {
            let message =
                format!("no certificate of spec.tls covers {domain}; it is served with the default certificate");
            self.say(Finding::note(reasons::CERTIFICATE_DEFAULT, "spec.tls", message));
        }
        found
    }
}

fn name(secret: &NamespacedName) -> CertificateName {
    CertificateName { namespace: secret.namespace.to_string(), name: secret.name.to_string() }
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
