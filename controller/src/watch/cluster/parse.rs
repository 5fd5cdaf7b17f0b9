//! From the bytes of an API server to items and events, object by object, without what is never read.

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use translate::{NamespacedName, Object};

use super::failure::{Class, Failure};
use super::held::{Item, Trace};
use super::talk::Event;
use super::version::{Uid, Version};

/// Written by `kubectl apply`: the whole object once more, of a Secret too.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// On the bookmark after everything that was there at the beginning of a watch.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// What every object carries.
#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default, rename = "resourceVersion")]
    version: Cow<'a, str>,
    #[serde(borrow, default, rename = "continue")]
    continues: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    annotations: Option<Marks<'a>>,
}

/// The one annotation that matters here.
#[derive(Deserialize)]
struct Marks<'a> {
    #[serde(borrow, default, rename = "k8s.io/initial-events-end")]
    initial_end: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    event: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// What an API server says of a failure.
#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default, rename = "retryAfterSeconds")]
    retry_after_seconds: Option<u64>,
}

/// A page of a list.
#[derive(Debug)]
pub(super) struct Page<T> {
    pub(super) objects: Vec<T>,
    pub(super) version: Version,
    pub(super) continues: Option<String>,
}

/// The kind of objects that are read, as it is asked for.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) kind: &'static str,
    pub(super) api_version: String,
}

fn broken(what: &str, error: &serde_json::Error) -> Failure {
    // The place of the fault and not the text around it, which may be a Secret's.
    let place = format!("line {} column {}", error.line(), error.column());
    Failure::new(Class::Broken, format!("{what} cannot be read: {:?} at {place}", error.classify()))
}

fn page<T>(body: &[u8], one: impl Fn(&RawValue) -> Result<T, Failure>) -> Result<Page<T>, Failure> {
    let list: List<'_> = serde_json::from_slice(body).map_err(|error| broken("the list", &error))?;
    let objects = list.items.unwrap_or_default().into_iter().map(one).collect::<Result<_, _>>()?;
    let continues = list.metadata.continues.filter(|token| !token.is_empty()).map(Cow::into_owned);
    Ok(Page { objects, version: Version::from(&*list.metadata.version), continues })
}

/// A page of objects.
pub(super) fn items(form: &Form, body: &[u8]) -> Result<Page<Item>, Failure> {
    page(body, |raw| item(form, raw.get()))
}

/// A page of uids and versions.
pub(super) fn traces(body: &[u8]) -> Result<Page<Trace>, Failure> {
    page(body, |raw| trace(raw.get()))
}

/// A line of a watch.
pub(super) fn event(form: &Form, line: &[u8]) -> Result<Event, Failure> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| broken("an event", &error))?;
    let object = line.object.get();
    match &*line.event {
        "ADDED" | "MODIFIED" => item(form, object).map(Event::Put),
        "DELETED" => trace(object).map(Event::Gone),
        "BOOKMARK" => {
            let head: Head<'_> = serde_json::from_str(object).map_err(|error| broken("a bookmark", &error))?;
            let initial_end = head.metadata.annotations.and_then(|marks| marks.initial_end).as_deref() == Some("true");
            Ok(Event::Bookmark { version: Version::from(&*head.metadata.version), initial_end })
        }
        "ERROR" => Err(failure(0, None, object.as_bytes())),
        _ => Err(Failure::new(Class::Broken, format!("an event of an unknown type; {INITIAL_END} was waited for"))),
    }
}

/// A failure from a status code, a header and a body.
pub(super) fn failure(code: u16, retry_after_s: Option<u64>, body: &[u8]) -> Failure {
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    let code = if code == 0 { status.code } else { code };
    let details = status.details.and_then(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0);
    let said = status.message.or(status.reason).unwrap_or_else(|| "no reason was given".to_owned());
    // It names what was asked for, never contents; long ones are of proxies.
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect();
    Failure::of_status(code, retry_after_s.or(details), &said)
}

fn trace(json: &str) -> Result<Trace, Failure> {
    let head: Head<'_> = serde_json::from_str(json).map_err(|error| broken("an object", &error))?;
    let Metadata { name, namespace, uid, version, .. } = head.metadata;
    if name.is_empty() {
        return Err(Failure::new(Class::Broken, "an object without a name"));
    }
    Ok(Trace {
        key: NamespacedName::new(namespace.unwrap_or_default(), name),
        uid: Uid::from(&*uid),
        version: Version::from(&*version),
    })
}

fn item(form: &Form, json: &str) -> Result<Item, Failure> {
    let Trace { key, uid, version } = trace(json)?;
    let object = object(form, json)?;
    Ok(Item { key, uid, version, object })
}

