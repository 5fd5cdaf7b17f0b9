//! Which file holds which object, and the last good version of each. Pure.
//!
//! What an API server would have refused changes nothing: the objects that the file held before stay. An object has one
//! holder; a second file that names it is refused until the holder lets go, as a second `create` would be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::ObjectRef;
use translate::Change;
use translate::objects::Object;

use super::documents::{Document, Outcome};
use super::scan::shown;

/// So many findings of one file are told; of more, only how many there are.
const FINDINGS: usize = 1_000;

/// Something that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFinding {
    /// The document, counted from 1; 0 when it is the file as a whole.
    pub document: usize,
    /// The line on which that document begins; 0 when it is the file as a whole.
    pub line: usize,
    /// The object it is about, if that is known.
    pub object: Option<ObjectRef>,
    /// A stable word: `ManifestInvalid`, `ManifestDuplicate`, `ManifestUnreadable` or `NotBuilt`.
    pub reason: &'static str,
    /// Why, and the way out.
    pub message: String,
}

/// What was found in a file.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// Its documents.
    Documents(Vec<Document>),
    /// It is there and could not be read.
    Unreadable(String),
}

#[derive(Debug, Default)]
struct FileState {
    content: Vec<Document>,
    unreadable: Option<String>,
    findings: Vec<FileFinding>,
    /// The objects it holds.
    holds: BTreeSet<ObjectRef>,
    /// The objects it names while another file holds them.
    contends: BTreeSet<ObjectRef>,
}

#[derive(Debug)]
struct Held {
    file: PathBuf,
    object: Arc<Object>,
}

/// What the documents of one file come to.
#[derive(Debug, Default)]
struct Claims {
    findings: Vec<FileFinding>,
    /// The document in which each object was first seen.
    seen: BTreeMap<ObjectRef, usize>,
    /// The objects that the file gets, and where they stand among its documents.
    wins: BTreeMap<ObjectRef, usize>,
    /// Objects whose last good version stays, if this file held one.
    kept: BTreeSet<ObjectRef>,
    /// A document did not say which object it is: whatever the file held before may be meant.
    keep_all: bool,
}

/// The folder as it was last read.
#[derive(Debug, Default)]
pub(super) struct Index {
    files: BTreeMap<PathBuf, FileState>,
    /// Files that are no longer there; their objects stay until [`Index::sweep`], or until another file names them.
    gone: BTreeSet<PathBuf>,
    objects: BTreeMap<ObjectRef, Held>,
    /// Files that name an object which another file holds.
    contenders: BTreeMap<ObjectRef, BTreeSet<PathBuf>>,
    /// Objects that changed since [`Index::take_changes`], with what they were before.
    touched: BTreeMap<ObjectRef, Option<Arc<Object>>>,
    dirty_findings: BTreeSet<PathBuf>,
}

impl Index {
    /// Takes in what was read of a file.
    pub(super) fn update(&mut self, path: &Path, content: Content) {
        self.gone.remove(path);
        let state = self.files.entry(path.to_owned()).or_default();
        match content {
            Content::Documents(documents) => {
                state.content = documents;
                state.unreadable = None;
            }
            Content::Unreadable(why) => state.unreadable = Some(why),
        }
        self.evaluate(path);
    }

    /// Notes that a file is not there any more.
    pub(super) fn mark_gone(&mut self, path: &Path) {
        if self.files.contains_key(path) {
            self.gone.insert(path.to_owned());
        }
    }

    /// The files that are marked as gone and not swept yet.
    pub(super) fn gone(&self) -> &BTreeSet<PathBuf> {
        &self.gone
    }

    /// Lets go of the objects of the gone files for which `which` holds.
    pub(super) fn sweep(&mut self, which: impl Fn(&Path) -> bool) {
        let (swept, kept) = std::mem::take(&mut self.gone).into_iter().partition(|path| which(path));
        self.gone = kept;
        let swept: BTreeSet<PathBuf> = swept;
        for path in swept {
            self.forget_contender(&path);
            let Some(state) = self.files.remove(&path) else { continue };
            self.dirty_findings.insert(path);
            for object in state.holds {
                self.release(&object);
            }
        }
    }

    /// All files below a folder.
    pub(super) fn files_below(&self, folder: &Path) -> Vec<PathBuf> {
        self.files
            .range(folder.to_owned()..)
            .map(|(path, _)| path)
            .take_while(|path| path.starts_with(folder))
            .cloned()
            .collect()
    }

    /// How many objects the folder has.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Kinds that are not read, and the files with such objects.
    pub(super) fn ignored(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut out: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (path, state) in &self.files {
            for document in &state.content {
                if let Outcome::Ignored { kind, .. } = &document.outcome {
                    out.entry(kind.clone()).or_default().insert(shown(path));
                }
            }
        }
        out
    }

