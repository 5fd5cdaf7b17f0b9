//! Building resources: from a body that reads to what requests use, or to the reason why it is not live.

use std::sync::Arc;

use config::{
    Body, HostBody, HostTls, ListenerBody, ListenerName, ListenerProtocol, Loaded, MemberSource, Name, PoolBody,
    Transport, TypedName, UnknownName, UpstreamProtocol,
};
use router::Fragment;

use crate::certificate;
use crate::dns::Resolver;
use crate::keys::Keys;
use crate::members::Members;
use crate::not_live::Fault;
use crate::pool::{Pool, Protocol};
use crate::route;
use crate::snapshot::{Host, Speaks};
use crate::state::{Batch, State};
use crate::tls::{Handshake, Tls};

/// What building needs from outside.
#[derive(Debug)]
pub struct Builder {
    /// TLS settings.
    pub tls: Arc<Tls>,
    /// Member sets.
    pub members: Arc<Members>,
    /// Names that are resolved.
    pub resolver: Arc<Resolver>,
    /// Secrets.
    pub keys: Keys,
}

impl Builder {
    /// Builds one resource into the state. What is not live leaves what requests see of it: claims, and 503.
    pub(crate) fn build(&self, loaded: Loaded, state: &mut State, batch: &mut Batch) -> Result<(), Fault> {
        let Loaded { id, name, claims, state: body, .. } = loaded;
        let (body, fault) = match body {
            config::State::Live(body) => (Some(body), None),
            config::State::NotLive { code, message } => (None, Some(Fault { code, message })),
            // The translator has told the owner already; what it sent is live as it is.
            config::State::Withheld(_) => (None, None),
        };
        let built = match (name, body) {
            (TypedName::Listener(name), Some(Body::Listener(body))) => {
                let built = self.listener(name, &body, state, batch);
                state.set_listener(name, built.as_ref().ok().cloned());
                built.map(drop)
            }
            (TypedName::Listener(name), _) => {
                state.set_listener(name, None);
                Ok(())
            }
            (TypedName::Certificate(name), Some(Body::Certificate(body))) => {
                state.certificates.remove(&name);
                certificate::load(&body, &self.keys, self.tls.provider()).map(|certificate| {
                    state.certificates.insert(name, certificate);
                })
            }
            (TypedName::Certificate(name), _) => {
                state.certificates.remove(&name);
                Ok(())
            }
            (TypedName::Pool(_), Some(Body::Pool(body))) => {
                state.pools.remove(&id.name);
                self.pool(&body).map(|pool| {
                    state.pools.insert(id.name, Arc::new(pool));
                })
            }
            (TypedName::Pool(_), _) => {
                state.pools.remove(&id.name);
                Ok(())
            }
            (TypedName::Policy(_), Some(_)) => Err(Fault::unsupported("policies are not built yet")),
            (TypedName::Policy(_), None) => Ok(()),
            (TypedName::Host(name), body) => {
                let built = match body {
                    Some(Body::Host(body)) => self.host(&body, state, batch).map(Host::Live),
                    _ => Ok(Host::Dead),
                };
                let host = built.as_ref().map_or(Host::Dead, Host::clone);
                batch.router.push(router::Change::Host(name, host));
                built.map(drop)
            }
            (TypedName::Fragment(_), body) => {
                let body = match &body {
                    Some(Body::Fragment(body)) => Some(body),
                    _ => None,
                };
                // `config::load` gives claims with every fragment.
                claims.map_or(Ok(()), |claims| fragment(id.name, claims, body, state, batch))
            }
        };
        fault.map_or(built, Err)
    }

