//! Many agents in one process that know several controllers: the shipped link and session, volumes in memory and no proxy.

use std::path::Path;
use std::sync::Arc;

use agent::link::{self, Opened};
use agent::replicas::{Options, Replicas};
use anyhow::Result;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::controller::{ENROLL, PUSH, known};
use crate::swarm::agent::{Beside, Member};
use crate::swarm::board::Board;

/// Agents that run until this is dropped.
#[derive(Debug)]
pub struct Crowd {
    board: Arc<Board>,
    agents: usize,
    tasks: Vec<JoinHandle<()>>,
}

/// The link that may hand over another stream.
struct Linked {
    answer_ms: u64,
    unsure: tokio::sync::watch::Sender<bool>,
    opened: mpsc::Receiver<Opened>,
    next: Option<Opened>,
}

impl Beside for Linked {
    fn answer_ms(&self) -> Option<u64> {
        Some(self.answer_ms)
    }

    fn unsure(&mut self, unsure: bool) {
        self.unsure.send_replace(unsure);
    }

    async fn replaced(&mut self) {
        match self.opened.recv().await {
            Some(opened) => self.next = Some(opened),
            None => std::future::pending().await,
        }
    }
}

impl Crowd {
    /// Starts so many agents on this runtime; the files hold what each joins with, by its number.
    ///
    /// # Errors
    /// When a file is missing.
    pub fn start(runtime: &Handle, controllers: u8, trust: &Path, tokens: &[std::path::PathBuf]) -> Result<Crowd> {
        let board: Arc<Board> = Arc::default();
        let mut tasks = Vec::new();
        for (number, token) in tokens.iter().enumerate() {
            let hosts: Vec<String> = (1..=controllers).map(|controller| known(controller).to_string()).collect();
            let bootstrap = Replicas::new(Options {
                hosts,
                enroll_port: ENROLL,
                push_port: PUSH,
                trust: trust.to_owned(),
                token: token.clone(),
            });
            let (hand_over, mut opened) = mpsc::channel(1);
            let member = Member::new(number, Arc::clone(&board));
            tasks.push(runtime.spawn(async move {
                // It ends only when nobody takes its streams.
                let _ = link::keep(bootstrap, hand_over, Arc::default()).await;
            }));
            tasks.push(runtime.spawn(async move {
                let mut member = member;
                let mut next = opened.recv().await;
                let mut opened = opened;
                while let Some(Opened { link, answer_ms, ended, unsure }) = next {
                    let mut linked = Linked { answer_ms, unsure, opened, next: None };
                    let end = member.converse(link, &mut linked).await;
                    // A link that was replaced is not listened to any more.
                    let _ = ended.send(end);
                    opened = linked.opened;
                    next = match linked.next {
                        Some(other) => Some(other),
                        None => opened.recv().await,
                    };
                }
            }));
        }
        Ok(Crowd { board, agents: tokens.len(), tasks })
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty, reason = "a crowd of nobody is of no use")]
    pub fn len(&self) -> usize {
        self.agents
    }

    /// What they have reached.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
