//! The authority of the controllers in a Secret: made by whoever comes first, followed by all, replaced in time by the leader.

mod contents;
mod rotation;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use push::authority::Authority;
use push::authority_folder::CERTIFICATE;
use push::server_session::Role;
use tokio::sync::watch;

pub use rotation::{Held, Lifetimes, Step, plan};

use crate::args::Named;
use crate::metrics::Metrics;
use contents::Contents;

/// How often the Secret is looked at: a new authority is announced for much longer before anything depends on it.
const LOOK: Duration = Duration::from_secs(5);
/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often making it is tried while another replica makes it too, or is to make it again.
const TRIES: usize = 5;

/// Where the authority is, and how long things are valid.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The Secret.
    pub secret: Named,
    /// The ConfigMap that has its certificates for everybody to read; none: nobody writes one.
    pub trust: Option<Named>,
    /// How long things are valid.
    pub lifetimes: Lifetimes,
}

impl Settings {
    /// Whether the lifetimes fit together.
    ///
    /// # Errors
    /// When an authority would end before the next one signs everything.
    pub fn check(&self) -> anyhow::Result<()> {
        let Lifetimes { authority, certificate } = self.lifetimes;
        if certificate < Duration::from_secs(10) || certificate * 8 > authority {
            bail!(
                "--certificate-lifetime {certificate:?} has to be at least 10s, and at most an eighth of --authority-lifetime \
                 {authority:?}: an authority is replaced in half of its life, and each step of that takes as long as a certificate"
            );
        }
        Ok(())
    }
}

/// The authority in the Secret.
pub struct Keeper {
    client: Client,
    settings: Settings,
    contents: Contents,
    authority: Arc<ArcSwap<Authority>>,
    /// What is wrong, as it was said last.
    said: Option<String>,
}

impl Keeper {
    /// Reads the authority, or makes it when there is no Secret.
    ///
    /// # Errors
    /// When there is none that can be used, and none can be made.
    pub(crate) async fn open(client: Client, settings: Settings) -> anyhow::Result<Keeper> {
        settings.check()?;
        let Named { namespace, name } = settings.secret.clone();
        let what = || format!("--authority-secret {namespace}/{name}");
        let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
        for tries_left in (0..TRIES).rev() {
            let contents = match within(api.get_opt(&name)).await.with_context(what)? {
                Some(mut secret) => Contents::read(&mut secret).with_context(|| {
                    format!(
                        "{}: mend the Secret; for a new authority, with which every agent enrols anew, stop all controllers and \
                         delete it and the ConfigMap of --trust-configmap",
                        what()
                    )
                })?,
                // The Secret may have been deleted a moment ago: then the leader makes it again, with the authority that agents know.
                None if tries_left > 0 && is_trusted_already(&client, &settings).await => {
                    tokio::time::sleep(LOOK).await;
                    continue;
                }
                None => {
                    let contents =
                        Contents::mint(SystemTime::now(), settings.lifetimes.authority).with_context(what)?;
                    let secret = contents.secret(&namespace, &name);
                    match within(api.create(&PostParams::default(), &secret)).await {
                        Ok(_) => tracing::info!(secret = %format_args!("{namespace}/{name}"), "made a new authority"),
                        // Another replica was first: its authority counts.
                        Err(error) if is_conflict(&error) => continue,
                        Err(error) => return Err(error).with_context(what),
                    }
                    contents
                }
            };
            let authority = contents.authority().with_context(what)?.with_lifetime(settings.lifetimes.certificate);
            let authority = Arc::new(ArcSwap::from_pointee(authority));
            return Ok(Keeper { client, settings, contents, authority, said: None });
        }
        bail!("{}: it comes and goes; look who deletes it", what())
    }

    /// The authority, and every later one.
    pub(crate) fn authority(&self) -> Arc<ArcSwap<Authority>> {
        Arc::clone(&self.authority)
    }

    /// Follows the Secret, and while we lead takes care of it. For ever.
    pub(crate) async fn keep(mut self, mut role: watch::Receiver<Role>, metrics: impl Fn(&Held) + Send) {
        loop {
            let leads = *role.borrow_and_update() == Role::Leading;
            let trouble = self.look(leads).await.err().map(|error| format!("{error:#}"));
            if let Some(error) = trouble.as_ref().filter(|error| self.said.as_ref() != Some(error)) {
                tracing::error!(secret = ?self.settings.secret, error, "the authority stays as it was");
            }
            self.said = trouble;
            if let Ok(held) = self.contents.held() {
                metrics(&held);
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                // A new leader looks at once.
                changed = role.changed() => if changed.is_err() { std::future::pending().await },
            }
        }
    }

