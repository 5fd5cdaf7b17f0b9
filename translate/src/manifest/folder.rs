//! Which file of a folder holds which object, the last good version of each, and what is wrong with the files.
//!
//! What an API server would have refused changes nothing: the objects that the file held before stay. An object has one
//! holder; a second file that names it is refused until the holder lets go, as a second `create` would be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::ObjectRef;

use super::{Document, FilePath, Outcome, Unreadable, shown};
use crate::few::{Map, Set};
use crate::objects::{Object, ObjectId};
use crate::world::Change;

/// So many findings of one file are told; of more, only how many there are.
const FINDINGS: usize = 1_000;

/// The reason of findings about a file or folder that cannot be read.
pub const UNREADABLE: &str = "ManifestUnreadable";
/// The reason of findings about what an API server would refuse.
const INVALID: &str = "ManifestInvalid";
/// The reason of findings about an object that is there twice.
const DUPLICATE: &str = "ManifestDuplicate";
/// The reason of findings about kinds that are not read although people expect them to be served.
const NOT_BUILT: &str = "NotBuilt";

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
    /// Why, and the way out. What stays in force is not said: that depends on who reads.
    pub message: String,
}

impl FileFinding {
    fn whole(reason: &'static str, message: String) -> FileFinding {
        FileFinding { document: 0, line: 0, object: None, reason, message }
    }
}

/// What was found in a file.
#[derive(Clone, Debug)]
pub enum Content {
    /// Its documents.
    Documents(Vec<Document>),
    /// It is there and could not be read.
    Unreadable(Unreadable),
}

#[derive(Debug, Default)]
struct FileState {
    content: Vec<Document>,
    unreadable: Option<Box<Unreadable>>,
    findings: Vec<FileFinding>,
    /// The objects it holds.
    holds: Set<ObjectId>,
    /// The objects it names while another file holds them.
    contends: Set<ObjectId>,
}

#[derive(Debug)]
struct Held {
    file: FilePath,
    object: Arc<Object>,
}

/// What the documents of one file come to.
#[derive(Debug, Default)]
struct Claims {
    findings: Vec<FileFinding>,
    /// The document in which each object was first seen.
    seen: BTreeMap<ObjectId, usize>,
    /// The objects that the file gets, and where they stand among its documents.
    wins: Map<ObjectId, usize>,
    /// Objects whose last good version stays, if this file held one.
    kept: BTreeSet<ObjectId>,
    /// A document did not say which object it is: whatever the file held before may be meant.
    keep_all: bool,
}

/// A folder as it was last read. Whoever reads it once takes a new one; whoever follows it keeps the one they have, and
/// with it the last good objects.
///
/// An object that several files name belongs to the one that had it first; of files that are read for the first time, to
/// the first in the order in which they are taken in. So that this does not depend on who reads, that is the order of
/// their paths.
#[derive(Debug, Default)]
pub struct Folder {
    files: BTreeMap<FilePath, FileState>,
    /// Files that are no longer there; their objects stay until [`Folder::sweep`], or until another file names them.
    gone: BTreeSet<FilePath>,
    objects: BTreeMap<ObjectId, Held>,
    /// Files that name an object which another file holds.
    contenders: BTreeMap<ObjectId, BTreeSet<FilePath>>,
    /// Objects that changed since [`Folder::take_changes`], with what they were before.
    touched: BTreeMap<ObjectId, Option<Arc<Object>>>,
    /// Files and folders that have findings or had some.
    dirty_findings: BTreeSet<FilePath>,
    /// Folders that could not be listed.
    unreadable: BTreeMap<PathBuf, Unreadable>,
    /// Files that name an object which got another holder, or none.
    waiting: BTreeSet<FilePath>,
}

impl Folder {
    /// Takes in a look at everything: what was read of each file, and the folders that could not be listed.
    pub fn take_in(&mut self, files: BTreeMap<PathBuf, Content>, unreadable: BTreeMap<PathBuf, Unreadable>) {
        self.unreadable_folders(unreadable);
        for path in self.lost(|path| files.contains_key(path)) {
            self.mark_gone(&path);
        }
        for (path, content) in files {
            self.update(path.as_path(), content);
        }
        self.sweep(|_| true);
    }

