//! The script of requests that the API server in memory is held against, on a real API server: its recorded answers are still true.
//! With `UPDATE_ANSWERS=1` they are written anew.

use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use e2e::cluster::{Connector, ControlPlane, Settings};
use fake_apiserver::script::client::Client;
use fake_apiserver::script::{answers, differences, run, write};

#[test]
fn a_real_api_server_answers_the_script_as_it_was_recorded() -> Result<()> {
    let what = "the script of requests, on a real API server";
    let Some(plane) = ControlPlane::start(what, &Settings::default())? else { return Ok(()) };
    plane.enter()?;
    // After the move, so that its threads are there too.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let connector = Connector::admin(&plane.keys())?;
    let connect = || async { connector.open().await.map_err(|error| format!("{error:#}")) };
    let forget = || plane.forget().map_err(|error| format!("{error:#}"));
    let found = runtime.block_on(run(&mut Client::new(connect, forget))).map_err(|why| anyhow!(why))?;
    if std::env::var_os("UPDATE_ANSWERS").is_some() {
        let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fake-apiserver/src/script/answers.json");
        std::fs::write(recording, write(&found))?;
        return Ok(());
    }
    let recorded = answers().map_err(|why| anyhow!(why))?;
    let differences = differences(&recorded, &found);
    ensure!(differences.is_empty(), "the real API server answers differently from what was recorded:\n{differences}");
    eprintln!("{} steps, answered as recorded", found.len());
    Ok(())
}
