//! The watch of one kind against a server made for it: whatever is cut, lost, repeated or late, in the end it holds what is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use translate::{Change, NamespacedName, Object};

use super::super::failure::{Class, Failure};
use super::super::held::{Item, Trace};
use super::super::kinds::{KINDS, Kind};
use super::super::talk::{Event, Moment, Out, Pace, Request, RequestId, Standing};
use super::super::version::{Uid, Version};
use super::*;

fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.name == name).unwrap()
}

/// A state of an object on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    uid: u64,
    version: u64,
    readable: bool,
}

/// A server with one kind, and the history of it.
#[derive(Default)]
struct Api {
    objects: BTreeMap<u8, State>,
    /// Version, name, and what it became.
    history: Vec<(u64, u8, Option<State>)>,
    version: u64,
    oldest: u64,
    streaming: bool,
    /// Every so many objects there is another page.
    page: usize,
}

fn key(name: u8) -> NamespacedName {
    NamespacedName::new("n", format!("o{name}"))
}

fn object(name: u8, state: &State) -> Arc<Object> {
    let metadata = json!({ "name": format!("o{name}"), "namespace": "n", "uid": state.uid.to_string(), "generation": state.version });
    let value = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
    Arc::new(Object::from_value(value).unwrap())
}

fn item(name: u8, state: &State) -> Item {
    let object = if state.readable { Ok(object(name, state)) } else { Err("unreadable".to_owned()) };
    Item { key: key(name), uid: Uid::from(&*state.uid.to_string()), version: Version::Number(state.version), object }
}

fn trace(name: u8, uid: u64, version: u64) -> Trace {
    Trace { key: key(name), uid: Uid::from(&*uid.to_string()), version: Version::Number(version) }
}

impl Api {
    fn write(&mut self, name: u8, act: u8) {
        self.version += 1;
        let version = self.version;
        let old = self.objects.get(&name).cloned();
        let new = match (act % 5, old) {
            (0, Some(_)) => None,
            (1, Some(old)) => Some(State { version, readable: false, ..old }),
            (_, Some(old)) => Some(State { version, readable: true, ..old }),
            (1, None) => Some(State { uid: version, version, readable: false }),
            (_, None) => Some(State { uid: version, version, readable: true }),
        };
        match &new {
            Some(state) => drop(self.objects.insert(name, state.clone())),
            None => drop(self.objects.remove(&name)),
        }
        self.history.push((version, name, new));
    }
}

/// What a request of the watch has got so far.
#[derive(Default)]
struct Open {
    id: RequestId,
    /// Of a list in pages: what it shows, and its version.
    pages: Option<Listed>,
    /// Of a stream: up to here it has told.
    told: Option<u64>,
}

/// The rest of a list and its version.
type Listed = (Vec<(u8, State)>, u64);

struct World {
    api: Api,
    watch: KindWatch,
    now_ms: u64,
    open: Open,
    looked: Option<Listed>,
    /// What the changes that came out come to.
    held: BTreeMap<String, Arc<Object>>,
    first: bool,
    agreed: u64,
    unreadable: BTreeMap<String, String>,
}

impl World {
    fn new(streaming: bool) -> World {
        let pace = Pace { watch_s: 10, ..Pace::default() };
        World {
            api: Api { streaming, page: 2, ..Api::default() },
            watch: KindWatch::new(kind("ConfigMap"), pace, Moment::default()),
            now_ms: 0,
            open: Open::default(),
            looked: None,
            held: BTreeMap::new(),
            first: false,
            agreed: 0,
            unreadable: BTreeMap::new(),
        }
    }

    fn moment(&self) -> Moment {
        Moment { now_ms: self.now_ms, chance: 7 }
    }

