//! What a mutual TLS handshake costs by itself: the floor under a fleet that comes back.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use push::authority::{Authority, key_and_request};
use push::grpc::tls;
use push::identity::{AgentIdentity, FleetId};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection};

use crate::stats::thread_cpu;

/// CPU time of the two sides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Floor {
    pub(crate) server: Duration,
    pub(crate) client: Duration,
}

impl Floor {
    /// How long so many handshakes take at least on so many processors, which both sides share.
    pub(crate) fn time(&self, count: usize, processors: usize) -> Duration {
        (self.server + self.client) * u32::try_from(count).unwrap_or(u32::MAX)
            / u32::try_from(processors.max(1)).unwrap_or(1)
    }
}

/// The mean over so many handshakes in memory, with the configuration of the shipped programs.
pub(crate) fn floor(authority: &Authority, count: u32) -> Result<Floor> {
    let own = authority.server_identity(tls::CONTROLLER_NAME, SystemTime::now(), Duration::from_secs(3600))?;
    let server = Arc::new(tls::push_server(&own, authority.bundle())?);
    let (key, request) = key_and_request()?;
    let agent = AgentIdentity::new(FleetId::new("scalws", "default"), "floor", "floor")?;
    let signed = authority.sign(&request, &agent, SystemTime::now())?;
    let client = Arc::new(tls::client(authority.bundle(), Some((&signed.chain, &key)))?);
    let mut floor = Floor::default();
    for _ in 0..count {
        let mut one = thread_cpu();
        let mut from = ClientConnection::new(Arc::clone(&client), ServerName::try_from(tls::CONTROLLER_NAME)?)?;
        floor.client += thread_cpu().saturating_sub(one);
        one = thread_cpu();
        let mut to = ServerConnection::new(Arc::clone(&server))?;
        floor.server += thread_cpu().saturating_sub(one);
        for _ in 0..8 {
            if !from.is_handshaking() && !to.is_handshaking() {
                break;
            }
            one = thread_cpu();
            let out = written(&mut from)?;
            floor.client += thread_cpu().saturating_sub(one);
            one = thread_cpu();
            to.read_tls(&mut &*out)?;
            to.process_new_packets()?;
            let out = written(&mut to)?;
            floor.server += thread_cpu().saturating_sub(one);
            one = thread_cpu();
            from.read_tls(&mut &*out)?;
            from.process_new_packets()?;
            floor.client += thread_cpu().saturating_sub(one);
        }
        if from.is_handshaking() || to.is_handshaking() {
            bail!("a handshake in memory did not end");
        }
        // Both have the keys: a byte goes through.
        from.writer().write_all(b"x")?;
        let out = written(&mut from)?;
        to.read_tls(&mut &*out)?;
        to.process_new_packets()?;
        to.reader().read_exact(&mut [0]).context("the connection does not work")?;
    }
    Ok(Floor { server: floor.server / count, client: floor.client / count })
}

fn written<T>(connection: &mut rustls::ConnectionCommon<T>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut out)?;
    }
    Ok(out)
}