    /// Takes in what was read of a file.
    pub fn update(&mut self, path: impl Into<FilePath>, content: Content) {
        let path = path.into();
        self.gone.remove(&path);
        let state = self.files.entry(path.clone()).or_default();
        match content {
            Content::Documents(mut documents) => {
                documents.shrink_to_fit();
                state.content = documents;
                state.unreadable = None;
            }
            Content::Unreadable(why) => state.unreadable = Some(Box::new(why)),
        }
        self.evaluate(&path);
        self.evaluate_waiting();
    }

    /// Notes which folders cannot be listed now.
    pub fn unreadable_folders(&mut self, folders: BTreeMap<PathBuf, Unreadable>) {
        let folders_told = self.unreadable.keys().chain(folders.keys());
        self.dirty_findings.extend(folders_told.map(|folder| FilePath::from(folder.as_path())));
        self.unreadable = folders;
    }

    /// The files that a look at everything did not find. What is below a folder that cannot be listed is not lost.
    pub fn lost(&self, is_there: impl Fn(&Path) -> bool) -> Vec<FilePath> {
        let hidden = |path: &Path| self.unreadable.keys().any(|folder| path.starts_with(folder));
        self.files.keys().filter(|path| !is_there(path) && !hidden(path)).cloned().collect()
    }

    /// Notes that a file is not there any more.
    pub fn mark_gone(&mut self, path: &FilePath) {
        if let Some((path, _)) = self.files.get_key_value(path) {
            self.gone.insert(path.clone());
        }
    }

    /// The files that are marked as gone and not swept yet.
    pub fn gone(&self) -> &BTreeSet<FilePath> {
        &self.gone
    }

    /// Lets go of the objects of the gone files for which `which` holds.
    pub fn sweep(&mut self, which: impl Fn(&Path) -> bool) {
        let (swept, kept): (BTreeSet<FilePath>, _) =
            std::mem::take(&mut self.gone).into_iter().partition(|path| which(path));
        self.gone = kept;
        for path in swept {
            self.forget_contender(&path);
            let Some(state) = self.files.remove(&path) else { continue };
            if !state.findings.is_empty() {
                self.dirty_findings.insert(path);
            }
            for object in state.holds.keys() {
                self.release(object);
            }
        }
        self.evaluate_waiting();
    }

    /// All files below a folder.
    pub fn files_below(&self, folder: &Path) -> Vec<FilePath> {
        self.files
            .range(FilePath::from(folder)..)
            .map(|(path, _)| path)
            .take_while(|path| path.starts_with(folder))
            .cloned()
            .collect()
    }

