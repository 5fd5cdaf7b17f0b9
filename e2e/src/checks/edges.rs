//! Text from outside at two edges: names of files on a volume, and headers that a client names in Connection.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use agent::core::Effect;
use agent::volume::Volume;
use anyhow::{Result, bail, ensure};
use http::header::{CONNECTION, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};
use journal::Digest;
use push::Secret;
use scalwsd::edge::Authority;
use scalwsd::headers::{Origin, prepare_request};

/// What a Secret may hold, one each.
const TEXTS: [&str; 9] = [
    "name",
    "../../outside",
    "../config.jsonl",
    "/absolute",
    "a/b/c",
    ".",
    "..",
    "name\nwith a line",
    "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
];

/// Whatever a secret holds, it becomes one file of `keys/` that is named by its digest, and nothing else changes.
///
/// # Errors
/// The file that should not be there, or the one that is not.
pub fn a_secret_is_stored_under_its_digest_only() -> Result<()> {
    for text in TEXTS {
        let outer = tempfile::tempdir()?;
        let folder = outer.path().join("a/volume");
        std::fs::create_dir_all(&folder)?;
        let (mut volume, _) = Volume::open(&folder)?;
        let mut expected = files(outer.path())?;
        let digest = Digest::of(text.as_bytes());
        let effect = Effect::WriteKey { digest, bytes: Secret::new(text.as_bytes().to_vec()) };
        // A failure is as good as any, as long as nothing is written elsewhere.
        let written = volume.perform(&effect).is_some_and(|written| written.is_ok());
        expected.push(Path::new("a/volume/keys").join(digest.to_string()));
        expected.sort();
        let found = files(outer.path())?;
        ensure!(written && found == expected, "the secret {text:?} led to the files {found:?}");
    }
    Ok(())
}

/// Every file below a folder, seen from there, in order.
fn files(top: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                found.push(entry.path().strip_prefix(top)?.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Whatever a client names in Connection, the upstream gets every header of this proxy with this proxy's value.
///
/// # Errors
/// The header that is missing or is the client's.
pub fn connection_takes_none_of_our_headers() -> Result<()> {
    let authority = Authority { written: "shop.example".to_owned(), host: "shop.example".to_owned() };
    let client: IpAddr = [192, 0, 2, 7].into();
    let origin = Origin { client, tls: true, port: 443, authority: &authority };
    let prepared = |mut headers: HeaderMap| {
        headers.insert(HOST, HeaderValue::from_static("shop.example"));
        prepare_request(&mut headers, &origin, false);
        headers
    };
    let ours = prepared(HeaderMap::new());
    let names: Vec<HeaderName> = ours.keys().cloned().collect();
    ensure!(names.len() >= 9, "the proxy sets {names:?} only");
    let all = names.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(", ");
    let lists = names.iter().map(|name| name.as_str().to_owned()).chain([all.clone(), all.to_ascii_uppercase()]);
    for list in lists {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_str(&list)?);
        for name in names.iter().filter(|name| **name != HOST && name.as_str() != "x-request-id") {
            headers.insert(name, HeaderValue::from_static("forged"));
        }
        let sent = prepared(headers);
        for name in &names {
            let value = sent.get(name);
            // A request's id is new each time.
            if value.is_none() || (name.as_str() != "x-request-id" && value != ours.get(name)) {
                bail!("with Connection: {list} the upstream gets {name}: {value:?}");
            }
        }
    }
    Ok(())
}
