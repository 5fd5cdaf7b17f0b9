//! The directory source against real folders: edits, removals, and everything that a folder may throw at it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use controller::watch::Batch;
use controller::watch::directory::{Directory, FileFinding};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use translate::{Change, Object};

/// No condition here takes this long unless it never comes.
const LIMIT: Duration = Duration::from_secs(10);

fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  ca.crt: \"{value}\"\n")
}

/// A folder, its source, and what came out of it.
struct Folder {
    outer: tempfile::TempDir,
    root: PathBuf,
    directory: Directory,
    world: BTreeMap<String, Arc<Object>>,
    findings: BTreeMap<PathBuf, Vec<FileFinding>>,
    /// Removals that a list showed, and removals that were seen.
    listed_removals: usize,
    observed_removals: usize,
    changes: usize,
}

impl Folder {
    fn new() -> Folder {
        Folder::with(&[])
    }

    fn with(files: &[(&str, &str)]) -> Folder {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("manifests");
        fs::create_dir(&root).unwrap();
        for (name, text) in files {
            fs::write(root.join(name), text).unwrap();
        }
        let directory = Directory::open(&root).unwrap();
        let mut folder = Folder {
            outer,
            root,
            directory,
            world: BTreeMap::new(),
            findings: BTreeMap::new(),
            listed_removals: 0,
            observed_removals: 0,
            changes: 0,
        };
        folder.rescan();
        folder
    }

    fn rescan(&mut self) {
        let batch = self.directory.rescan(Instant::now());
        self.take(batch);
    }

    fn take(&mut self, batch: Batch) {
        let listed = batch.listed.map(|l| l.changes).unwrap_or_default();
        let removals = |changes: &[Change]| changes.iter().filter(|c| matches!(c, Change::Delete(_))).count();
        self.observed_removals += removals(&batch.observed);
        self.listed_removals += removals(&listed);
        for change in batch.observed.into_iter().chain(listed) {
            self.changes += 1;
            match change {
                Change::Put(object) => drop(self.world.insert(object.reference().to_string(), object)),
                Change::Delete(reference) => drop(self.world.remove(&reference.to_string())),
                Change::Settings(_) => unreachable!("a folder has no settings"),
            }
        }
        for (path, findings) in batch.findings {
            match findings.is_empty() {
                true => drop(self.findings.remove(&path)),
                false => drop(self.findings.insert(path, findings)),
            }
        }
    }

    /// Waits for the kernel to say something, then takes it in, until the condition holds.
    fn until(&mut self, what: &str, condition: impl Fn(&Folder) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !condition(self) {
            let now = Instant::now();
            assert!(now < deadline, "never: {what}; world {:?}, findings {:?}", self.names(), self.findings);
            let at = self.directory.wake_at().map_or(deadline, |at| at.min(deadline));
            let left = at.saturating_duration_since(now);
            let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            let mut fds: Vec<PollFd<'_>> =
                self.directory.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).into_iter().collect();
            poll(&mut fds, Some(&timeout)).unwrap();
            let batch = self.directory.step(Instant::now());
            self.take(batch);
        }
    }

    /// Everything that was signalled so far is taken in: a marker file goes through the same queue.
    fn settle(&mut self) {
        fs::write(self.root.join("zz-marker.yaml"), config_map("marker", "")).unwrap();
        self.until("the marker", |f| f.has("marker"));
        fs::remove_file(self.root.join("zz-marker.yaml")).unwrap();
        self.until("no marker", |f| !f.has("marker") && !f.directory.is_settling());
    }

    fn names(&self) -> Vec<&str> {
        self.world.keys().map(|name| name.rsplit('/').next().unwrap()).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.world.contains_key(&format!("ConfigMap/default/{name}"))
    }

    fn value(&self, name: &str) -> Option<&str> {
        match &**self.world.get(&format!("ConfigMap/default/{name}"))? {
            Object::ConfigMap(map) => map.data.get("ca.crt").map(String::as_str),
            _ => None,
        }
    }

    fn reasons(&self, path: &str) -> Vec<&'static str> {
        self.findings.get(Path::new(path)).into_iter().flatten().map(|f| f.reason).collect()
    }

    fn place(&self, name: &str, text: &str) {
        let part = self.outer.path().join("part");
        fs::write(&part, text).unwrap();
        fs::rename(part, self.root.join(name)).unwrap();
    }
}

