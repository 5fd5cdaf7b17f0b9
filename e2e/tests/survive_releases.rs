//! What earlier releases wrote, on the wire and on volumes, is read by this one and leads to the state that was recorded then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use e2e::http_client::Connection;
use e2e::process::{Options, SOON, Up, program, until};
use e2e::shop::{Shop, ingress};
use journal::digest::leaf;
use journal::members::MemberSet;
use journal::{Digest, Key, MemberTree, Tree};
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use proto::v1::{AgentMessage, ControllerMessage};
use push::agent_session::{self, AgentSession, Effect, HelloFacts, Holdings, MembersChange, Transfer};
use push::fleet::{Fleet, FleetChange, Item};
use push::server_session::{self, Agent, Event, Role, ServerSession};
use push::{Prefix, Secret, Version};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What to do when one of these tests fails.
const WHAT_TO_DO: &str = "The format changed in a way that breaks a release which is out. Keep reading what it wrote: make the new form an \
    addition (a new field number, a new kind of record, a higher schema version only where the new thing is used). When the old form is \
    read again, freeze the new one beside it: RECORD_RELEASE=<version> cargo test -p e2e --test survive_releases";
/// The variable that has a new fixture recorded.
const RECORD: &str = "RECORD_RELEASE";

/// One line of `conversation.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The desired state changes.
    Publish(Publication),
    /// A message of the agent, as it travelled, in hexadecimal.
    Agent(String),
    /// The same of the controller.
    Controller(String),
    /// So many milliseconds pass.
    Later(u64),
}

/// A change of what is desired.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Publication {
    /// Kind, name, body, and the texts of the secrets that it names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    puts: Vec<(String, String, Value, Vec<String>)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removes: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    members: Vec<(String, Option<Vec<String>>)>,
}

/// `state.json`: where everything led.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Reached {
    version: String,
    root: String,
    member_root: String,
    secrets: Vec<String>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// The folders of all releases, by name.
