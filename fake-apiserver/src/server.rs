//! The server without I/O: requests and the time go in, answers and watches come out.

use crate::accept::Form;
use crate::counts::Counts;
use crate::discovery;
pub use crate::faults::Admission;
use crate::faults::{Faults, Met};
use crate::kinds::Kinds;
use crate::query::Options;
use crate::request::{Method, Request, Response, Verb};
use crate::status::Failure;
use crate::store::Store;
use crate::target::{Resource, Route, Target, route};
use crate::watch::{WatchId, Watches};

/// How it behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many changes are remembered: watches and continued lists from before are answered 410.
    pub history: usize,
    /// How many events may wait in one watch; one that is slower is ended.
    pub watch_queue: usize,
    /// How often a watch that wants bookmarks gets one, in milliseconds.
    pub bookmarks: u64,
    /// How long a watch lasts that names no time, in milliseconds.
    pub watch_lasts: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { history: 100_000, watch_queue: 100_000, bookmarks: 60_000, watch_lasts: 30 * 60_000 }
    }
}

/// A Kubernetes API server in memory.
#[derive(Debug)]
pub struct Server {
    /// What goes wrong on purpose.
    pub faults: Faults,
    /// What was asked for.
    pub counts: Counts,
    pub(crate) settings: Settings,
    pub(crate) kinds: Kinds,
    pub(crate) store: Store,
    pub(crate) watches: Watches,
    /// For names of objects: uids and generated names.
    pub(crate) names: u64,
}

/// A request on its way.
#[derive(Clone, Debug)]
pub struct Call {
    request: Request,
    route: Route,
    met: Met,
}

/// What a request leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An answer.
    Answer(Response),
    /// A watch: [`Server::next`] gives its frames. It ends with [`Server::close`].
    Watch(WatchId),
    /// The connection ends without an answer.
    Lost,
}

impl Call {
    /// The resource it is about; empty for paths without objects.
    pub fn resource(&self) -> String {
        match &self.route.target {
            Target::Resource(at) => at.kind.resource(),
            _ => String::new(),
        }
    }

    /// What it wants.
    pub fn verb(&self) -> Verb {
        self.route.verb
    }
}

impl Default for Server {
    fn default() -> Server {
        Server::new(Settings::default())
    }
}

impl Server {
    /// One with the namespaces that a new cluster has and nothing else.
    pub fn new(settings: Settings) -> Server {
        let store = Store::new(settings.history);
        let mut server = Server {
            faults: Faults::default(),
            counts: Counts::default(),
            settings,
            kinds: Kinds::built_in(),
            store,
            watches: Watches::default(),
            names: 0,
        };
        server.make_first_namespaces();
        server
    }

    /// Takes a request and counts it.
    pub fn arrive(&mut self, request: Request) -> Call {
        let route = route(&request, &self.kinds);
        let call = Call { request, route, met: Met::default() };
        self.counts.add(call.verb(), &call.resource());
        call
    }

    /// Whether a request may go on. Until it may, nothing of it has been done.
    pub fn admit(&mut self, call: &mut Call) -> Admission {
        self.faults.admit(call.route.verb, &call.resource(), &mut call.met)
    }

    /// Does what a request asks for. `now` is in milliseconds since 1970.
    pub fn answer(&mut self, now: u64, call: Call) -> Reply {
        let Call { request, route, met } = call;
        let reply = match met.refusal {
            Some(failure) => Err(failure),
            None => self.perform(now, &request, route, met.empty),
        };
        let reply = reply.unwrap_or_else(|failure| Reply::Answer(failure.response()));
        if met.lost { Reply::Lost } else { reply }
    }

    /// All three steps at once, without waiting for delays: for tests and simulations that set none.
    pub fn request(&mut self, now: u64, request: Request) -> Reply {
        let mut call = self.arrive(request);
        self.admit(&mut call);
        self.answer(now, call)
    }

    fn perform(&mut self, now: u64, request: &Request, route: Route, empty: bool) -> Result<Reply, Failure> {
        let at = match route.target {
            Target::Resource(at) => *at,
            Target::NoResource => return Err(Failure::no_resource()),
            Target::Path(path) if request.method == Method::Get => {
                return Ok(Reply::Answer(discovery::answer(&path, &self.kinds)));
            }
            Target::Path(_) => return Ok(Reply::Answer(Response::text(404, "404 page not found\n"))),
        };
        let form = Form::read(&request.accept)?;
        let response = match route.verb {
            Verb::Watch => {
                let options = Options::read(&route.query, &at.kind)?;
                return self.open_watch(now, at, options, form).map(Reply::Watch);
            }
            Verb::List => self.list(&at, &Options::read(&route.query, &at.kind)?, form, empty)?,
            Verb::Get => self.get(&at, &Options::read(&route.query, &at.kind)?, form)?,
            Verb::Create => self.create(now, &at, &request.body, form)?,
            Verb::Replace => self.replace(now, &at, &request.body, form)?,
            Verb::Patch => self.patch(&at, request, form)?,
            Verb::Delete => self.delete(now, &at, &request.body)?,
            Verb::Other => return Err(Failure::no_resource()),
        };
        Ok(Reply::Answer(response))
    }

    /// A name for an object that no other object has.
    pub(crate) fn fresh_uid(&mut self) -> String {
        self.names += 1;
        format!("fa4e0000-0000-4000-8000-{:012x}", self.names)
    }

    /// Writes or removes an object and tells the watches.
    pub(crate) fn settle(&mut self, at: &Resource, after: Option<serde_json::Value>) {
        let resource = at.kind.resource();
        let change = self.store.write(&resource, &at.key(), after);
        self.watches.tell(&change, self.settings.watch_queue);
        if resource == crate::custom::DEFINITIONS {
            self.follow_definition(&change);
        }
    }
}
