//! What files of manifests hold, however strangely they are written, and which file of a folder has an object.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use translate::manifest::{
    Content, Document, Folder, MAX_FILE_BYTES, MAX_FILE_OBJECTS, Outcome, UNREADABLE, Unreadable, documents,
};
use translate::{Change, Object};

fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{ca.crt: \"{value}\"}}\n")
}

/// Number, line and what it is, in short.
fn shorts(documents: &[Document]) -> Vec<String> {
    let short = |document: &Document| {
        let Document { number, line, outcome } = document;
        let what = match outcome {
            Outcome::Object(object) => object.reference().to_string(),
            Outcome::Ignored { kind, .. } => format!("ignored {kind}"),
            Outcome::Refused { object, .. } => {
                format!("refused {}", object.as_ref().map(ToString::to_string).unwrap_or_default())
            }
        };
        format!("{number}@{line} {what}")
    };
    documents.iter().map(short).collect()
}

fn read(text: &str) -> Vec<String> {
    shorts(&documents(text.as_bytes()))
}

fn message(document: &Document) -> &str {
    match &document.outcome {
        Outcome::Refused { message, .. } => message,
        other => panic!("{other:?} is not refused"),
    }
}

#[test]
fn a_broken_document_hides_only_itself_and_is_found_by_its_place() {
    let text = format!("{}---\nkind: [\n---\n{}", config_map("a", "1"), config_map("b", "1"));
    assert_eq!(read(&text), ["1@1 ConfigMap/default/a", "2@5 refused ", "3@7 ConfigMap/default/b"]);
    let documents = documents(text.as_bytes());
    assert!(message(&documents[1]).contains("line 6") || message(&documents[1]).contains("line 7"), "{documents:?}");
}

#[test]
fn what_people_write_between_documents_changes_nothing() {
    let (a, b) = (config_map("a", "1"), config_map("b", "1"));
    let both = ["ConfigMap/default/a", "ConfigMap/default/b"];
    for text in [
        format!("{a}---\n{b}"),
        format!("---\n{a}---\n{b}---\n"),
        format!("%YAML 1.2\n---\n{a}...\n---\n{b}...\n"),
        format!("# first\n{a}--- # second\n{b}"),
        format!("---\n---\n\n--- \n# nothing\n---\n{a}---\t\n---\n{b}---"),
        format!("{a}---\n{b}").replace('\n', "\r\n"),
        format!("\u{feff}{a}---\n{b}"),
        // As files come out that were joined.
        format!("\u{feff}---\n{a}\u{feff}---\n{b}"),
        format!("\u{feff}---\r\n{}\u{feff}---\r\n{}", a.replace('\n', "\r\n"), b.replace('\n', "\r\n")),
    ] {
        let names: Vec<String> = read(&text).iter().map(|s| s.split(' ').nth(1).unwrap().to_owned()).collect();
        assert_eq!(names, both, "{text:?}");
    }
    for nothing in ["", "\n", "---\n", "# only this\n", "\u{feff}", "---\n...\n---\n", "\r\n---\r\n", "null\n", "---"] {
        assert_eq!(read(nothing), [""; 0], "{nothing:?}");
    }
}

#[test]
fn a_marker_inside_of_a_text_is_text() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations:\n    value: |\n      first\n      ---\n      \
                second\n    more: >-\n      ---\n    last: |2-\n       ---\n";
    let read = documents(text.as_bytes());
    let [Document { outcome: Outcome::Object(object), .. }] = &read[..] else { panic!("{read:?}") };
    let annotations: Vec<_> = object.metadata().annotations.iter().collect();
    assert_eq!(annotations, [("last", " ---"), ("more", "---"), ("value", "first\n---\nsecond\n")]);
    // YAML has it that a marker at the beginning of a line ends the document even here.
    let cut = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  value: |\n    first\n---\n    second\n";
    assert_eq!(shorts(&documents(cut.as_bytes())), ["1@1 ConfigMap/default/a", "2@7 refused "]);
    assert_eq!(shorts(&documents(b"---no marker\n")), ["1@1 refused "]);
}

#[test]
fn json_and_lists_are_read_and_a_broken_item_hides_only_itself() {
    let object = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}"#;
    assert_eq!(read(object), ["1@1 ConfigMap/default/a"]);
    assert_eq!(read(&object.replace(", ", ",\r\n\t")), ["1@1 ConfigMap/default/a"]);
    let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- 7\n- null\n- \
                {apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: [x]}}\n- {apiVersion: v1, kind: \
                ConfigMap, metadata: {name: c}, data: 7}\n- {apiVersion: x/v1, kind: Other, metadata: {name: a}}\n";
    let wanted = [
        "1@1 ConfigMap/default/a",
        "1@1 refused ",
        "1@1 refused ",
        "1@1 refused ",
        "1@1 refused ConfigMap/default/c",
        "1@1 ignored Other",
    ];
    assert_eq!(read(list), wanted);
}

