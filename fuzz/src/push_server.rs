//! A controller's session against a hostile agent: any messages in any order, and nothing of the configuration before Hello.

use bytes::Bytes;
use journal::Key;
use prost::Message;
use proto::v1::controller_message::Message as ToAgent;
use proto::v1::{AgentMessage, Hello, agent_message};
use push::fleet::{Fleet, FleetChange, Item};
use push::server_session::{Agent, Event, Input, Role, ServerSession};

/// More messages in a row than any configuration here needs: the session would never come to rest.
const POLLS_MAX: usize = 2_000;

fn change(number: u8) -> FleetChange {
    let key = Key::new("pool", &format!("demo/shop/{}/", u16::from(number % 8) + 1));
    let item = Item { key, body: Bytes::from(format!("{{\"v\":{number}}}")), secrets: Vec::new() };
    let members = vec!["10.0.0.1:80".into(), format!("10.0.0.2:{}", u16::from(number) + 1).into()];
    let members = vec![("demo/shop:80/tcp".into(), Some(members.into()))];
    FleetChange { puts: vec![item], members, ..FleetChange::default() }
}

fn hello() -> AgentMessage {
    let hello = Hello {
        protocol_min: 1,
        protocol_max: 1,
        schema_version: 1,
        boot_id: "fuzz".to_owned(),
        member_root: Bytes::copy_from_slice(&[0; 32]),
        ..Hello::default()
    };
    AgentMessage { message: Some(agent_message::Message::Hello(hello)) }
}

/// What the input makes happen next; the rest of the input.
fn step(data: &[u8]) -> Option<(Step, &[u8])> {
    let (op, rest) = data.split_first()?;
    match op % 8 {
        0 => Some((Step::Received(hello()), rest)),
        1 => {
            let (tenths, rest) = rest.split_first()?;
            Some((Step::Wait(u64::from(*tenths) * 100), rest))
        }
        2 => {
            let (number, rest) = rest.split_first()?;
            Some((Step::Publish(*number), rest))
        }
        3 => Some((Step::Raise, rest)),
        _ => {
            let (length, rest) = rest.split_first()?;
            let (message, rest) = rest.split_at_checked(usize::from(*length))?;
            Some((Step::Received(AgentMessage::decode(message).ok()?), rest))
        }
    }
}

enum Step {
    Received(AgentMessage),
    Wait(u64),
    Publish(u8),
    Raise,
}

pub(crate) fn run(mut data: &[u8]) {
    let mut fleet = Fleet::new(3);
    fleet.publish(change(0));
    let agent = Agent { uid: "uid".into(), name: "replica-0".to_owned() };
    let mut session = ServerSession::new(agent, Role::Leading, 0);
    let (mut now, mut greeted) = (0, false);
    while let Some((next, rest)) = step(data) {
        data = rest;
        let input = match next {
            Step::Received(message) => {
                greeted |= matches!(message.message, Some(agent_message::Message::Hello(_)));
                Input::Received(message)
            }
            Step::Wait(ms) => {
                now += ms;
                Input::Tick
            }
            Step::Publish(number) => {
                fleet.publish(change(number));
                Input::FleetChanged
            }
            Step::Raise => {
                fleet.raise_epoch(fleet.epoch() + 1);
                Input::FleetChanged
            }
        };
        let mut events = session.step(now, input, &mut fleet);
        let mut polls = 0;
        while let Some(message) = session.poll(now, &mut fleet) {
            polls += 1;
            assert!(polls < POLLS_MAX, "the session comes to rest");
            let harmless = matches!(
                message.message,
                Some(ToAgent::NotLeader(_) | ToAgent::Superseded(_) | ToAgent::Unsupported(_) | ToAgent::RetryAfter(_))
            );
            assert!(greeted || harmless, "before Hello nothing is sent: {message:?}");
        }
        events.extend(session.take_events());
        for event in events {
            if let Event::Applied { root, .. } = event {
                assert_eq!(root.0.len(), 32);
            }
        }
        if session.closed().is_some() {
            return;
        }
        assert!(session.deadline().is_some(), "an open session always has a deadline");
    }
}
