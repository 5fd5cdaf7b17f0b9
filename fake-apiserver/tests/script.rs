//! The script against this server, with and without sockets: it answers what the real one answered.

// Outside of test functions clippy does not know that this is a test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use fake_apiserver::http::Running;
use fake_apiserver::script::client::Client;
use fake_apiserver::script::{Api, answers, differences, run};
use fake_apiserver::{Next, Reply, Request, Response, Server, WatchId};
use serde_json::Value;
use tokio::net::TcpStream;

/// The server without sockets; time is what the watches need to come to their end.
#[derive(Default)]
struct Core {
    server: Server,
    watches: BTreeMap<String, WatchId>,
    now: u64,
}

impl Api for Core {
    async fn ask(&mut self, request: &Request) -> Result<Response, String> {
        match self.server.request(self.now, request.clone()) {
            Reply::Answer(response) => Ok(response),
            other => Err(format!("{other:?} is no answer")),
        }
    }

    async fn watch(&mut self, name: &str, request: &Request) -> Result<Option<Response>, String> {
        match self.server.request(self.now, request.clone()) {
            Reply::Watch(id) => {
                self.watches.insert(name.to_owned(), id);
                Ok(None)
            }
            Reply::Answer(response) => Ok(Some(response)),
            Reply::Lost => Err("the answer is lost".to_owned()),
        }
    }

    async fn event(&mut self, name: &str) -> Result<Option<Value>, String> {
        loop {
            match self.server.next(self.now, self.watches[name]) {
                Next::Bytes(line) => return serde_json::from_slice(&line).map(Some).map_err(|error| error.to_string()),
                Next::Wait(until) => self.now = until,
                Next::End => return Ok(None),
                Next::Cut => return Err("the stream broke".to_owned()),
            }
        }
    }

    fn close(&mut self, name: &str) {
        self.watches.remove(name).into_iter().for_each(|id| self.server.close(id));
    }

    async fn compact(&mut self) -> Result<(), String> {
        self.server.compact();
        Ok(())
    }

    async fn pause(&mut self) {
        self.now += 1;
    }
}

fn assert_as_recorded(found: &[Value]) {
    let differences = differences(&answers().unwrap(), found);
    assert!(differences.is_empty(), "this server answers differently from the real one:\n{differences}");
}

#[tokio::test]
async fn the_core_answers_what_the_real_server_answered() {
    let found = run(&mut Core::default()).await.unwrap();
    assert_as_recorded(&found);
}

#[tokio::test]
async fn over_http_it_answers_what_the_real_server_answered() {
    let running = Running::start(Server::default()).await.unwrap();
    let address = running.address();
    let forget = || {
        running.with(Server::compact);
        Ok(())
    };
    let found = run(&mut Client::new(
        || async move { TcpStream::connect(address).await.map_err(|error| error.to_string()) },
        forget,
    ))
    .await
    .unwrap();
    assert_as_recorded(&found);
}

#[tokio::test]
async fn the_same_requests_at_the_same_times_give_the_same_bytes() {
    let play = async || {
        let mut core = Core::default();
        run(&mut core).await.unwrap();
        core.server.objects("configmaps").map(Value::to_string).collect::<Vec<_>>()
    };
    assert_eq!(play().await, play().await);
}
