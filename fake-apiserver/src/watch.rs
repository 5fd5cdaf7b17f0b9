//! Watches: a queue of events each, with bookmarks, an end, and faults of streams.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::accept::{Form, metadata_of};
use crate::object::meta;
use crate::query::Options;
use crate::read::versioned;
use crate::selector::Selector;
use crate::server::Server;
use crate::status::Failure;
use crate::store::Change;
use crate::target::Resource;

/// Names an open watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId(u64);

/// What a watch has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A line with an event, or the first half of one.
    Bytes(Bytes),
    /// Nothing before this time, in milliseconds since 1970, unless something changes.
    Wait(u64),
    /// The stream ends properly.
    End,
    /// The connection breaks.
    Cut,
}

/// What waits in a watch.
#[derive(Clone, Debug)]
enum Item {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    Event(&'static str, Arc<Value>),
    /// All that was there at the start has been sent.
    InitialEnd(u64),
    /// The last that is sent.
    Error(Box<Failure>),
}

#[derive(Debug)]
struct Watch {
    at: Resource,
    resource: String,
    selector: Selector,
    form: Form,
    queue: VecDeque<Item>,
    /// Changes up to this version are not for it.
    from: u64,
    /// When it gets the next bookmark, if it wants any.
    bookmarks: Option<u64>,
    ends_at: u64,
    /// It ends when the queue is empty.
    ended: bool,
    /// It breaks before anything else.
    cut: bool,
    /// It breaks in the middle of the next event.
    truncated: bool,
}

/// The open watches.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    open: BTreeMap<WatchId, Watch>,
    next: u64,
    /// For a resource, how many of the next changes no watch hears of.
    lost: BTreeMap<String, u64>,
}

impl Watch {
    fn takes(&self, object: Option<&Arc<Value>>) -> bool {
        let in_scope = |object: &Value| self.at.namespace.is_empty() || meta(object, "namespace") == self.at.namespace;
        object.is_some_and(|object| in_scope(object) && self.selector.matches(object))
    }

    /// Puts a change into the queue as what it is for this watch.
    fn hear(&mut self, change: &Change) {
        if change.version <= self.from {
            return;
        }
        let (before, after) = (self.takes(change.before.as_ref()), self.takes(change.after.as_ref()));
        let item = match (&change.before, &change.after) {
            (_, Some(object)) if after => Item::Event(if before { "MODIFIED" } else { "ADDED" }, Arc::clone(object)),
            (Some(object), _) if before => {
                // The last state that was of interest, under the version of the change.
                let mut gone = (**object).clone();
                gone["metadata"]["resourceVersion"] = change.version.to_string().into();
                Item::Event("DELETED", Arc::new(gone))
            }
            _ => return,
        };
        self.queue.push_back(item);
    }

    fn frame(&self, item: &Item) -> Bytes {
        let (event, object) = match item {
            Item::Event(event, object) if self.form == Form::Whole => (*event, versioned(&self.at, object)),
            Item::Event(event, object) => (*event, metadata_of(object)),
            Item::InitialEnd(version) => {
                let mut object = self.bookmark(*version);
                object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
                ("BOOKMARK", object)
            }
            Item::Error(failure) => ("ERROR", failure.object()),
        };
        line(event, &object)
    }

    fn bookmark(&self, version: u64) -> Value {
        let metadata = json!({"metadata": {"resourceVersion": version.to_string()}});
        if self.form == Form::Whole { versioned(&self.at, &metadata) } else { metadata_of(&metadata) }
    }
}

fn line(event: &str, object: &Value) -> Bytes {
    let mut line = json!({"type": event, "object": object}).to_string();
    line.push('\n');
    line.into()
}

impl Watches {
    /// Tells every watch of the resource about a change; one with a longer queue than `longest` is ended.
    pub(crate) fn tell(&mut self, change: &Change, longest: usize) {
        if let Some(lost) = self.lost.get_mut(&*change.resource).filter(|lost| **lost > 0) {
            *lost -= 1;
            return;
        }
        let watches = self.open.values_mut().filter(|watch| !watch.ended);
        for watch in watches.filter(|watch| *watch.resource == *change.resource) {
            watch.hear(change);
            if watch.queue.len() > longest {
                watch.queue.clear();
                watch.ended = true;
            }
        }
    }

    /// Ends the watches of a resource properly.
    pub(crate) fn end(&mut self, resource: &str) {
        self.of(Some(resource)).for_each(|watch| watch.ended = true);
    }

    fn of(&mut self, resource: Option<&str>) -> impl Iterator<Item = &mut Watch> {
        self.open.values_mut().filter(move |watch| resource.is_none_or(|one| watch.resource == one))
    }
}

