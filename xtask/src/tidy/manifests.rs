//! Rules for manifests: versions and features are chosen in the root, and every crate takes the shared lints.

use std::path::Path;

use toml::{Table, Value};

use super::layers::Workspace;
use super::{Problem, Text};

/// Tables of dependencies in a manifest.
const SECTIONS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

pub(super) fn check(workspace: &Workspace, texts: &[Text]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for member in workspace.crates.values() {
        let path = member.folder.join("Cargo.toml");
        let Some(file) = texts.iter().find(|text| text.path == path) else { continue };
        match file.text.parse::<Table>() {
            Ok(manifest) => problems.extend(check_one(&path, &manifest, &|name| workspace.crates.contains_key(name))),
            Err(error) => problems.push(Problem::new(&path, 0, error.message())),
        }
    }
    problems
}

/// `is_ours` tells our crates, whose features may be chosen by those that use them.
fn check_one(path: &Path, manifest: &Table, is_ours: &dyn Fn(&str) -> bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut problem = |rule: String| problems.push(Problem::new(path, 0, rule));
    let inherits =
        |table: Option<&Value>| table.and_then(|t| t.get("workspace")).and_then(Value::as_bool).unwrap_or_default();
    if !inherits(manifest.get("lints")) {
        problem("[lints] must be `workspace = true`".to_owned());
    }
    for section in SECTIONS {
        let Some(dependencies) = manifest.get(section).and_then(Value::as_table) else { continue };
        for (name, value) in dependencies {
            if !inherits(Some(value)) {
                problem(format!("{section}.{name}: its version belongs into the root manifest (`workspace = true`)"));
            }
            let chooses = ["features", "default-features"].iter().any(|key| value.get(key).is_some());
            if chooses && !is_ours(name) {
                problem(format!("{section}.{name}: its features are chosen in the root manifest"));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::check_one;

    fn count(manifest: &str) -> usize {
        let manifest = manifest.parse().unwrap();
        check_one(Path::new("a/Cargo.toml"), &manifest, &|name| name == "ours").len()
    }

    #[test]
    fn a_manifest_that_takes_all_from_the_root_is_fine() {
        let text = "lints.workspace = true\n[dependencies]\nserde.workspace = true\n";
        assert_eq!(count(text), 0);
        assert_eq!(count(&format!("{text}ours = {{ workspace = true, features = [\"x\"] }}\n")), 0);
    }

    #[test]
    fn versions_features_and_lints_of_its_own_are_found() {
        assert_eq!(count("lints.workspace = true\n[dependencies]\nserde = \"1\"\n"), 1);
        let features = "[dev-dependencies]\nserde = { workspace = true, features = [\"rc\"] }\n";
        assert_eq!(count(&format!("lints.workspace = true\n{features}")), 1);
        assert_eq!(count("[dependencies]\n"), 1);
    }
}
