//! Where objects come from, as the pipeline sees it: whatever it is, it gives changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;

use super::Batch;
use super::cluster::{Cluster, WatchStates};
use super::directory::Directory;
use crate::args::{Args, SourceKind};

/// A source of objects. What it has now is asked for by tickets, which grow.
#[derive(Debug)]
pub enum Source {
    /// A folder of manifests, and the last ticket: what was asked for is read at once.
    Directory(Box<Directory>, u64),
    /// An API server.
    Cluster(Cluster),
}

impl From<Directory> for Source {
    fn from(directory: Directory) -> Source {
        Source::Directory(Box::new(directory), 0)
    }
}

impl From<Cluster> for Source {
    fn from(cluster: Cluster) -> Source {
        Source::Cluster(cluster)
    }
}

impl Source {
    /// The source that the command line names. `states` is told how it stands with the watches.
    ///
    /// # Errors
    /// When there is no such folder, or no way to reach an API server is configured.
    pub async fn open(args: &Args, states: &Arc<WatchStates>) -> anyhow::Result<Source> {
        match (args.source, &args.manifests) {
            (SourceKind::Cluster, _) => {
                let client = args.api_server.client().await?;
                let cluster = Cluster::start(&client, &args.cluster.settings(), states);
                Ok(cluster.context("no descriptor for the watches")?.into())
            }
            (SourceKind::Directory, Some(manifests)) => {
                let folder = || format!("the folder of manifests {}", manifests.display());
                Ok(Directory::open(manifests).with_context(folder)?.into())
            }
            (SourceKind::Directory, None) => anyhow::bail!("give --manifests DIR, or --source cluster"),
        }
    }

    /// The parts that are guarded by themselves; see [`Batch::part`].
    pub fn parts(&self) -> Vec<&'static str> {
        match self {
            Source::Directory(..) => vec![""],
            Source::Cluster(cluster) => cluster.parts(),
        }
    }

    /// The descriptor that is readable when [`Source::step`] has something to do.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Source::Directory(directory, _) => directory.fd(),
            Source::Cluster(cluster) => Some(cluster.fd()),
        }
    }

    /// When [`Source::step`] has something to do even if nothing is readable.
    pub fn wake_at(&self) -> Option<Instant> {
        match self {
            Source::Directory(directory, _) => directory.wake_at(),
            Source::Cluster(_) => None,
        }
    }

    /// Whether it should not be asked now: removals are waiting to be told.
    pub fn is_settling(&self) -> bool {
        match self {
            Source::Directory(directory, _) => directory.is_settling(),
            Source::Cluster(_) => false,
        }
    }

    /// Begins: a folder is read for the first time, an API server is followed already.
    pub fn begin(&mut self, now: Instant) -> Option<Batch> {
        match self {
            Source::Directory(directory, _) => Some(directory.rescan(now)),
            Source::Cluster(_) => None,
        }
    }

    /// Takes in what has come.
    ///
    /// # Errors
    /// When the source broke by a fault of its own.
    pub fn step(&mut self, now: Instant) -> io::Result<Vec<Batch>> {
        match self {
            Source::Directory(directory, _) => Ok(vec![directory.step(now)]),
            Source::Cluster(cluster) => cluster.step(),
        }
    }

    /// Asks for everything that is there now: of one part, or of all. Gives what is known of it already, and the ticket.
    pub fn ask(&mut self, now: Instant, part: Option<&str>) -> (Option<Batch>, u64) {
        match self {
            Source::Directory(directory, ticket) => {
                *ticket += 1;
                (Some(directory.rescan(now)), *ticket)
            }
            Source::Cluster(cluster) => (None, cluster.ask(part)),
        }
    }

    /// Everything that was asked for of all parts with this ticket, or an earlier one, has come.
    pub fn seen(&self) -> u64 {
        match self {
            Source::Directory(_, ticket) => *ticket,
            Source::Cluster(cluster) => cluster.seen(),
        }
    }

    /// Kinds of objects that are there and not read, with the files they are in. Of an API server they are not known.
    pub fn ignored(&self) -> BTreeMap<String, BTreeSet<String>> {
        match self {
            Source::Directory(directory, _) => directory.ignored(),
            Source::Cluster(_) => BTreeMap::new(),
        }
    }
}