#[test]
fn what_is_there_at_the_start_is_listed_and_other_names_are_not_read() {
    let mut folder = Folder::with(&[
        ("a.yaml", &config_map("a", "1")),
        ("b.yml", &config_map("b", "1")),
        ("c.json", r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}"#),
        ("d.txt", &config_map("d", "1")),
        (".e.yaml", &config_map("e", "1")),
        ("yaml", &config_map("f", "1")),
    ]);
    assert_eq!(folder.names(), ["a", "b", "c"]);
    let before = folder.changes;
    folder.rescan();
    assert_eq!(folder.changes, before, "nothing changed, so a second list says nothing");
}

#[test]
fn a_renamed_file_comes_in_a_written_one_when_it_is_closed_and_an_unlinked_one_goes() {
    let mut folder = Folder::new();
    folder.place("a.yaml", &config_map("a", "1"));
    folder.until("a by rename", |f| f.value("a") == Some("1"));
    fs::write(folder.root.join("a.yaml"), config_map("a", "2")).unwrap();
    folder.until("a written", |f| f.value("a") == Some("2"));
    fs::remove_file(folder.root.join("a.yaml")).unwrap();
    folder.until("a gone", |f| !f.has("a"));
    assert_eq!((folder.observed_removals, folder.listed_removals), (1, 0));
}

#[test]
fn a_file_that_changes_its_name_removes_nothing() {
    let mut folder = Folder::with(&[("a.yaml", &config_map("a", "1"))]);
    fs::rename(folder.root.join("a.yaml"), folder.root.join("b.yaml")).unwrap();
    folder.settle();
    assert_eq!(folder.value("a"), Some("1"));
    // The marker is the only thing that went.
    assert_eq!((folder.observed_removals, folder.listed_removals), (1, 0));
    assert!(folder.findings.is_empty(), "{:?}", folder.findings);
}

#[test]
fn new_sub_folders_are_watched_whether_they_come_full_or_are_filled_later() {
    let mut folder = Folder::new();
    fs::create_dir_all(folder.root.join("x/y")).unwrap();
    fs::write(folder.root.join("x/y/a.yaml"), config_map("a", "1")).unwrap();
    folder.until("a in a new folder", |f| f.has("a"));
    folder.place("x/y/b.yaml", &config_map("b", "1"));
    folder.until("b in a known folder", |f| f.has("b"));
    let full = folder.outer.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("c.yaml"), config_map("c", "1")).unwrap();
    fs::rename(&full, folder.root.join("z")).unwrap();
    folder.until("c with its folder", |f| f.has("c"));
    fs::rename(folder.root.join("z"), folder.root.join("x/z")).unwrap();
    folder.place("x/z/c.yaml", &config_map("c", "2"));
    folder.until("c after its folder moved", |f| f.value("c") == Some("2"));
    fs::rename(folder.root.join("x"), folder.outer.path().join("away")).unwrap();
    folder.until("everything moved away", |f| f.world.is_empty());
    assert_eq!(folder.listed_removals, 3, "a folder that vanishes is a list's word");
}

#[test]
fn several_documents_and_lists_are_read_and_unknown_kinds_are_left_out() {
    let text = format!(
        "{}---\n# nothing\n---\n{}---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {{name: c}}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\n",
        config_map("a", "1"),
        config_map("b", "1")
    );
    let folder = Folder::with(&[("all.yaml", &text)]);
    assert_eq!(folder.names(), ["a", "b", "c"]);
    assert!(folder.findings.is_empty());
    assert!(folder.directory.ignored()["Deployment"].contains("all.yaml"));
}

#[test]
fn a_broken_edit_keeps_the_last_good_objects_and_says_where() {
    let good = format!("{}---\n{}", config_map("a", "1"), config_map("b", "1"));
    let mut folder = Folder::with(&[("f.yaml", &good), ("other.yaml", &config_map("o", "1"))]);
    let broken = format!("{}---\nkind: [\n", config_map("a", "2"));
    folder.place("f.yaml", &broken);
    folder.until("a finding", |f| !f.findings.is_empty());
    assert_eq!((folder.value("a"), folder.value("b")), (Some("2"), Some("1")), "the rest of the file goes on");
    let finding = &folder.findings[Path::new("f.yaml")][0];
    assert_eq!((finding.document, finding.reason), (2, "ManifestInvalid"));
    assert!(finding.line > 1 && finding.message.contains("line"), "{finding:?}");
    folder.place("f.yaml", &good);
    folder.until("no finding", |f| f.findings.is_empty());
    assert_eq!(folder.value("a"), Some("1"));
}

