//! `scalwsctl lint`: reads a folder and says what would become of each object, without starting anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::ObjectRef;
use serde::Serialize;
use translate::{Change, DecodeError, Draft, Object, Served, Settings, Severity, World, translate};

use super::table;
use super::verdict::{EventStatus, ObjectStatus, Verdict};
use super::{DONE, FAILED};
use crate::cli::Format;
use crate::manifests::{self, ManifestFile};
use crate::output::{Paint, answer, clean, say};

/// Ports of listeners; they do not change what is refused.
const PORTS: (u16, u16) = (80, 443);

/// What was found.
#[derive(Debug, Serialize)]
struct Report {
    /// Files and objects that cannot be read at all.
    unreadable: Vec<Unreadable>,
    /// Every object that has a verdict.
    objects: Vec<ObjectStatus>,
}

/// Something that an API server would have refused.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Unreadable {
    /// The file, below the folder.
    file: String,
    /// Why.
    message: String,
}

/// Runs the command and gives its exit code.
pub fn run(folder: &Path, loopback: bool, format: Format) -> u8 {
    let files = match manifests::read(folder) {
        Ok(files) => files,
        Err(error) => {
            say(&format!("the folder of manifests {} cannot be read: {error}", folder.display()));
            return FAILED;
        }
    };
    let count = files.len();
    let report = examine(files, loopback);
    match format {
        Format::Json => match serde_json::to_string_pretty(&report) {
            Ok(text) => answer(&text),
            Err(error) => say(&format!("the report cannot be written: {error}")),
        },
        Format::Text => answer(render(&report, count, Paint::for_stdout()).trim_end()),
    }
    if report.is_good() { DONE } else { FAILED }
}

impl Report {
    fn is_good(&self) -> bool {
        self.unreadable.is_empty() && !self.objects.iter().any(|o| o.verdict() == Verdict::Refused)
    }
}

fn examine(files: Vec<ManifestFile>, loopback: bool) -> Report {
    let mut settings = Settings::local(PORTS.0, PORTS.1);
    settings.allow_loopback_endpoints = loopback;
    let mut world = World::new(settings);
    let mut unreadable = Vec::new();
    let mut places: BTreeMap<ObjectRef, PathBuf> = BTreeMap::new();
    for file in files {
        let mut refuse =
            |message: String| unreadable.push(Unreadable { file: file.path.display().to_string(), message });
        let objects = match file.objects {
            Ok(objects) => objects,
            Err(message) => {
                refuse(message);
                continue;
            }
        };
        for value in objects {
            let object = match Object::from_value(value) {
                Ok(object) => object,
                Err(DecodeError::UnknownKind { .. }) => continue,
                Err(error) => {
                    refuse(error.to_string());
                    continue;
                }
            };
            let reference = object.reference();
            if let Some(place) = places.get(&reference) {
                refuse(format!("{reference} is in {} already; one of the two has to go", place.display()));
                continue;
            }
            places.insert(reference, file.path.clone());
            world.apply(&Change::Put(Arc::new(object)));
        }
    }
    let objects = translate(&world).drafts.iter().map(|(reference, draft)| status_of(reference, draft)).collect();
    Report { unreadable, objects }
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
    ObjectStatus { reference: reference.to_string(), conditions: Vec::new(), events }
}

fn render(report: &Report, files: usize, paint: Paint) -> String {
    let mut out = String::new();
    for unreadable in &report.unreadable {
        out.push_str(&format!("{}: {}\n", paint.bad(&clean(&unreadable.file)), clean(&unreadable.message)));
    }
    if !report.unreadable.is_empty() {
        out.push('\n');
    }
    out.push_str(&table::objects(&report.objects, paint));
    let count = |wanted: Verdict| report.objects.iter().filter(|o| o.verdict() == wanted).count();
    out.push_str(&format!(
        "\n{files} files: {} accepted, {} degraded, {} refused, {} unreadable\n",
        count(Verdict::Accepted),
        count(Verdict::Degraded),
        count(Verdict::Refused),
        report.unreadable.len()
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: &str =
        "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: a}\nspec: {ports: [{port: 80}]}\n";
    const INGRESS: &str = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web, namespace: a}\nspec:\n  \
        ingressClassName: nginx\n  rules:\n  - host: a.example.com\n    http:\n      paths:\n      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}\n";

    fn examine_texts(texts: &[&str]) -> Report {
        let files = texts.iter().enumerate().map(|(i, text)| ManifestFile {
            path: format!("{i}.yaml").into(),
            objects: translate::manifest::values(text.as_bytes()).map_err(|e| e.to_string()),
        });
        examine(files.collect(), false)
    }

    #[test]
    fn a_good_folder_is_good() {
        let report = examine_texts(&[SERVICE, INGRESS, "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"]);
        assert!(report.is_good(), "{report:?}");
        assert_eq!(report.objects[0].reference, "Ingress/a/web");
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_file_and_the_rest_is_examined() {
        let bad = INGRESS.replace("rules:", "rules: 7\n  other:");
        let report = examine_texts(&["kind: [", &bad, SERVICE, INGRESS]);
        let files: Vec<&str> = report.unreadable.iter().map(|u| u.file.as_str()).collect();
        assert_eq!(files, ["0.yaml", "1.yaml"]);
        assert!(!report.is_good());
        assert_eq!(report.objects.len(), 1);
    }

    #[test]
    fn one_object_in_two_files_is_an_error() {
        let report = examine_texts(&[SERVICE, SERVICE]);
        assert_eq!(report.unreadable[0].file, "1.yaml");
        assert!(report.unreadable[0].message.contains("0.yaml"), "{:?}", report.unreadable);
    }
}
