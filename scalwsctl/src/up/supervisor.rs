//! The loop of `up`: starts children, answers their descriptor lines, starts again what dies, and ends everything.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use keeper::server::Keeper;
use rand::Rng as _;
use rustix::process::Signal;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::authority::{Authority, Tokens};
use super::backoff::Backoff;
use super::children::{Child, ChildEvent, Role};
use super::descriptor::{Addresses, Agent, Fleet, FromAgent, FromController, Need, ToAgent, ToController, line};
use super::echo::Echo;
use super::plan::Plan;
use super::{live, orphans};

/// How many events of children may wait.
const WAITING_EVENTS: usize = 256;
/// After this, whatever has not ended is killed. A proxy drains for 5 s; everything has to be over within 10 s.
const PATIENCE: Duration = Duration::from_secs(8);

/// The supervisor of one `up`.
pub struct Supervisor<'a> {
    plan: &'a Plan,
    keeper: Keeper,
    authority: Authority,
    tokens: Tokens,
    /// Where the controller listens; `None` while it is down.
    addresses: Option<Addresses>,
    agents: Vec<AgentState>,
    children: BTreeMap<Role, Child>,
    deaths: BTreeMap<Role, Backoff>,
    /// Who is to be started again, when, and how it ended.
    due: BTreeMap<Role, (Instant, String)>,
    serial: u64,
    sender: mpsc::Sender<ChildEvent>,
    events: mpsc::Receiver<ChildEvent>,
}

struct AgentState {
    /// The uid of its pod, for as long as `up` runs.
    uid: String,
    /// It asked for credentials while the controller was down.
    waits: bool,
}

impl<'a> Supervisor<'a> {
    /// A supervisor that has started nothing yet.
    ///
    /// # Errors
    ///
    /// When the authority cannot be minted.
    pub fn new(plan: &'a Plan, keeper: Keeper) -> Result<Supervisor<'a>> {
        let (sender, events) = mpsc::channel(WAITING_EVENTS);
        Ok(Supervisor {
            plan,
            keeper,
            authority: Authority::mint().context("the local certificate authority cannot be made")?,
            tokens: Tokens::default(),
            addresses: None,
            agents: (0..plan.replicas).map(|_| AgentState { uid: random_uid(), waits: false }).collect(),
            children: BTreeMap::new(),
            deaths: BTreeMap::new(),
            due: BTreeMap::new(),
            serial: 0,
            sender,
            events,
        })
    }

    /// Runs until SIGINT or SIGTERM. When it returns, every child has ended and is reaped.
    ///
    /// # Errors
    ///
    /// When something cannot be started the first time.
    pub async fn run(mut self) -> Result<()> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // A terminal that is closed means stop, too, unless `nohup` says otherwise.
        let mut hangup = if hangup_is_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
        let listener = UnixListener::bind(self.plan.keeper_socket()).context("the keeper's socket cannot be opened")?;
        let keeper = self.keeper.clone();
        let serving = tokio::spawn(async move { keeper.serve(listener).await });
        let _echo = if self.plan.echo { Some(Echo::start(self.plan.manifests.clone(), self.plan.log)?) } else { None };

        let started = self.start_all();
        if started.is_ok() {
            self.plan.up_file().write(&self.plan.state).context("up.json cannot be written")?;
            let announcing = tokio::spawn(live::announce(self.plan.clone()));
            loop {
                let next = self.due.values().map(|(at, _)| *at).min();
                tokio::select! {
                    _ = interrupt.recv() => break,
                    _ = terminate.recv() => break,
                    () = received(&mut hangup) => break,
                    Some(event) = self.events.recv() => self.on_event(event),
                    () = sleep_until(next) => self.restart_due(),
                }
            }
            announcing.abort();
        }
        self.stop(&mut interrupt, &mut terminate).await;
        serving.abort();
        started
    }

    fn start_all(&mut self) -> Result<()> {
        for role in self.plan.roles() {
            self.start(role).with_context(|| format!("the {role} cannot be started"))?;
        }
        Ok(())
    }

    fn start(&mut self, role: Role) -> std::io::Result<()> {
        self.serial += 1;
        let child = Child::spawn(role, self.serial, self.plan.command(role), self.sender.clone(), self.plan.log)?;
        if role == Role::Controller {
            let authority = line(&ToController::Authority {
                ca_certificate_pem: self.authority.certificate_pem(),
                ca_key_pem: self.authority.key_pem(),
            })?;
            // The queue of a child that has just been started is empty.
            let _ = child.tell(authority);
        }
        self.children.insert(role, child);
        Ok(())
    }

    fn on_event(&mut self, event: ChildEvent) {
        match event {
            ChildEvent::Line { role, serial, line } => {
                if self.children.get(&role).is_some_and(|c| c.serial == serial) {
                    self.on_line(role, &line);
                }
            }
            ChildEvent::Ended { role, serial, how } => {
                if self.children.get(&role).is_some_and(|c| c.serial == serial) {
                    self.on_end(role, how);
                }
            }
        }
    }

    fn on_end(&mut self, role: Role, how: String) {
        let Some(child) = self.children.remove(&role) else { return };
        match role {
            Role::Controller => self.addresses = None,
            Role::Agent(replica) => self.agents[usize::from(replica)].waits = false,
            Role::Proxy(_) => {}
        }
        orphans::reap(&self.children.values().map(|c| c.pid).collect());
        self.plan_restart(role, child.since.elapsed(), how);
    }

