//! Runs this program under callgrind and reads what some of its functions cost with all that they called.
//!
//! The format: <https://valgrind.org/docs/manual/cl-format.html>.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Instructions by function, for functions whose names contain a word.
pub(super) fn inclusive(arguments: &[String], word: &str) -> Result<BTreeMap<String, u64>> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("out");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet"]).arg(format!("--toggle-collect=*{word}*"));
    command.arg(format!("--callgrind-out-file={}", out.display()));
    let output = command.arg(std::env::current_exe()?).args(arguments).output()?;
    if !output.status.success() {
        bail!("valgrind: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let text = fs::read_to_string(&out).with_context(|| out.display().to_string())?;
    Ok(read(&text).into_iter().filter(|(name, _)| name.contains(word)).collect())
}

/// All costs of each function: its own lines and those of its calls.
fn read(text: &str) -> BTreeMap<String, u64> {
    let (mut names, mut costs) = (BTreeMap::<&str, &str>::new(), BTreeMap::<String, u64>::new());
    let mut current = "";
    for line in text.lines() {
        if let Some(function) = line.strip_prefix("fn=") {
            current = resolve(function, &mut names);
        } else if let Some(function) = line.strip_prefix("cfn=") {
            // A name may be given at its first call.
            resolve(function, &mut names);
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split_ascii_whitespace().nth(1).and_then(|cost| cost.parse::<u64>().ok());
            *costs.entry(current.to_owned()).or_default() += cost.unwrap_or(0);
        }
    }
    costs
}

/// `(12) name` gives a name a number, `(12)` is that name.
fn resolve<'a>(text: &'a str, names: &mut BTreeMap<&'a str, &'a str>) -> &'a str {
    let Some((number, name)) = text.split_once(')') else { return text };
    match name.trim_start() {
        "" => names.get(number).copied().unwrap_or(text),
        name => {
            names.insert(number, name);
            name
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn calls_count_for_the_function_that_makes_them() {
        let text = "events: Ir\n\nfl=(1) a.rs\nfn=(1) outer\n10 5\ncfn=(2) inner\ncalls=3 20\n11 300\n+2 7\n\nfn=(2)\n20 300\n";
        let costs = super::read(text);
        assert_eq!(costs["outer"], 312);
        assert_eq!(costs["inner"], 300);
    }
}