#[test]
fn a_wrong_type_keeps_the_last_good_object_and_names_it() {
    let mut folder = Folder::with(&[("a.yaml", &config_map("a", "1"))]);
    folder.place("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: [not, a, map]\n");
    folder.until("a finding", |f| !f.findings.is_empty());
    let finding = folder.findings[Path::new("a.yaml")][0].clone();
    assert_eq!(finding.object.unwrap().to_string(), "ConfigMap/default/a");
    assert_eq!(folder.value("a"), Some("1"));
    fs::remove_file(folder.root.join("a.yaml")).unwrap();
    folder.until("gone with its file", |f| !f.has("a") && f.findings.is_empty());
}

#[test]
fn the_second_file_with_an_object_is_refused_until_the_first_lets_go() {
    let mut folder = Folder::with(&[("a.yaml", &config_map("x", "1"))]);
    let second = format!("{}---\n{}", config_map("x", "2"), config_map("w", "1"));
    folder.place("b.yaml", &second);
    folder.until("w", |f| f.has("w"));
    assert_eq!(folder.value("x"), Some("1"));
    assert_eq!(folder.reasons("b.yaml"), ["ManifestDuplicate"]);
    fs::remove_file(folder.root.join("a.yaml")).unwrap();
    folder.until("the second takes over", |f| f.value("x") == Some("2"));
    assert!(folder.findings.is_empty());
    assert_eq!(folder.observed_removals, 0, "it was never away");
}

#[test]
fn the_copy_of_a_large_file_takes_over_at_once_and_a_third_is_told_who_has_it() {
    let many: String = (0..10_000).map(|n| format!("---\n{}", config_map(&format!("m{n}"), "1"))).collect();
    let mut folder = Folder::with(&[("a.yaml", &many), ("b.yaml", &many), ("c.yaml", &config_map("m0", "1"))]);
    assert_eq!(folder.reasons("b.yaml").len(), 1_001);
    let begin = Instant::now();
    fs::remove_file(folder.root.join("a.yaml")).unwrap();
    folder.until("the copy has all objects", |f| f.reasons("b.yaml").is_empty());
    assert!(begin.elapsed() < LIMIT, "it took {:?}", begin.elapsed());
    assert_eq!(folder.world.len(), 10_000);
    let told = &folder.findings[Path::new("c.yaml")][0].message;
    assert!(told.contains("already in the file b.yaml"), "{told}");
}

#[test]
fn a_broken_object_that_does_not_say_its_namespace_as_usual_keeps_its_last_good_version() {
    for namespace in ["\"\"", "null", "[default]", "7"] {
        let mut folder = Folder::with(&[("a.yaml", &config_map("x", "1"))]);
        let broken = config_map("x", "2").replace("  name: x", &format!("  name: x\n  namespace: {namespace}"));
        folder.place("a.yaml", &broken.replace("ca.crt: \"2\"", "ca.crt: [2]"));
        folder.until("a finding", |f| f.reasons("a.yaml") == ["ManifestInvalid"]);
        assert_eq!(folder.value("x"), Some("1"), "namespace: {namespace}");
    }
}

#[test]
fn an_object_twice_in_one_file_keeps_its_last_good_version() {
    let mut folder = Folder::with(&[("a.yaml", &config_map("x", "1"))]);
    let twice = format!("{}---\n{}", config_map("x", "2"), config_map("x", "3"));
    folder.place("a.yaml", &twice);
    folder.until("a finding", |f| f.reasons("a.yaml") == ["ManifestDuplicate"]);
    assert_eq!(folder.value("x"), Some("1"));
    folder.place("new.yaml", &twice.replace("name: x", "name: z"));
    folder.until("the first counts when there was none", |f| f.value("z") == Some("2"));
}

#[test]
fn long_files_other_encodings_and_strange_names_are_told_apart() {
    let mut folder = Folder::new();
    let long = format!("{}# {}\n", config_map("long", "1"), "x".repeat(10 * 1024 * 1024));
    folder.place("long.yaml", &long);
    folder.until("long", |f| f.reasons("long.yaml") == ["ManifestUnreadable"]);
    fs::write(folder.root.join("latin.yaml"), b"kind: \xe9\n").unwrap();
    folder.until("latin", |f| f.reasons("latin.yaml") == ["ManifestInvalid"]);
    let name = OsStr::from_bytes(b"\xff\xfe.yaml");
    fs::write(folder.root.join(name), config_map("strange", "1")).unwrap();
    folder.until("a name that is not UTF-8", |f| f.has("strange"));
    assert_eq!(controller::watch::directory::shown(Path::new(OsStr::from_bytes(b"a\xff\nb.yaml"))), "a\\xff\\nb.yaml");
    fs::remove_file(folder.root.join(name)).unwrap();
    folder.until("and gone again", |f| !f.has("strange"));
}

