//! Agents that refuse, hang, do not read, flood or lie: the others do not notice, and each costs bounded memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::process::SOON;
use e2e::shop::ingress;
use e2e::swarm::held::Held;
use e2e::traffic::plane::{Plane, resident};
use e2e::traffic::scene::scaled;
use journal::Digest;
use proto::v1::AgentMessage;
use proto::v1::agent_message::Message;
use push::Version;
use push::agent_session::{AgentSession, Effect, HelloFacts, Input, Timings, Transfer};
use push::grpc::client::Link;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How many agents are bad in each way.
const EACH: usize = 4;
/// What one bad agent may cost the controller.
const MEMORY: u64 = 2 * 1024 * 1024;
/// Good changes that are measured at a time.
const CHANGES: u32 = 15;
const CONFIGURATION: &str = "lane=\"configuration\"";

/// How an agent behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Good,
    /// Refuses every configuration for good.
    Refuses,
    /// Says Hello and nothing more, but reads.
    NeverAnswers,
    /// Says Hello and reads nothing more.
    StopsReading,
    /// Says the same again and again, as fast as the connection takes it.
    Floods,
    /// Says that it applied what it did not, and that it holds other things.
    Lies,
}

/// One agent; it ends when it is dropped.
struct Played {
    task: JoinHandle<()>,
    /// The members that it has, for the good ones.
    members: watch::Receiver<Vec<Arc<str>>>,
}

impl Drop for Played {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn play(plane: &Plane, name: &str, manner: Manner) -> Result<Played> {
    let credentials = plane.enroll(name).await.with_context(|| name.to_owned())?;
    let link = plane.connect(&credentials).await?;
    let (told, members) = watch::channel(Vec::new());
    let task = tokio::spawn(async move {
        // A stream that the controller ends is what bad agents ask for.
        let _ended = converse(link, manner, told).await;
    });
    Ok(Played { task, members })
}

async fn converse(mut link: Link, manner: Manner, told: watch::Sender<Vec<Arc<str>>>) -> Result<()> {
    let (mut session, mut held, began) = (AgentSession::new(1 << 20), Held::default(), Instant::now());
    let hello = HelloFacts {
        boot_id: "boot".to_owned(),
        schema_version: 1,
        scalwsd_version: "played".to_owned(),
        scalwsd_state: "ready".to_owned(),
        ..HelloFacts::default()
    };
    let mut inputs = vec![Input::Connected(hello)];
    loop {
        while let Some(input) = inputs.pop() {
            let now = u64::try_from(began.elapsed().as_millis())?;
            for effect in session.step(now, input, &held) {
                match effect {
                    Effect::Send(message) => say(&link, manner, message).await?,
                    Effect::Apply(transfer) => {
                        let (version, root) = (transfer.version, transfer.root);
                        inputs.extend(verdict(&mut held, manner, version, root, Some(*transfer)));
                    }
                    Effect::Adopt { version, root } => inputs.extend(verdict(&mut held, manner, version, root, None)),
                    Effect::Members { seq, set, change, digest } => {
                        if !held.change(&set, &change, digest) {
                            inputs.push(Input::MembersBaseUnknown { set });
                        }
                        let all = held.sets.values().flat_map(|set| set.members.iter().cloned()).collect();
                        let _ = told.send(all);
                        inputs.insert(0, Input::MembersApplied { seq, root: held.members.root() });
                    }
                    Effect::Close(_) => return Ok(()),
                    Effect::RecordEpoch(_) | Effect::Welcomed { .. } | Effect::LookElsewhere => {}
                }
            }
            if manner == Manner::StopsReading {
                // The stream stays open, and nobody reads it.
                std::future::pending::<()>().await;
            }
        }
        match link.receive.message().await? {
            Some(message) => inputs.push(Input::Received(message)),
            None => return Ok(()),
        }
    }
}

/// What an agent of this manner says about a configuration.
fn verdict(
    held: &mut Held,
    manner: Manner,
    version: Version,
    root: Digest,
    transfer: Option<Transfer>,
) -> Option<Input> {
    let applied = |root| Input::Applied { version, root, timings: Timings::default(), not_live: Vec::new() };
    match manner {
        Manner::Refuses => Some(Input::Refused {
            version,
            root,
            code: "played".to_owned(),
            message: "it refuses everything".to_owned(),
            leaves: Vec::new(),
            transient: false,
        }),
        Manner::NeverAnswers => None,
        // It has nothing of it.
        Manner::Lies => Some(applied(root)),
        _ => {
            transfer.into_iter().for_each(|transfer| held.apply(transfer));
            Some(applied(held.tree.root()))
        }
    }
}

async fn say(link: &Link, manner: Manner, message: AgentMessage) -> Result<()> {
    let hello = matches!(message.message, Some(Message::Hello(_)));
    match manner {
        Manner::NeverAnswers if !hello => {}
        Manner::Floods if !hello => loop {
            link.send.send(message.clone()).await?;
        },
        Manner::Lies => {
            let mut message = message;
            if let Some(Message::MembersAck(ack)) = &mut message.message {
                ack.seq = ack.seq.saturating_add(1);
            }
            link.send.send(message).await?;
        }
        _ => link.send.send(message).await?,
    }
    Ok(())
}

fn world(address: u32) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {{name: nginx}}\nspec: {{controller: \
         scalws.io/ingress-controller}}\n---\napiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: shop}}\nspec: \
         {{ports: [{{port: 80, targetPort: 8080}}]}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: \
         {{name: web-1, namespace: shop, labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\nports: [{{port: \
         8080}}]\nendpoints: [{{addresses: [192.0.2.{}], conditions: {{ready: true}}}}]\n",
        address % 250 + 1
    )
}

/// How long changes of members take from the rename of the file to the good agent, one after another.
async fn changes(plane: &Plane, good: &mut Played, next: &mut u32, count: u32) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    for _ in 0..count {
        *next += 1;
        let wanted: Arc<str> = format!("192.0.2.{}:8080", *next % 250 + 1).into();
        let began = Instant::now();
        plane.write("world.yaml", &world(*next))?;
        let there = good.members.wait_for(|members| members.contains(&wanted));
        tokio::time::timeout(SOON, there).await.with_context(|| format!("{wanted} does not come"))??;
        took.push(began.elapsed());
    }
    Ok(took)
}

