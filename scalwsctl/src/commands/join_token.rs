//! `scalwsctl join-token`: prints what lets the agent of one pod enrol.

use std::io::ErrorKind;
use std::time::SystemTime;

use anyhow::Context as _;
use push::authority_folder::{self, FolderError};
use push::identity::{AgentIdentity, FleetId};
use push::join::{Claims, JoinKey};
use zeroize::Zeroizing;

use super::{DONE, FAILED};
use crate::cli::JoinTokenArguments;
use crate::output::{answer, clean, say};

/// Runs the command and gives its exit code.
pub fn run(arguments: &JoinTokenArguments) -> u8 {
    match token(arguments, SystemTime::now()) {
        Ok(token) => {
            answer(&token);
            DONE
        }
        Err(error) => {
            say(&clean(&format!("{error:#}")));
            FAILED
        }
    }
}

fn token(arguments: &JoinTokenArguments, now: SystemTime) -> anyhow::Result<Zeroizing<String>> {
    let authority = authority_folder::read(&arguments.authority).map_err(|error| {
        let missing = matches!(&error, FolderError::Io { cause, .. } if cause.kind() == ErrorKind::NotFound);
        let told = anyhow::Error::from(error);
        if missing { told.context("no authority (`scalwsctl authority DIR` makes one)") } else { told }
    })?;
    let (namespace, name) = &arguments.fleet;
    let uid = arguments.uid.as_deref().unwrap_or(&arguments.pod);
    let agent = AgentIdentity::new(FleetId::new(namespace, name), &arguments.pod, uid)
        .ok()
        .filter(|agent| !agent.pod.is_empty())
        .with_context(|| {
            format!(
                "pod {:?}, UID {uid:?} or fleet {namespace}/{name} cannot be a name: lower-case letters, digits, '-' and '.', \
                 a letter or digit at both ends, 253 at most (63 for the namespace)",
                arguments.pod
            )
        })?;
    let end = now + arguments.valid;
    let not_after = end.duration_since(SystemTime::UNIX_EPOCH).context("the clock is before 1970")?.as_secs();
    Ok(JoinKey::of(&authority).issue(&Claims { agent, not_after })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    #[test]
    fn a_printed_token_proves_the_pod_until_its_time_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let mut arguments = JoinTokenArguments {
            authority: dir.path().to_owned(),
            pod: "replica-0".to_owned(),
            uid: None,
            fleet: ("scalws".to_owned(), "default".to_owned()),
            valid: Duration::from_secs(60),
        };
        let said = format!("{:#}", token(&arguments, now).unwrap_err());
        assert!(said.contains("ca.crt") && said.contains("scalwsctl authority"), "{said}");
        authority_folder::make(dir.path(), "test", SystemTime::now(), Duration::from_secs(3_600)).unwrap();
        let key = JoinKey::of(&authority_folder::read(dir.path()).unwrap());
        let agent = key.verify(&token(&arguments, now).unwrap(), 1_800_000_060).unwrap();
        assert_eq!(
            (&*agent.pod, &*agent.uid, agent.fleet.to_string()),
            ("replica-0", "replica-0", "scalws/default".to_owned())
        );
        assert!(key.verify(&token(&arguments, now).unwrap(), 1_800_000_061).is_err());
        arguments.uid = Some("7d1f".to_owned());
        assert_eq!(key.verify(&token(&arguments, now).unwrap(), 0).unwrap().uid, "7d1f");
        let key_file = dir.path().join("ca.key");
        std::fs::set_permissions(&key_file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let said = format!("{:#}", token(&arguments, now).unwrap_err());
        assert!(said.contains("0644") && said.contains("chmod 600") && !said.contains("makes one"), "{said}");
        std::fs::set_permissions(&key_file, std::fs::Permissions::from_mode(0o600)).unwrap();
        arguments.pod = "No_Name".to_owned();
        assert!(format!("{:#}", token(&arguments, now).unwrap_err()).contains("No_Name"));
    }
}
