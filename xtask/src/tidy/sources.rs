//! Rules for Rust files: header line, size, module names, and honest tests.

use super::{Problem, Text};

/// Lines that a file may have before its tests.
const MAX_LINES: usize = 500;
/// Names that say nothing about what a module is.
const NAMELESS: [&str; 8] = ["util", "utils", "common", "helper", "helpers", "manager", "misc", "stuff"];
/// A line with this comment, or below it, may sleep: the reason follows.
const SLEEP_REASON: &str = "// sleep:";

pub(super) fn check(file: &Text) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut problem = |line: usize, rule: String| problems.push(Problem::new(&file.path, line, rule));
    let first = file.text.lines().next().unwrap_or_default();
    if first.strip_prefix("//! ").is_none_or(|rest| rest.trim().is_empty()) {
        problem(1, "the first line must be `//!` and say what the file is".to_owned());
    }
    let stem = file.path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let folder = file.path.parent().and_then(|p| p.file_name()).and_then(|s| s.to_str()).unwrap_or_default();
    for name in [stem, folder] {
        if NAMELESS.contains(&name) {
            problem(0, format!("{name:?} names nothing; call the module after what it holds"));
        }
    }
    let tests_from = tests_from(file);
    if tests_from > MAX_LINES {
        problem(0, format!("{tests_from} lines without tests, at most {MAX_LINES}; one thing per file"));
    }
    let mut excused = false;
    for (index, line) in file.text.lines().enumerate() {
        let number = index + 1;
        if is_comment(line) {
            excused |= line.contains(SLEEP_REASON);
            continue;
        }
        if line.trim_start().starts_with(&["#[", "ignore"].concat()) {
            problem(number, "a test is not ignored; mend it or take it away".to_owned());
        }
        let sleeps = ["thread::", "time::"].iter().any(|path| line.contains(&format!("{path}sleep(")));
        if sleeps && index >= tests_from && !excused && !line.contains(SLEEP_REASON) {
            let way_out = format!("wait for a stated condition with a limit, or give a reason with `{SLEEP_REASON} …`");
            problem(number, format!("a test does not sleep; {way_out}"));
        }
        excused = false;
    }
    problems
}

/// The number of lines before the tests of a file; 0 for a file that is a test as a whole.
fn tests_from(file: &Text) -> usize {
    let whole = file.path.components().any(|part| {
        let part = part.as_os_str();
        part == "tests" || part == "benches" || part == "tests.rs" || part == "e2e"
    });
    if whole {
        return 0;
    }
    let lines = file.text.lines();
    lines.take_while(|line| !line.starts_with("#[cfg(test)]")).count()
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::super::Text;
    use super::check;

    fn rules(path: &str, text: &str) -> Vec<(usize, String)> {
        let file = Text { path: path.into(), text: text.to_owned() };
        check(&file).into_iter().map(|problem| (problem.line, problem.rule)).collect()
    }

    #[test]
    fn a_file_that_says_what_it_is_has_no_problem() {
        assert_eq!(rules("config/src/name.rs", "//! Names.\n\nfn f() {}\n"), []);
    }

    #[test]
    fn a_file_must_say_what_it_is() {
        assert_eq!(rules("config/src/name.rs", "//!\nfn f() {}\n").len(), 1);
        assert_eq!(rules("config/src/name.rs", "fn f() {}\n").len(), 1);
    }

    #[test]
    fn a_file_is_short_but_its_tests_do_not_count() {
        let long = format!("//! Long.\n{}", "fn f() {}\n".repeat(500));
        assert_eq!(rules("a/src/b.rs", &long).len(), 1);
        let tested = format!("//! Long.\n#[cfg(test)]\nmod tests {{\n{}}}\n", "fn f() {}\n".repeat(500));
        assert_eq!(rules("a/src/b.rs", &tested), []);
        assert_eq!(rules("a/tests/b.rs", &long), []);
    }

    #[test]
    fn a_module_is_not_called_after_nothing() {
        assert_eq!(rules("a/src/utils.rs", "//! Things.\n").len(), 1);
        assert_eq!(rules("a/src/common/mod.rs", "//! Things.\n").len(), 1);
    }

    #[test]
    fn a_test_neither_sleeps_nor_is_ignored() {
        let sleep = ["thread::", "sleep(second)"].concat();
        assert_eq!(rules("a/src/b.rs", &format!("//! B.\nfn wait() {{ {sleep}; }}\n")), []);
        assert_eq!(rules("a/tests/b.rs", &format!("//! B.\nfn wait() {{ {sleep}; }}\n"))[0].0, 2);
        assert_eq!(rules("a/src/b.rs", &format!("//! B.\n#[cfg(test)]\nmod t {{\n{sleep};\n}}\n"))[0].0, 4);
        let ignored = ["#[", "ignore]"].concat();
        assert_eq!(rules("a/src/b.rs", &format!("//! B.\n{ignored}\n"))[0].0, 2);
    }

    #[test]
    fn a_sleep_with_a_reason_is_allowed() {
        let sleep = ["thread::", "sleep(second)"].concat();
        assert_eq!(rules("a/tests/b.rs", &format!("//! B.\n// sleep: the kernel has no event.\n{sleep};\n")), []);
        assert_eq!(rules("a/tests/b.rs", &format!("//! B.\n// sleep: once.\n{sleep};\n{sleep};\n")).len(), 1);
    }
}
