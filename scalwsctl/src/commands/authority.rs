//! `scalwsctl authority`: makes the authority that several controllers share.

use std::time::SystemTime;

use push::authority_folder::{self, CERTIFICATE, KEY};

use super::{DONE, FAILED};
use crate::cli::AuthorityArguments;
use crate::output::{answer, clean, say};

/// Runs the command and gives its exit code.
pub fn run(arguments: &AuthorityArguments) -> u8 {
    let folder = &arguments.folder;
    match authority_folder::make(folder, "ScalWS authority", SystemTime::now(), arguments.valid) {
        Ok(()) => {
            let shown = |file| clean(&folder.join(file).display().to_string());
            answer(&format!("made {} and {}", shown(CERTIFICATE), shown(KEY)));
            DONE
        }
        Err(error) => {
            say(&clean(&error.to_string()));
            FAILED
        }
    }
}