fn median(took: &mut [Duration]) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_agents_cost_the_others_nothing_and_bounded_memory() -> Result<()> {
    let plane = Plane::start()?;
    plane.write("world.yaml", &world(0))?;
    for number in 0..100 {
        let host = format!("host-{number}.example.com");
        plane.write(&format!("i-{number}.yaml"), &ingress("shop", &format!("i-{number}"), &host, "web", 80))?;
    }
    let mut good = play(&plane, "good", Manner::Good).await?;
    let mut next = 0;
    changes(&plane, &mut good, &mut next, 10).await?;
    let manners = [Manner::Refuses, Manner::NeverAnswers, Manner::StopsReading, Manner::Floods, Manner::Lies];
    for manner in manners {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        let (mut cost, mut again) = (0, 0.0);
        for round in 0..scaled(2, 10) {
            // As many good ones in their place, so that only their manner differs.
            let mut more = Vec::new();
            for number in 0..EACH {
                more.push(play(&plane, &format!("good-{number}"), Manner::Good).await?);
            }
            changes(&plane, &mut good, &mut next, 5).await?;
            without.extend(changes(&plane, &mut good, &mut next, CHANGES * 2).await?);
            drop(more);
            let memory = resident(plane.pid())?;
            let mut bad = Vec::new();
            for number in 0..EACH {
                bad.push(play(&plane, &format!("{manner:?}-{round}-{number}").to_lowercase(), manner).await?);
            }
            // Each is welcomed, and those that take a configuration got it once.
            changes(&plane, &mut good, &mut next, 5).await?;
            with.extend(changes(&plane, &mut good, &mut next, CHANGES).await?);
            // Nothing of the configuration changes from here on: what is sent is sent again.
            let sent = plane.sent(CONFIGURATION).await?;
            with.extend(changes(&plane, &mut good, &mut next, CHANGES).await?);
            // sleep: time in which nothing may be sent; in the full form longer than any limit of the protocol.
            tokio::time::sleep(Duration::from_millis(scaled(300, 40_000).into())).await;
            again += plane.sent(CONFIGURATION).await? - sent;
            cost = resident(plane.pid())?.saturating_sub(memory).max(cost);
            drop(bad);
        }
        let (without, with) = (median(&mut without), median(&mut with));
        let each = cost / EACH as u64;
        eprintln!(
            "{manner:?}: others {without:?} without and {with:?} with {EACH} of them; {} KiB each; {again} bytes of \
             configuration again",
            each / 1024
        );
        // A time is judged on a machine that does nothing else: in the full form.
        let late = with > without + without / 20 + Duration::from_millis(3);
        ensure!(scaled(0, 1) == 0 || !late, "{manner:?}: {with:?}, without {without:?}");
        ensure!(each < MEMORY, "{manner:?}: {each} bytes of memory each");
        ensure!(again == 0.0, "{manner:?}: {again} bytes of configuration were sent again");
    }
    Ok(())
}
