//! The log of `up` on stderr: its own lines, and those of its children with the name of the process before them.

use crate::cli::LogFormat;
use crate::output;

use super::children::Role;

/// Writes log lines in one format.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    format: LogFormat,
}

impl Log {
    /// A log in this format.
    pub fn new(format: LogFormat) -> Log {
        Log { format }
    }

    /// Which format.
    pub fn format(self) -> LogFormat {
        self.format
    }

    /// A line of `up` itself.
    pub fn say(self, text: &str) {
        match self.format {
            LogFormat::Text => output::say(&output::clean(text)),
            LogFormat::Json => output::note(&json_line("scalwsctl", text)),
        }
    }

    /// A line of a child.
    pub fn pass(self, role: Role, line: &str) {
        match self.format {
            LogFormat::Text => output::note(&format!("{}: {}", role.prefix(), output::clean(line))),
            LogFormat::Json => output::note(&with_process(&role.prefix(), line)),
        }
    }
}

fn json_line(process: &str, text: &str) -> String {
    serde_json::json!({"process": process, "level": "INFO", "message": text}).to_string()
}

/// A JSON line of a child gets a field; anything else becomes a message.
fn with_process(process: &str, line: &str) -> String {
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(line) {
        Ok(mut fields) => {
            fields.insert("process".to_owned(), process.into());
            serde_json::Value::Object(fields).to_string()
        }
        Err(_) => json_line(process, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_json_log_is_an_object_that_names_the_process() {
        for line in [r#"{"level":"WARN","message":"m"}"#, "panicked at \"x\"", "", "[1]"] {
            let out: serde_json::Value = serde_json::from_str(&with_process("controller", line)).unwrap();
            assert_eq!(out["process"], "controller");
        }
    }
}
