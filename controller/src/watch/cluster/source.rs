//! The watches of all kinds together, as a source for the pipeline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use kube::Client;
use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use translate::NamespacedName;
use translate::manifest::FileFinding;

use super::follow::{Follower, News};
use super::held::reference;
use super::kinds::{KINDS, Kind};
use super::requests::Scope;
use super::state::WatchStates;
use super::talk::{Out, Pace};
use crate::watch::{Batch, Listing};

/// So much news may wait for the pipeline; the watches wait then.
const NEWS: usize = 64;
/// The reason of findings about objects that cannot be read.
const UNREADABLE: &str = "ObjectUnreadable";

/// What of a cluster is followed, and how.
#[derive(Clone, Debug)]
pub struct KindWatchSettings {
    /// The kinds.
    pub kinds: Vec<&'static Kind>,
    /// The namespaces; empty for all.
    pub namespaces: Vec<String>,
    /// The label selector of Secrets; none for all.
    pub secrets: Option<Arc<str>>,
    /// The label selector of ConfigMaps; none for all.
    pub config_maps: Option<Arc<str>>,
    /// The times.
    pub pace: Pace,
}

impl Default for KindWatchSettings {
    fn default() -> KindWatchSettings {
        KindWatchSettings {
            kinds: KINDS.iter().collect(),
            namespaces: Vec::new(),
            secrets: None,
            config_maps: None,
            pace: Pace::default(),
        }
    }
}

impl KindWatchSettings {
    fn scopes(&self) -> Vec<Scope> {
        let mut scopes = Vec::new();
        for kind in &self.kinds {
            let selector = match kind.name {
                "Secret" => self.secrets.clone(),
                "ConfigMap" => self.config_maps.clone(),
                _ => None,
            };
            let scope = |namespace| Scope { kind, namespace, selector: selector.clone() };
            if kind.namespaced && !self.namespaces.is_empty() {
                scopes.extend(self.namespaces.iter().map(|namespace| scope(Some(namespace.as_str().into()))));
            } else {
                scopes.push(scope(None));
            }
        }
        scopes
    }
}

/// What the source knows of one watch.
#[derive(Debug)]
struct Followed {
    kind: &'static str,
    asked: watch::Sender<u64>,
    /// Everything up to this ticket has come.
    agreed: u64,
    /// How many objects it has; none before its first list.
    objects: Option<usize>,
}

/// All watches. Dropping it ends them.
#[derive(Debug)]
pub struct Cluster {
    followed: Vec<Followed>,
    news: mpsc::Receiver<News>,
    wake: Arc<OwnedFd>,
    last_ticket: u64,
    tasks: JoinSet<()>,
}

impl Cluster {
    /// Begins to follow, on the runtime it is called in.
    ///
    /// # Errors
    /// When the kernel gives no descriptor.
    pub fn start(client: &Client, settings: &KindWatchSettings, states: &Arc<WatchStates>) -> io::Result<Cluster> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (sender, news) = mpsc::channel(NEWS);
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        let mut followed = Vec::new();
        for (number, scope) in settings.scopes().into_iter().enumerate() {
            let (asked, wants) = watch::channel(0);
            followed.push(Followed { kind: scope.kind.name, asked, agreed: 0, objects: None });
            let follower = Follower {
                number,
                client: client.clone(),
                scope,
                pace: settings.pace,
                asked: wants,
                news: sender.clone(),
                wake: Arc::clone(&wake),
                states: Arc::clone(states),
                began,
            };
            states.begin(follower.place());
            tasks.spawn(follower.run());
        }
        Ok(Cluster { followed, news, wake, last_ticket: 0, tasks })
    }

    /// The descriptor that is readable when [`Cluster::step`] has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The kinds that are followed: each is guarded by itself.
    pub fn parts(&self) -> Vec<&'static str> {
        let mut parts: Vec<_> = self.followed.iter().map(|followed| followed.kind).collect();
        parts.dedup();
        parts
    }

    /// Takes in what has come.
    ///
    /// # Errors
    /// When a watch broke by a fault of its own: the process has to begin anew.
    pub fn step(&mut self) -> io::Result<Vec<Batch>> {
        let mut count = [0; 8];
        // Nothing to read is no error: somebody else woke the pipeline.
        let _ = rustix::io::read(&self.wake, &mut count);
        let mut batches = Vec::new();
        while let Ok(News { scope, outs }) = self.news.try_recv() {
            for out in outs {
                batches.extend(self.batch(scope, out));
            }
        }
        match self.tasks.try_join_next() {
            None => Ok(batches),
            Some(ended) => Err(io::Error::other(format!("a watch ended by a fault of its own: {ended:?}"))),
        }
    }

    fn batch(&mut self, scope: usize, out: Out) -> Option<Batch> {
        let followed = self.followed.get_mut(scope)?;
        let part = followed.kind;
        match out {
            Out::Observed(observed) => Some(Batch { part, observed, ..Batch::default() }),
            Out::Findings(findings) => {
                let findings = findings.into_iter().map(|(key, why)| finding(part, &key, why)).collect();
                Some(Batch { part, findings, ..Batch::default() })
            }
            Out::Agreed(ticket) => {
                followed.agreed = ticket;
                None
            }
            Out::Listed { changes, objects, missing } => {
                followed.objects = Some(objects);
                // The kind is listed when it is in all namespaces.
                let of_kind = self.followed.iter().filter(|followed| followed.kind == part);
                match of_kind.map(|followed| followed.objects).sum::<Option<usize>>() {
                    Some(objects) => {
                        Some(Batch { part, listed: Some(Listing { changes, objects, missing }), ..Batch::default() })
                    }
                    None => Some(Batch { part, observed: changes, ..Batch::default() }),
                }
            }
        }
    }

    /// Asks for proof that everything that the API server has now has come: of one kind, or of all. Gives the ticket.
    pub fn ask(&mut self, part: Option<&str>) -> u64 {
        self.last_ticket += 1;
        for followed in self.followed.iter().filter(|followed| part.is_none_or(|part| part == followed.kind)) {
            // The task may have ended, which the next step says.
            followed.asked.send_replace(self.last_ticket);
        }
        self.last_ticket
    }

    /// Everything that was asked for with this ticket of all kinds, or an earlier one, has come out of [`Cluster::step`].
    pub fn seen(&self) -> u64 {
        self.followed.iter().map(|followed| followed.agreed).min().unwrap_or(u64::MAX)
    }
}

/// What is wrong with an object, as of a file that holds only it.
fn finding(kind: &'static str, key: &NamespacedName, why: Option<String>) -> (PathBuf, Vec<FileFinding>) {
    let object = Some(reference(kind, key));
    let findings = why.map(|message| FileFinding { document: 0, line: 0, object, reason: UNREADABLE, message });
    (PathBuf::from(format!("{kind}/{key}")), findings.into_iter().collect())
}