fn releases() -> Result<Vec<PathBuf>> {
    let mut all = fs::read_dir(fixtures())?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    all.sort();
    ensure!(!all.is_empty(), "there is no fixture");
    Ok(all)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Result<Vec<u8>> {
    let digits = hex.as_bytes().chunks(2);
    digits.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

fn conversation(release: &Path) -> Result<Vec<Line>> {
    let text = fs::read_to_string(release.join("conversation.jsonl"))?;
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

fn reached(release: &Path) -> Result<Reached> {
    Ok(serde_json::from_slice(&fs::read(release.join("state.json"))?)?)
}

fn change(publication: &Publication) -> Result<FleetChange> {
    let mut change = FleetChange::default();
    for (kind, name, body, secrets) in &publication.puts {
        let secrets: Vec<Secret> = secrets.iter().map(|text| Secret::new(text.clone().into_bytes())).collect();
        let body = Bytes::from(serde_json::to_vec(body)?);
        let digests = secrets.iter().map(Secret::digest).collect();
        change.puts.push(Item { key: Key::new(kind, name), body, secrets: digests });
        change.secrets.extend(secrets.into_iter().map(|secret| (secret.digest(), secret)));
    }
    change.removes = publication.removes.iter().map(|(kind, name)| Key::new(kind, name)).collect();
    for (name, members) in &publication.members {
        let members = members.as_ref().map(|all| all.iter().map(|m| Arc::from(m.as_str())).collect::<Vec<_>>().into());
        change.members.push((name.as_str().into(), members));
    }
    Ok(change)
}

/// What an agent holds, without a disk.
#[derive(Default)]
struct Volume {
    tree: Tree,
    secrets: BTreeSet<Digest>,
    named: BTreeMap<Key, Vec<Digest>>,
    bodies: BTreeMap<Key, Bytes>,
    member_tree: MemberTree,
    sets: BTreeMap<Arc<str>, MemberSet>,
    applied: Option<Version>,
}

impl Holdings for Volume {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn members(&self) -> &MemberTree {
        &self.member_tree
    }

    fn has_secret(&self, digest: &Digest) -> bool {
        self.secrets.contains(digest)
    }

    fn body(&self, key: &Key) -> Option<Bytes> {
        self.bodies.get(key).cloned()
    }
}

impl Volume {
    fn apply(&mut self, transfer: &Transfer) -> Result<()> {
        self.secrets.extend(transfer.blobs.iter().map(|(digest, _)| *digest));
        for key in &transfer.removes {
            self.tree.remove(key);
            self.named.remove(key);
            self.bodies.remove(key);
        }
        for put in &transfer.puts {
            self.tree.insert(put.key.clone(), leaf(&put.key, &put.body));
            self.named.insert(put.key.clone(), put.secrets.clone());
            self.bodies.insert(put.key.clone(), put.body.clone());
        }
        ensure!(self.tree.root() == transfer.root, "a transfer leads to another root than the one it names");
        self.applied = Some(transfer.version);
        let named: BTreeSet<Digest> = self.named.values().flatten().copied().collect();
        self.secrets.retain(|secret| named.contains(secret));
        Ok(())
    }

    fn change_members(&mut self, set: &Arc<str>, change: &MembersChange, digest: Prefix) -> Result<()> {
        if *change == MembersChange::Drop {
            self.sets.remove(set);
            self.member_tree.remove(set);
            return Ok(());
        }
        let now = change.result(set, self.sets.get(set)).context("a difference without its base")?;
        ensure!(digest.fits(&now.digest), "{set} has another digest than its message names");
        self.member_tree.insert(Arc::clone(set), now.digest);
        self.sets.insert(Arc::clone(set), now);
        Ok(())
    }

    fn reached(&mut self) -> Reached {
        Reached {
            version: self.applied.map(|version| version.to_string()).unwrap_or_default(),
            root: self.tree.root().to_string(),
            member_root: self.member_tree.root().to_string(),
            secrets: self.secrets.iter().map(ToString::to_string).collect(),
        }
    }

    fn facts() -> HelloFacts {
        HelloFacts {
            boot_id: "boot".to_owned(),
            schema_version: 1,
            scalwsd_version: "0.0.0".to_owned(),
            scalwsd_state: "ready".to_owned(),
            ..HelloFacts::default()
        }
    }
}

/// An agent of this build: its session and what it holds.
struct Half {
    session: AgentSession,
    volume: Volume,
}

impl Half {
    fn new() -> Half {
        Half { session: AgentSession::new(64 << 20), volume: Volume::default() }
    }

    /// One input with all that follows; gives what it says.
    fn step(&mut self, now: u64, input: agent_session::Input) -> Result<Vec<AgentMessage>> {
        use agent_session::Input;
        let mut said = Vec::new();
        let mut effects = VecDeque::from(self.session.step(now, input, &self.volume));
        while let Some(effect) = effects.pop_front() {
            let follows = match effect {
                Effect::Send(message) => {
                    said.push(message);
                    None
                }
                Effect::Apply(transfer) => {
                    self.volume.apply(&transfer)?;
                    Some((transfer.version, transfer.root))
                }
                Effect::Adopt { version, root } => {
                    self.volume.applied = Some(version);
                    Some((version, root))
                }
                Effect::Members { seq, set, change, digest } => {
                    self.volume.change_members(&set, &change, digest)?;
                    let root = self.volume.member_tree.root();
                    effects.extend(self.session.step(now, Input::MembersApplied { seq, root }, &self.volume));
                    None
                }
                Effect::Close(close) => bail!("the agent closes the stream: {close:?}"),
                Effect::RecordEpoch(_) | Effect::Welcomed { .. } | Effect::LookElsewhere => None,
            };
            if let Some((version, root)) = follows {
                let applied = Input::Applied { version, root, timings: Default::default(), not_live: Vec::new() };
                effects.extend(self.session.step(now, applied, &self.volume));
            }
        }
        Ok(said)
    }
}

fn controller(now: u64) -> ServerSession {
    ServerSession::new(Agent { uid: "uid".into(), name: "agent".to_owned() }, Role::Leading, now)
}

/// The story that a fixture tells: a cold agent gets everything, then differences in both lanes, then removals.
fn story() -> Vec<Publication> {
    // Long enough for a difference between two of them to be worth it.
    let body = |n: u32| serde_json::json!({ "n": n, "text": "words ".repeat(50) });
    let put = |name: &str, n: u32| ("fragment".to_owned(), name.to_owned(), body(n), Vec::new());
    let secret = "not a secret: written down in a fixture".to_owned();
    let set =
        |name: &str, all: &[&str]| (name.to_owned(), Some(all.iter().map(|m| (*m).to_owned()).collect::<Vec<_>>()));
    vec![
        Publication {
            puts: vec![put("a", 1), put("b", 1), ("certificate".to_owned(), "c".to_owned(), body(1), vec![secret])],
            members: vec![
                set("shop/web:80/tcp", &["10.0.0.1:80", "10.0.0.2:80"]),
                set("shop/old:80/tcp", &["10.0.0.9:80"]),
            ],
            ..Publication::default()
        },
        Publication { puts: vec![put("a", 2)], ..Publication::default() },
        Publication {
            members: vec![set("shop/web:80/tcp", &["10.0.0.2:80", "10.0.0.3:80"])],
            ..Publication::default()
        },
        Publication { members: vec![set("shop/web:80/tcp", &[])], ..Publication::default() },
        Publication {
            puts: vec![put("d", 1)],
            removes: vec![("fragment".to_owned(), "b".to_owned()), ("certificate".to_owned(), "c".to_owned())],
            members: vec![("shop/old:80/tcp".to_owned(), None)],
        },
    ]
}

/// Has both ends of this build tell the story, and writes down what they say.
fn record(into: &Path) -> Result<()> {
    let (mut fleet, mut agent, mut server, mut now) = (Fleet::new(7), Half::new(), controller(0), 0);
    let mut lines = Vec::new();
    let mut up = VecDeque::from(agent.step(now, agent_session::Input::Connected(Volume::facts()))?);
    for publication in story() {
        fleet.publish(change(&publication)?);
        lines.push(Line::Publish(publication));
        // Long enough for a heartbeat.
        for _ in 0..2 {
            loop {
                if let Some(message) = server.poll(now, &mut fleet) {
                    lines.push(Line::Controller(hex(&message.encode_to_vec())));
                    up.extend(agent.step(now, agent_session::Input::Received(message))?);
                } else if let Some(message) = up.pop_front() {
                    lines.push(Line::Agent(hex(&message.encode_to_vec())));
                    server.step(now, server_session::Input::Received(message), &mut fleet);
                } else {
                    break;
                }
            }
            now += 5_000;
            lines.push(Line::Later(5_000));
            server.step(now, server_session::Input::Tick, &mut fleet);
        }
    }
    ensure!(agent.volume.tree.root() == fleet.root(), "the story does not end");
    fs::create_dir_all(into)?;
    let text = lines.iter().map(|line| Ok(serde_json::to_string(line)? + "\n")).collect::<Result<String>>()?;
    fs::write(into.join("conversation.jsonl"), text)?;
    fs::write(into.join("state.json"), serde_json::to_string_pretty(&agent.volume.reached())? + "\n")?;
    Ok(())
}

/// Today's agent hears what a controller of that release said.
fn agent_of_today(release: &Path) -> Result<Reached> {
    let (mut agent, mut now) = (Half::new(), 0);
    let said = agent.step(now, agent_session::Input::Connected(Volume::facts()))?;
    ensure!(said.len() == 1, "an agent begins with Hello");
    for line in conversation(release)? {
        match line {
            Line::Controller(message) => {
                let message = ControllerMessage::decode(&*bytes(&message)?)?;
                agent
                    .step(now, agent_session::Input::Received(message.clone()))
                    .with_context(|| format!("{message:?}"))?;
            }
            Line::Later(ms) => now += ms,
            Line::Agent(_) | Line::Publish(_) => {}
        }
    }
    Ok(agent.volume.reached())
}

/// Today's controller hears what an agent of that release said, whose world is the same.
fn controller_of_today(release: &Path) -> Result<(Reached, bool)> {
    let (mut fleet, mut server, mut now) = (Fleet::new(7), controller(0), 0);
    let (mut applied, mut current) = (None, 0);
    for line in conversation(release)? {
        match line {
            Line::Publish(publication) => drop(fleet.publish(change(&publication)?)),
            Line::Later(ms) => {
                now += ms;
                server.step(now, server_session::Input::Tick, &mut fleet);
            }
            Line::Agent(message) => {
                let message = AgentMessage::decode(&*bytes(&message)?)?;
                let events = server.step(now, server_session::Input::Received(message.clone()), &mut fleet);
                for event in events {
                    match event {
                        Event::Applied { version, root, .. } => applied = Some((version, root)),
                        Event::MembersCurrent { member_version } => current = member_version,
                        Event::Closed(close) => bail!("the controller closes the stream after {message:?}: {close:?}"),
                        other @ (Event::Refused { .. } | Event::MembersRefused { .. } | Event::Overdue { .. }) => {
                            bail!("{message:?} is taken for {other:?}")
                        }
                        _ => {}
                    }
                }
            }
            Line::Controller(_) => {}
        }
        // What it says goes nowhere: the agent's words are those of the fixture.
        while server.poll(now, &mut fleet).is_some() {}
    }
    let published = fleet.published();
    let (version, root) = applied.context("nothing was applied")?;
    let secrets = reached(release)?.secrets;
    let (root, member_root) = (root.to_string(), published.member_root.to_string());
    Ok((Reached { version: version.to_string(), root, member_root, secrets }, current == published.member_version))
}

/// `volume.json`: what `scalwsd` and the agent of that release said of the volume.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Held {
    version: String,
    root: String,
    member_root: String,
    sets: BTreeMap<String, Vec<String>>,
    /// `kind/name: code` of everything that is not live, faults of the machine aside.
    not_live: Vec<String>,
}

/// Ports of the listeners of a recorded volume. Where another program has one, that is a fault of the machine.
const PORTS: (u16, u16) = (28_080, 28_443);

/// A copy of a volume.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.join("keys"))?;
    for file in ["config.jsonl", "members.jsonl"] {
        fs::copy(from.join(file), to.join(file))?;
    }
    for key in fs::read_dir(from.join("keys"))? {
        let key = key?;
        fs::copy(key.path(), to.join("keys").join(key.file_name()))?;
    }
    Ok(())
}

/// Has the programs of this build make a volume of the example, with a resource that is not live, and keeps it.
fn record_volume(into: &Path) -> Result<()> {
    let shop = Shop::copy()?;
    shop.write("shop/withheld.yaml", &ingress("shop", "withheld", "withheld.example.com", "nobody", 80))?;
    let options = Options { replicas: 1, http: PORTS.0, https: PORTS.1, ..Options::default() };
    let up = Up::start(&shop.manifests(), &shop.state(), &options)?;
    up.wait()?;
    // A second transaction in the journals.
    shop.write("shop/more.yaml", &ingress("shop", "more", "more.example.com", "web", 80))?;
    shop.write("shop/web.yaml", &shop.read("shop/web.yaml")?.replacen("{ready: true}", "{ready: false}", 1))?;
    up.wait()?;
    copy(&up.file().runtime_dir.join("r0"), &into.join("volume"))?;
    up.stop()?;
    let held = held(into)?;
    fs::write(into.join("volume.json"), serde_json::to_string_pretty(&held)? + "\n")?;
    Ok(())
}

/// A `scalwsd` that ends with the test.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What today's `scalwsd` and agent say of the volume of that release.
fn held(release: &Path) -> Result<Held> {
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let (volume, admin) = (folder.path().join("volume"), folder.path().join("admin.sock"));
    copy(&release.join("volume"), &volume)?;
    let mut command = Command::new(program("scalwsd")?);
    command.arg("run").arg("--volume").arg(&volume).arg("--admin").arg(&admin).arg("--allow-loopback");
    let _proxy = Proxy(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ask = |path: &str| -> Result<Value> {
        let reply = runtime.block_on(async { Connection::open_unix(&admin).await?.get("localhost", path).await })?;
        ensure!(reply.status.is_success(), "{path}: {reply:?}");
        Ok(serde_json::from_slice(&reply.body)?)
    };
    until(SOON, "scalwsd answers", || Ok(ask("/v1/config").is_ok()))?;
    let (config, upstreams) = (ask("/v1/config")?, ask("/v1/upstreams")?);
    let mut sets = BTreeMap::new();
    for set in upstreams["sets"].as_array().into_iter().flatten() {
        let name = set[0].as_str().context("a set without a name")?;
        let members = ask(&journal::client::upstream_path(name))?["members"].clone();
        sets.insert(name.to_owned(), serde_json::from_value(members)?);
    }
    let not_live: Vec<journal::admin::NotLive> = serde_json::from_value(config["not_live"].clone())?;
    let own = not_live.iter().filter(|entry| !journal::admin::codes::is_environment(&entry.code));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();

    // Both read the same files.
    let (_, image) = agent::volume::Volume::open(&volume)?;
    let (mut core, _) = agent::core::AgentCore::open(image, "boot");
    let facts = core.facts();
    let (version, root) = facts.applied.context("today's agent finds nothing that was accepted")?;
    ensure!(
        root == facts.root,
        "today's agent misses something, such as a key: {root} was accepted, {} is held",
        facts.root
    );
    let held = Held {
        version: version.to_string(),
        root: text(&config["root"]),
        member_root: text(&upstreams["root"]),
        sets,
        not_live: own.map(|entry| format!("{}: {}", entry.resource, entry.code)).collect(),
    };
    let (agents, sets) = (facts.root.to_string(), facts.member_root.to_string());
    ensure!(agents == held.root, "today's agent finds {agents} and scalwsd runs {}", held.root);
    ensure!(sets == held.member_root, "today's agent finds the members {sets} and scalwsd has {}", held.member_root);
    Ok(held)
}

#[test]
fn the_volume_of_each_release_is_read_and_run_as_it_was_then() -> Result<()> {
    if let Ok(version) = std::env::var(RECORD) {
        record_volume(&fixtures().join(version))?;
    }
    for release in releases()? {
        let name = release.display();
        let wanted: Held = serde_json::from_slice(&fs::read(release.join("volume.json"))?)?;
        let got = held(&release).with_context(|| format!("{name}: {WHAT_TO_DO}"))?;
        ensure!(got == wanted, "{name}: the volume is {got:?}, not {wanted:?}. {WHAT_TO_DO}");
        eprintln!("{name}: {} with {} member sets runs", wanted.version, wanted.sets.len());
    }
    Ok(())
}

#[test]
fn both_ends_of_today_understand_what_the_other_end_of_each_release_said() -> Result<()> {
    if let Ok(version) = std::env::var(RECORD) {
        record(&fixtures().join(version))?;
    }
    for release in releases()? {
        let name = release.display();
        let wanted = reached(&release)?;
        let got = agent_of_today(&release).with_context(|| format!("{name}: today's agent. {WHAT_TO_DO}"))?;
        ensure!(got == wanted, "{name}: today's agent comes to {got:?}, not to {wanted:?}. {WHAT_TO_DO}");
        let (got, current) =
            controller_of_today(&release).with_context(|| format!("{name}: today's controller. {WHAT_TO_DO}"))?;
        ensure!(got == wanted, "{name}: today's controller believes {got:?}, not {wanted:?}. {WHAT_TO_DO}");
        ensure!(current, "{name}: today's controller does not take the members for current. {WHAT_TO_DO}");
        eprintln!("{name}: {} lines lead both ends to {}", conversation(&release)?.len(), wanted.version);
    }
    Ok(())
}

/// A field of a number that nobody uses, as a later release might add one.
fn later_field(into: &mut Vec<u8>) {
    encode_key(15_000, WireType::Varint, into);
    encode_varint(1, into);
}

#[test]
fn fields_that_a_later_release_adds_are_skipped_in_every_message() -> Result<()> {
    let (mut messages, mut hellos) = (0, 0);
    for release in releases()? {
        for line in conversation(&release)? {
            let (Line::Agent(text) | Line::Controller(text)) = &line else { continue };
            let whole = bytes(text)?;
            // One field, which holds the message: its key, its length, its content.
            let mut rest = &whole[..];
            let (number, kind) = decode_key(&mut rest)?;
            decode_varint(&mut rest)?;
            let mut content = rest.to_vec();
            later_field(&mut content);
            let mut newer = Vec::new();
            encode_key(number, kind, &mut newer);
            encode_varint(content.len() as u64, &mut newer);
            newer.extend(content);
            later_field(&mut newer);
            let same = match &line {
                Line::Agent(_) => AgentMessage::decode(&*newer)? == AgentMessage::decode(&*whole)?,
                _ => ControllerMessage::decode(&*newer)? == ControllerMessage::decode(&*whole)?,
            };
            ensure!(same, "{}: a later field changes what {text} means. {WHAT_TO_DO}", release.display());
            messages += 1;
            hellos += usize::from(matches!(&line, Line::Agent(_)) && number == 1);
        }
    }
    eprintln!("{messages} messages with later fields, {hellos} of them Hello");
    ensure!(messages > 10 && hellos > 0, "only {messages} messages were looked at");
    Ok(())
}
