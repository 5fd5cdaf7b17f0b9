//! The file of counts: a line for each quantity of each merge that was measured, the newest last.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// What the columns are.
const HEADER: &str = "commit\tcompiler\troutes\tchange\tstage\tquantity\tcount\n";
/// More than this share above the last line is growth. Compilers and hash seeds move counts by less.
const SLACK: f64 = 0.05;
/// And so many are never growth: a table that doubles in one of the changes.
const FEW: u64 = 3;

/// One quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Routes, kind of change, stage and quantity, as in the file.
    what: String,
    count: u64,
}

impl Row {
    pub(super) fn new(routes: usize, change: &str, stage: &str, quantity: &str, count: u64) -> Row {
        Row { what: format!("{routes}\t{change}\t{stage}\t{quantity}"), count }
    }
}

/// The lines of the file.
pub(super) struct Ledger {
    lines: Vec<(String, Row)>,
}

impl Ledger {
    /// Reads the file.
    pub(super) fn read(path: &Path) -> Result<Ledger> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Ledger::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Ledger> {
        let mut lines = Vec::new();
        for line in text.lines().skip(1) {
            let mut columns = line.splitn(3, '\t');
            let (_, compiler, rest) = (columns.next(), columns.next().context("no compiler")?, columns.next());
            let (what, count) = rest.and_then(|rest| rest.rsplit_once('\t')).with_context(|| line.to_owned())?;
            lines.push((compiler.to_owned(), Row { what: what.to_owned(), count: count.parse()? }));
        }
        Ok(Ledger { lines })
    }

    /// Compares with the last line of each quantity that was counted with this compiler.
    pub(super) fn check(&self, rows: &[Row]) -> Result<()> {
        let compiler = compiler()?;
        let (grown, compared) = self.grown(rows, &compiler);
        println!("{compared} of {} counts were compared", rows.len());
        if !grown.is_empty() {
            bail!("a single change costs more; make it cheaper, or say why and --record it:\n  {}", grown.join("\n  "));
        }
        Ok(())
    }

    fn grown(&self, rows: &[Row], compiler: &str) -> (Vec<String>, usize) {
        let (mut grown, mut compared) = (Vec::new(), 0);
        for row in rows {
            let same = |(of, line): &&(String, Row)| of == compiler && line.what == row.what;
            let Some((_, last)) = self.lines.iter().rev().find(same) else { continue };
            compared += 1;
            #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
            let more = row.count as f64 > last.count as f64 * (1.0 + SLACK);
            if more && row.count > last.count + FEW {
                grown.push(format!("{}: {} instead of {}", row.what.replace('\t', " "), row.count, last.count));
            }
        }
        (grown, compared)
    }

    /// Adds lines, with the commit that is checked out.
    pub(super) fn record(path: &Path, rows: &[Row]) -> Result<()> {
        let mut text = if path.exists() { fs::read_to_string(path)? } else { HEADER.to_owned() };
        let (commit, compiler) = (said("git", &["rev-parse", "--short=10", "HEAD"])?, compiler()?);
        for row in rows {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{commit}\t{compiler}\t{}\t{}", row.what, row.count);
        }
        fs::write(path, text).with_context(|| path.display().to_string())
    }
}

fn said(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// The version of the compiler and how it optimises: what counts depend on beside the code.
fn compiler() -> Result<String> {
    let version = said("rustc", &["--version"])?.split(' ').take(2).collect::<Vec<_>>().join(" ");
    Ok(format!("{version} {}", if cfg!(debug_assertions) { "dev" } else { "release" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_growth_over_the_last_line_of_the_same_compiler_is_found() {
        let text = format!(
            "{HEADER}a\tr 1\t10\troute\tapply\tallocations\t100\nb\tr 1\t10\troute\tapply\tallocations\t200\nc\tr 2\t10\troute\tapply\tallocations\t1\n"
        );
        let ledger = Ledger::parse(&text).unwrap();
        let row = |count| [Row::new(10, "route", "apply", "allocations", count)];
        assert_eq!(ledger.grown(&row(209), "r 1"), (Vec::new(), 1));
        assert_eq!(ledger.grown(&row(211), "r 1").0, ["10 route apply allocations: 211 instead of 200"]);
        assert_eq!(ledger.grown(&row(211), "r 3"), (Vec::new(), 0));
    }
}