    fn take(&mut self) {
        for out in self.watch.take() {
            let changes = match out {
                Out::Observed(changes) => {
                    assert!(self.first, "something was seen to happen before the first list");
                    changes
                }
                Out::Listed { changes, objects, .. } => {
                    self.first = true;
                    assert_eq!(objects, self.watch.objects());
                    changes
                }
                Out::Findings(findings) => {
                    for (key, why) in findings {
                        match why {
                            Some(why) => drop(self.unreadable.insert(key.to_string(), why)),
                            None => drop(self.unreadable.remove(&key.to_string())),
                        }
                    }
                    continue;
                }
                Out::Agreed(ticket) => {
                    assert!(ticket > self.agreed, "a ticket is answered once");
                    self.agreed = ticket;
                    continue;
                }
            };
            for change in changes {
                match change {
                    Change::Put(object) => drop(self.held.insert(object.key().to_string(), object)),
                    Change::Delete(gone) => {
                        let name = format!("{}/{}", gone.namespace, gone.name);
                        assert!(self.held.remove(&name).is_some(), "{name} was removed that was not there");
                    }
                    Change::Settings(_) => unreachable!(),
                }
            }
        }
    }

    /// One step of whatever request is open.
    fn answer(&mut self, repeat: bool) {
        let moment = self.moment();
        let Some((id, request)) = self.watch.request().map(|(id, request)| (id, request.clone())) else { return };
        if self.open.id != id {
            let pages = match &request {
                Request::Page { continues: None, .. } => Some((
                    self.api.objects.iter().map(|(name, state)| (*name, state.clone())).collect(),
                    self.api.version,
                )),
                // A page that goes on is of the list that began.
                Request::Page { .. } => self.open.pages.take(),
                Request::Follow { .. } => None,
            };
            self.open = Open { id, pages, told: None };
        }
        match request {
            Request::Page { .. } => {
                let Some((rest, version)) = &mut self.open.pages else {
                    return self.watch.failed(moment, Failure::new(Class::Expired, "an old token"));
                };
                let version = *version;
                let page: Vec<_> =
                    rest.drain(..self.api.page.min(rest.len())).map(|(name, s)| item(name, &s)).collect();
                let continues = (!rest.is_empty()).then(|| "t".to_owned());
                self.watch.page(moment, page, Version::Number(version), continues);
            }
            Request::Follow { from: None, .. } if self.open.told.is_none() => {
                if !self.api.streaming {
                    return self.watch.failed(moment, Failure::of_status(422, None, "no such thing"));
                }
                self.open.told = Some(self.api.version);
                let there = self.api.objects.iter().map(|(name, state)| Event::Put(item(*name, state)));
                let end = Event::Bookmark { version: Version::Number(self.api.version), initial_end: true };
                self.watch.events(moment, there.chain([end]).collect());
            }
            Request::Follow { from, .. } => {
                let from = from.map(|from| from.to_string().parse().unwrap());
                let told = self.open.told.or(from).unwrap();
                if told < self.api.oldest {
                    return self.watch.failed(moment, Failure::new(Class::Expired, "an old version"));
                }
                // Events that were told before may come again.
                let begin = if repeat { told.saturating_sub(3).max(self.api.oldest) } else { told };
                let mut events = Vec::new();
                for (version, name, state) in self.api.history.iter().filter(|(version, _, _)| *version > begin).take(3)
                {
                    let uid = |name: u8, before: u64| {
                        let states = self.api.history.iter().filter(|(v, n, _)| *n == name && *v < before);
                        states.filter_map(|(_, _, state)| state.as_ref()).next_back().map_or(0, |state| state.uid)
                    };
                    events.push(match state {
                        Some(state) => Event::Put(item(*name, state)),
                        None => Event::Gone(trace(*name, uid(*name, *version), *version)),
                    });
                    self.open.told = Some(told.max(*version));
                }
                if events.is_empty() {
                    let version = Version::Number(self.api.version);
                    events.push(Event::Bookmark { version, initial_end: false });
                }
                self.watch.events(moment, events);
            }
        }
    }

