//! The status document as it is written out: never the whole of it in memory, and no publication waits for it.

use std::cell::Cell;

use serde::ser::{SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};

use super::Report;
use crate::hub::Hub;

/// So many objects of the status are looked at while the report is locked.
const PART: usize = 64;

/// The [`super::StatusDocument`] of a hub, put together in parts while it is serialised. Each object is told as it was when
/// its part was looked at.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a>(pub &'a Hub);

/// A list that is made while it is written, part by part.
struct Parts<F>(Cell<Option<F>>);

impl<F, T> Serialize for Parts<F>
where
    F: FnMut() -> Vec<T>,
    T: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        if let Some(mut next) = self.0.take() {
            loop {
                let part = next();
                if part.is_empty() {
                    break;
                }
                part.iter().try_for_each(|one| list.serialize_element(one))?;
            }
        }
        list.end()
    }
}

impl Serialize for Stream<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let hub = self.0;
        let head = hub.read(Report::document);
        let (mut after, mut files) = (None, Some(()));
        let objects = || {
            let part =
                hub.read(|report| report.objects_after(after.as_ref(), PART, &|name, id| hub.generation_of(name, id)));
            if let Some((last, _)) = part.last() {
                after = Some(last.clone());
                return part.into_iter().map(|(_, object)| object).collect();
            }
            files.take().map_or_else(Vec::new, |()| hub.read(Report::file_objects))
        };
        let mut after_backend = None;
        let backends = || {
            let part = hub.read(|report| report.backends_after(after_backend.as_ref(), PART));
            after_backend = part.last().map(|(last, _)| last.clone());
            part.into_iter().map(|(_, backend)| backend).collect::<Vec<_>>()
        };
        let mut document = serializer.serialize_struct("StatusDocument", 5)?;
        document.serialize_field("fleets", &head.fleets)?;
        document.serialize_field("objects", &Parts(Cell::new(Some(objects))))?;
        document.serialize_field("backends", &Parts(Cell::new(Some(backends))))?;
        match &head.held {
            Some(held) => document.serialize_field("held", held)?,
            None => document.skip_field("held")?,
        }
        document.serialize_field("files", &head.files)?;
        document.end()
    }
}
