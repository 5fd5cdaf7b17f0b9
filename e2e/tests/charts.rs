//! The charts: they lint, render as reviewed, ask for no more rights than are documented, and are refused with values that mean nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::cluster::helm;
use e2e::machine::not_run::not_run;
use serde_json::Value;

/// The release of the snapshots, and its namespace.
const NAMES: [&str; 3] = ["scalws", "--namespace", "scalws-system"];
/// For an API server of this version.
const VERSION: [&str; 2] = ["--kube-version", "1.37.2"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn chart() -> String {
    root().join("charts/scalws").display().to_string()
}

/// Renders with further arguments.
fn render(arguments: &[&str]) -> Result<Result<String, String>> {
    let chart = chart();
    helm(&[&["template"], &NAMES[..1], &[&*chart], &NAMES[1..], &VERSION[..], arguments].concat())
}

fn objects(text: &str) -> Result<Vec<Value>> {
    let objects = serde_saphyr::from_multiple::<Value>(text)?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

/// The rules of a role, each as text, without the names of objects.
fn rules(objects: &[Value], kind: &str) -> Result<BTreeSet<String>> {
    let role = objects.iter().find(|object| object["kind"] == kind).with_context(|| format!("no {kind}"))?;
    let mut rules = role["rules"].as_array().context("no rules")?.clone();
    // The names are those of a release.
    rules.iter_mut().filter_map(|rule| rule.get_mut("resourceNames")).for_each(|names| *names = "named".into());
    Ok(rules.iter().map(Value::to_string).collect())
}

#[test]
fn the_charts_are_what_was_reviewed() -> Result<()> {
    if let Err(why) = helm(&["version"]) {
        not_run("the charts", &format!("{why:#}"));
        return Ok(());
    }
    for name in ["scalws-crds", "scalws"] {
        let linted = helm(&["lint", "--strict", &root().join("charts").join(name).display().to_string()])?;
        ensure!(linted.is_ok(), "helm lint {name}: {linted:?}");
    }
    let folder = root().join("charts/scalws/snapshots");
    let mut seen = 0;
    for entry in fs::read_dir(&folder)? {
        let values = entry?.path();
        let Some(name) = values.file_name().and_then(|name| name.to_str()?.strip_suffix(".values.yaml")) else {
            continue;
        };
        let rendered = render(&["--values", &values.display().to_string()])?;
        let rendered = rendered.map_err(|said| anyhow::anyhow!("{name}: {said}"))?;
        let path = folder.join(format!("{name}.yaml"));
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            fs::write(&path, &rendered)?;
        }
        let reviewed = fs::read_to_string(&path).unwrap_or_default();
        ensure!(
            reviewed == rendered,
            "{} is not what the chart renders: `UPDATE_SNAPSHOTS=1 cargo test -p e2e --test charts`, and read the difference",
            path.display()
        );
        objects(&rendered)?;
        seen += 1;
    }
    ensure!(seen >= 3, "only {seen} snapshots");

    let documented = objects(include_str!("../../docs/reference/controller-rights.yaml"))?;
    let rendered = objects(&render(&[])?.map_err(|said| anyhow::anyhow!(said))?)?;
    for kind in ["ClusterRole", "Role"] {
        let (chart, documented) = (rules(&rendered, kind)?, rules(&documented, kind)?);
        ensure!(chart == documented, "{kind} of the chart: {chart:#?}\ndocumented: {documented:#?}");
    }

    for (wrong, named) in [
        ("fleet.kind=StatefulSet", "fleet.kind"),
        ("fleet.name=controller", "fleet.name"),
        ("fleet.ports.http=0", "fleet.ports.http"),
        ("controller.certificateLifetime=1day", "controller.certificateLifetime"),
        ("controler.replicas=1", "controler"),
        ("fleet.replicas=two", "fleet.replicas"),
    ] {
        match render(&["--set", wrong])? {
            Ok(_) => anyhow::bail!("--set {wrong} is taken"),
            Err(said) => {
                let parts = named.split('.').all(|part| said.contains(part));
                ensure!(parts, "--set {wrong} is refused without its name: {said}");
            }
        }
    }
    Ok(())
}