#[test]
fn a_file_full_of_broken_documents_costs_little_and_is_told_in_few_words() {
    let mut folder = Folder::with(&[("a.yaml", &config_map("a", "1"))]);
    // As many as a file has room for: it is refused as a whole, and what it held before stays.
    folder.place("a.yaml", &"---\n- [\n".repeat(1 << 20));
    folder.until("countless documents", |f| f.reasons("a.yaml") == ["ManifestInvalid"]);
    folder.place("a.yaml", &"---\n- [\n".repeat(5_000));
    folder.until("many documents", |f| f.reasons("a.yaml").len() > 1);
    let findings = &folder.findings[Path::new("a.yaml")];
    assert_eq!(findings.len(), 1_001);
    assert_eq!((findings[999].document, findings[999].line), (1_000, 1_999));
    assert!(findings[1_000].message.starts_with("4000 more"), "{:?}", findings[1_000]);
    assert_eq!(folder.names(), ["a"]);
}

#[test]
fn countless_small_alias_bombs_in_one_file_do_not_hold_the_source_up() {
    let mut folder = Folder::with(&[("a.yaml", &config_map("a", "1"))]);
    // Each would be half a million nodes long when it is written out.
    let mut bomb = "---\na0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..6 {
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", format!("*a{},", level - 1).repeat(9)));
    }
    folder.place("a.yaml", &bomb.repeat(2_000));
    folder.until("the bombs", |f| f.reasons("a.yaml").len() > 1_000);
    assert_eq!(folder.names(), ["a"]);
}