    fn plan_restart(&mut self, role: Role, ran: Duration, how: String) {
        let pause = self.deaths.entry(role).or_default().after(ran);
        self.due.insert(role, (Instant::now() + pause, how));
        if pause.is_zero() {
            self.restart_due();
        }
    }

    fn restart_due(&mut self) {
        let now = Instant::now();
        let due: Vec<Role> = self.due.iter().filter(|(_, (at, _))| *at <= now).map(|(role, _)| *role).collect();
        for role in due {
            let Some((_, how)) = self.due.remove(&role) else { continue };
            match self.start(role) {
                Ok(()) => self.plan.log.say(&format!("restarted {role} ({how})")),
                Err(error) => {
                    self.plan.log.say(&format!("the {role} ({how}) cannot be started again: {error}"));
                    self.plan_restart(role, Duration::ZERO, how);
                }
            }
        }
    }

    fn on_line(&mut self, role: Role, text: &str) {
        let understood = match role {
            Role::Controller => serde_json::from_str(text).map(|m| self.on_controller(m)).is_ok(),
            Role::Agent(replica) => serde_json::from_str(text).map(|m| self.on_agent(replica, m)).is_ok(),
            Role::Proxy(_) => false,
        };
        if !understood {
            // The line itself may hold a token and is not shown.
            self.plan
                .log
                .say(&format!("the {role} wrote a line of {} bytes to stdout that is not understood", text.len()));
        }
    }

    fn on_controller(&mut self, message: FromController) {
        match message {
            FromController::Listening(addresses) => {
                self.addresses = Some(addresses);
                for replica in 0..self.plan.replicas {
                    if std::mem::take(&mut self.agents[usize::from(replica)].waits) {
                        self.give_credentials(replica);
                    }
                }
            }
            FromController::Redeem(redeem) => {
                let replica = self.tokens.redeem(&redeem.token, std::time::Instant::now());
                let agent = replica.map(|replica| Agent {
                    fleet: Fleet::local(),
                    pod: Plan::agent_name(replica),
                    uid: self.agents[usize::from(replica)].uid.clone(),
                });
                self.tell(Role::Controller, &ToController::Redeemed { id: redeem.id, agent });
            }
        }
    }

    fn on_agent(&mut self, replica: u16, message: FromAgent) {
        match message {
            FromAgent::Need(Need::Credentials) if self.addresses.is_some() => self.give_credentials(replica),
            // A token would grow old while the controller is down: it is made when there is somebody to redeem it.
            FromAgent::Need(Need::Credentials) => self.agents[usize::from(replica)].waits = true,
            FromAgent::Need(Need::Addresses) => {
                self.tell(Role::Agent(replica), &ToAgent::Addresses(self.addresses.as_ref()));
            }
        }
    }

    fn give_credentials(&mut self, replica: u16) {
        let Some(addresses) = self.addresses.clone() else { return };
        match self.tokens.mint(replica, std::time::Instant::now()) {
            Ok(token) => self.tell(
                Role::Agent(replica),
                &ToAgent::Credentials {
                    token: &token,
                    enroll: &addresses.enroll,
                    push: &addresses.push,
                    trust_bundle_pem: self.authority.certificate_pem(),
                },
            ),
            Err(error) => self.plan.log.say(&format!("no token for replica-{replica}: {error}")),
        }
    }

    fn tell(&self, role: Role, message: &impl serde::Serialize) {
        let Some(child) = self.children.get(&role) else { return };
        let told = line(message).is_ok_and(|l| child.tell(l));
        if !told {
            self.plan.log.say(&format!("the {role} does not read its stdin; it is started again"));
            child.signal(Signal::KILL);
        }
    }

    /// Ends every child: asks, then insists.
    async fn stop(&mut self, interrupt: &mut tokio::signal::unix::Signal, terminate: &mut tokio::signal::unix::Signal) {
        self.due.clear();
        self.plan.log.say("stopping");
        let end = Instant::now() + PATIENCE;
        let mut killed = false;
        self.signal_all(Signal::TERM);
        while !self.children.is_empty() {
            tokio::select! {
                Some(event) = self.events.recv() => {
                    if let ChildEvent::Ended { role, serial, .. } = event
                        && self.children.get(&role).is_some_and(|c| c.serial == serial)
                    {
                        self.children.remove(&role);
                    }
                }
                _ = interrupt.recv() => self.signal_all(Signal::KILL),
                _ = terminate.recv() => self.signal_all(Signal::KILL),
                () = tokio::time::sleep_until(end), if !killed => {
                    killed = true;
                    for role in self.children.keys() {
                        self.plan.log.say(&format!("the {role} did not end within {} s and is killed", PATIENCE.as_secs()));
                    }
                    self.signal_all(Signal::KILL);
                }
            }
        }
    }

    fn signal_all(&self, signal: Signal) {
        for child in self.children.values() {
            child.signal(signal);
        }
    }
}

async fn received(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether SIGHUP (bit 0 of `SigIgn`, proc_pid_status(5)) was ignored when this process started.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).map(str::trim);
    mask.and_then(|m| u64::from_str_radix(m, 16).ok()).is_some_and(|m| m & 1 == 1)
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// A random uid in the form that an API server gives (RFC 9562, version 4).
fn random_uid() -> String {
    let bits = rand::rng().random::<u128>() & !(0xf << 76) & !(0b11 << 62) | (0x4 << 76) | (0b10 << 62);
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_have_the_form_of_an_api_server() {
        let uid = random_uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&uid.as_bytes()[19]), "{uid}");
        assert_ne!(uid, random_uid());
    }
}
