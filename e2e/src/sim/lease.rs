//! The Lease at the API server: a write names uid and resourceVersion. Requests are slow or lost, before or after the
//! write takes effect, and answers come late. Others delete it, restore a copy of it, hold it or write on it.

use std::collections::BTreeMap;

use controller::election::{Failed, Input, Observed, Record, WriteFailed};

use super::dice::Dice;
use super::faults::Faults;

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Read it.
    Read,
    /// Write this over what has this uid and this version; none: make it. No version: over whatever is there.
    Write(Record, Option<(String, String)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    No,
    Before,
    After,
}

#[derive(Debug)]
struct Call {
    number: u64,
    request: Request,
    lost: Lost,
    arrives: u64,
    back: u64,
}

/// The Lease and the requests about it.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    held: Option<Observed>,
    version: u64,
    uids: u64,
    /// What it said before, for those who restore it.
    copies: Vec<Record>,
    calls: Vec<Call>,
    /// Answers on their way, by request.
    answers: BTreeMap<u64, (u64, Input)>,
    last_call: u64,
    /// Writes that somebody else had come before.
    pub(crate) conflicts: u64,
    /// Whether its counter of epochs was ever lost or set back: from then on only agents know which epochs there were.
    pub(crate) forgot: bool,
}

impl Lease {
    /// Made beforehand, without a holder, as an installation does.
    pub(crate) fn made() -> Lease {
        let mut lease = Lease::default();
        lease.store(None, Record::default());
        lease
    }

    fn store(&mut self, uid: Option<String>, record: Record) -> Observed {
        let uid = uid.unwrap_or_else(|| {
            self.uids += 1;
            format!("uid-{}", self.uids)
        });
        self.version += 1;
        self.copies.push(record.clone());
        let observed = Observed { uid, version: self.version.to_string(), record };
        self.held = Some(observed.clone());
        observed
    }

    fn write(&mut self, record: Record, over: Option<(String, String)>) -> Result<Observed, WriteFailed> {
        match (&self.held, over) {
            (None, None) => Ok(self.store(None, record)),
            (Some(held), Some((uid, version)))
                if held.uid == uid && (version.is_empty() || held.version == version) =>
            {
                Ok(self.store(Some(uid), record))
            }
            _ => {
                self.conflicts += 1;
                Err(WriteFailed::Conflict)
            }
        }
    }

    /// Sends a request and gives its number. `reachable`: it gets there at all.
    pub(crate) fn send(&mut self, now: u64, request: Request, reachable: bool, dice: &mut Dice, faults: Faults) -> u64 {
        self.last_call += 1;
        let way = |dice: &mut Dice| if dice.one_in(faults.slow_api) { dice.below(1_500) } else { 1 + dice.below(8) };
        let lost = match reachable {
            true if !dice.one_in(faults.lose_api) => Lost::No,
            true if dice.one_in(2) => Lost::After,
            _ => Lost::Before,
        };
        let arrives = now + way(dice);
        let back = arrives + way(dice);
        self.calls.push(Call { number: self.last_call, request, lost, arrives, back });
        self.last_call
    }

    /// Does what has arrived.
    pub(crate) fn turn(&mut self, now: u64) -> bool {
        let mut due: Vec<Call> = self.calls.extract_if(.., |call| call.arrives <= now).collect();
        due.sort_by_key(|call| (call.arrives, call.number));
        let busy = !due.is_empty();
        for Call { number, request, lost, back, .. } in due {
            if lost == Lost::Before {
                continue;
            }
            let answer = match request {
                Request::Read => Input::Read(Ok(self.held.clone())),
                Request::Write(record, over) => Input::Written(self.write(record, over)),
            };
            if lost == Lost::No {
                self.answers.insert(number, (back, answer));
            }
        }
        busy
    }

    /// The answer to a request, if it is there.
    pub(crate) fn answer(&mut self, now: u64, number: u64) -> Option<Input> {
        let (back, _) = self.answers.get(&number)?;
        if *back > now {
            return None;
        }
        self.answers.remove(&number).map(|(_, answer)| answer)
    }

    /// What whoever waits for a request in vain makes of it.
    pub(crate) fn no_answer(is_read: bool) -> Input {
        if is_read { Input::Read(Err(Failed)) } else { Input::Written(Err(WriteFailed::Unknown)) }
    }

    /// When something next arrives.
    pub(crate) fn next_at(&self) -> Option<u64> {
        let answers = self.answers.values().map(|(back, _)| *back);
        self.calls.iter().map(|call| call.arrives).chain(answers).min()
    }

    /// Somebody deletes it.
    pub(crate) fn delete(&mut self) {
        self.held = None;
        self.forgot = true;
    }

    /// Somebody restores what it said at an earlier time.
    pub(crate) fn restore(&mut self, dice: &mut Dice) {
        if self.copies.is_empty() {
            return;
        }
        let record = dice.pick(&self.copies).clone();
        let uid = self.held.as_ref().filter(|_| dice.one_in(2)).map(|held| held.uid.clone());
        self.store(uid, record);
        self.forgot = true;
    }

    /// Somebody else takes it, for a while.
    pub(crate) fn hold(&mut self, dice: &mut Dice) {
        let Some(Observed { uid, record, .. }) = self.held.clone() else { return };
        let lease_ms = 1_000 * (1 + dice.below(3));
        let transitions = record.transitions.saturating_add(1);
        let record = Record { holder: "stranger".to_owned(), address: String::new(), lease_ms, transitions, ..record };
        self.store(Some(uid), record);
    }

    /// Somebody writes on it what is no business of ours.
    pub(crate) fn annotate(&mut self) {
        if let Some(Observed { uid, record, .. }) = self.held.clone() {
            self.store(Some(uid), record);
        }
    }
}
