//! Fragments of routes in, request to route out; pure.
//!
//! A [`Router`] holds, for every listener and domain, one [`HostTable`] merged from the [`Fragment`]s that claim it.
//! [`Router::update`] gives a new router that shares every table it did not touch, so a request keeps the router it
//! started with. Within a table the match with the least [`config::OrderKey`] that fits the request wins; the table is
//! only an index, and always agrees with trying all matches in that order.
//!
//! Fragments compete by their claims whether their bodies can be used or not; what a claim answers is the caller's part.
//! The caller also brings the two texts of a request into their one form first: [`authority`] and [`normalise`].

mod authority;
mod fragment;
mod hosts;
mod pattern;
mod readings;
mod request;
mod routing;
mod shared_map;
mod table;

pub use authority::{AuthorityError, authority};
pub use config::{PathError, normalise};
pub use fragment::{Fragment, Unbuilt};
pub use pattern::Captures;
pub use routing::{Change, Router};
pub use table::{Ambiguous, Found, HostTable};
