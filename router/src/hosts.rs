//! The domains of one listener, and which of them a name falls under.

use std::sync::Arc;

use config::Domain;

use crate::shared_map::SharedMap;
use crate::table::HostTable;

/// The tables of one listener. Wildcards are kept by what follows their first dot.
#[derive(Debug)]
pub(crate) struct Hosts<F, H> {
    exact: SharedMap<Arc<HostTable<F, H>>>,
    one_label: SharedMap<Arc<HostTable<F, H>>>,
    any_labels: SharedMap<Arc<HostTable<F, H>>>,
    catch_all: Option<Arc<HostTable<F, H>>>,
}

impl<F, H> Clone for Hosts<F, H> {
    fn clone(&self) -> Hosts<F, H> {
        Hosts {
            exact: self.exact.clone(),
            one_label: self.one_label.clone(),
            any_labels: self.any_labels.clone(),
            catch_all: self.catch_all.clone(),
        }
    }
}

impl<F, H> Default for Hosts<F, H> {
    fn default() -> Hosts<F, H> {
        Hosts {
            exact: SharedMap::default(),
            one_label: SharedMap::default(),
            any_labels: SharedMap::default(),
            catch_all: None,
        }
    }
}

impl<F, H> Hosts<F, H> {
    /// The table of exactly this domain.
    pub(crate) fn get(&self, domain: &Domain) -> Option<&Arc<HostTable<F, H>>> {
        match Form::of(domain) {
            Form::CatchAll => self.catch_all.as_ref(),
            Form::Exact(name) => self.exact.get(name),
            Form::OneLabel(rest) => self.one_label.get(rest),
            Form::AnyLabels(rest) => self.any_labels.get(rest),
        }
    }

    /// Puts or removes the table of a domain.
    pub(crate) fn set(&mut self, domain: &Domain, table: Option<Arc<HostTable<F, H>>>) {
        let (map, text) = match Form::of(domain) {
            Form::CatchAll => {
                self.catch_all = table;
                return;
            }
            Form::Exact(name) => (&mut self.exact, name),
            Form::OneLabel(rest) => (&mut self.one_label, rest),
            Form::AnyLabels(rest) => (&mut self.any_labels, rest),
        };
        match table {
            // The text of an exact name is that of its domain.
            Some(table) if text.len() == domain.as_str().len() => map.insert(domain.shared(), table),
            Some(table) => map.insert(text, table),
            None => map.remove(text),
        }
    }

    /// The table that a lower-case name falls under: itself, then the longest wildcard (at equal length `*.x` before
    /// `**.x`), then the catch-all.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<HostTable<F, H>>> {
        if let Some(table) = self.exact.get(name) {
            return Some(table);
        }
        let mut rest = name;
        let mut first = true;
        // An empty label is none that a wildcard could stand for.
        while let Some((_, shorter)) = rest.split_once('.').filter(|(label, _)| !label.is_empty()) {
            if first && let Some(table) = self.one_label.get(shorter) {
                return Some(table);
            }
            if let Some(table) = self.any_labels.get(shorter) {
                return Some(table);
            }
            (rest, first) = (shorter, false);
        }
        self.catch_all.as_ref()
    }

    pub(crate) fn len(&self) -> usize {
        self.exact.len() + self.one_label.len() + self.any_labels.len() + usize::from(self.catch_all.is_some())
    }

    pub(crate) fn for_each(&self, visit: &mut impl FnMut(&Arc<HostTable<F, H>>)) {
        for map in [&self.exact, &self.one_label, &self.any_labels] {
            map.for_each(&mut |_, table| visit(table));
        }
        self.catch_all.iter().for_each(visit);
    }
}

/// A domain by its form.
enum Form<'a> {
    Exact(&'a str),
    OneLabel(&'a str),
    AnyLabels(&'a str),
    CatchAll,
}

impl Form<'_> {
    fn of(domain: &Domain) -> Form<'_> {
        let text = domain.as_str();
        if domain.is_any() {
            Form::CatchAll
        } else if let Some(rest) = text.strip_prefix("**.") {
            Form::AnyLabels(rest)
        } else if let Some(rest) = text.strip_prefix("*.") {
            Form::OneLabel(rest)
        } else {
            Form::Exact(text)
        }
    }
}