    fn listener(
        &self,
        name: ListenerName,
        body: &ListenerBody,
        state: &State,
        batch: &mut Batch,
    ) -> Result<Speaks, Fault> {
        if name.transport == Transport::Udp {
            return Err(Fault::unsupported("UDP listeners are not built yet"));
        }
        match body.protocol {
            ListenerProtocol::Http => Ok(Speaks::Http),
            ListenerProtocol::Raw => Err(Fault::unsupported("raw listeners are not built yet")),
            ListenerProtocol::Tls => {
                let default = match &body.default_certificate {
                    None => self.tls.self_made().map(Handshake::Serve).map_err(Fault::invalid)?,
                    // A default certificate that is not live is not replaced by another one.
                    Some(name) => self.serve(std::slice::from_ref(name), state, batch)?.unwrap_or(Handshake::Refuse),
                };
                let unknown = match body.unknown_name {
                    UnknownName::Default => default.clone(),
                    UnknownName::Refuse => Handshake::Refuse,
                };
                Ok(Speaks::Tls { unknown, default })
            }
        }
    }

    /// What handshakes get that these certificates serve; nothing if none of them is live.
    fn serve(
        &self,
        names: &[config::CertificateName],
        state: &State,
        batch: &mut Batch,
    ) -> Result<Option<Handshake>, Fault> {
        if let Some(known) = batch.tls.get(names) {
            return Ok(Some(Handshake::Serve(Arc::clone(known))));
        }
        let live: Vec<_> = names.iter().filter_map(|name| state.certificates.get(name).map(Arc::clone)).collect();
        if live.is_empty() {
            return Ok(None);
        }
        let server = self.tls.server(live).map_err(|e| Fault::invalid(e.to_string()))?;
        batch.tls.insert(names.to_vec(), Arc::clone(&server));
        Ok(Some(Handshake::Serve(server)))
    }

    fn host(&self, body: &HostBody, state: &State, batch: &mut Batch) -> Result<Option<Handshake>, Fault> {
        match &body.tls {
            None => Ok(None),
            Some(HostTls::Terminate { client_auth: Some(_), .. }) => {
                Err(Fault::unsupported("client certificates are not built yet"))
            }
            Some(HostTls::Terminate { certificates, fallback, client_auth: None }) => {
                let served = self.serve(certificates, state, batch)?;
                Ok(Some(served.unwrap_or(match fallback {
                    UnknownName::Default => Handshake::Default,
                    UnknownName::Refuse => Handshake::Refuse,
                })))
            }
            Some(HostTls::Stream { .. }) => Err(Fault::unsupported("TLS to a stream is not built yet")),
            Some(HostTls::Passthrough { .. }) => Err(Fault::unsupported("TLS passthrough is not built yet")),
        }
    }

    fn pool(&self, body: &PoolBody) -> Result<Pool, Fault> {
        if body.tls.is_some() {
            return Err(Fault::unsupported("TLS to members is not built yet"));
        }
        let protocol = match body.protocol {
            UpstreamProtocol::Http1 => Protocol::Http1,
            UpstreamProtocol::H2 => Protocol::Http2,
            UpstreamProtocol::Raw => return Err(Fault::unsupported("raw pools are not built yet")),
        };
        let targets = match &body.members {
            MemberSource::Set(name) => self.members.targets(name.to_name().as_str()),
            MemberSource::Dns { host, port } => self.resolver.targets(host, *port),
        };
        Ok(Pool { protocol, targets })
    }
}

fn fragment(
    name: Name,
    claims: config::Claims,
    body: Option<&config::FragmentBody>,
    state: &State,
    batch: &mut Batch,
) -> Result<(), Fault> {
    let built = body.map(|body| {
        #[cfg(all(feature = "poison", debug_assertions))]
        crate::poison::look_at(body)?;
        route::build(&claims, body, &state.pools)
    });
    let (routes, fault) = match built {
        Some(Ok(routes)) => (Some(routes), None),
        Some(Err(why)) => (None, Some(Fault::invalid(why))),
        None => (None, None),
    };
    let fragment = Fragment::new(name, claims, routes);
    let unbuilt = fragment.unbuilt().first().map(|u| Fault::invalid(format!("matches[{}]: {}", u.claim, u.why)));
    batch.router.push(router::Change::Fragment(fragment));
    fault.or(unbuilt).map_or(Ok(()), Err)
}
