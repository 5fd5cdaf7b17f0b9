//! Hostile folders as the controller, `scalwsctl lint` and the echo servers read them: one folder, one meaning.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use controller::watch::Batch;
use controller::watch::directory::{Directory, FileFinding, shown};
use e2e::process::{scalwsctl, stderr};
use e2e::shop::ingress;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use serde_json::{Value, json};
use translate::{Change, Object, Settings, World, translate};

/// A folder, and what everybody has to say about it: `path document@line reason`.
struct Hostile {
    what: &'static str,
    make: fn(&Path) -> Result<()>,
    said: &'static [&'static str],
    objects: &'static [&'static str],
}

fn web(name: &str) -> String {
    ingress("shop", name, &format!("{name}.example.com"), "web", 80)
}

fn put(root: &Path, name: &str, text: impl AsRef<[u8]>) -> Result<()> {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap_or(root))?;
    Ok(fs::write(path, text)?)
}

const FOLDERS: &[Hostile] = &[
    Hostile {
        what: "a document that does not parse, and one of a wrong type, among good ones",
        make: |root| {
            put(root, "a.yaml", format!("{}---\nkind: [\n---\n{}", web("a"), web("b")))?;
            put(root, "b.yaml", format!("{}---\n{}", web("c").replace("  rules:", "  rules: 7\n  x:"), web("d")))
        },
        said: &["a.yaml 2@13 ManifestInvalid", "b.yaml 1@1 ManifestInvalid Ingress/shop/c"],
        objects: &["Ingress/shop/a", "Ingress/shop/b", "Ingress/shop/d"],
    },
    Hostile {
        what: "lists, with a broken item",
        make: |root| {
            let item = |name| format!("- {}", web(name).replace('\n', "\n  ").trim_end());
            let broken = item("b").replace("rules:", "rules: 7\n    x:");
            put(root, "a.yaml", format!("apiVersion: v1\nkind: List\nitems:\n{}\n- 7\n{broken}\n", item("a")))?;
            let list = "apiVersion: networking.k8s.io/v1\nkind: IngressList\nitems:\n";
            put(root, "b.yaml", format!("{list}{}\n", item("c")))?;
            put(root, "c.yaml", "apiVersion: v1\nkind: List\nitems: 7\n")
        },
        said: &["a.yaml 1@1 ManifestInvalid", "a.yaml 1@1 ManifestInvalid Ingress/shop/b"],
        objects: &["Ingress/shop/a", "Ingress/shop/c"],
    },
    Hostile {
        what: "an object in several files, and twice in one",
        make: |root| {
            put(root, "b.yaml", web("a").replace("web", "assets"))?;
            put(root, "a/z.yaml", web("a"))?;
            put(root, "a.yaml", format!("{0}---\n{0}", web("b")))?;
            put(root, "c.yaml", format!("{}---\n{}---\n{}", web("a"), web("b"), web("c")))
        },
        said: &[
            "a.yaml 2@13 ManifestDuplicate Ingress/shop/b",
            "b.yaml 1@1 ManifestDuplicate Ingress/shop/a",
            "c.yaml 1@1 ManifestDuplicate Ingress/shop/a",
            "c.yaml 2@13 ManifestDuplicate Ingress/shop/b",
        ],
        objects: &["Ingress/shop/a", "Ingress/shop/b", "Ingress/shop/c"],
    },
    Hostile {
        what: "no text, too much of it, too many objects, and aliases that multiply",
        make: |root| {
            put(root, "latin.yaml", b"kind: \xe9\n")?;
            put(root, "long.yaml", format!("{}# {}\n", web("a"), "x".repeat(10 << 20)))?;
            fs::File::create(root.join("longest.yaml"))?.set_len(1 << 40)?;
            put(root, "many.yaml", "---\n- [\n".repeat(1 << 18))?;
            let bomb: String = (1..30).map(|n| format!("b{n}: &b{n} [*b{0}, *b{0}, *b{0}]\n", n - 1)).collect();
            put(root, "bomb.yaml", format!("{}---\nb0: &b0 [x, x, x]\n{bomb}", web("b")))?;
            put(root, "utf16.yaml", "\u{feff}kind: A\n".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>())
        },
        said: &[
            "bomb.yaml 2@13 ManifestInvalid",
            "latin.yaml 1@1 ManifestInvalid",
            "long.yaml 0@0 ManifestUnreadable",
            "longest.yaml 0@0 ManifestUnreadable",
            "many.yaml 1@1 ManifestInvalid",
            "utf16.yaml 1@1 ManifestInvalid",
        ],
        objects: &["Ingress/shop/b"],
    },
    Hostile {
        what: "links that lead out, round and round, nowhere, to a folder, and inside",
        make: |root| {
            let outside = root.with_extension("outside");
            put(&outside, "a.yaml", web("outside"))?;
            symlink(outside.join("a.yaml"), root.join("out.yaml"))?;
            symlink("/dev/zero", root.join("device.yaml"))?;
            symlink("loop.yaml", root.join("loop.yaml"))?;
            symlink("nowhere", root.join("nowhere.yaml"))?;
            symlink(root, root.join("round"))?;
            symlink(&outside, root.join("folder"))?;
            symlink(".", root.join("folder.yaml"))?;
            put(root, "..1/a.yaml", web("volume"))?;
            symlink("..1", root.join("..data"))?;
            symlink("..data/a.yaml", root.join("volume.yaml"))?;
            // One file by two names is an object in two files.
            fs::hard_link(root.join("..1/a.yaml"), root.join("zzz.yaml"))?;
            Ok(())
        },
        said: &[
            "device.yaml 0@0 ManifestUnreadable",
            "folder.yaml 0@0 ManifestUnreadable",
            "loop.yaml 0@0 ManifestUnreadable",
            "nowhere.yaml 0@0 ManifestUnreadable",
            "out.yaml 0@0 ManifestUnreadable",
            "zzz.yaml 1@1 ManifestDuplicate Ingress/shop/volume",
        ],
        objects: &["Ingress/shop/volume"],
    },
    Hostile {
        what: "what is no plain file, hidden names, and names that are no text",
        make: |root| {
            mknodat(CWD, root.join("pipe.yaml"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            drop(UnixListener::bind(root.join("socket.yaml"))?);
            put(root, "folder.yaml/a.yaml", web("a"))?;
            for name in [".a.yaml", ".git/a.yaml", "sub/.a.yml", "a.YAML", "a.yaml~", "yaml", "a.txt", ".yaml"] {
                put(root, name, "kind: [")?;
            }
            fs::write(root.join(OsStr::from_bytes(b"na\xff\n\x1bme.yaml")), web("b"))?;
            put(root, "bad\u{7f}.yaml", "kind: [")
        },
        said: &[
            "bad\\u{7f}.yaml 1@1 ManifestInvalid",
            "pipe.yaml 0@0 ManifestUnreadable",
            "socket.yaml 0@0 ManifestUnreadable",
        ],
        objects: &["Ingress/shop/a", "Ingress/shop/b"],
    },
    Hostile {
        what: "byte order marks, other line ends, JSON, documents without anything, and markers in texts",
        make: |root| {
            put(root, "mark.yaml", format!("\u{feff}{}\u{feff}---\n{}", web("a"), web("b")))?;
            put(root, "lines.yaml", format!("{}---\nkind: [\n---\n{}", web("c"), web("d")).replace('\n', "\r\n"))?;
            put(root, "empty.yaml", "")?;
            put(root, "blank.yaml", "---\n# nothing\n---\n\n...\n---\n")?;
            put(root, "gaps.yaml", format!("---\n---\n{}---\n# no\n--- # yes\n{}---\n", web("e"), web("f")))?;
            let text =
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: text}\ndata:\n  a: |\n    one\n    ---\n    two\n";
            put(root, "text.yaml", format!("{text}---\nkind: |\n  a\n---\n  b\n---\n{}", web("g")))?;
            put(root, "a.json", r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "json"}}"#)?;
            put(root, "b.json", r#"{"kind": "Ingress""#)
        },
        said: &[
            "b.json 1@1 ManifestInvalid",
            "lines.yaml 2@13 ManifestInvalid",
            "text.yaml 2@9 ManifestInvalid",
            "text.yaml 3@12 ManifestInvalid",
        ],
        objects: &[
            "ConfigMap/default/json",
            "ConfigMap/default/text",
            "Ingress/shop/a",
            "Ingress/shop/b",
            "Ingress/shop/c",
            "Ingress/shop/d",
            "Ingress/shop/e",
            "Ingress/shop/f",
            "Ingress/shop/g",
        ],
    },
    Hostile {
        what: "kinds that are not read, old versions, keys that are not base64, and more findings than are told",
        make: |root| {
            put(root, "kinds.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n")?;
            let new = "apiVersion: gateway.networking.k8s.io/v1\nkind: New\nmetadata: {name: a}\n";
            put(root, "new.yaml", format!("{new}---\n{}", web("a")))?;
            put(root, "old.yaml", web("b").replace("networking.k8s.io/v1", "extensions/v1beta1"))?;
            put(root, "key.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: key}\ndata: {tls.key: no base64}\n")?;
            put(root, "flood.yaml", "---\n- [\n".repeat(1_003))
        },
        said: &[
            "flood.yaml 0@0 ManifestInvalid",
            "key.yaml 1@1 ManifestInvalid Secret/default/key",
            "new.yaml 1@1 NotBuilt New/default/a",
            "old.yaml 1@1 ManifestInvalid Ingress/shop/b",
        ],
        objects: &["Ingress/shop/a"],
    },
    Hostile {
        what: "a folder too deep to name",
        make: |root| {
            put(root, "a.yaml", web("a"))?;
            // Deeper than any path may be long (PATH_MAX, limits.h): only made folder by folder.
            let name = "x".repeat(250);
            let mut folder = rustix::fs::open(root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            for _ in 0..17 {
                rustix::fs::mkdirat(&folder, &name, Mode::RWXU)?;
                folder = rustix::fs::openat(&folder, &name, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            }
            Ok(())
        },
        said: &["(deep) 0@0 ManifestUnreadable"],
        objects: &["Ingress/shop/a"],
    },
];

/// Findings by path, as in the status document.
type Files = BTreeMap<String, Vec<Value>>;

/// What the controller found.
#[derive(Debug, Default, PartialEq)]
struct Found {
    files: Files,
    objects: BTreeMap<String, Arc<Object>>,
}

impl Found {
    fn take(&mut self, batch: Batch) {
        let listed = batch.listed.map(|listing| listing.changes).unwrap_or_default();
        for change in batch.observed.into_iter().chain(listed) {
            match change {
                Change::Put(object) => drop(self.objects.insert(object.reference().to_string(), object)),
                Change::Delete(reference) => drop(self.objects.remove(&reference.to_string())),
                Change::Settings(_) => {}
            }
        }
        for (path, findings) in batch.findings {
            self.files.insert(shown(&path), findings.iter().map(status).collect());
        }
        self.files.retain(|_, findings| !findings.is_empty());
    }

    /// `path document@line reason object`, of each kind in a file that is flooded only once.
    fn said(&self) -> Vec<String> {
        let mut said = Vec::new();
        for (path, findings) in &self.files {
            let path = if path.len() > 1_000 { "(deep)" } else { path };
            let flooded = findings.len() > 1_000;
            for finding in findings.iter().filter(|finding| !flooded || finding["document"] == 0) {
                let object = finding["object"].as_str().map(|object| format!(" {object}")).unwrap_or_default();
                let reason = finding["reason"].as_str().unwrap_or_default();
                said.push(format!("{path} {}@{} {reason}{object}", finding["document"], finding["line"]));
            }
        }
        said
    }
}

fn status(finding: &FileFinding) -> Value {
    let FileFinding { document, line, object, reason, message } = finding;
    // Only who remembers can say that.
    let message = message.strip_suffix("; what it held before stays in force").unwrap_or(message);
    let mut status = json!({"document": document, "line": line, "reason": reason, "message": message});
    if let Some(object) = object {
        status["object"] = json!(object.to_string());
    }
    status
}

fn controller(directory: &mut Directory) -> Found {
    let mut found = Found::default();
    found.take(directory.rescan(Instant::now()));
    found
}

/// What `scalwsctl lint` prints about files, and the objects it has a verdict on.
fn lint(root: &Path) -> Result<(Files, Vec<String>)> {
    let output = scalwsctl(["lint", &root.display().to_string(), "-o", "json"])?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let mut files = Files::new();
    for file in report["files"].as_array().into_iter().flatten() {
        let findings = file["findings"].as_array().cloned().unwrap_or_default();
        files.insert(file["path"].as_str().unwrap_or_default().to_owned(), findings);
    }
    // Of Ingresses that are not ours the controller has no draft.
    let objects = report["objects"].as_array().into_iter().flatten().filter(|object| object["served"] != "not ours");
    Ok((files, objects.map(|object| object["ref"].as_str().unwrap_or_default().to_owned()).collect()))
}

#[test]
fn the_controller_lint_and_the_echo_servers_read_one_folder_alike() -> Result<()> {
    for Hostile { what, make, said, objects } in FOLDERS {
        let outer = tempfile::tempdir()?;
        let root = outer.path().join("manifests");
        fs::create_dir(&root)?;
        make(&root)?;
        let seen = controller(&mut Directory::open(&root)?);
        assert_eq!(seen.said(), *said, "{what}: what the controller says");
        assert_eq!(seen.objects.keys().collect::<Vec<_>>(), *objects, "{what}: what the controller takes in");

        let (files, judged) = lint(&root)?;
        assert_eq!(files, seen.files, "{what}: lint says something else about the files than the controller");
        let mut world = World::new(Settings::local(80, 443));
        for object in seen.objects.values() {
            world.apply(&Change::Put(Arc::clone(object)));
        }
        let drafts: Vec<String> = translate(&world).drafts.keys().map(ToString::to_string).collect();
        assert_eq!(judged, drafts, "{what}: lint judges other objects than the controller");

        let read = scalwsctl::manifests::read(&root)?;
        let read = read.objects().map(|object| (object.reference().to_string(), Arc::clone(object))).collect();
        assert_eq!(seen.objects, read, "{what}: the banner and the echo servers see other objects than the controller");
    }
    Ok(())
}

#[test]
fn a_controller_that_followed_the_folder_says_the_same_and_keeps_the_last_good_objects() -> Result<()> {
    for Hostile { what, make, said, .. } in FOLDERS {
        let outer = tempfile::tempdir()?;
        let root = outer.path().join("manifests");
        fs::create_dir(&root)?;
        // Each file that will be reported had an object of its own before.
        let mut before: Vec<(String, String)> = Vec::new();
        for line in said.iter().filter(|line| !line.contains(['(', '\\'])) {
            let path = line.split(' ').next().unwrap_or_default().to_owned();
            if before.last().is_none_or(|(last, _)| *last != path) {
                let name = format!("before-{}", before.len());
                put(&root, &path, web(&name))?;
                before.push((path, format!("Ingress/shop/{name}")));
            }
        }
        let mut directory = Directory::open(&root)?;
        let mut seen = controller(&mut directory);
        ensure!(seen.files.is_empty() && seen.objects.len() == before.len(), "{what}: {seen:?}");
        for (path, _) in &before {
            fs::remove_file(root.join(path))?;
        }
        make(&root)?;
        seen.take(directory.rescan(Instant::now()));
        assert_eq!(
            lint(&root)?.0,
            seen.files,
            "{what}: lint says something else than a controller that was there before"
        );
        for (path, object) in before {
            // Only what says which object it is lets go of the others.
            let named = seen.files[&path].iter().all(|finding| finding.get("object").is_some());
            assert_eq!(seen.objects.contains_key(&object), !named, "{what}: {object} of {path}");
        }
    }
    Ok(())
}
