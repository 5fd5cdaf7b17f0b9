//! `examples/shop` as a folder of a test's own, with endpoints that no other test uses.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// A copy of the example.
#[derive(Debug)]
pub struct Shop {
    folder: TempDir,
}

impl Shop {
    /// Copies it. The endpoints get addresses in 127.0.0.0/8 that depend on the process and a counter, so that the echo
    /// servers of several tests do not meet.
    ///
    /// # Errors
    /// When the example cannot be read.
    pub fn copy() -> Result<Shop> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let (second, third) = (process % 250 + 2, process / 250 % 4 * 60 + 2 * number % 60);
        let shop = Shop { folder: tempfile::tempdir()? };
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/shop");
        fs::create_dir(shop.manifests())?;
        copy(&example, &shop.manifests(), &|text| {
            text.replace("127.0.10.", &format!("127.{second}.{third}."))
                .replace("127.0.20.", &format!("127.{second}.{}.", third + 1))
        })
        .with_context(|| example.display().to_string())?;
        Ok(shop)
    }

    /// The folder of manifests.
    pub fn manifests(&self) -> PathBuf {
        self.folder.path().join("manifests")
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// When there is none.
    pub fn read(&self, name: &str) -> Result<String> {
        fs::read_to_string(self.manifests().join(name)).with_context(|| name.to_owned())
    }

    /// Puts a manifest in place by rename.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.manifests().join(name);
        let part = path.with_extension("part");
        fs::write(&part, text)?;
        Ok(fs::rename(part, path)?)
    }

    /// Takes a manifest away.
    ///
    /// # Errors
    /// When there is none.
    pub fn remove(&self, name: &str) -> Result<()> {
        fs::remove_file(self.manifests().join(name)).with_context(|| name.to_owned())
    }

    /// The certificate in a manifest of a Secret, PEM.
    ///
    /// # Errors
    /// When there is none.
    pub fn certificate(&self, name: &str) -> Result<String> {
        let text = self.read(name)?;
        let secret: serde_json::Value = serde_saphyr::from_str(&text)?;
        Ok(secret["stringData"]["tls.crt"].as_str().context("no certificate")?.to_owned())
    }
}

fn copy(from: &Path, to: &Path, change: &impl Fn(&str) -> String) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&target)?;
            copy(&entry.path(), &target, change)?;
        } else {
            fs::write(&target, change(&fs::read_to_string(entry.path())?))?;
        }
    }
    Ok(())
}

/// An Ingress with one path `/` on one host.
pub fn ingress(namespace: &str, name: &str, host: &str, service: &str, port: u16) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  \
         ingressClassName: nginx\n  rules:\n  - host: {host}\n    http:\n      paths:\n      - path: /\n        \
         pathType: Prefix\n        backend: {{service: {{name: {service}, port: {{number: {port}}}}}}}\n"
    )
}

/// A certificate (PEM) that is good for one host, and a Secret with it and its key.
///
/// # Errors
/// When none can be made.
pub fn tls_secret(namespace: &str, name: &str, host: &str) -> Result<(String, String)> {
    let key = rcgen::KeyPair::generate()?;
    let certificate = rcgen::CertificateParams::new(vec![host.to_owned()])?.self_signed(&key)?.pem();
    let block = |text: &str| text.trim_end().lines().map(|line| format!("    {line}\n")).collect::<String>();
    let text = format!(
        "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         stringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
        block(&certificate),
        block(&key.serialize_pem())
    );
    Ok((certificate, text))
}

/// [`ingress`] with TLS from a Secret.
pub fn ingress_tls(namespace: &str, name: &str, host: &str, service: &str, port: u16, secret: &str) -> String {
    let tls = format!("spec:\n  tls: [{{hosts: [{host}], secretName: {secret}}}]\n");
    ingress(namespace, name, host, service, port).replace("spec:\n", &tls)
}
