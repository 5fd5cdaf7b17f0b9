//! Names what a test does not run on this machine, so that it is seen although the test passes.

use std::io::Write;

/// Says that something is not run, and why: on the real stderr, since the harness shows nothing of a test that passes when it is
/// printed. `cargo xtask test` names it once more at its end.
pub fn not_run(what: &str, why: &str) {
    // Where it cannot be written nobody reads it.
    let _ = writeln!(std::io::stderr(), "not run: {what} ({why})");
}
