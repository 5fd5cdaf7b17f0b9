//! An admin server on a unix socket that behaves like `scalwsd`, on a real volume; it can be killed and started again.

// Only tests use it, each a part of it.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use agent::core::CallError;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use journal::admin::{ErrorAnswer, MembersAnswer, PatchMembers, PutMembers, ReloadRequest, UpstreamsAnswer};
use journal::members::MemberSet;
use journal::{Digest, digest};
use serde::Serialize;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use crate::world::{Scalwsd, Volume};

pub struct Fake {
    folder: PathBuf,
    pub scalwsd: Arc<Mutex<Scalwsd>>,
    server: Option<tokio::task::JoinHandle<()>>,
}

impl Fake {
    pub fn new(folder: &Path) -> Fake {
        Fake { folder: folder.to_owned(), scalwsd: Arc::default(), server: None }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("admin.sock")
    }

    pub fn volume(&self) -> Volume {
        read_volume(&self.folder)
    }

    /// Starts on what the volume holds.
    pub fn start(&mut self) {
        self.scalwsd.lock().unwrap().start(&self.volume());
        self.start_as_it_is();
    }

    /// Starts with what it held before.
    pub fn start_as_it_is(&mut self) {
        let _absent = std::fs::remove_file(self.socket());
        let listener = UnixListener::bind(self.socket()).unwrap();
        let (folder, scalwsd) = (self.folder.clone(), self.scalwsd.clone());
        self.server = Some(tokio::spawn(async move {
            // Dropped with this task, and so are the connections.
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (folder, scalwsd) = (folder.clone(), scalwsd.clone());
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        let (folder, scalwsd) = (folder.clone(), scalwsd.clone());
                        async move { Ok::<_, Infallible>(answer(&folder, &scalwsd, request).await) }
                    });
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await
                });
            }
        }));
    }

    pub fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
        }
    }
}

fn read_volume(folder: &Path) -> Volume {
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap_or_default();
    let mut keys = BTreeMap::new();
    for entry in std::fs::read_dir(folder.join("keys")).into_iter().flatten() {
        let entry = entry.unwrap();
        if let Ok(digest) = entry.file_name().to_str().unwrap().parse::<Digest>() {
            keys.insert(digest, std::fs::read(entry.path()).unwrap());
        }
    }
    Volume { config: read("config.jsonl"), beside: None, members: read("members.jsonl"), keys, limit: None }
}

fn json(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(serde_json::to_vec(body).unwrap())));
    *response.status_mut() = status;
    response
}

async fn answer(folder: &Path, scalwsd: &Mutex<Scalwsd>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut scalwsd = scalwsd.lock().unwrap();
    let path = head.uri.path();
    let arcs = |list: Vec<String>| list.into_iter().map(Arc::from).collect::<Vec<Arc<str>>>();
    match (&head.method, path) {
        (&Method::GET, "/v1/config") => json(StatusCode::OK, &scalwsd.config()),
        (&Method::POST, "/v1/reload") => {
            let request: ReloadRequest = serde_json::from_slice(&body).unwrap();
            let volume = read_volume(folder);
            match scalwsd.reload(&volume, &request.journal.unwrap(), request.commit.unwrap()) {
                Ok(answer) => json(StatusCode::OK, &answer),
                Err(CallError::Refused(why)) => {
                    json(StatusCode::UNPROCESSABLE_ENTITY, &ErrorAnswer { errors: vec![why] })
                }
                Err(_) => {
                    // The connection breaks off, and the process lives.
                    scalwsd.broken_off += 1;
                    drop(scalwsd);
                    panic!("this connection breaks");
                }
            }
        }
        (&Method::GET, "/v1/upstreams") => {
            let sets = scalwsd.sets.iter().map(|(name, set)| (name.to_string(), set.digest)).collect();
            json(StatusCode::OK, &UpstreamsAnswer { root: None, sets })
        }
        (method, path) => {
            let Some(name) = path.strip_prefix("/v1/upstreams/").map(decode) else {
                return json(StatusCode::NOT_FOUND, &ErrorAnswer { errors: vec!["no such call".to_owned()] });
            };
            match *method {
                Method::PUT => {
                    let put: PutMembers = serde_json::from_slice(&body).unwrap();
                    let set = MemberSet::new(&name, arcs(put.members));
                    let digest = set.digest;
                    scalwsd.sets.insert(name.as_str().into(), set);
                    json(StatusCode::OK, &MembersAnswer { digest })
                }
                Method::PATCH => {
                    let patch: PatchMembers = serde_json::from_slice(&body).unwrap();
                    let held = scalwsd.sets.get(name.as_str());
                    let digest = held.map_or(digest::members(&name, []), |held| held.digest);
                    match held.filter(|held| held.digest == patch.base) {
                        None => json(StatusCode::CONFLICT, &MembersAnswer { digest }),
                        Some(held) => {
                            let set = held.changed(&name, &arcs(patch.add), &arcs(patch.remove));
                            let digest = set.digest;
                            scalwsd.sets.insert(name.as_str().into(), set);
                            json(StatusCode::OK, &MembersAnswer { digest })
                        }
                    }
                }
                _ => match scalwsd.sets.remove(name.as_str()) {
                    Some(set) => json(StatusCode::OK, &MembersAnswer { digest: set.digest }),
                    None => json(StatusCode::NOT_FOUND, &ErrorAnswer { errors: vec!["no such set".to_owned()] }),
                },
            }
        }
    }
}

fn decode(segment: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits: String = bytes.by_ref().take(2).map(char::from).collect();
            out.push(u8::from_str_radix(&digits, 16).unwrap());
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).unwrap()
}
