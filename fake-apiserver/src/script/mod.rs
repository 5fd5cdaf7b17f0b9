//! One script of requests for this server and the real one: what is asked, what was answered, and what of it is compared.
//!
//! The steps are in `script.yaml`. [`run`] plays them against anything that answers requests and gives a transcript, in which
//! versions, uids, times and messages are replaced by what they have in common on both servers. `answers.json` is the transcript
//! of a real Kubernetes 1.37, which `e2e/tests/api_script.rs` plays the script against again.

pub mod client;
mod compare;
mod differences;

use std::collections::BTreeMap;
use std::future::Future;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::request::{Method, Request, Response};
use compare::Labels;

pub use differences::differences;

/// The steps.
const STEPS: &str = include_str!("script.yaml");
/// What the real one answered.
const ANSWERS: &str = include_str!("answers.json");
/// How often a step is repeated that waits for something of the real one, which takes a moment to follow a definition.
const TRIES: u32 = 200;

/// Something that answers requests.
pub trait Api {
    /// Sends a request and gives the answer. `Err` says in plain words why there is none.
    fn ask(&mut self, request: &Request) -> impl Future<Output = Result<Response, String>>;

    /// Opens a watch under a name. The answer, if it was refused.
    fn watch(&mut self, name: &str, request: &Request) -> impl Future<Output = Result<Option<Response>, String>>;

    /// The next event of a watch, which is waited for; None when it ends properly.
    fn event(&mut self, name: &str) -> impl Future<Output = Result<Option<Value>, String>>;

    /// Closes a watch.
    fn close(&mut self, name: &str);

    /// Makes the server forget all changes up to now.
    fn compact(&mut self) -> impl Future<Output = Result<(), String>>;

    /// Waits a moment for a server that needs one before the same is asked again.
    fn pause(&mut self) -> impl Future<Output = ()>;
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// What it shows.
    what: String,
    /// `GET /path`; together with `watch` it opens one.
    #[serde(default)]
    ask: String,
    #[serde(default)]
    body: Option<Value>,
    #[serde(default)]
    accept: Option<String>,
    /// Names for parts of the answer, which later steps write as `${name}`.
    #[serde(default)]
    keep: BTreeMap<String, String>,
    /// Only the status code and the kind are compared.
    #[serde(default)]
    brief: bool,
    /// Asked again until this is the status code.
    #[serde(default)]
    until: Option<u16>,
    /// The name of a watch to open.
    #[serde(default)]
    watch: Option<String>,
    /// The name of a watch to read.
    #[serde(default)]
    from: Option<String>,
    /// How many events are read from it; without a number all, to its end.
    #[serde(default)]
    events: Option<usize>,
    #[serde(default)]
    compact: bool,
}

fn steps() -> Result<Vec<Step>, String> {
    serde_saphyr::from_str(STEPS).map_err(|error| error.to_string())
}

/// Plays the script and gives one line for each step.
///
/// # Errors
/// When the script cannot be read or a request got no answer at all; it names the step.
pub async fn run(api: &mut impl Api) -> Result<Vec<Value>, String> {
    let steps = steps()?;
    let mut kept = BTreeMap::new();
    let mut labels = Labels::default();
    let mut transcript = Vec::new();
    for step in steps {
        let line = play(api, &step, &mut kept, &mut labels).await;
        let mut line = line.map_err(|why| format!("{}: {why}", step.what))?;
        line["step"] = step.what.into();
        transcript.push(line);
    }
    Ok(transcript)
}

/// What the real one answered.
///
/// # Errors
/// When it is not what [`write`] wrote.
pub fn answers() -> Result<Vec<Value>, String> {
    serde_json::from_str(ANSWERS).map_err(|error| error.to_string())
}

/// A transcript as it is kept.
pub fn write(transcript: &[Value]) -> String {
    let lines: Vec<String> = transcript.iter().map(Value::to_string).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

async fn play(
    api: &mut impl Api,
    step: &Step,
    kept: &mut BTreeMap<String, String>,
    labels: &mut Labels,
) -> Result<Value, String> {
    if step.compact {
        api.compact().await?;
        return Ok(json!({}));
    }
    if let Some(name) = &step.from {
        return Ok(json!({"events": read(api, name, step.events, labels).await?}));
    }
    let request = request(step, kept)?;
    if let Some(name) = &step.watch {
        let refused = api.watch(name, &request).await?;
        return Ok(refused.map_or_else(|| json!({"code": 200}), |response| labels.response(&response, step.brief)));
    }
    let mut response = api.ask(&request).await?;
    if let Some(code) = step.until {
        for _ in 0..TRIES {
            if response.code == code {
                break;
            }
            api.pause().await;
            response = api.ask(&request).await?;
        }
    }
    let object = response.object();
    for (name, pointer) in &step.keep {
        let value = object.pointer(pointer).and_then(Value::as_str);
        let value = value.ok_or_else(|| format!("no text at {pointer} of {object}"))?;
        kept.insert(name.clone(), value.to_owned());
    }
    Ok(labels.response(&response, step.brief))
}

/// Reads events of a watch: so many that count, or all to its end.
async fn read(api: &mut impl Api, name: &str, count: Option<usize>, labels: &mut Labels) -> Result<Vec<Value>, String> {
    let mut events = Vec::new();
    while count.is_none_or(|count| events.len() < count) {
        let Some(event) = api.event(name).await? else {
            if count.is_some() {
                events.push("the end".into());
            }
            break;
        };
        events.extend(labels.event(event));
    }
    if count.is_none() {
        api.close(name);
    }
    Ok(events)
}

/// Fills in what was kept.
fn request(step: &Step, kept: &BTreeMap<String, String>) -> Result<Request, String> {
    let fill =
        |text: &str| kept.iter().fold(text.to_owned(), |text, (name, v)| text.replace(&format!("${{{name}}}"), v));
    let (method, target) = step.ask.split_once(' ').ok_or("no method and path")?;
    let (method, content_type) = match method {
        "GET" => (Method::Get, ""),
        "POST" => (Method::Post, "application/json"),
        "PUT" => (Method::Put, "application/json"),
        "PATCH" => (Method::Patch, "application/merge-patch+json"),
        "DELETE" => (Method::Delete, "application/json"),
        other => return Err(format!("an unknown method: {other}")),
    };
    let mut request = Request::new(method, &fill(target));
    if let Some(body) = &step.body {
        content_type.clone_into(&mut request.content_type);
        request.body = fill(&body.to_string()).into();
    }
    if let Some(accept) = &step.accept {
        request.accept.clone_from(accept);
    }
    Ok(request)
}