    /// What changed since the last call, one change per object.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        let touched = std::mem::take(&mut self.touched);
        let mut changes = Vec::with_capacity(touched.len());
        for (reference, before) in touched {
            match (before, self.objects.get(&reference)) {
                (Some(before), Some(held)) if before == held.object => {}
                (_, Some(held)) => changes.push(Change::Put(held.object.clone())),
                (Some(_), None) => changes.push(Change::Delete(reference)),
                (None, None) => {}
            }
        }
        changes
    }

    /// The files whose findings may have changed since the last call, with the findings they have now.
    pub(super) fn take_findings(&mut self) -> Vec<(PathBuf, Vec<FileFinding>)> {
        std::mem::take(&mut self.dirty_findings)
            .into_iter()
            .map(|path| {
                let findings = self.files.get(&path).map(|state| state.findings.clone()).unwrap_or_default();
                (path, findings)
            })
            .collect()
    }

    fn touch(&mut self, reference: &ObjectRef) {
        if !self.touched.contains_key(reference) {
            let before = self.objects.get(reference).map(|held| held.object.clone());
            self.touched.insert(reference.clone(), before);
        }
    }

    /// Works out what a file holds now.
    fn evaluate(&mut self, path: &Path) {
        self.forget_contender(path);
        let Some(state) = self.files.get_mut(path) else { return };
        let mut findings = Vec::new();
        let before = std::mem::take(&mut state.holds);
        if let Some(why) = &state.unreadable {
            findings.push(FileFinding {
                document: 0,
                line: 0,
                object: None,
                reason: "ManifestUnreadable",
                message: format!("{why}; what it held before stays in force"),
            });
            state.holds = before;
            state.findings = findings;
            self.dirty_findings.insert(path.to_owned());
            return;
        }
        let content = std::mem::take(&mut state.content);
        let mut claims = Claims::default();
        for (position, document) in content.iter().enumerate() {
            self.claim(path, position, document, &mut claims);
        }
        if claims.findings.len() > FINDINGS {
            let more = claims.findings.len() - FINDINGS;
            claims.findings.truncate(FINDINGS);
            claims.findings.push(FileFinding {
                document: 0,
                line: 0,
                object: None,
                reason: "ManifestInvalid",
                message: format!("{more} more findings in this file; mend those that are named first"),
            });
        }
        for (reference, position) in &claims.wins {
            // Of an object that is there twice, the last good version stays; without one, the first counts.
            if claims.kept.contains(reference) && before.contains(reference) {
                continue;
            }
            if let Some(Outcome::Object(object)) = content.get(*position).map(|document| &document.outcome) {
                self.hold(path, reference.clone(), object.clone());
            }
        }
        let mut holds: BTreeSet<ObjectRef> = claims.wins.into_keys().collect();
        let mut released = Vec::new();
        for reference in before {
            if holds.contains(&reference) {
                continue;
            }
            if claims.keep_all || claims.kept.contains(&reference) {
                holds.insert(reference);
            } else {
                released.push(reference);
            }
        }
        self.dirty_findings.insert(path.to_owned());
        if let Some(state) = self.files.get_mut(path) {
            state.content = content;
            state.holds = holds;
            state.findings = claims.findings;
        }
        for reference in released {
            self.release(&reference);
        }
    }

    /// Decides about one document of a file.
    fn claim(&mut self, path: &Path, position: usize, document: &Document, claims: &mut Claims) {
        let finding = |object: Option<ObjectRef>, reason, message| FileFinding {
            document: document.number,
            line: document.line,
            object,
            reason,
            message,
        };
        let object = match &document.outcome {
            Outcome::Ignored { expected, kind } => {
                if let Some(object) = expected {
                    let message = format!("{kind} is not built yet: nothing of this object is served");
                    claims.findings.push(finding(Some(object.clone()), "NotBuilt", message));
                }
                return;
            }
            Outcome::Refused { object, message } => {
                claims.findings.push(finding(object.clone(), "ManifestInvalid", message.clone()));
                match object {
                    Some(object) => claims.kept.insert(object.clone()),
                    None => std::mem::replace(&mut claims.keep_all, true),
                };
                return;
            }
            Outcome::Object(object) => object,
        };
        let reference = object.reference();
        if let Some(first) = claims.seen.get(&reference) {
            let message = format!("{reference} is already in document {first} of this file; remove one of the two");
            claims.findings.push(finding(Some(reference.clone()), "ManifestDuplicate", message));
            claims.kept.insert(reference);
            return;
        }
        claims.seen.insert(reference.clone(), document.number);
        match self.objects.get(&reference) {
            Some(held) if held.file != path && !self.gone.contains(&held.file) => {
                let file = shown(&held.file);
                let message = format!("{reference} is already in the file {file}; remove one of the two");
                claims.findings.push(finding(Some(reference.clone()), "ManifestDuplicate", message));
                self.contenders.entry(reference.clone()).or_default().insert(path.to_owned());
                if let Some(state) = self.files.get_mut(path) {
                    state.contends.insert(reference);
                }
            }
            _ => {
                claims.wins.insert(reference, position);
            }
        }
    }

    fn hold(&mut self, path: &Path, reference: ObjectRef, object: Arc<Object>) {
        self.touch(&reference);
        let held = Held { file: path.to_owned(), object };
        if let Some(old) = self.objects.insert(reference.clone(), held)
            && old.file != path
            && let Some(state) = self.files.get_mut(&old.file)
        {
            state.holds.remove(&reference);
        }
    }

    /// Lets go of an object; the first other file that names it takes over.
    fn release(&mut self, reference: &ObjectRef) {
        self.touch(reference);
        self.objects.remove(reference);
        let next = self.contenders.get(reference).and_then(|paths| paths.iter().next().cloned());
        if let Some(next) = next {
            self.evaluate(&next);
        }
    }

    fn forget_contender(&mut self, path: &Path) {
        let Some(state) = self.files.get_mut(path) else { return };
        for reference in std::mem::take(&mut state.contends) {
            if let Some(paths) = self.contenders.get_mut(&reference) {
                paths.remove(path);
                if paths.is_empty() {
                    self.contenders.remove(&reference);
                }
            }
        }
    }
}
