//! `scalwsd check`: loads a configuration without opening a socket, and says what is not live.
//!
//! On a volume it prints each resource before it loads it, so that whoever reads knows on which one it died.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use config::{Kind, Name, ResourceId};
use journal::check::CheckLine;
use journal::{CONFIG_FILE, Follower, KEYS_FOLDER, Key};

use crate::build::Builder;
use crate::cli::Check;
use crate::dns::Resolver;
use crate::keys::Keys;
use crate::members::Members;
use crate::not_live::Faults;
use crate::standalone::StandAlone;
use crate::state::{Bodies, Change, State};
use crate::tls::Tls;
use crate::watch::{self, Watch};

/// Everything is live.
pub const LIVE: u8 = 0;
/// Something is not live.
pub const NOT_LIVE: u8 = 1;
/// The whole is unusable.
pub const UNUSABLE: u8 = 2;

/// Checks; gives the exit code.
///
/// # Errors
/// When the output cannot be written.
pub fn check(options: &Check, out: &mut impl Write) -> std::io::Result<u8> {
    let result = match (&options.file, &options.volume) {
        (Some(file), _) => check_file(file),
        (None, Some(volume)) => check_volume(volume, options, out)?,
        (None, None) => Err(vec!["neither a file nor a volume was given".to_owned()]),
    };
    let quiet = options.file.is_none();
    let (code, lines) = match result {
        Err(errors) => (UNUSABLE, errors),
        Ok(faults) if faults.is_empty() => (LIVE, vec!["everything is live".to_owned()]),
        Ok(faults) => (
            NOT_LIVE,
            faults.iter().map(|(name, fault)| format!("{name}: {}: {}", fault.code, fault.message)).collect(),
        ),
    };
    for line in lines {
        // What a program reads line by line holds nothing else.
        if quiet {
            tracing::info!("{line}");
        } else {
            writeln!(out, "{line}")?;
        }
    }
    Ok(code)
}

fn builder(keys: Keys) -> Result<Builder, Vec<String>> {
    let tls = Tls::new().map_err(|e| vec![e.to_string()])?;
    Ok(Builder {
        tls: Arc::new(tls),
        members: Arc::new(Members::default()),
        resolver: Arc::new(Resolver::default()),
        keys,
    })
}

fn check_file(path: &Path) -> Result<Faults, Vec<String>> {
    let read = StandAlone::new(path).read()?;
    let builder = builder(Keys::Memory(read.keys.clone()))?;
    let mut state = State::default();
    state.apply(read.changes(), &builder, &read)?;
    Ok(state.faults().clone())
}

fn check_volume(volume: &Path, options: &Check, out: &mut impl Write) -> std::io::Result<Result<Faults, Vec<String>>> {
    let journal = volume.join(CONFIG_FILE);
    let resources = match resources(&journal, options) {
        Ok(resources) => resources,
        Err(error) => return Ok(Err(vec![error])),
    };
    let builder = match builder(Keys::Folder(volume.join(KEYS_FOLDER))) {
        Ok(builder) => builder,
        Err(errors) => return Ok(Err(errors)),
    };
    let skipped: BTreeSet<&str> = options.skip.iter().map(String::as_str).collect();
    let mut state = State::default();
    let mut errors = Vec::new();
    let mut loaded = 0;
    let watch = Watch::default();
    // What is named is loaded before what names it.
    for kind in Kind::ALL {
        for (key, body) in resources.iter().filter(|(key, _)| *key.kind == *kind.as_str()) {
            if skipped.contains(key.to_string().as_str()) {
                continue;
            }
            print(out, &CheckLine::Put { kind: key.kind.to_string(), name: key.name.to_string() })?;
            let id = ResourceId { kind, name: Name::from_wire(&*key.name) };
            // A panic needs no care: nothing is printed after it, and the process ends.
            let _watched = watch.over(watch::CHECK);
            match state.apply(vec![Change { id, bytes: Some(body.clone()) }], &builder, &Listed(&resources)) {
                Ok(()) => loaded += 1,
                Err(more) => errors.extend(more),
            }
        }
    }
    print(out, &CheckLine::Done { loaded })?;
    Ok(if errors.is_empty() { Ok(state.faults().clone()) } else { Err(errors) })
}

/// What is checked, whole.
struct Listed<'a>(&'a BTreeMap<Key, Bytes>);

impl Bodies for Listed<'_> {
    fn body(&self, id: &ResourceId) -> std::io::Result<Option<Bytes>> {
        Ok(self.0.get(&Key::new(id.kind.as_str(), id.name.as_str())).cloned())
    }
}

/// The accepted state, or what a commit makes of it.
fn resources(journal: &Path, options: &Check) -> Result<BTreeMap<Key, Bytes>, String> {
    let (mut follower, accepted) = Follower::open(journal).map_err(|e| format!("{}: {e}", journal.display()))?;
    let mut resources = BTreeMap::new();
    for key in accepted.map(|_| follower.keys()).into_iter().flatten() {
        let body = follower.body(key).map_err(|e| format!("{}: {e}", journal.display()))?;
        resources.extend(body.map(|body| (key.clone(), body)));
    }
    if let (Some(id), Some(commit)) = (&options.journal, options.commit) {
        for change in follower.read_to(id, commit).map_err(|e| e.to_string())?.changes {
            match change.body {
                Some(body) => resources.insert(change.key, body),
                None => resources.remove(&change.key),
            };
        }
    }
    Ok(resources)
}

/// Each line is out before anything is loaded.
fn print(out: &mut impl Write, line: &CheckLine) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")?;
    out.flush()
}