    /// One step of a comparison.
    fn look(&mut self) {
        let moment = self.moment();
        let Some(continues) = self.watch.look().map(|(_, continues)| continues.is_some()) else { return };
        let going_on = self.looked.take().filter(|_| continues);
        let (mut rest, version) = match going_on {
            Some(listed) => listed,
            None if continues => return self.watch.look_failed(moment, &Failure::new(Class::Expired, "an old token")),
            None => (self.api.objects.iter().map(|(n, s)| (*n, s.clone())).collect::<Vec<_>>(), self.api.version),
        };
        let page = rest.drain(..self.api.page.min(rest.len())).map(|(n, s)| trace(n, s.uid, s.version)).collect();
        let continues = (!rest.is_empty()).then(|| "t".to_owned());
        self.looked = continues.is_some().then_some((rest, version));
        self.watch.looked(moment, page, Version::Number(version), continues);
    }

    fn fail(&mut self, which: u8) {
        let class = match which % 6 {
            0 => Class::Broken,
            1 => Class::Forbidden,
            2 => Class::Unreachable,
            3 => Class::Refused(500),
            4 => Class::Silent,
            _ => Class::Expired,
        };
        let moment = self.moment();
        if self.watch.request().is_some() {
            self.open.id = 0;
            self.watch.failed(moment, Failure::new(class, "on purpose"));
        }
    }

    /// What there is now is what is held, once a ticket is answered and nothing changes any more.
    fn settle(&mut self) {
        let moment = self.moment();
        let ticket = self.agreed.max(1_000) + 1;
        self.watch.compare(moment, ticket);
        for _ in 0..400 {
            self.take();
            if self.agreed >= ticket {
                return self.check();
            }
            self.now_ms += 100;
            let moment = self.moment();
            if self.watch.wake_at().is_some_and(|at| at <= self.now_ms) {
                self.watch.tick(moment);
            }
            self.answer(false);
            self.look();
        }
        panic!("the ticket was never answered: {:?}", self.watch);
    }

    fn check(&self) {
        let expected: Vec<String> = self.api.objects.keys().map(|name| key(*name).to_string()).collect();
        for (name, state) in &self.api.objects {
            let key = key(*name).to_string();
            let held = self.held.get(&key);
            if state.readable {
                assert_eq!(held, Some(&object(*name, state)), "{key} is as the server has it");
            } else {
                assert!(self.unreadable.contains_key(&key), "{key} is named");
                let uid = held.map(|held| held.metadata().uid.to_string());
                assert!(uid.is_none_or(|uid| uid == state.uid.to_string()), "{key} is not another object of that name");
            }
            assert_eq!(self.unreadable.contains_key(&key), !state.readable, "{key}");
        }
        assert!(self.held.keys().all(|key| expected.contains(key)), "{:?} is more than {expected:?}", self.held.keys());
        assert_eq!(self.unreadable.keys().filter(|key| !expected.contains(key)).count(), 0);
    }
}

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u8, u8),
    Answer(bool),
    Look,
    Fail(u8),
    Ended,
    Forget,
    /// An event that nobody is told.
    Lose,
    Pass(u16),
    Ask,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..5_u8, any::<u8>()).prop_map(|(name, act)| Step::Write(name, act)),
        6 => any::<bool>().prop_map(Step::Answer),
        2 => Just(Step::Look),
        2 => any::<u8>().prop_map(Step::Fail),
        1 => Just(Step::Ended),
        1 => Just(Step::Forget),
        1 => Just(Step::Lose),
        3 => any::<u16>().prop_map(Step::Pass),
        1 => Just(Step::Ask),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn in_the_end_it_holds_what_the_server_has(streaming in any::<bool>(), steps in prop::collection::vec(step(), 0..120)) {
        let mut world = World::new(streaming);
        let mut ticket = 0;
        for step in steps {
            let moment = world.moment();
            match step {
                Step::Write(name, act) => world.api.write(name, act),
                Step::Answer(repeat) => world.answer(repeat),
                Step::Look => world.look(),
                Step::Fail(which) => world.fail(which),
                Step::Ended => {
                    if world.watch.request().is_some_and(|(_, request)| matches!(request, Request::Follow { .. })) {
                        world.open.id = 0;
                        world.watch.ended(moment);
                    }
                }
                Step::Forget => {
                    world.api.oldest = world.api.version;
                    world.open.pages = None;
                }
                Step::Lose => {
                    if let Some(told) = &mut world.open.told {
                        *told = (*told + 1).min(world.api.version);
                    }
                }
                Step::Pass(ms) => {
                    world.now_ms += u64::from(ms);
                    let moment = world.moment();
                    world.watch.tick(moment);
                }
                Step::Ask => {
                    ticket += 1;
                    world.watch.compare(moment, ticket);
                }
            }
            world.take();
        }
        world.settle();
        // And once more from there.
        world.api.write(1, 0);
        world.settle();
    }
}

