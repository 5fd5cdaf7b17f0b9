//! `scalwsctl lint`: reads a folder and says what would become of each object, without starting anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::ObjectRef;
use serde::Serialize;
use translate::manifest::{FileFinding, Folder, shown};
use translate::{Change, Draft, Served, Settings, Severity, World, translate};

use super::table;
use super::verdict::{EventStatus, NOT_OURS, ObjectStatus, Verdict};
use super::{DONE, FAILED};
use crate::cli::Format;
use crate::manifests;
use crate::output::{Paint, answer, clean, say};

/// Ports of listeners; they do not change what is refused.
const PORTS: (u16, u16) = (80, 443);

/// What was found.
#[derive(Debug, Serialize)]
struct Report {
    /// What an API server would have refused, and what cannot be read; as in the status document.
    files: Vec<FileStatus>,
    /// Every object that has a verdict, and every Ingress of another controller.
    objects: Vec<ObjectStatus>,
    /// Kinds that are not read, and the files with such objects.
    unused: BTreeMap<String, BTreeSet<String>>,
}

/// A file or folder with findings.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct FileStatus {
    /// Its path, below the folder.
    path: String,
    /// What is wrong with it.
    findings: Vec<FindingStatus>,
}

/// Something that is wrong with a file.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct FindingStatus {
    /// The document, counted from 1; 0 for the file as a whole.
    document: usize,
    /// The line on which the document begins; 0 for the file as a whole.
    line: usize,
    /// `Kind/namespace/name`, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    /// One word.
    reason: &'static str,
    /// A sentence.
    message: String,
}

/// Runs the command and gives its exit code.
pub fn run(folder: &Path, loopback: bool, format: Format) -> u8 {
    let mut read = match manifests::read(folder) {
        Ok(read) => read,
        Err(error) => {
            say(&format!("the folder of manifests {} cannot be read: {error}", folder.display()));
            return FAILED;
        }
    };
    let report = examine(&mut read, loopback);
    match format {
        Format::Json => match serde_json::to_string_pretty(&report) {
            Ok(text) => answer(&text),
            Err(error) => say(&format!("the report cannot be written: {error}")),
        },
        Format::Text => answer(render(&report, read.files(), Paint::for_stdout()).trim_end()),
    }
    if report.is_good() { DONE } else { FAILED }
}

impl Report {
    fn is_good(&self) -> bool {
        self.files.is_empty() && !self.objects.iter().any(|o| o.verdict() == Verdict::Refused)
    }
}

fn examine(folder: &mut Folder, loopback: bool) -> Report {
    let mut settings = Settings::local(PORTS.0, PORTS.1);
    settings.allow_loopback_endpoints = loopback;
    let mut world = World::new(settings);
    for object in folder.objects() {
        world.apply(&Change::Put(Arc::clone(object)));
    }
    let drafts = translate(&world).drafts;
    let mut objects: Vec<ObjectStatus> = drafts.iter().map(|(id, draft)| status_of(&id.reference(), draft)).collect();
    let strangers = world.iter().map(|object| object.id());
    let strangers = strangers.filter(|id| id.kind() == "Ingress" && !drafts.contains_key(id));
    objects.extend(strangers.map(|id| ObjectStatus {
        reference: id.to_string(),
        served: NOT_OURS.to_owned(),
        ..ObjectStatus::default()
    }));
    let files = folder.take_findings().into_iter().filter(|(_, findings)| !findings.is_empty()).map(file_status);
    Report { files: files.collect(), objects, unused: folder.ignored() }
}

fn file_status((path, findings): (PathBuf, Vec<FileFinding>)) -> FileStatus {
    let findings = findings.into_iter().map(|FileFinding { document, line, object, reason, message }| {
        let object = object.map(|object| object.to_string());
        FindingStatus { document, line, object, reason, message }
    });
    FileStatus { path: shown(&path), findings: findings.collect() }
}

fn status_of(reference: &ObjectRef, draft: &Draft) -> ObjectStatus {
    let mut events: Vec<EventStatus> = draft
        .findings
        .iter()
        .map(|finding| EventStatus {
            kind: if finding.severity == Severity::Warning { "Warning" } else { "Normal" }.to_owned(),
            reason: finding.reason.to_owned(),
            message: if finding.field.is_empty() {
                finding.message.clone()
            } else {
                format!("{}: {}", finding.field, finding.message)
            },
        })
        .collect();
    let said = events.iter().any(|e| e.kind == "Warning" && e.reason == "Rejected");
    if draft.served == Served::Refused && !said {
        let message = "nothing of it would be served".to_owned();
        events.push(EventStatus { kind: "Warning".to_owned(), reason: "Rejected".to_owned(), message });
    }
    ObjectStatus { reference: reference.to_string(), events, ..ObjectStatus::default() }
}