    /// How many files the folder has, readable or not.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// How many objects the folder has.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether the folder has no object.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The objects that are in force, in the order of their names.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values().map(|held| &held.object)
    }

    /// Kinds that are not read, and the files with such objects.
    pub fn ignored(&self) -> BTreeMap<String, BTreeSet<String>> {
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
    pub fn take_changes(&mut self) -> Vec<Change> {
        let touched = std::mem::take(&mut self.touched);
        let mut changes = Vec::with_capacity(touched.len());
        for (reference, before) in touched {
            match (before, self.objects.get(&reference)) {
                (Some(before), Some(held)) if before == held.object => {}
                (_, Some(held)) => changes.push(Change::Put(held.object.clone())),
                (Some(_), None) => changes.push(Change::Delete(reference.reference())),
                (None, None) => {}
            }
        }
        changes
    }

    /// The files and folders whose findings may have changed since the last call, with the findings they have now.
    pub fn take_findings(&mut self) -> Vec<(PathBuf, Vec<FileFinding>)> {
        std::mem::take(&mut self.dirty_findings)
            .into_iter()
            .map(|path| {
                let mut findings = self.files.get(&path).map(|state| state.findings.clone()).unwrap_or_default();
                let unlisted = self.unreadable.get(&*path);
                findings.extend(unlisted.map(|why| FileFinding::whole(UNREADABLE, why.to_string())));
                (path.to_path_buf(), findings)
            })
            .collect()
    }

    fn touch(&mut self, reference: &ObjectId) {
        if !self.touched.contains_key(reference) {
            let before = self.objects.get(reference).map(|held| held.object.clone());
            self.touched.insert(reference.clone(), before);
        }
    }

    /// Works out what a file holds now.
    fn evaluate(&mut self, path: &FilePath) {
        self.forget_contender(path);
        let Some(state) = self.files.get_mut(path) else { return };
        let had_findings = !state.findings.is_empty();
        if let Some(why) = &state.unreadable {
            state.findings = vec![FileFinding::whole(UNREADABLE, why.to_string())];
            self.dirty_findings.insert(path.clone());
            return;
        }
        let before = std::mem::take(&mut state.holds);
        let content = std::mem::take(&mut state.content);
        let mut claims = Claims::default();
        for (position, document) in content.iter().enumerate() {
            self.claim(path, position, document, &mut claims);
        }
        if claims.findings.len() > FINDINGS {
            let more = claims.findings.len() - FINDINGS;
            claims.findings.truncate(FINDINGS);
            let message = format!("{more} more findings in this file; mend those that are named first");
            claims.findings.push(FileFinding::whole(INVALID, message));
        }
        for (reference, position) in claims.wins.iter() {
            // Of an object that is there twice, the last good version stays; without one, the first counts.
            if claims.kept.contains(reference) && before.contains(reference) {
                continue;
            }
            if let Some(Outcome::Object(object)) = content.get(*position).map(|document| &document.outcome) {
                self.hold(path, reference.clone(), object.clone());
            }
        }
        let mut holds: Set<ObjectId> = claims.wins.keys().map(|reference| (reference.clone(), ())).collect();
        let mut released = Vec::new();
        for reference in before.keys() {
            if holds.contains(reference) {
                continue;
            }
            if claims.keep_all || claims.kept.contains(reference) {
                holds.insert(reference.clone(), ());
            } else {
                released.push(reference.clone());
            }
        }
        if had_findings || !claims.findings.is_empty() {
            self.dirty_findings.insert(path.clone());
        }
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
    fn claim(&mut self, path: &FilePath, position: usize, document: &Document, claims: &mut Claims) {
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
                    claims.findings.push(finding(Some(ObjectRef::clone(object)), NOT_BUILT, message));
                }
                return;
            }
            Outcome::Refused { object, message } => {
                claims.findings.push(finding(object.as_deref().cloned(), INVALID, message.clone()));
                match object {
                    Some(object) => claims.kept.extend([ObjectId::from(&**object)]),
                    None => claims.keep_all = true,
                }
                return;
            }
            Outcome::Object(object) => object,
        };
        let reference = object.id();
        if let Some(first) = claims.seen.get(&reference) {
            let message = format!("{reference} is already in document {first} of this file; remove one of the two");
            claims.findings.push(finding(Some(reference.reference()), DUPLICATE, message));
            claims.kept.insert(reference);
            return;
        }
        claims.seen.insert(reference.clone(), document.number);
        match self.objects.get(&reference) {
            Some(held) if held.file != *path && !self.gone.contains(&held.file) => {
                let file = shown(&held.file);
                let message = format!("{reference} is already in the file {file}; remove one of the two");
                claims.findings.push(finding(Some(reference.reference()), DUPLICATE, message));
                self.contenders.entry(reference.clone()).or_default().insert(path.clone());
                if let Some(state) = self.files.get_mut(path) {
                    state.contends.insert(reference, ());
                }
            }
            _ => {
                claims.wins.insert(reference, position);
            }
        }
    }

    fn hold(&mut self, path: &FilePath, reference: ObjectId, object: Arc<Object>) {
        self.touch(&reference);
        let held = Held { file: path.clone(), object };
        if let Some(old) = self.objects.insert(reference.clone(), held)
            && old.file != *path
            && let Some(state) = self.files.get_mut(&old.file)
        {
            state.holds.remove(&reference);
            self.wait(&reference);
        }
    }

    /// Lets go of an object; the first other file that names it takes over when those that wait have their turn.
    fn release(&mut self, reference: &ObjectId) {
        self.touch(reference);
        self.objects.remove(reference);
        self.wait(reference);
    }

    /// An object has another holder, or none: what those say that name it too is not true any more.
    fn wait(&mut self, reference: &ObjectId) {
        self.waiting.extend(self.contenders.get(reference).into_iter().flatten().cloned());
    }

    /// Gives the files that wait their turn, each once however many objects it waits for. One that is gone gets nothing.
    fn evaluate_waiting(&mut self) {
        while let Some(path) = self.waiting.pop_first() {
            if !self.gone.contains(&path) {
                self.evaluate(&path);
            }
        }
    }

    fn forget_contender(&mut self, path: &FilePath) {
        let Some(state) = self.files.get_mut(path) else { return };
        for reference in std::mem::take(&mut state.contends).keys() {
            if let Some(paths) = self.contenders.get_mut(reference) {
                paths.remove(path);
                if paths.is_empty() {
                    self.contenders.remove(reference);
                }
            }
        }
    }
}