fn put(version: u64) -> Event {
    Event::Put(item(1, &State { uid: 1, version, readable: true }))
}

/// A watch that has listed nothing, from version 10.
fn watching() -> KindWatch {
    let mut watch = KindWatch::new(kind("ConfigMap"), Pace::default(), Moment::default());
    let end = Event::Bookmark { version: Version::Number(10), initial_end: true };
    watch.events(Moment::default(), vec![end]);
    watch.take();
    watch
}

fn from(watch: &KindWatch) -> Option<u64> {
    match watch.request() {
        Some((_, Request::Follow { from: Some(Version::Number(from)), .. })) => Some(*from),
        _ => None,
    }
}

#[test]
fn what_came_before_counts_once() {
    let mut watch = watching();
    let gone = Event::Gone(trace(1, 1, 13));
    watch.events(Moment::default(), vec![put(9), put(11), put(12), put(11), gone, put(12)]);
    assert_eq!(watch.objects(), 0, "it is gone whatever is repeated");
    watch.ended(Moment { now_ms: 60_000, chance: 0 });
    assert_eq!(from(&watch), Some(13));
}

#[test]
fn waits_grow_to_their_limit_and_a_watch_that_heard_something_begins_anew_at_once() {
    for (class, last) in [(Class::Forbidden, [6_400, 10_000, 10_000]), (Class::Unreachable, [4_000, 4_000, 4_000])] {
        let mut watch = watching();
        let mut now_ms = 0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            watch.failed(Moment { now_ms, chance: u16::MAX }, Failure::new(class, "no"));
            let at = watch.wake_at().unwrap();
            waits.push(at - now_ms);
            now_ms = at;
            watch.tick(Moment { now_ms, chance: 0 });
        }
        assert_eq!((&waits[..5], &waits[5..]), (&[200, 400, 800, 1_600, 3_200][..], &last[..]), "{class:?}");
        watch.events(Moment { now_ms, chance: 0 }, vec![put(20)]);
        watch.ended(Moment { now_ms, chance: 0 });
        assert_eq!((watch.standing(), from(&watch)), (Standing::Watching, Some(20)));
    }
}

#[test]
fn a_server_that_is_away_for_an_hour_is_asked_within_bounds_and_found_within_seconds_of_its_return() {
    const HOUR_MS: u64 = 3_600_000;
    for chance in [0, 30_000, u16::MAX] {
        let mut watch = watching();
        watch.events(Moment::default(), vec![put(11)]);
        watch.take();
        let (mut now_ms, mut asked) = (0, 0);
        while now_ms < HOUR_MS {
            if watch.request().is_some() {
                asked += 1;
                watch.failed(Moment { now_ms, chance }, Failure::new(Class::Unreachable, "connection refused"));
            }
            if watch.look().is_some() {
                watch.look_failed(Moment { now_ms, chance }, &Failure::new(Class::Unreachable, "connection refused"));
            }
            now_ms = watch.wake_at().unwrap();
            watch.tick(Moment { now_ms, chance });
        }
        assert!(now_ms < HOUR_MS + 4_000, "found {} ms after its return", now_ms - HOUR_MS);
        assert!((900..=1_810).contains(&asked), "asked {asked} times in an hour");
        assert_eq!((from(&watch), watch.objects()), (Some(11), 1), "it goes on from where it was");
        assert!(watch.take().is_empty() && watch.has_listed(), "nothing is taken from the world meanwhile");
    }
}

