//! `scalwsctl confirm`: publishes a world that the shrink guard holds.

use std::path::Path;

use http::Method;

use super::{DONE, FAILED};
use crate::client;
use crate::output::{answer, clean, say};

/// Runs the command and gives its exit code.
pub async fn run(state: &Path, socket: Option<&Path>) -> u8 {
    let called = match (socket, client::find(state)) {
        (Some(socket), _) => client::ask(socket, Method::POST, "/v1/confirm", Vec::new()).await,
        (None, Ok(up)) => client::call(state, &up, Method::POST, "/v1/confirm", Vec::new()).await,
        (None, Err(error)) => Err(error),
    };
    match called {
        Ok(reply) if reply.status.is_success() => {
            answer("confirmed: the world as it is now is published");
            DONE
        }
        Ok(reply) => {
            say(&format!("the controller answered {}: {}", reply.status, clean(&String::from_utf8_lossy(&reply.body))));
            FAILED
        }
        Err(error) => {
            say(&clean(&error.to_string()));
            FAILED
        }
    }
}
