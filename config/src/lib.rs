//! The typed ScalWS configuration: what a proxy serves, as small resources that load one by one.
//!
//! A resource is a [`Kind`], a [`Name`] and the bytes of one [`Envelope`]. The envelope always loads; what it carries
//! (the *body*) may be refused by a proxy, and then only that resource is not live. `translate` writes these types,
//! `scalwsd` reads them with the same code, and nothing in between looks inside.
//!
//! No I/O, no clock, no randomness.

mod check_body;
mod check_claims;
mod domain;
mod envelope;
mod kinds;
pub mod limits;
mod load;
mod matching;
mod name;
mod path;
mod reference;
mod resource;
mod schema;
mod standalone;
mod standalone_resources;
mod text;
mod typed_name;

pub use check_claims::{check_claims, check_match};

pub use domain::{Domain, DomainError};
pub use envelope::{Claims, Envelope, EnvelopeError, ObjectRef, Withheld};
pub use kinds::{
    Action, BackendTls, Body, CertificateBody, ClientAuth, ForwardAction, FragmentBody, HeaderChanges, HostBody,
    HostTls, ListenerBody, ListenerProtocol, MemberSource, PathRewrite, PolicyBody, PoolBody, Redirect, RedirectPath,
    RouteAction, Share, Timeouts, ToHttps, UnknownName, UpstreamProtocol,
};
pub use limits::SCHEMA_VERSION;
pub use load::{CODE_INVALID, CODE_UNSUPPORTED, Loaded, State, load};
pub use matching::{HeaderMatch, Match, Method, OrderKey, OrderParts, PathMatch, QueryMatch, ValueMatch};
pub use name::{
    CertificateName, FragmentName, HostName, Kind, ListenerName, MemberSetName, Name, NameError, PolicyName, PoolName,
    Transport,
};
pub use path::{PathError, Unspellable, check_spelling, compared, normalise, spellable_part};
pub use reference::{reference_markdown, schema_json};
pub use resource::{Resource, ResourceId, SecretDigest};
pub use standalone::{
    FileCertificate, FileDns, FileForward, FileHost, FileListener, FilePath, FilePool, FileRoute, FileShare,
    StandaloneFile,
};
pub use standalone_resources::{Standalone, StandaloneFiles};
pub use typed_name::TypedName;