#[test]
fn what_is_no_text_or_too_much_of_it_is_refused_as_a_whole() {
    let whole = |bytes: &[u8]| {
        let read = documents(bytes);
        assert_eq!(shorts(&read), ["1@1 refused "]);
        message(&read[0]).to_owned()
    };
    assert!(whole(b"ab\xff").contains("not UTF-8 text (byte 2)"));
    assert!(whole(&"a\n".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>()).contains("not valid YAML"));
    assert!(whole(&vec![b' '; MAX_FILE_BYTES + 1]).contains("at most 8388608 are read"));
    assert!(whole("---\na\n".repeat(MAX_FILE_OBJECTS + 1).as_bytes()).contains("at most 50000 are read"));
}

fn content(text: &str) -> Content {
    Content::Documents(documents(text.as_bytes()))
}

fn look(folder: &mut Folder, files: &[(&str, Content)]) {
    let files = files.iter().map(|(name, content)| (PathBuf::from(name), content.clone())).collect();
    folder.take_in(files, BTreeMap::new());
}

fn values(folder: &Folder) -> Vec<(String, String)> {
    let value = |object: &Object| match object {
        Object::ConfigMap(map) => map.data.get("ca.crt").cloned().unwrap_or_default(),
        _ => String::new(),
    };
    folder.objects().map(|object| (object.metadata().name().to_owned(), value(object))).collect()
}

fn pairs(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
    wanted.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn told(folder: &mut Folder, path: &str) -> Vec<String> {
    let all = folder.take_findings();
    let of = all.into_iter().find(|(file, _)| file == Path::new(path)).map(|(_, findings)| findings);
    of.unwrap_or_default()
        .into_iter()
        .map(|f| format!("{}@{} {}: {}", f.document, f.line, f.reason, f.message))
        .collect()
}

#[test]
fn the_first_file_has_an_object_until_it_lets_go() {
    let mut folder = Folder::default();
    let (one, two) = (content(&config_map("x", "1")), content(&config_map("x", "2")));
    look(&mut folder, &[("b.yaml", two.clone()), ("a/z.yaml", one.clone())]);
    assert_eq!(values(&folder), pairs(&[("x", "1")]), "of two that are new, the first by path");
    let already = "1@1 ManifestDuplicate: ConfigMap/default/x is already in the file a/z.yaml; remove one of the two";
    assert_eq!(told(&mut folder, "b.yaml"), [already]);
    look(&mut folder, &[("b.yaml", two.clone()), ("a/z.yaml", one.clone()), ("a/a.yaml", two.clone())]);
    assert_eq!(values(&folder), pairs(&[("x", "1")]), "the one that had it, whatever comes before it now");
    assert_eq!(told(&mut folder, "a/a.yaml").len(), 1);
    look(&mut folder, &[("a/a.yaml", two.clone()), ("a/y.yaml", one), ("b.yaml", two)]);
    assert_eq!(values(&folder), pairs(&[("x", "2")]), "the first of those that are left");
    assert_eq!(told(&mut folder, "b.yaml"), [already.replace("a/z.yaml", "a/a.yaml")], "who has it now is said");
}

#[test]
fn what_is_not_readable_keeps_what_it_held_and_what_is_gone_does_not() {
    let mut folder = Folder::default();
    let good = |name: &str| content(&config_map(name, "1"));
    look(&mut folder, &[("a.yaml", good("a")), ("b.yaml", good("b")), ("c/c.yaml", good("c"))]);
    let _ = (folder.take_changes(), folder.take_findings());
    let files = BTreeMap::from([
        (PathBuf::from("a.yaml"), content("kind: [")),
        (PathBuf::from("b.yaml"), Content::Unreadable(Unreadable::NotPlain)),
    ]);
    let unreadable = BTreeMap::from([(PathBuf::from("c"), Unreadable::Folder("no".to_owned()))]);
    folder.take_in(files, unreadable);
    assert_eq!(folder.take_changes().len(), 0);
    let findings: Vec<(PathBuf, &str)> =
        folder.take_findings().into_iter().map(|(path, findings)| (path, findings[0].reason)).collect();
    let wanted = [("a.yaml", "ManifestInvalid"), ("b.yaml", UNREADABLE), ("c", UNREADABLE)];
    assert_eq!(findings, wanted.map(|(path, reason)| (PathBuf::from(path), reason)));
    look(&mut folder, &[]);
    assert!(folder.is_empty());
    assert_eq!(folder.take_changes().iter().filter(|change| matches!(change, Change::Delete(_))).count(), 3);
    assert!(folder.take_findings().iter().all(|(_, findings)| findings.is_empty()));
}

#[test]
fn a_second_look_at_the_same_changes_nothing() {
    let mut folder = Folder::default();
    let text = format!("{0}---\n{0}---\nkind: [\n---\n{1}", config_map("x", "1"), config_map("z", "1"));
    let files = [("a.yaml", content(&text)), ("b.yaml", content(&text))];
    look(&mut folder, &files);
    let before = folder.take_findings();
    assert_eq!((folder.take_changes().len(), before.len()), (2, 2));
    look(&mut folder, &files);
    assert_eq!((folder.take_changes().len(), folder.take_findings()), (0, before));
}
