//! Words that no file may have: paths of a machine, and marks of unfinished work.

use std::path::Path;

use super::{Problem, Text, is_foreign};
use crate::repository;

/// Marks of work that was left unfinished. Cut in two so that this file does not hold them.
const UNFINISHED: [[&str; 2]; 6] =
    [["TO", "DO"], ["FIX", "ME"], ["XX", "X"], ["HA", "CK"], ["todo", "!("], ["unimplemented", "!("]];

pub(super) fn check(file: &Text) -> Vec<Problem> {
    if is_foreign(&file.path) {
        return Vec::new();
    }
    let home = std::env::home_dir();
    let folders = [repository::root().parent(), home.as_deref()];
    find(file, &folders.into_iter().flatten().filter(|folder| is_telling(folder)).collect::<Vec<_>>())
}

/// Whether a folder's path would tell something about a machine. `/` and `/src` would not.
fn is_telling(folder: &Path) -> bool {
    let usual = ["/", "/src", "/tmp", "/usr/src", "/home", "/build", "/app"];
    folder.is_absolute() && !usual.iter().any(|path| folder == Path::new(path))
}

fn find(file: &Text, folders: &[&Path]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let mut problem = |rule: String| problems.push(Problem::new(&file.path, index + 1, rule));
        for parts in &UNFINISHED {
            let mark = parts.concat();
            if has_word(line, &mark) {
                problem(format!("{mark:?} marks unfinished work; finish it or fail with a clear message"));
            }
        }
        for folder in folders {
            if line.contains(&format!("{}/", folder.display())) {
                problem("the path of a machine does not belong here".to_owned());
            }
        }
    }
    problems
}

/// Whether a word stands in a line with no letter, digit or `_` at either side.
fn has_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, found)| {
        let (before, after) = (&line[..start], &line[start + found.len()..]);
        !before.chars().next_back().is_some_and(joins)
            && (word.ends_with('(') || !after.chars().next().is_some_and(joins))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Text;
    use super::{find, is_telling};

    fn lines(text: &str) -> Vec<usize> {
        let file = Text { path: "a.md".into(), text: text.to_owned() };
        find(&file, &[Path::new("/place/of/someone")]).into_iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn marks_of_unfinished_work_are_found_as_words_only() {
        assert_eq!(lines(&format!("a\n// {}: later\n", ["TO", "DO"].concat())), [2]);
        assert_eq!(lines(&format!("{})\n", ["todo", "!("].concat())), [1]);
        assert_eq!(lines("MASTODON TODOS\n"), [] as [usize; 0]);
    }

    #[test]
    fn paths_of_the_machine_are_found() {
        assert_eq!(lines("cd /place/of/someone/scalws\n"), [1]);
        assert!(!is_telling(Path::new("/")));
        assert!(is_telling(Path::new("/home/someone")));
    }
}
