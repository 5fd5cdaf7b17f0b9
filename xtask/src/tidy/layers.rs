//! Which crate may use which: `[workspace.metadata.layers]` against what the manifests and the lock file say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Problem;
use crate::command::{self, cargo};
use crate::repository;

/// Our crates and the two tables of the root manifest that say what they may use.
pub(super) struct Workspace {
    /// By name.
    pub(super) crates: BTreeMap<String, Member>,
    /// For each crate, those of ours that it may use; `*` means all.
    pub(super) layers: BTreeMap<String, Vec<String>>,
    /// For each crate, crates that may not be anywhere in its tree.
    never: BTreeMap<String, Vec<String>>,
}

/// One of our crates.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    /// Its folder, relative to the root.
    pub(super) folder: PathBuf,
    /// Those of ours that it depends on, tests included.
    pub(super) uses: BTreeSet<String>,
}

/// The parts of `cargo metadata` that are read here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    metadata: Tables,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// Only of dependencies in this repository.
    path: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Tables {
    layers: BTreeMap<String, Vec<String>>,
    never: BTreeMap<String, Vec<String>>,
}

impl Workspace {
    /// Asks cargo.
    pub(super) fn load() -> Result<Workspace> {
        let text = command::output(cargo(["metadata", "--no-deps", "--format-version", "1"]))?;
        let metadata: Metadata = serde_json::from_str(&text).context("reading the output of cargo metadata")?;
        let crates = metadata.packages.into_iter().map(|package| {
            let folder = package.manifest_path.parent().map(PathBuf::from).unwrap_or_default();
            let folder = folder.strip_prefix(repository::root()).map(PathBuf::from).unwrap_or(folder);
            let ours = package.dependencies.into_iter().filter(|dependency| dependency.path.is_some());
            (package.name, Member { folder, uses: ours.map(|dependency| dependency.name).collect() })
        });
        let Tables { layers, never } = metadata.metadata;
        Ok(Workspace { crates: crates.collect(), layers, never })
    }
}

pub(super) fn check(workspace: &Workspace) -> Result<Vec<Problem>> {
    let mut problems = edges(workspace);
    for (name, forbidden) in &workspace.never {
        let tree = command::output(cargo(["tree", "-p", name, "-e", "normal", "--prefix", "none", "--format", "{p}"]))?;
        problems.extend(intruders(name, forbidden, &tree));
    }
    Ok(problems)
}

fn problem(rule: String) -> Problem {
    Problem::new("Cargo.toml", 0, rule)
}

/// Edges between our crates that the table does not have, and the other way round.
fn edges(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, member) in &workspace.crates {
        if member.folder != Path::new(name) {
            problems.push(problem(format!("the folder of crate {name} must be called {name}")));
        }
        let Some(allowed) = workspace.layers.get(name) else {
            problems.push(problem(format!("crate {name} is missing in [workspace.metadata.layers]")));
            continue;
        };
        for used in &member.uses {
            if !allowed.contains(used) && !allowed.iter().any(|any| any == "*") {
                let way_out = "a new edge is a decision: give the reason in docs/decisions and add it to the table";
                problems.push(problem(format!("{name} uses {used} against [workspace.metadata.layers]; {way_out}")));
            }
        }
    }
    for (table, names) in [("layers", workspace.layers.keys()), ("never", workspace.never.keys())] {
        let unknown = names.filter(|name| !workspace.crates.contains_key(*name));
        problems.extend(unknown.map(|name| problem(format!("[workspace.metadata.{table}] names no crate: {name}"))));
    }
    problems
}

/// Crates of a `cargo tree` that may not be in it.
fn intruders(name: &str, forbidden: &[String], tree: &str) -> Vec<Problem> {
    let found: BTreeSet<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let bad = forbidden.iter().filter(|krate| found.contains(krate.as_str()));
    bad.map(|krate| problem(format!("{krate} is in the tree of {name}; `cargo tree -p {name} -i {krate}` says why")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Member, Workspace, edges, intruders};

    fn workspace(edges: &[(&str, &[&str])], layers: &[(&str, &[&str])]) -> Workspace {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let member = |name: &str, uses: &[&str]| {
            (name.to_owned(), Member { folder: name.into(), uses: names(uses).into_iter().collect() })
        };
        Workspace {
            crates: edges.iter().map(|(name, uses)| member(name, uses)).collect(),
            layers: layers.iter().map(|(name, uses)| ((*name).to_owned(), names(uses))).collect(),
            never: [].into(),
        }
    }

    #[test]
    fn edges_of_the_table_are_allowed() {
        let crates: &[(&str, &[&str])] = &[("a", &[]), ("b", &["a"]), ("all", &["a", "b"])];
        assert_eq!(edges(&workspace(crates, &[("a", &[]), ("b", &["a"]), ("all", &["*"])])), []);
    }

    #[test]
    fn an_edge_that_is_not_in_the_table_is_found() {
        let found = edges(&workspace(&[("a", &["b"]), ("b", &[])], &[("a", &[]), ("b", &["a"])]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].rule.starts_with("a uses b"), "{found:?}");
    }

    #[test]
    fn a_crate_that_is_not_in_the_table_and_a_name_without_a_crate_are_found() {
        assert_eq!(edges(&workspace(&[("a", &[])], &[("b", &[])])).len(), 2);
    }

    #[test]
    fn a_forbidden_crate_deep_in_a_tree_is_found() {
        let tree = "translate v0.0.0 (/x)\nserde v1.0.0\ntokio v1.54.1\ntokio v1.54.1 (*)\n";
        let found = intruders("translate", &["tokio".to_owned(), "hyper".to_owned()], tree);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
