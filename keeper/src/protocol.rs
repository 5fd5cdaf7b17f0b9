//! What keeper and asker say to each other: one JSON object a line.

use std::fmt;
use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The longest line that either side reads, in bytes.
pub(crate) const LINE_LIMIT: usize = 1024;

/// TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A listening TCP socket.
    Tcp,
    /// A bound UDP socket.
    Udp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        })
    }
}

/// A port that somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Port {
    pub(crate) transport: Transport,
    pub(crate) port: u16,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Request {
    /// Gives the socket of this port; opens it if need be.
    Listen(Port),
    /// The asker does not use the port any more.
    Release(Port),
}

/// An answer. The one to `listen` has a descriptor beside it when it is `Ok`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    /// It is done.
    Ok {
        /// The port.
        port: u16,
    },
    /// It is not.
    Error(KeeperError),
}

/// Words of [`KeeperError::code`] that programs look at.
pub mod codes {
    /// Another process has the port.
    pub const PORT_TAKEN: &str = "port_taken";
    /// This process may not open the port.
    pub const DENIED: &str = "denied";
    /// The keeper has no descriptors left.
    pub const LIMIT: &str = "limit";
    /// The request made no sense.
    pub const BAD_REQUEST: &str = "bad_request";
    /// The keeper cannot be reached, or the answer made no sense.
    pub const UNREACHABLE: &str = "unreachable";
    /// Anything else that the operating system says.
    pub const FAILED: &str = "failed";
}

/// Why a socket was not given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct KeeperError {
    /// A stable word. See [`codes`].
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

impl KeeperError {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> KeeperError {
        KeeperError { code: code.to_owned(), message: message.into() }
    }

    /// What a failed bind or listen means.
    pub fn of_bind(transport: Transport, port: u16, error: &io::Error) -> KeeperError {
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        match errno {
            Some(Errno::ADDRINUSE) => {
                KeeperError::new(codes::PORT_TAKEN, format!("port {transport}/{port} is taken by another process"))
            }
            Some(Errno::ACCESS | Errno::PERM) => KeeperError::new(
                codes::DENIED,
                format!(
                    "port {transport}/{port} may not be opened: ports below 1024 need CAP_NET_BIND_SERVICE or root, \
                     see capabilities(7)"
                ),
            ),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                KeeperError::new(codes::LIMIT, format!("port {transport}/{port} cannot be opened now: {error}"))
            }
            _ => KeeperError::new(codes::FAILED, format!("port {transport}/{port} cannot be opened: {error}")),
        }
    }

    pub(crate) fn unreachable(what: impl fmt::Display) -> KeeperError {
        KeeperError::new(codes::UNREACHABLE, format!("the socket keeper cannot be reached: {what}"))
    }
}
