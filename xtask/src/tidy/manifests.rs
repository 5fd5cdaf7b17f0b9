//! Rules for manifests: versions and features are chosen in the root, and every crate takes the shared lints.

use std::path::Path;

use toml::{Table, Value};

use super::layers::Workspace;
use super::{Problem, Text};

/// Tables of dependencies in a manifest.
const SECTIONS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Features that make a program worse on purpose, so that tests can see it. Only a crate of tests may ask for them.
const WORSE: [&str; 3] = ["faults", "mutants", "poison"];
/// The crate of tests.
const TESTS: &str = "e2e";

pub(super) fn check(workspace: &Workspace, texts: &[Text]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in texts {
        let is_manifest = file.path.ends_with("Cargo.toml");
        if is_manifest || file.path == Path::new(".cargo/config.toml") {
            // Whether it reads at all is somebody else's question.
            let table: Table = file.text.parse().unwrap_or_default();
            if ends_at_panics(&table) {
                problems.push(Problem::new(&file.path, 0, UNWINDING));
            }
        }
    }
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

/// Why no profile may end the process at a panic.
const UNWINDING: &str = "a panic must unwind: the controller survives a fault of its own by that, and a request of \
                         scalwsd takes no other with it (docs/decisions/0013 and 0025)";

/// Whether a profile says `panic = "abort"`, or flags for the compiler do.
fn ends_at_panics(table: &Table) -> bool {
    table.iter().any(|(name, value)| match value {
        Value::Table(inner) => ends_at_panics(inner),
        Value::String(text) => (name == "panic" && text != "unwind") || text.contains("panic=abort"),
        Value::Array(all) => all.iter().filter_map(Value::as_str).any(|text| text.contains("panic=abort")),
        _ => false,
    })
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
            if section != "dev-dependencies" && !path.starts_with(TESTS) && texts(value.get("features")).any(is_worse) {
                problem(format!("{section}.{name}: a feature for tests, which no program may have ({WORSE:?})"));
            }
            let chooses = ["features", "default-features"].iter().any(|key| value.get(key).is_some());
            if chooses && !is_ours(name) {
                problem(format!("{section}.{name}: its features are chosen in the root manifest"));
            }
        }
    }
    for (name, value) in manifest.get("features").and_then(Value::as_table).into_iter().flatten() {
        if texts(Some(value)).any(is_worse) {
            problem(format!("features.{name}: brings a feature for tests along ({WORSE:?})"));
        }
    }
    problems
}

/// The texts of an array.
fn texts(value: Option<&Value>) -> impl Iterator<Item = &str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Whether this is a feature for tests, of this crate or of another one.
fn is_worse(feature: &str) -> bool {
    feature.rsplit('/').next().is_some_and(|name| WORSE.contains(&name))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{check_one, ends_at_panics};

    #[test]
    fn a_profile_or_flag_that_ends_the_process_at_a_panic_is_found() {
        for (text, found) in [
            ("[profile.release]\npanic = \"abort\"\n", true),
            ("[profile.dev.package.x]\npanic = \"abort\"\n", true),
            ("[profile.small]\ninherits = \"release\"\npanic = \"immediate-abort\"\n", true),
            ("[build]\nrustflags = [\"-C\", \"panic=abort\"]\n", true),
            ("[target.x]\nrustflags = \"-Cpanic=abort\"\n", true),
            ("[profile.release]\npanic = \"unwind\"\ndebug = 1\n", false),
            ("[dependencies]\npanic = { workspace = true }\n", false),
        ] {
            assert_eq!(ends_at_panics(&text.parse().unwrap()), found, "{text}");
        }
    }

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
    fn no_program_gets_a_feature_for_tests() {
        let chooses = |section: &str, feature: &str| {
            format!("lints.workspace = true\n[{section}]\nours = {{ workspace = true, features = [\"{feature}\"] }}\n")
        };
        assert_eq!(count(&chooses("dependencies", "mutants")), 1);
        assert_eq!(count(&chooses("build-dependencies", "poison")), 1);
        assert_eq!(count(&chooses("dev-dependencies", "mutants")), 0);
        assert_eq!(count("lints.workspace = true\n[features]\ndefault = [\"faults\"]\n"), 1);
        assert_eq!(count("lints.workspace = true\n[features]\nfast = [\"journal/mutants\"]\n"), 1);
        assert_eq!(count("lints.workspace = true\n[features]\nmutants = []\n"), 0);
        let e2e = chooses("dependencies", "mutants").parse().unwrap();
        assert!(check_one(Path::new("e2e/Cargo.toml"), &e2e, &|name| name == "ours").is_empty());
    }

    #[test]
    fn versions_features_and_lints_of_its_own_are_found() {
        assert_eq!(count("lints.workspace = true\n[dependencies]\nserde = \"1\"\n"), 1);
        let features = "[dev-dependencies]\nserde = { workspace = true, features = [\"rc\"] }\n";
        assert_eq!(count(&format!("lints.workspace = true\n{features}")), 1);
        assert_eq!(count("[dependencies]\n"), 1);
    }
}
