//! The table of parts in ARCHITECTURE.md: every crate is in it, with what the layer map says it may use.

use std::collections::BTreeMap;
use std::path::Path;

use super::layers::Workspace;
use super::{Problem, Text};

/// The page.
const PAGE: &str = "ARCHITECTURE.md";

pub(super) fn check(workspace: &Workspace, texts: &[Text]) -> Vec<Problem> {
    match texts.iter().find(|text| text.path == Path::new(PAGE)) {
        Some(page) => compare(&rows(&page.text), &workspace.layers),
        None => vec![Problem::new(PAGE, 0, "is missing")],
    }
}

/// A row of the table: where it stands and what its third column says.
struct Row {
    line: usize,
    uses: Vec<String>,
}

/// Rows such as "| `router/` | what it is | config, journal |", by the name in the first column.
fn rows(page: &str) -> BTreeMap<String, Row> {
    let mut out = BTreeMap::new();
    for (index, line) in page.lines().enumerate() {
        let mut cells = line.trim().trim_matches('|').split('|').map(str::trim);
        let (Some(first), Some(_), Some(uses)) = (cells.next(), cells.next(), cells.next()) else { continue };
        let Some(name) = first.strip_prefix('`').and_then(|rest| rest.strip_suffix("/`")) else { continue };
        let uses = match uses {
            "–" => Vec::new(),
            "all" => vec!["*".to_owned()],
            list => list.split(',').map(|name| name.trim().to_owned()).collect(),
        };
        out.insert(name.to_owned(), Row { line: index + 1, uses });
    }
    out
}

fn compare(rows: &BTreeMap<String, Row>, layers: &BTreeMap<String, Vec<String>>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, allowed) in layers {
        let Some(row) = rows.get(name) else {
            problems.push(Problem::new(PAGE, 0, format!("the table of parts lacks `{name}/`")));
            continue;
        };
        let sorted = |list: &[String]| {
            let mut list = list.to_vec();
            list.sort();
            list
        };
        if sorted(&row.uses) != sorted(allowed) {
            let rule = format!("`{name}/` may use {allowed:?} says [workspace.metadata.layers], not {:?}", row.uses);
            problems.push(Problem::new(PAGE, row.line, rule));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::{compare, rows};

    const PAGE: &str = "\
| folder | what it is | may use |
|---|---|---|
| `a/` | the first | – |
| `b/` | the second | c, a |
| `docs/` | pages | |
";

    fn problems(layers: &[(&str, &[&str])]) -> usize {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        compare(&rows(PAGE), &layers.iter().map(|(name, uses)| ((*name).to_owned(), list(uses))).collect()).len()
    }

    #[test]
    fn a_table_that_says_what_the_layer_map_says_is_fine() {
        assert_eq!(problems(&[("a", &[]), ("b", &["a", "c"])]), 0);
    }

    #[test]
    fn a_missing_row_and_another_list_are_found() {
        assert_eq!(problems(&[("a", &[]), ("b", &["a"]), ("c", &[])]), 2);
    }
}
