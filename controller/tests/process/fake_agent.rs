//! An agent without a proxy: the shipped session over the shipped client, with a volume in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use journal::members::MemberSet;
use journal::{Digest, Key, MemberTree, Tree};
use push::Version;
use push::agent_session::{AgentSession, Effect, HelloFacts, Holdings, Input, MembersChange, Timings, Transfer};
use push::grpc::client::{self, Credentials};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What the agent holds.
#[derive(Default)]
pub(crate) struct Volume {
    tree: Tree,
    members: MemberTree,
    pub(crate) bodies: BTreeMap<Key, Bytes>,
    pub(crate) sets: BTreeMap<Arc<str>, MemberSet>,
    pub(crate) secrets: BTreeMap<Digest, Vec<u8>>,
    pub(crate) applied: Option<Version>,
    pub(crate) highest_epoch: u64,
    /// How many transfers were applied.
    pub(crate) transfers: usize,
}

impl Holdings for Volume {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn members(&self) -> &MemberTree {
        &self.members
    }

    fn has_secret(&self, digest: &Digest) -> bool {
        self.secrets.contains_key(digest)
    }

    fn body(&self, key: &Key) -> Option<Bytes> {
        self.bodies.get(key).cloned()
    }
}

impl Volume {
    fn apply(&mut self, transfer: Transfer) {
        self.transfers += 1;
        for (digest, secret) in transfer.blobs {
            self.secrets.insert(digest, secret.bytes().to_vec());
        }
        for key in transfer.removes {
            self.tree.remove(&key);
            self.bodies.remove(&key);
        }
        for put in transfer.puts {
            self.tree.insert(put.key.clone(), put.leaf);
            self.bodies.insert(put.key, put.body);
        }
        self.applied = Some(transfer.version);
    }

    fn change(&mut self, set: &Arc<str>, change: MembersChange) {
        if change == MembersChange::Drop {
            self.members.remove(set);
            self.sets.remove(set);
            return;
        }
        let now = change.result(set, self.sets.get(set)).expect("the controller knows what an agent holds");
        self.members.insert(Arc::clone(set), now.digest);
        self.sets.insert(Arc::clone(set), now);
    }
}

/// An agent that runs until it is dropped or its stream ends.
pub(crate) struct FakeAgent {
    pub(crate) volume: Arc<Mutex<Volume>>,
    task: JoinHandle<()>,
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeAgent {
    /// Connects and says Hello.
    pub(crate) async fn connect(address: &str, credentials: &Credentials, volume: Arc<Mutex<Volume>>) -> FakeAgent {
        let link = client::connect(address, credentials).await.unwrap();
        let task = tokio::spawn(run(link, Arc::clone(&volume)));
        FakeAgent { volume, task }
    }

    /// Waits for the end of the stream.
    pub(crate) async fn ended(mut self) {
        // A task that was aborted ended too.
        let _ = (&mut self.task).await;
    }
}

async fn run(mut link: client::Link, volume: Arc<Mutex<Volume>>) {
    let begun = Instant::now();
    let mut session = AgentSession::new(1 << 20);
    let facts = {
        let volume = volume.lock().unwrap();
        HelloFacts {
            boot_id: "boot".to_owned(),
            schema_version: 1,
            highest_epoch: volume.highest_epoch,
            applied: volume.applied,
            scalwsd_version: "fake".to_owned(),
            scalwsd_state: "ready".to_owned(),
            ..HelloFacts::default()
        }
    };
    let mut inputs = vec![Input::Connected(facts)];
    loop {
        while let Some(input) = inputs.pop() {
            let now = u64::try_from(begun.elapsed().as_millis()).unwrap();
            let effects = session.step(now, input, &*volume.lock().unwrap());
            for effect in effects {
                match effect {
                    Effect::Send(message) => {
                        if link.send.send(message).await.is_err() {
                            return;
                        }
                    }
                    Effect::Apply(transfer) => {
                        let mut volume = volume.lock().unwrap();
                        let version = transfer.version;
                        volume.apply(*transfer);
                        let root = volume.tree.root();
                        inputs.push(Input::Applied {
                            version,
                            root,
                            timings: Timings::default(),
                            not_live: Vec::new(),
                        });
                    }
                    Effect::Adopt { version, root } => {
                        volume.lock().unwrap().applied = Some(version);
                        inputs.push(Input::Applied {
                            version,
                            root,
                            timings: Timings::default(),
                            not_live: Vec::new(),
                        });
                    }
                    Effect::RecordEpoch(epoch) => volume.lock().unwrap().highest_epoch = epoch,
                    Effect::Members { seq, set, change, .. } => {
                        let mut volume = volume.lock().unwrap();
                        volume.change(&set, change);
                        let root = volume.members.root();
                        inputs.insert(0, Input::MembersApplied { seq, root });
                    }
                    Effect::Welcomed { .. } | Effect::LookElsewhere => {}
                    Effect::Close(_) => return,
                }
            }
        }
        match link.receive.message().await {
            Ok(Some(message)) => inputs.push(Input::Received(message)),
            Ok(None) | Err(_) => return,
        }
    }
}
