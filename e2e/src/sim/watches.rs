//! How one controller follows the API server: the shipped watch of each kind, at the end of a slow and broken line.

use controller::watch::cluster::{
    Class, Event, Failure, KINDS, KindWatch, Moment, Out, Pace, Request, RequestId, Version,
};

use super::api::{self, Api, List};
use super::dice::Dice;
use super::faults::Faults;

/// A list or a watch that is being answered.
#[derive(Debug)]
struct Stream {
    id: RequestId,
    /// When the answer begins.
    at: u64,
    /// How much of the log was told; none before the answer began.
    told: Option<usize>,
}

#[derive(Debug)]
struct Followed {
    kind: &'static str,
    watch: KindWatch,
    stream: Option<Stream>,
    look: Option<(RequestId, u64)>,
    /// Everything up to this ticket has come.
    agreed: u64,
    /// The next list shows this.
    next: List,
}

/// The watches of all kinds.
#[derive(Debug)]
pub(crate) struct Watches {
    followed: Vec<Followed>,
    last_ticket: u64,
    /// Lists take long.
    pub(crate) late: bool,
    /// Nothing comes.
    pub(crate) silent: bool,
}

fn moment(now_ms: u64, dice: &mut Dice) -> Moment {
    Moment { now_ms, chance: u16::try_from(dice.below(1 << 16)).unwrap_or_default() }
}

impl Watches {
    /// Of a controller that begins at this time of its own clock.
    pub(crate) fn new(own_ms: u64, late: bool, dice: &mut Dice) -> Watches {
        let followed = api::KINDS.map(|kind| {
            let known = KINDS.iter().find(|known| known.name == kind).expect("a kind that is followed");
            let watch = KindWatch::new(known, Pace::default(), moment(own_ms, dice));
            Followed { kind, watch, stream: None, look: None, agreed: 0, next: List::Whole }
        });
        Watches { followed: followed.into(), last_ticket: 0, late, silent: false }
    }

    /// The next list of a kind shows this.
    pub(crate) fn set_next(&mut self, kind: &str, list: List) {
        self.followed.iter_mut().filter(|followed| followed.kind == kind).for_each(|followed| followed.next = list);
    }

    /// Asks for proof that everything that there is has come: of one kind, or of all. Gives the ticket.
    pub(crate) fn ask(&mut self, own_ms: u64, part: Option<&str>, dice: &mut Dice) -> u64 {
        self.last_ticket += 1;
        for followed in self.followed.iter_mut().filter(|followed| part.is_none_or(|part| part == followed.kind)) {
            followed.watch.compare(moment(own_ms, dice), self.last_ticket);
        }
        self.last_ticket
    }

    /// Everything up to this ticket has come.
    pub(crate) fn seen(&self) -> u64 {
        self.followed.iter().map(|followed| followed.agreed).min().unwrap_or(u64::MAX)
    }

    /// Whether something has not come yet.
    pub(crate) fn is_behind(&self, api: &Api) -> bool {
        let behind = |followed: &Followed| {
            let told = followed.stream.as_ref().and_then(|stream| stream.told);
            told.is_none_or(|told| told < api.log(followed.kind).len())
        };
        self.followed.iter().any(behind)
    }

    /// What breaks: a watch, or the version it goes on from. A list that begins then may show too little.
    pub(crate) fn misfortune(&mut self, own_ms: u64, dice: &mut Dice, faults: Faults) {
        for followed in &mut self.followed {
            if dice.one_in(faults.list) {
                followed.next = match followed.kind {
                    // The only kind of which there are always enough for the guard.
                    "Service" if dice.one_in(2) => List::Part(dice.index(64)),
                    _ => List::Empty,
                };
                followed.watch.failed(moment(own_ms, dice), Failure::new(Class::Expired, "too old"));
            } else if dice.one_in(faults.watch) {
                let class = *dice.pick(&[Class::Expired, Class::Broken, Class::Unreachable]);
                followed.watch.failed(moment(own_ms, dice), Failure::new(class, "broken"));
            }
        }
    }

    /// Every list that is under way breaks off.
    pub(crate) fn break_off(&mut self, own_ms: u64, dice: &mut Dice) {
        for followed in &mut self.followed {
            followed.watch.failed(moment(own_ms, dice), Failure::new(Class::Broken, "broken"));
        }
    }

