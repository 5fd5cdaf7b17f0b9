//! `scalwsctl crds`: the definition of our own kind, as this version reads it.

use super::{DONE, FAILED};
use crate::output::{answer, say};

/// What stands before it.
const HEAD: &str = "# Written from the types of the controller (`scalwsctl crds`): change those, not this.";

/// Runs the command and gives its exit code.
pub fn run() -> u8 {
    match serde_saphyr::to_string(&translate::objects::fleet_definition()) {
        Ok(text) => {
            answer(&format!("{HEAD}\n{}", text.trim_end()));
            DONE
        }
        Err(error) => {
            say(&format!("the definition cannot be written: {error}"));
            FAILED
        }
    }
}
