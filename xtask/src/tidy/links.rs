//! Links of Markdown pages: a link to a file must lead to one.

use std::path::{Component, Path, PathBuf};

use super::{Problem, Text};

/// Checks one page; `exists` is asked about paths relative to the root.
pub(super) fn check(page: &Text, exists: &dyn Fn(&Path) -> bool) -> Vec<Problem> {
    let folder = page.path.parent().unwrap_or(Path::new(""));
    let mut problems = Vec::new();
    let mut in_code = false;
    for (index, line) in page.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            continue;
        }
        if in_code {
            continue;
        }
        for target in targets(line) {
            let path = target.split(['#', '?']).next().unwrap_or_default();
            let elsewhere = path.is_empty() || path.contains("://") || path.starts_with("mailto:");
            if !elsewhere && !normal(&folder.join(path)).is_some_and(|path| exists(&path)) {
                problems.push(Problem::new(&page.path, index + 1, format!("the link to {path:?} leads nowhere")));
            }
        }
    }
    problems
}

/// The targets of inline links, `[text](target)`, outside of code spans.
fn targets(line: &str) -> Vec<&str> {
    let mut out = Vec::new();
    // Every second piece between backticks is code.
    for text in line.split('`').step_by(2) {
        for (start, _) in text.match_indices("](") {
            let rest = &text[start + 2..];
            if let Some(end) = rest.find([')', ' ']) {
                out.push(&rest[..end]);
            }
        }
    }
    // A link whose text is code is cut by the backticks: its target begins the next piece.
    for piece in line.split('`').skip(2).step_by(2) {
        if let Some(rest) = piece.strip_prefix("](")
            && let Some(end) = rest.find([')', ' '])
            && !out.contains(&&rest[..end])
        {
            out.push(&rest[..end]);
        }
    }
    out
}

/// The path without `.` and `..`; none if it leaves the repository.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !out.pop() {
                    return None;
                }
            }
            Component::Normal(name) => out.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Text;
    use super::check;

    fn broken(text: &str) -> usize {
        let page = Text { path: "docs/guides/a.md".into(), text: text.to_owned() };
        check(&page, &|path| path == Path::new("docs/b.md") || path == Path::new("docs")).len()
    }

    #[test]
    fn links_to_files_that_are_there_and_to_other_sites_are_fine() {
        assert_eq!(broken("see [b](../b.md#part), [the folder](..) and [the site](https://example.com/x)\n"), 0);
        assert_eq!(broken("[`code` in it](../b.md), and [here](#part)\n"), 0);
    }

    #[test]
    fn links_that_lead_nowhere_or_out_of_the_repository_are_found() {
        assert_eq!(broken("[c](../c.md)\n"), 1);
        assert_eq!(broken("[`c`](../c.md)\n"), 1);
        assert_eq!(broken("[d](../../../d.md) [e](/etc/passwd)\n"), 2);
    }

    #[test]
    fn code_is_not_read_for_links() {
        assert_eq!(broken("`a[0](x)`\n```\n[c](../c.md)\n```\n"), 0);
    }
}
