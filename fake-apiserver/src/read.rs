//! `get` and `list`: one object, or a consistent list of many, in pages if that is wanted.

use std::borrow::Cow;
use std::ops::Bound;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use crate::accept::{Form, metadata_of};
use crate::query::Options;
use crate::request::Response;
use crate::server::Server;
use crate::status::Failure;
use crate::store::Objects;
use crate::target::Resource;

/// What a resource has that nothing was ever written of.
static NONE: Objects = Objects::new();

/// Where a list goes on.
struct Token {
    /// The version of the first page; none to go on with what there is now.
    version: Option<u64>,
    /// The first key that may come.
    start: String,
}

impl Token {
    fn write(&self) -> String {
        let version = self.version.map_or(json!(-1), |version| json!(version));
        let token = json!({"v": "meta.k8s.io/v1", "rv": version, "start": self.start});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn read(text: &str) -> Result<Token, Failure> {
        let wrong = || Failure::bad_request("invalid continue token: continue key is not valid");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
        let token: Value = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
        let version = match token["rv"].as_i64() {
            None | Some(0) => return Err(wrong()),
            Some(version) => u64::try_from(version).ok(),
        };
        let start = token["start"].as_str().filter(|start| !start.is_empty()).ok_or_else(wrong)?;
        Ok(Token { version, start: start.to_owned() })
    }
}

impl Server {
    pub(crate) fn get(&self, at: &Resource, options: &Options, form: Form) -> Result<Response, Failure> {
        self.not_older_than(options.version_number()?)?;
        let object = self.store.get(&at.kind.resource(), &at.key());
        let object = object.ok_or_else(|| Failure::not_found(&at.kind, &at.name))?;
        give(at, object, form, 200)
    }

    pub(crate) fn list(&self, at: &Resource, options: &Options, form: Form, empty: bool) -> Result<Response, Failure> {
        if form == Form::Metadata {
            return Err(Failure::new(406, "NotAcceptable", "you requested PartialObjectMetadata, but this is a list"));
        }
        let resource = at.kind.resource();
        let (objects, version, start) = self.snapshot(&resource, options)?;
        // The real one gives all of what it has in its cache at once.
        let limit = if options.version == "0" { 0 } else { options.limit };
        let objects = if empty { &NONE } else { objects.as_ref() };
        // Tokens name keys as they are below the namespace, if there is one.
        let prefix = if at.namespace.is_empty() { String::new() } else { format!("{}/", at.namespace) };
        let first = format!("{prefix}{start}");
        let range = objects.range::<String, _>((Bound::Included(first), Bound::Unbounded));
        let mut rest = range.take_while(|(key, _)| key.starts_with(&prefix));
        let mut items = Vec::new();
        let mut last = None;
        for (key, object) in rest.by_ref() {
            if options.selector.matches(object) {
                items.push(listed(at, object, form));
                if limit > 0 && items.len() as u64 >= limit {
                    last = Some(key.clone());
                    break;
                }
            }
        }
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".to_owned(), version.to_string().into());
        if at.kind.custom && form == Form::Whole {
            metadata.insert("continue".to_owned(), "".into());
        }
        let remaining = rest.count();
        if let Some(last) = last.filter(|_| remaining > 0) {
            let start = format!("{}\0", last.strip_prefix(&prefix).unwrap_or(&last));
            let token = Token { version: Some(version), start };
            metadata.insert("continue".to_owned(), token.write().into());
            if options.selector.is_all() {
                metadata.insert("remainingItemCount".to_owned(), remaining.into());
            }
        }
        let (kind, api_version) = match form {
            Form::Whole => (format!("{}List", at.kind.kind), at.api_version()),
            _ => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
        };
        let list = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items});
        Ok(Response::json(200, &list))
    }

    /// The objects that a list is about, their version, and the key it begins with.
    fn snapshot(&self, resource: &str, options: &Options) -> Result<(Cow<'_, Objects>, u64, String), Failure> {
        let current = self.store.version();
        let present = || Cow::Borrowed(self.store.objects(resource).unwrap_or(&NONE));
        if !options.continues.is_empty() {
            let token = Token::read(&options.continues)?;
            if !matches!(options.version.as_str(), "" | "0") {
                let why = "specifying resource version is not allowed when using continue";
                return Err(Failure::bad_request(why));
            }
            let Some(version) = token.version else { return Ok((present(), current, token.start)) };
            self.not_older_than(version)?;
            let Some(objects) = self.store.at(resource, version) else {
                let mut failure = Failure::expired(
                    "the continue token is too old for a consistent list; begin again without it, or go on with the one of \
                     this answer, where objects that changed meanwhile may be missing or newer",
                );
                failure.continues = Some(Token { version: None, ..token }.write());
                return Err(failure);
            };
            return Ok((Cow::Owned(objects), version, token.start));
        }
        let asked = options.version_number()?;
        self.not_older_than(asked)?;
        let exact = match options.version_match.as_str() {
            "Exact" => true,
            "" => options.limit > 0 && asked > 0,
            _ => false,
        };
        if !exact {
            return Ok((present(), current, String::new()));
        }
        let objects = self.store.at(resource, asked);
        let objects =
            objects.ok_or_else(|| Failure::expired("The resourceVersion for the provided list is too old."))?;
        Ok((Cow::Owned(objects), asked, String::new()))
    }

    /// The real one waits a moment for a version of the future; this one knows that it does not come.
    pub(crate) fn not_older_than(&self, version: u64) -> Result<(), Failure> {
        let current = self.store.version();
        if version > current { Err(Failure::too_large(version, current)) } else { Ok(()) }
    }
}

/// An object in the version of the path.
pub(crate) fn versioned(at: &Resource, object: &Value) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = at.api_version().into();
    object["kind"] = at.kind.kind.as_str().into();
    object
}

/// One object as the answer.
pub(crate) fn give(at: &Resource, object: &Value, form: Form, code: u16) -> Result<Response, Failure> {
    match form {
        Form::Whole => Ok(Response::json(code, &versioned(at, object))),
        Form::Metadata => Ok(Response::json(code, &metadata_of(object))),
        Form::MetadataList => {
            let why = "you requested PartialObjectMetadataList, but this is one object";
            Err(Failure::new(406, "NotAcceptable", why))
        }
    }
}

/// One object in a list: those of built-in kinds do not say what they are.
fn listed(at: &Resource, object: &Value, form: Form) -> Value {
    if form != Form::Whole {
        return metadata_of(object);
    }
    let mut object = versioned(at, object);
    if let (false, Value::Object(fields)) = (at.kind.custom, &mut object) {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    object
}
