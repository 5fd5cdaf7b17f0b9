//! The line protocol with the supervisor: JSON objects, one a line, on standard input and output.
//!
//! The supervisor sends the authority first and answers to `redeem`; the controller says where it listens.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::lines::Lines;

/// Tokens that may wait for an answer at one time.
const WAITING: usize = 1024;

/// The authority that signs for the controller and its agents. It lives in memory only.
pub struct AuthorityPem {
    /// The certificate in PEM; further ones are trusted too.
    pub certificate: String,
    /// The key in PEM, PKCS#8.
    pub key: Zeroizing<String>,
}

impl std::fmt::Debug for AuthorityPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthorityPem").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// The pod that a token belongs to, as the supervisor says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Redeemed {
    /// The fleet.
    pub fleet: RedeemedFleet,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID.
    pub uid: String,
}

/// A fleet as the supervisor names it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RedeemedFleet {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What the supervisor sends.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum FromSupervisor {
    Authority {
        ca_certificate_pem: String,
        #[serde(deserialize_with = "wiped")]
        ca_key_pem: Zeroizing<String>,
    },
    Redeemed {
        id: u64,
        agent: Option<Redeemed>,
    },
}

/// Reads a text that is wiped when it is dropped.
fn wiped<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Zeroizing<String>, D::Error> {
    String::deserialize(deserializer).map(Zeroizing::new)
}

/// What the controller sends.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum ToSupervisor<'a> {
    Listening { enroll: String, push: String },
    Redeem { id: u64, token: &'a str },
}

#[derive(Default)]
struct Waiting {
    next: u64,
    answers: BTreeMap<u64, oneshot::Sender<Option<Redeemed>>>,
    closed: bool,
}

/// The controller's end of the protocol.
pub struct Descriptor {
    out: Mutex<Box<dyn Write + Send>>,
    waiting: Mutex<Waiting>,
}

impl std::fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Descriptor")
    }
}

/// The supervisor's end is closed, or too much waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the supervisor does not answer")]
pub struct NoSupervisor;

