//! Text for people: stdout for answers, stderr for everything else. A closed pipe is no error.

use std::io::{IsTerminal as _, Write as _};

/// Writes to stdout and ends the line.
pub fn answer(text: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever reads may be gone (`| head`).
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// Writes one line to stderr, with the name of the program before it.
pub fn say(text: &str) {
    note(&format!("scalwsctl: {text}"));
}

/// Writes one line to stderr as it is.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Text from manifests and peers without control characters, so that it cannot steer a terminal or forge a line.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Colours, if the reader is a terminal and did not say no (<https://no-color.org>).
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// For what is written to stdout.
    pub fn for_stdout() -> Paint {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Paint { on: std::io::stdout().is_terminal() && !refused }
    }

    /// Without colours.
    pub fn plain() -> Paint {
        Paint { on: false }
    }

    /// Something good.
    pub fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// Something half good.
    pub fn fair(self, text: &str) -> String {
        self.wrap("33", text)
    }

    /// Something bad.
    pub fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// A heading.
    pub fn strong(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Less important.
    pub fn faint(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(clean("a\x1b[2J\nb\tc"), "a\u{fffd}[2J\u{fffd}b\u{fffd}c");
    }
}