#[test]
fn pipes_are_not_opened_and_links_do_not_lead_out() {
    let mut folder = Folder::new();
    fs::write(folder.outer.path().join("outside.yaml"), config_map("outside", "1")).unwrap();
    std::os::unix::fs::symlink("../outside.yaml", folder.root.join("out.yaml")).unwrap();
    folder.until("a link out", |f| f.reasons("out.yaml") == ["ManifestUnreadable"]);
    folder.place("a.yaml", &config_map("a", "1"));
    fs::create_dir(folder.root.join(".store")).unwrap();
    fs::write(folder.root.join(".store/in.yaml"), config_map("in", "1")).unwrap();
    std::os::unix::fs::symlink(".store/in.yaml", folder.root.join("in.yaml")).unwrap();
    folder.until("a link inside", |f| f.has("in"));
    std::os::unix::fs::symlink(".", folder.root.join("loop")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.root.join("pipe.yaml"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    // A pipe without a writer would block whoever opens it for reading.
    folder.rescan();
    assert_eq!(folder.reasons("pipe.yaml"), ["ManifestUnreadable"]);
    assert_eq!(folder.names(), ["a", "in"]);
}

#[test]
fn mounted_volumes_swap_a_hidden_link_and_all_files_follow() {
    let mut folder = Folder::new();
    for (version, value) in [("..1", "1"), ("..2", "2")] {
        fs::create_dir(folder.root.join(version)).unwrap();
        fs::write(folder.root.join(version).join("a.yaml"), config_map("a", value)).unwrap();
    }
    std::os::unix::fs::symlink("..1", folder.root.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/a.yaml", folder.root.join("a.yaml")).unwrap();
    folder.until("the first version", |f| f.value("a") == Some("1"));
    let swap = |folder: &Folder, version: &str| {
        std::os::unix::fs::symlink(version, folder.root.join("..data.new")).unwrap();
        fs::rename(folder.root.join("..data.new"), folder.root.join("..data")).unwrap();
    };
    swap(&folder, "..2");
    folder.until("the second version", |f| f.value("a") == Some("2"));
    fs::create_dir(folder.root.join("..3")).unwrap();
    fs::write(folder.root.join("..3/a.yaml"), "kind: [").unwrap();
    swap(&folder, "..3");
    folder.until("what is wrong with the third version", |f| f.reasons("a.yaml") == ["ManifestInvalid"]);
    assert_eq!(folder.value("a"), Some("2"));
    swap(&folder, "..1");
    folder.until("no finding any more", |f| f.findings.is_empty() && f.value("a") == Some("1"));
}

#[test]
fn a_folder_that_is_removed_is_a_lists_word_and_comes_back() {
    for by_move in [true, false] {
        let files: Vec<(String, String)> =
            (0..30).map(|i| (format!("{i:02}.yaml"), config_map(&format!("m{i:02}"), "1"))).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
        let mut folder = Folder::with(&files);
        let away = folder.outer.path().join("away");
        if by_move {
            fs::rename(&folder.root, &away).unwrap();
        } else {
            fs::remove_dir_all(&folder.root).unwrap();
        }
        folder.until("all gone", |f| f.world.is_empty());
        assert_eq!((folder.observed_removals, folder.listed_removals), (0, 30), "by move: {by_move}");
        if by_move {
            fs::rename(&away, &folder.root).unwrap();
        } else {
            fs::create_dir(&folder.root).unwrap();
            for (name, text) in &files {
                fs::write(folder.root.join(name), text).unwrap();
            }
        }
        folder.until("all back", |f| f.world.len() == 30);
        folder.place("new.yaml", &config_map("new", "1"));
        folder.until("and watched again", |f| f.has("new"));
    }
}

#[test]
fn values_of_secrets_are_in_no_finding() {
    let folder = Folder::with(&[
        ("a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {tls.key: \"hunter2 is not base64\"}\n"),
        ("b.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: b}\ndata: {tls.key: hunter2\n"),
        ("c.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: c}\nstringData: hunter2\n"),
        (
            "d.yaml",
            "apiVersion: v1\nkind: Secret\nmetadata: {name: d, labels: hunter2}\ndata: {}\ndata: {a: hunter2}\n",
        ),
    ]);
    assert_eq!(folder.findings.len(), 4);
    for name in ["a.yaml", "b.yaml", "c.yaml"] {
        let text = format!("{:?}", folder.findings[Path::new(name)]);
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert!(folder.world.is_empty());
}

/// A small generator of numbers, the same on every run (Knuth's constants).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

#[test]
fn after_any_edits_the_world_is_what_a_fresh_look_sees() {
    for seed in 1..=30 {
        let mut numbers = Numbers(seed);
        let mut folder = Folder::new();
        let mut files: Vec<PathBuf> = Vec::new();
        let mut folders = vec![PathBuf::new()];
        for step in 0..60 {
            match numbers.below(8) {
                0..=2 => {
                    let path = folders[numbers.below(folders.len())].join(format!("f{}.yaml", numbers.below(12)));
                    fs::write(folder.outer.path().join("part"), config_map(&format!("m{step}"), "1")).unwrap();
                    fs::rename(folder.outer.path().join("part"), folder.root.join(&path)).unwrap();
                    files.retain(|file| *file != path);
                    files.push(path);
                }
                3 => {
                    let path = folders[numbers.below(folders.len())].join(format!("g{step}.yaml"));
                    fs::write(folder.root.join(&path), config_map(&format!("m{step}"), "1")).unwrap();
                    files.push(path);
                }
                4 if !files.is_empty() => {
                    let path = files.swap_remove(numbers.below(files.len()));
                    fs::remove_file(folder.root.join(path)).unwrap();
                }
                5 if !files.is_empty() => {
                    let from = files.swap_remove(numbers.below(files.len()));
                    let to = folders[numbers.below(folders.len())].join(format!("h{}.yaml", numbers.below(6)));
                    fs::rename(folder.root.join(from), folder.root.join(&to)).unwrap();
                    files.retain(|file| *file != to);
                    files.push(to);
                }
                6 => {
                    let path = folders[numbers.below(folders.len())].join(format!("d{step}"));
                    fs::create_dir(folder.root.join(&path)).unwrap();
                    folders.push(path);
                }
                7 if folders.len() > 1 => {
                    let old = folders[1 + numbers.below(folders.len() - 1)].clone();
                    let new = PathBuf::from(format!("moved{step}"));
                    fs::rename(folder.root.join(&old), folder.root.join(&new)).unwrap();
                    for path in files.iter_mut().chain(folders.iter_mut()) {
                        if let Ok(rest) = path.strip_prefix(&old) {
                            *path = if rest.as_os_str().is_empty() { new.clone() } else { new.join(rest) };
                        }
                    }
                }
                _ => {}
            }
            if numbers.below(4) == 0 {
                let batch = folder.directory.step(Instant::now());
                folder.take(batch);
            }
        }
        folder.settle();
        let mut fresh = Directory::open(&folder.root).unwrap();
        let listing = fresh.rescan(Instant::now()).listed.unwrap();
        let names: std::collections::BTreeSet<String> = listing
            .changes
            .iter()
            .filter_map(|c| match c {
                Change::Put(object) => Some(object.reference().to_string()),
                _ => None,
            })
            .collect();
        assert_eq!(names.len(), files.len(), "seed {seed}");
        assert_eq!(folder.world.keys().cloned().collect::<std::collections::BTreeSet<_>>(), names, "seed {seed}");
        assert!(folder.findings.is_empty(), "seed {seed}: {:?}", folder.findings);
        let before = folder.changes;
        folder.rescan();
        assert_eq!(folder.changes, before, "seed {seed}: the scan found what the events had missed");
    }
}