/// The object; or why what the server holds cannot be read.
fn object(form: &Form, json: &str) -> Result<Result<Arc<Object>, String>, Failure> {
    let mut json = serde_json::Deserializer::from_str(json);
    let Value::Object(mut fields) =
        Trimmed::Object.deserialize(&mut json).map_err(|error| broken("an object", &error))?
    else {
        return Err(Failure::new(Class::Broken, "an object that is none"));
    };
    // Lists of built-in kinds do not say it of each object.
    fields.insert("kind".to_owned(), form.kind.into());
    fields.insert("apiVersion".to_owned(), form.api_version.as_str().into());
    // One object that breaks the reader must not stop all others.
    Ok(match catch_unwind(AssertUnwindSafe(|| Object::from_value(Value::Object(fields)))) {
        Ok(Ok(object)) => Ok(Arc::new(object)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("a fault of the controller: it cannot read this object; please report it".to_owned()),
    })
}

/// Reads an object without the parts that are large and never read.
#[derive(Clone, Copy)]
enum Trimmed {
    Object,
    Metadata,
    Annotations,
}

impl<'de> DeserializeSeed<'de> for Trimmed {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Trimmed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = match (self, name.as_str()) {
                (Trimmed::Metadata, "managedFields") | (Trimmed::Annotations, LAST_APPLIED) => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                (Trimmed::Object, "metadata") => map.next_value_seed(Trimmed::Metadata)?,
                (Trimmed::Metadata, "annotations") => map.next_value_seed(Trimmed::Annotations)?,
                _ => map.next_value()?,
            };
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(kind: &'static str) -> Form {
        Form { kind, api_version: "v1".to_owned() }
    }

    #[test]
    fn what_is_never_read_is_dropped_and_the_rest_stays() {
        let body =
            br#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"12","continue":"t"},"items":[
            {"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","managedFields":[{"manager":"m"}],
             "annotations":{"kubectl.kubernetes.io/last-applied-configuration":"secret","x":"y"}},"data":{"ca.crt":"v","k":"v"}}]}"#;
        let page = items(&form("ConfigMap"), body).unwrap();
        assert_eq!((page.version, page.continues.as_deref()), (Version::Number(12), Some("t")));
        let object = page.objects[0].object.as_ref().unwrap();
        let annotations: Vec<_> = object.metadata().annotations.iter().collect();
        assert_eq!(annotations, [("x", "y")]);
        assert_eq!(page.objects[0].version, Version::Number(7));
        let Object::ConfigMap(map) = &**object else { panic!("{object:?}") };
        assert_eq!(map.data.iter().collect::<Vec<_>>(), [(&"ca.crt".to_owned(), &"v".to_owned())]);
    }

    #[test]
    fn an_object_that_cannot_be_read_is_named_and_stops_no_other() {
        let body = br#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a","namespace":"n"},"data":7},
            {"metadata":{"name":"b","namespace":"n"}}]}"#;
        let page = items(&form("ConfigMap"), body).unwrap();
        let why = page.objects[0].object.as_ref().unwrap_err();
        assert!(why.contains("ConfigMap/n/a") && why.contains("data"), "{why}");
        assert!(page.objects[1].object.is_ok());
    }

    #[test]
    fn events_and_failures_are_told_apart() {
        let read = |line: &str| event(&form("ConfigMap"), line.as_bytes());
        let bookmark = |marks: &str| {
            read(&format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"9"{marks}}}}}}}"#)).unwrap()
        };
        assert!(matches!(bookmark(""), Event::Bookmark { initial_end: false, version: Version::Number(9) }));
        let marks = r#","annotations":{"k8s.io/initial-events-end":"true"}"#;
        assert!(matches!(bookmark(marks), Event::Bookmark { initial_end: true, .. }));
        let gone =
            read(r#"{"type":"DELETED","object":{"metadata":{"name":"a","uid":"u","resourceVersion":"3"},"data":7}}"#);
        assert!(matches!(gone.unwrap(), Event::Gone(end) if end.key.name.as_ref() == "a"));
        let error = read(r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#).unwrap_err();
        assert_eq!((error.class, error.message.as_str()), (Class::Expired, "HTTP 410: too old"));
        assert_eq!(read(r#"{"type":"ADDED","object":{"meta"#).unwrap_err().class, Class::Broken);
        let busy = failure(503, None, br#"{"message":"later","details":{"retryAfterSeconds":2}}"#);
        assert_eq!((busy.class, busy.retry_after_ms), (Class::Busy, 2000));
    }

    #[test]
    fn no_failure_repeats_a_value_of_a_secret() {
        let secret = r#"{"type":"ADDED","object":{"metadata":{"name":"a"},"data":{"k":"aGlkZGVu"}"#;
        for cut in 0..secret.len() {
            let error = event(&form("Secret"), &secret.as_bytes()[..cut]).unwrap_err();
            assert!(!error.message.contains("aGlk"), "{error}");
        }
    }
}