fn render(report: &Report, files: usize, paint: Paint) -> String {
    let mut out = String::new();
    for file in &report.files {
        for finding in &file.findings {
            let path = paint.bad(&clean(&file.path));
            let place = match finding.document {
                0 => String::new(),
                document => format!(", document {document} at line {}", finding.line),
            };
            // Most messages begin with the object.
            let object = finding.object.as_deref().filter(|object| !finding.message.starts_with(object));
            let object = object.map(|object| format!("{object}: ")).unwrap_or_default();
            let reason = paint.faint(&format!("({})", finding.reason));
            out.push_str(&format!("{path}{place}: {}{} {reason}\n", clean(&object), clean(&finding.message)));
        }
    }
    if !report.files.is_empty() {
        out.push('\n');
    }
    out.push_str(&table::objects(&report.objects, paint));
    if !report.unused.is_empty() {
        out.push_str(&format!("\n{}\n", paint.strong("KINDS THAT ARE NOT READ")));
    }
    for (kind, files) in &report.unused {
        let files: Vec<String> = files.iter().map(|file| clean(file)).collect();
        out.push_str(&format!("  {}: {}\n", clean(kind), files.join(", ")));
    }
    let count = |wanted: Verdict| report.objects.iter().filter(|o| o.verdict() == wanted && !o.is_not_ours()).count();
    out.push_str(&format!(
        "\nobjects in {files} files: {} accepted, {} not ours, {} degraded, {} refused; {} faults of files\n",
        count(Verdict::Accepted),
        report.objects.iter().filter(|o| o.is_not_ours()).count(),
        count(Verdict::Degraded),
        count(Verdict::Refused),
        report.files.iter().map(|file| file.findings.len()).sum::<usize>()
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use translate::manifest::{Content, documents};

    const SERVICE: &str =
        "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: a}\nspec: {ports: [{port: 80}]}\n";
    const INGRESS: &str = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web, namespace: a}\nspec:\n  \
        ingressClassName: nginx\n  rules:\n  - host: a.example.com\n    http:\n      paths:\n      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}\n";

    fn examine_texts(texts: &[&str]) -> Report {
        let content = |text: &str| Content::Documents(documents(text.as_bytes()));
        let files = texts.iter().enumerate().map(|(i, text)| (PathBuf::from(format!("{i}.yaml")), content(text)));
        let mut folder = Folder::default();
        folder.take_in(files.collect(), BTreeMap::new());
        examine(&mut folder, false)
    }

    #[test]
    fn a_good_folder_is_good() {
        let report = examine_texts(&[SERVICE, INGRESS, "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"]);
        assert!(report.is_good(), "{report:?}");
        assert_eq!(report.objects[0].reference, "Ingress/a/web");
    }

    #[test]
    fn what_is_not_read_is_named_by_its_place_and_the_rest_is_examined() {
        let bad =
            INGRESS.replace("rules:", "rules: 7\n  other:").replace("name: web, namespace", "name: bad, namespace");
        let report = examine_texts(&["kind: [", &format!("{SERVICE}---\n{bad}---\n{INGRESS}")]);
        assert!(!report.is_good());
        let text = render(&report, 2, Paint::plain());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("0.yaml, document 1 at line 1: not valid YAML at line 1"), "{text}");
        assert!(lines[0].ends_with(" (ManifestInvalid)"), "{text}");
        assert!(lines[1].starts_with("1.yaml, document 2 at line 5: Ingress/a/bad: spec.rules: 7: "), "{text}");
        let summary = "\nobjects in 2 files: 1 accepted, 0 not ours, 0 degraded, 0 refused; 2 faults of files\n";
        assert!(text.ends_with(summary), "{text}");
        assert_eq!(report.files[1].findings[0].object.as_deref(), Some("Ingress/a/bad"));
        assert_eq!(report.objects[0].reference, "Ingress/a/web");
    }

    #[test]
    fn what_nobody_here_serves_is_said_and_is_no_fault() {
        let other = INGRESS.replace("ingressClassName: nginx", "ingressClassName: another");
        let report =
            examine_texts(&[SERVICE, &other, "apiVersion: networking.k8s.io/v1\nkind: Ingres\nmetadata: {name: p}\n"]);
        let text = render(&report, 3, Paint::plain());
        assert!(report.is_good(), "{text}");
        assert!(text.contains("Ingress/a/web  not ours         NotOurs: its class is none of ours"), "{text}");
        assert!(text.contains("\nKINDS THAT ARE NOT READ\n  Ingres: 2.yaml\n"), "{text}");
        assert!(text.contains(" 0 accepted, 1 not ours, "), "{text}");
    }

    #[test]
    fn one_object_in_two_files_is_an_error() {
        let report = examine_texts(&[SERVICE, SERVICE]);
        assert!(!report.is_good());
        assert_eq!(report.files[0].path, "1.yaml");
        assert!(report.files[0].findings[0].message.contains("0.yaml"), "{report:?}");
    }

    #[test]
    fn a_kind_of_the_gateway_api_that_is_not_read_is_named() {
        let report = examine_texts(&["apiVersion: gateway.networking.k8s.io/v1\nkind: New\nmetadata: {name: one}\n"]);
        let text = render(&report, 1, Paint::plain());
        assert!(text.starts_with("0.yaml, document 1 at line 1: New/default/one: New is not built yet"), "{text}");
        assert!(!report.is_good());
    }
}