    /// One turn: what the API server tells, and what comes of it.
    pub(crate) fn turn(
        &mut self,
        now: u64,
        own_ms: u64,
        api: &Api,
        dice: &mut Dice,
    ) -> (bool, Vec<(&'static str, Out)>) {
        let (mut busy, mut outs) = (false, Vec::new());
        let wait = if self.late { 1_500 } else { 40 };
        for followed in &mut self.followed {
            if followed.watch.wake_at().is_some_and(|at| at <= own_ms) {
                followed.watch.tick(moment(own_ms, dice));
            }
            followed.send(now, wait, dice);
            if !self.silent {
                busy |= followed.look(now, own_ms, api, dice);
                busy |= followed.listen(now, own_ms, api, dice);
                // What it wants now is under way before it is looked at again.
                followed.send(now, wait, dice);
            }
            for out in followed.watch.take() {
                match out {
                    Out::Agreed(ticket) => followed.agreed = ticket,
                    out => outs.push((followed.kind, out)),
                }
            }
        }
        (busy, outs)
    }

    /// When it next does something, in its own time and in virtual time.
    pub(crate) fn next_at(&self) -> (Option<u64>, Option<u64>) {
        let own = self.followed.iter().filter_map(|followed| followed.watch.wake_at()).min();
        let open = |stream: &&Stream| stream.told.is_none();
        let lists = self.followed.iter().filter_map(|followed| followed.stream.as_ref().filter(open).map(|s| s.at));
        let looks = self.followed.iter().filter_map(|followed| followed.look.map(|(_, at)| at));
        (own, lists.chain(looks).min())
    }
}

impl Followed {
    /// Gives up what is wanted no more and sends what is.
    fn send(&mut self, now: u64, wait: u64, dice: &mut Dice) {
        let id = self.watch.request().map(|(id, _)| id);
        if self.stream.as_ref().map(|stream| stream.id) != id {
            self.stream = id.map(|id| Stream { id, at: now + dice.below(wait), told: None });
        }
        let look = self.watch.look().map(|(id, _)| id);
        if self.look.map(|(id, _)| id) != look {
            self.look = look.map(|id| (id, now + dice.below(20)));
        }
    }

    fn look(&mut self, now: u64, own_ms: u64, api: &Api, dice: &mut Dice) -> bool {
        let due = self.look.take_if(|(_, at)| *at <= now).is_some();
        if due {
            self.watch.looked(moment(own_ms, dice), api.traces(self.kind), Version::Number(api.revision), None);
        }
        due
    }

    fn listen(&mut self, now: u64, own_ms: u64, api: &Api, dice: &mut Dice) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let log = api.log(self.kind);
        let Some(told) = &mut stream.told else {
            let Some((_, request)) = self.watch.request().filter(|_| stream.at <= now) else { return false };
            let revision = Version::Number(api.revision);
            match request {
                Request::Follow { from: Some(version), .. } => {
                    let newer = |entry: &&(u64, Event)| Version::Number(entry.0).is_newer_than(version);
                    stream.told = Some(log.len() - log.iter().rev().take_while(newer).count());
                    self.watch.opened();
                }
                Request::Follow { from: None, .. } => {
                    stream.told = Some(log.len());
                    let list = std::mem::replace(&mut self.next, List::Whole);
                    let mut events: Vec<Event> = api.list(self.kind, list).into_iter().map(Event::Put).collect();
                    events.push(Event::Bookmark { version: revision, initial_end: true });
                    self.watch.opened();
                    self.watch.events(moment(own_ms, dice), events);
                }
                Request::Page { .. } => {
                    let list = std::mem::replace(&mut self.next, List::Whole);
                    self.watch.page(moment(own_ms, dice), api.list(self.kind, list), revision, None);
                }
            }
            return true;
        };
        // Each kind lags by itself.
        if *told == log.len() || dice.one_in(3) {
            return *told < log.len();
        }
        let until = *told + 1 + dice.index(log.len() - *told);
        let mut events: Vec<Event> = log[*told..until].iter().map(|(_, event)| event.clone()).collect();
        if until == log.len() && dice.one_in(8) {
            events.push(Event::Bookmark { version: Version::Number(api.revision), initial_end: false });
        }
        *told = until;
        self.watch.events(moment(own_ms, dice), events);
        true
    }
}