#[test]
fn a_server_that_comes_back_without_its_past_is_listed_at_once_and_then_asked_as_any_other() {
    let mut watch = watching();
    let mut now_ms = 0;
    for _ in 0..20 {
        watch.failed(Moment { now_ms, chance: u16::MAX }, Failure::new(Class::Unreachable, "connection refused"));
        now_ms = watch.wake_at().unwrap();
        watch.tick(Moment { now_ms, chance: 0 });
    }
    let expired = || Failure::of_status(410, None, "too old resource version");
    watch.opened();
    watch.failed(Moment { now_ms, chance: 0 }, expired());
    assert!(matches!(watch.request(), Some((_, Request::Follow { from: None, .. }))), "{watch:?}");
    watch.failed(Moment { now_ms, chance: u16::MAX }, Failure::of_status(500, None, "not yet"));
    assert_eq!(watch.wake_at(), Some(now_ms + 800), "the hour without an answer is not held against it");
    // A server whose lists are too old for its own watches is not asked without a pause.
    now_ms += 800;
    watch.tick(Moment { now_ms, chance: 0 });
    watch.page(Moment { now_ms, chance: 0 }, Vec::new(), Version::Number(90), None);
    watch.failed(Moment { now_ms, chance: u16::MAX }, expired());
    assert_eq!(watch.standing(), Standing::Waiting);
    now_ms += 60_000;
    watch.tick(Moment { now_ms, chance: 0 });
    let end = Event::Bookmark { version: Version::Number(95), initial_end: true };
    watch.events(Moment { now_ms, chance: 0 }, vec![end, put(96)]);
    watch.failed(Moment { now_ms, chance: 0 }, expired());
    assert_eq!(watch.standing(), Standing::Listing, "it was heard of since");
}

#[test]
fn a_version_that_the_server_does_not_know_any_more_leads_to_a_list() {
    let mut watch = watching();
    for refusals in 1..=3 {
        watch.failed(Moment::default(), Failure::of_status(504, None, "too large resource version"));
        watch.tick(Moment { now_ms: 60_000 * refusals, chance: 0 });
    }
    assert!(matches!(watch.request(), Some((_, Request::Follow { from: None, .. }))), "{watch:?}");
}

#[test]
fn a_kind_that_is_needed_and_not_served_is_no_empty_kind() {
    let mut watch = KindWatch::new(kind("Secret"), Pace::default(), Moment::default());
    watch.failed(Moment::default(), Failure::of_status(404, None, "not here"));
    assert!(!watch.has_listed() && watch.take().is_empty());
    assert_eq!(watch.standing(), Standing::Waiting);
}

#[test]
fn every_version_of_a_kind_is_tried_before_it_counts_as_missing() {
    let mut watch = KindWatch::new(kind("TLSRoute"), Pace::default(), Moment::default());
    for version in ["v1", "v1alpha3", "v1alpha2"] {
        assert_eq!(watch.api_version(), format!("gateway.networking.k8s.io/{version}"));
        watch.failed(Moment::default(), Failure::of_status(404, None, "not here"));
    }
    assert_eq!(watch.standing(), Standing::Absent);
    assert!(watch.has_listed());
    let at = watch.wake_at().unwrap();
    watch.tick(Moment { now_ms: at, chance: 0 });
    assert_eq!(watch.api_version(), "gateway.networking.k8s.io/v1");
}
