//! `scalwsctl status`: the controller's status document, as it is or as tables.

use std::path::Path;
use std::time::Duration;

use http::{Method, StatusCode};

use super::verdict::Document;
use super::{DONE, FAILED, table};
use crate::cli::Format;
use crate::client::{self, Answer, ClientError};
use crate::output::{Paint, answer, clean, say};

/// How long the controller may take. Also the time in which one that is just being restarted is waited for.
const LIMIT: Duration = Duration::from_secs(10);
/// How long to pause while the controller of a live `up` is being restarted.
const RETRY: Duration = Duration::from_millis(50);

/// Runs the command and gives its exit code.
pub async fn run(state: &Path, socket: Option<&Path>, format: Format) -> u8 {
    let fetched = match tokio::time::timeout(LIMIT, fetch(state, socket)).await {
        Ok(fetched) => fetched,
        Err(_) => Err(ClientError::Broken(format!("nothing within {} s", LIMIT.as_secs()))),
    };
    let body = match fetched {
        Ok(body) => body,
        Err(error) => {
            say(&clean(&error.to_string()));
            return FAILED;
        }
    };
    match format {
        Format::Json => answer(String::from_utf8_lossy(&body).trim_end()),
        Format::Text => match serde_json::from_slice::<Document>(&body) {
            Ok(document) => answer(table::render(&document, Paint::for_stdout()).trim_end()),
            Err(error) => {
                say(&format!("the controller's status is not understood: {error}"));
                return FAILED;
            }
        },
    }
    DONE
}

async fn fetch(state: &Path, socket: Option<&Path>) -> Result<Vec<u8>, ClientError> {
    if let Some(socket) = socket {
        return document(client::ask(socket, Method::GET, "/v1/status", Vec::new()).await?);
    }
    loop {
        let up = client::find(state)?;
        match client::call(state, &up, Method::GET, "/v1/status", Vec::new()).await {
            Ok(reply) => return document(reply),
            // Killed and not yet restarted: the supervisor is alive, so it comes back.
            Err(_) if supervisor_lives(up.pid) => tokio::time::sleep(RETRY).await,
            Err(error) => return Err(error),
        }
    }
}

fn document(reply: Answer) -> Result<Vec<u8>, ClientError> {
    if reply.status == StatusCode::OK {
        return Ok(reply.body.to_vec());
    }
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    Err(ClientError::Broken(format!("{}: {text}", reply.status)))
}

fn supervisor_lives(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| match rustix::process::test_kill_process(pid) {
        Ok(()) | Err(rustix::io::Errno::PERM) => true,
        Err(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::UpFile;

    #[tokio::test]
    async fn a_directory_that_a_dead_up_left_behind_is_no_live_one() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(run(state.path(), None, Format::Json).await, FAILED);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let file = UpFile {
            pid: child.id(),
            runtime_dir: "/nonexistent".into(),
            controller_socket: "/nonexistent/controller.sock".into(),
            replicas: 1,
            agents: vec!["replica-0".into()],
            http: 1,
            https: 2,
        };
        file.write(state.path()).unwrap();
        assert_eq!(run(state.path(), None, Format::Text).await, FAILED);
    }
}