impl Descriptor {
    /// Reads the authority, then goes on reading in a thread of its own. `on_end` is called once, when the input ends:
    /// the supervisor is gone then.
    ///
    /// # Errors
    /// When the first line is not an authority.
    pub fn start<F: AsFd + Send + 'static>(
        input: F,
        out: Box<dyn Write + Send>,
        on_end: impl FnOnce() + Send + 'static,
    ) -> io::Result<(AuthorityPem, Arc<Descriptor>)> {
        let mut lines = Lines::new(input);
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let first = lines.next()?.ok_or_else(|| wrong("the input ended before the authority came"))?;
        let Ok(FromSupervisor::Authority { ca_certificate_pem, ca_key_pem }) = serde_json::from_slice(&first) else {
            return Err(wrong("the first line of the input is not an authority"));
        };
        let authority = AuthorityPem { certificate: ca_certificate_pem, key: ca_key_pem };
        let descriptor = Arc::new(Descriptor { out: Mutex::new(out), waiting: Mutex::default() });
        let reader = Arc::clone(&descriptor);
        std::thread::Builder::new().name("descriptor".to_owned()).spawn(move || {
            reader.read_answers(&mut lines);
            on_end();
        })?;
        Ok((authority, descriptor))
    }

    fn read_answers<F: AsFd>(&self, lines: &mut Lines<F>) {
        loop {
            match lines.next() {
                Ok(Some(line)) => match serde_json::from_slice(&line) {
                    Ok(FromSupervisor::Redeemed { id, agent }) => {
                        let answer = self.waiting().answers.remove(&id);
                        // Whoever asked may have given up.
                        let _ = answer.map(|answer| answer.send(agent));
                    }
                    Ok(FromSupervisor::Authority { .. }) => tracing::warn!("the supervisor sent an authority twice"),
                    // The line may hold a key, so nothing of it is shown.
                    Err(_) => tracing::warn!("a line from the supervisor was not understood"),
                },
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "the supervisor cannot be heard any more");
                    break;
                }
            }
        }
        let mut waiting = self.waiting();
        waiting.closed = true;
        // Dropping the senders answers everybody who waits.
        waiting.answers.clear();
    }

    /// Says where the two services listen.
    ///
    /// # Errors
    /// When the supervisor is gone.
    pub fn announce(&self, enroll: String, push: String) -> io::Result<()> {
        self.send(&ToSupervisor::Listening { enroll, push })
    }

    /// Asks whose token this is; nobody's if it is unknown, used or too old.
    ///
    /// # Errors
    /// When the supervisor is gone or too many tokens wait.
    pub async fn redeem(&self, token: &str) -> Result<Option<Redeemed>, NoSupervisor> {
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut waiting = self.waiting();
            waiting.answers.retain(|_, answer| !answer.is_closed());
            if waiting.closed || waiting.answers.len() >= WAITING {
                return Err(NoSupervisor);
            }
            waiting.next += 1;
            let id = waiting.next;
            waiting.answers.insert(id, answer);
            id
        };
        self.send(&ToSupervisor::Redeem { id, token }).map_err(|_| NoSupervisor)?;
        answered.await.map_err(|_| NoSupervisor)
    }

    fn send(&self, message: &ToSupervisor<'_>) -> io::Result<()> {
        let mut line = Zeroizing::new(serde_json::to_vec(message).map_err(io::Error::other)?);
        line.push(b'\n');
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(&line)?;
        out.flush()
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    fn start() -> (io::PipeWriter, BufReader<io::PipeReader>, Arc<Descriptor>, std::sync::mpsc::Receiver<()>) {
        let (input, mut to_controller) = io::pipe().unwrap();
        let (from_controller, out) = io::pipe().unwrap();
        let (ended, end) = std::sync::mpsc::channel();
        to_controller
            .write_all(b"{\"authority\":{\"ca_certificate_pem\":\"C\",\"ca_key_pem\":\"hunter2\"}}\n")
            .unwrap();
        let (authority, descriptor) = Descriptor::start(input, Box::new(out), move || ended.send(()).unwrap()).unwrap();
        assert_eq!((authority.certificate.as_str(), authority.key.as_str()), ("C", "hunter2"));
        (to_controller, BufReader::new(from_controller), descriptor, end)
    }

    #[tokio::test]
    async fn a_token_is_asked_for_and_answered_by_number() {
        let (mut to_controller, mut from_controller, descriptor, _end) = start();
        let asking = tokio::spawn({
            let descriptor = Arc::clone(&descriptor);
            async move { descriptor.redeem("secret-token").await }
        });
        let (line, from_controller) = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            from_controller.read_line(&mut line).unwrap();
            (line, from_controller)
        })
        .await
        .unwrap();
        assert_eq!(line, "{\"redeem\":{\"id\":1,\"token\":\"secret-token\"}}\n");
        to_controller.write_all(b"not json\n{\"redeemed\":{\"id\":9,\"agent\":null}}\n").unwrap();
        to_controller
            .write_all(b"{\"redeemed\":{\"id\":1,\"agent\":{\"fleet\":{\"namespace\":\"scalws\",\"name\":\"default\"},\"pod\":\"replica-0\",\"uid\":\"u\"}}}\n")
            .unwrap();
        let agent = asking.await.unwrap().unwrap().unwrap();
        assert_eq!((agent.pod.as_str(), agent.fleet.name.as_str()), ("replica-0", "default"));
        drop(from_controller);
    }

    #[tokio::test]
    async fn when_the_supervisor_goes_nobody_waits_any_longer() {
        let (to_controller, _from_controller, descriptor, end) = start();
        let asking = tokio::spawn({
            let descriptor = Arc::clone(&descriptor);
            async move { descriptor.redeem("t").await }
        });
        drop(to_controller);
        assert_eq!(asking.await.unwrap(), Err(NoSupervisor));
        tokio::task::spawn_blocking(move || end.recv_timeout(std::time::Duration::from_secs(5)).unwrap())
            .await
            .unwrap();
        assert_eq!(descriptor.redeem("t").await, Err(NoSupervisor));
    }

    #[test]
    fn something_else_in_the_first_line_is_an_error_that_shows_nothing_of_it() {
        for line in ["{\"redeemed\":{\"id\":1,\"agent\":null}}\n", "hunter2\n", ""] {
            let (input, mut to_controller) = io::pipe().unwrap();
            to_controller.write_all(line.as_bytes()).unwrap();
            drop(to_controller);
            let error = Descriptor::start(input, Box::new(io::sink()), || ()).unwrap_err();
            assert!(!error.to_string().contains("hunter2"));
        }
    }
}