impl Server {
    pub(crate) fn open_watch(
        &mut self,
        now: u64,
        at: Resource,
        options: Options,
        form: Form,
    ) -> Result<WatchId, Failure> {
        let (asked, current) = (options.version_number()?, self.store.version());
        let lasts =
            options.timeout_seconds.filter(|seconds| *seconds > 0).map_or(self.settings.watch_lasts, |s| s * 1000);
        let resource = at.kind.resource();
        let mut watch = Watch {
            at,
            resource: resource.clone(),
            selector: options.selector,
            form,
            queue: VecDeque::new(),
            from: asked,
            bookmarks: options.bookmarks.then(|| now.saturating_add(self.settings.bookmarks)),
            ends_at: now.saturating_add(lasts),
            ended: false,
            cut: false,
            truncated: false,
        };
        if options.initial_events == Some(true) {
            self.not_older_than(asked)?;
            watch.from = current;
            let objects = self.store.objects(&resource).into_iter().flatten();
            let there: Vec<_> = objects.filter(|(_, object)| watch.takes(Some(*object))).collect();
            watch.queue.extend(there.into_iter().map(|(_, object)| Item::Event("ADDED", Arc::clone(object))));
            if options.bookmarks {
                watch.queue.push_back(Item::InitialEnd(current));
            }
        } else if asked == 0 {
            watch.from = current;
        } else if let Some(changes) = self.store.since(asked) {
            changes.filter(|change| *change.resource == *resource).for_each(|change| watch.hear(change));
        } else {
            // As the real one does it: the watch begins, and says so in its only event.
            let message = format!("too old resource version: {asked} ({})", self.store.oldest());
            watch.queue.push_back(Item::Error(Box::new(Failure::expired(message))));
        }
        self.watches.next += 1;
        let id = WatchId(self.watches.next);
        self.watches.open.insert(id, watch);
        Ok(id)
    }

    /// What a watch has to say now. After an end or a cut it is gone.
    pub fn next(&mut self, now: u64, id: WatchId) -> Next {
        let paused = self.faults.is_paused();
        let (version, every) = (self.store.version(), self.settings.bookmarks);
        let Some(watch) = self.watches.open.get_mut(&id) else { return Next::End };
        if watch.cut {
            self.watches.open.remove(&id);
            return Next::Cut;
        }
        if paused {
            return Next::Wait(u64::MAX);
        }
        if let Some(item) = watch.queue.pop_front() {
            let frame = watch.frame(&item);
            watch.ended |= matches!(item, Item::Error(_));
            if watch.truncated {
                watch.cut = true;
                return Next::Bytes(frame.slice(..frame.len() / 2));
            }
            return Next::Bytes(frame);
        }
        let bookmark_at = watch.bookmarks.unwrap_or(u64::MAX);
        let over = now >= watch.ends_at;
        if !watch.ended && watch.bookmarks.is_some() && (over || now >= bookmark_at) {
            // One more before the end, so that the next watch begins where this one was.
            watch.ended |= over;
            watch.bookmarks = Some(now.saturating_add(every));
            return Next::Bytes(line("BOOKMARK", &watch.bookmark(version)));
        }
        if watch.ended || over {
            self.watches.open.remove(&id);
            return Next::End;
        }
        Next::Wait(watch.ends_at.min(bookmark_at))
    }

    /// The client of a watch is gone.
    pub fn close(&mut self, id: WatchId) {
        self.watches.open.remove(&id);
    }

    /// How many watches are open for a resource; None counts all.
    pub fn open_watches(&self, resource: Option<&str>) -> usize {
        let watches = self.watches.open.values();
        watches.filter(|watch| resource.is_none_or(|one| watch.resource == one)).count()
    }

    /// Breaks the connections of all watches of a resource, or of all.
    pub fn cut_watches(&mut self, resource: Option<&str>) {
        self.watches.of(resource).for_each(|watch| watch.cut = true);
    }

    /// Ends all watches of a resource, or all, as a server does that goes down in order.
    pub fn end_watches(&mut self, resource: Option<&str>) {
        self.watches.of(resource).for_each(|watch| watch.ended = true);
    }

    /// Breaks each watch of a resource in the middle of its next event.
    pub fn truncate_watches(&mut self, resource: &str) {
        self.watches.of(Some(resource)).for_each(|watch| watch.truncated = true);
    }

    /// The next changes of a resource happen, but no open watch hears of them.
    pub fn lose_events(&mut self, resource: &str, changes: u64) {
        *self.watches.lost.entry(resource.to_owned()).or_default() += changes;
    }

    /// From now on open watches hear of all changes again.
    pub fn hear_events(&mut self, resource: &str) {
        self.watches.lost.remove(resource);
    }

    /// Gives every watch that wants bookmarks one at its next turn.
    pub fn send_bookmarks(&mut self) {
        for watch in self.watches.of(None) {
            watch.bookmarks = watch.bookmarks.map(|_| 0);
        }
    }

    /// Forgets all changes up to now: watches from before are answered 410, and so are lists of before. Watches that are open
    /// go on when they have heard everything, and end with 410 when they have not.
    pub fn compact(&mut self) {
        self.store.forget();
        for watch in self.watches.of(None).filter(|watch| !watch.queue.is_empty()) {
            watch.queue.clear();
            let message = "The resourceVersion for the provided watch is too old.";
            watch.queue.push_back(Item::Error(Box::new(Failure::expired(message))));
        }
    }
}