    /// One look, and the step that is due.
    async fn look(&mut self, leads: bool) -> anyhow::Result<()> {
        let Named { namespace, name } = self.settings.secret.clone();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        match within(api.get_opt(&name)).await.context("the Secret cannot be read")? {
            Some(mut secret) => {
                let contents = Contents::read(&mut secret).context("the Secret holds no authority")?;
                self.adopt(contents)?;
                if leads {
                    self.step(&api, secret).await?;
                }
            }
            // Whoever deleted it wants it gone, or made a mistake: with a new authority every agent would be a stranger.
            None if leads => {
                let made = within(api.create(&PostParams::default(), &self.contents.secret(&namespace, &name))).await;
                made.context("the Secret is gone and cannot be made again")?;
                tracing::warn!(secret = ?self.settings.secret, "the Secret was gone; made it again with the authority in force");
            }
            None => {}
        }
        if leads {
            self.tell_everybody().await?;
        }
        Ok(())
    }

    async fn step(&mut self, api: &Api<Secret>, mut secret: Secret) -> anyhow::Result<()> {
        let (now, lifetimes) = (SystemTime::now(), self.settings.lifetimes);
        let step = plan(now, &self.contents.held()?, lifetimes);
        let Some(after) = self.contents.after(step, now, lifetimes)? else { return Ok(()) };
        after.write(&mut secret);
        // The resourceVersion is still the one that was read: somebody else's write in between makes it a conflict.
        within(api.replace(&self.settings.secret.name, &PostParams::default(), &secret))
            .await
            .context("the Secret cannot be written")?;
        tracing::info!(secret = ?self.settings.secret, ?step, "the authority is being replaced");
        self.adopt(after)
    }

    fn adopt(&mut self, contents: Contents) -> anyhow::Result<()> {
        if contents != self.contents {
            let authority = contents.authority()?.with_lifetime(self.settings.lifetimes.certificate);
            self.authority.store(Arc::new(authority));
            self.contents = contents;
        }
        Ok(())
    }

    /// Keeps the ConfigMap right.
    async fn tell_everybody(&self) -> anyhow::Result<()> {
        let Some(Named { namespace, name }) = &self.settings.trust else { return Ok(()) };
        let what = || format!("--trust-configmap {namespace}/{name}");
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let trust = self.contents.trust();
        match within(api.get_opt(name)).await.with_context(what)? {
            Some(mut map) => {
                let data = map.data.get_or_insert_default();
                if data.get(CERTIFICATE).is_some_and(|known| known == trust) {
                    return Ok(());
                }
                data.insert(CERTIFICATE.to_owned(), trust.to_owned());
                within(api.replace(name, &PostParams::default(), &map)).await.with_context(what)?;
            }
            None => {
                let metadata = ObjectMeta {
                    namespace: Some(namespace.clone()),
                    name: Some(name.clone()),
                    ..ObjectMeta::default()
                };
                let data = Some(BTreeMap::from([(CERTIFICATE.to_owned(), trust.to_owned())]));
                let map = ConfigMap { metadata, data, ..ConfigMap::default() };
                within(api.create(&PostParams::default(), &map)).await.with_context(what)?;
            }
        }
        tracing::info!(config_map = %format_args!("{namespace}/{name}"), "the trust bundle was written");
        Ok(())
    }
}

/// Whether agents were told to trust an authority already.
async fn is_trusted_already(client: &Client, settings: &Settings) -> bool {
    let Some(Named { namespace, name }) = &settings.trust else { return false };
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = within(api.get_opt(name)).await.ok().flatten();
    map.and_then(|map| map.data).is_some_and(|data| data.contains_key(CERTIFICATE))
}

/// Why a request had no usable answer.
#[derive(Debug, thiserror::Error)]
enum RequestFailed {
    #[error("the API server did not answer within {TIMEOUT:?}")]
    Silent,
    #[error(transparent)]
    Api(#[from] kube::Error),
}

async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, RequestFailed> {
    Ok(tokio::time::timeout(TIMEOUT, request).await.map_err(|_| RequestFailed::Silent)??)
}

fn is_conflict(error: &RequestFailed) -> bool {
    matches!(error, RequestFailed::Api(kube::Error::Api(status)) if status.code == 409)
}

/// What the metrics say of an authority.
pub(crate) fn note(metrics: &Metrics, held: &Held) {
    metrics.authority_ends(held.signer.not_after);
}
