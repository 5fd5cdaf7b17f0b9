//! What a controller says to strangers and to crowds, message by message, without sockets.

use std::collections::BTreeSet;

use bytes::Bytes;
use journal::{Digest, Key, MemberTree};
use proto::v1::agent_message::Message as ToController;
use proto::v1::controller_message::Message as ToAgent;
use proto::v1::{AgentMessage, Hello, Version};
use push::fleet::{Fleet, FleetChange, Item};
use push::limits;
use push::server_session::{Agent, Input, Role, ServerSession};

/// Agents that call at once after a failover.
const CROWD: u64 = 400;
/// The most that may be brought up from nothing, or from an unknown state, at one time.
const PLACES: usize = 64;

fn fleet() -> Fleet {
    let mut fleet = Fleet::new(3);
    let body = Bytes::from_static(b"{\"n\":1}");
    let item = Item { key: Key::new("fragment", "a"), body, secrets: Vec::new() };
    fleet.publish(FleetChange { puts: vec![item], ..FleetChange::default() });
    fleet
}

fn hello() -> Hello {
    let member_root = Bytes::copy_from_slice(&MemberTree::default().root().0);
    Hello { protocol_min: 1, protocol_max: 1, schema_version: 1, member_root, ..Hello::default() }
}

/// Says Hello; gives what comes at once.
fn answers(session: &mut ServerSession, hello: Hello, fleet: &mut Fleet, now: u64) -> Vec<ToAgent> {
    let message = AgentMessage { message: Some(ToController::Hello(hello)) };
    session.step(now, Input::Received(message), fleet);
    let mut said = Vec::new();
    while let Some(message) = session.poll(now, fleet) {
        said.extend(message.message);
    }
    said
}

fn session(number: u64, now: u64) -> ServerSession {
    let name = format!("pod-{number}");
    ServerSession::new(Agent { uid: name.as_str().into(), name }, Role::Leading, now)
}

/// A crowd of agents whose state is not known is let in a few at a time, sent away with waits that differ, and served
/// in the end.
///
/// # Errors
/// What does not hold.
pub fn a_crowd_is_let_in_a_few_at_a_time() -> Result<(), String> {
    let mut fleet = fleet();
    let mut waiting: Vec<u64> = (0..CROWD).collect();
    let mut now = 1_000;
    for round in 0.. {
        if waiting.is_empty() {
            return Ok(());
        }
        if round > 20 {
            return Err(format!("{} agents are still not served after {round} rounds", waiting.len()));
        }
        let (mut served, mut away, mut waits) = (Vec::new(), Vec::new(), BTreeSet::new());
        for number in waiting {
            let mut session = session(number, now);
            let mut hello = hello();
            if number % 4 != 0 {
                // It runs what nobody here remembers.
                let root = Digest::of(&number.to_le_bytes());
                hello.applied = Some(Version { epoch: 2, generation: 7 });
                hello.applied_root = Bytes::copy_from_slice(&root.0);
            }
            match answers(&mut session, hello, &mut fleet, now).first() {
                Some(ToAgent::Welcome(_)) => served.push(session),
                Some(ToAgent::RetryAfter(wait)) => {
                    away.push(number);
                    waits.insert(wait.ms);
                }
                other => return Err(format!("pod-{number} was answered {other:?}")),
            }
        }
        if served.len() > PLACES {
            return Err(format!("{} of {CROWD} agents are brought up at once", served.len()));
        }
        if away.len() > 100 && waits.len() < away.len() / 2 {
            return Err(format!("{} agents are told only {} different waits", away.len(), waits.len()));
        }
        // Those that were served are done, and make room.
        drop(served);
        waiting = away;
        now += 3_000;
    }
    Ok(())
}

/// An agent whose protocols do not overlap with ours is told so, and nothing else, at once.
///
/// # Errors
/// What another one was told.
pub fn another_protocol_is_refused_aloud() -> Result<(), String> {
    let (low, high) = limits::PROTOCOL;
    for min in 0..high + 4 {
        for max in min..high + 6 {
            let mut fleet = fleet();
            let mut session = session(1, 1_000);
            let hello = Hello { protocol_min: min, protocol_max: max, ..hello() };
            let said = answers(&mut session, hello, &mut fleet, 1_000);
            let overlaps = min <= high && max >= low;
            match said.first() {
                Some(ToAgent::Welcome(welcome)) if overlaps && (min..=max).contains(&welcome.protocol) => {}
                Some(ToAgent::Unsupported(_)) if !overlaps && said.len() == 1 && session.closed().is_some() => {}
                other => return Err(format!("an agent that speaks protocols {min} to {max} is told {other:?}")),
            }
        }
    }
    Ok(())
}
