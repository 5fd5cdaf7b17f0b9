//! Names that pools resolve (ExternalName): looked up off the request path, and never an address that is ours.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::members::Targets;

/// How long an answer is used. The system's resolver does not say how long it is valid.
const REFRESH: Duration = Duration::from_secs(10);
/// How soon a lookup that failed is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How long a lookup may take.
const LIMIT: Duration = Duration::from_secs(5);
/// How many addresses of one name are used.
const ADDRESSES_MAX: usize = 64;

/// Looks names up for as long as a pool uses them.
#[derive(Debug, Default)]
pub struct Resolver {
    rules: AddressRules,
    names: Mutex<BTreeMap<(String, u16), Weak<Targets>>>,
}

/// Which addresses a name may lead to.
#[derive(Clone, Debug, Default)]
pub struct AddressRules {
    /// Lets names lead to this machine: only for trying things out.
    pub allow_loopback: bool,
    /// Addresses of this machine.
    pub own: Vec<IpAddr>,
}

impl AddressRules {
    /// The rules for this machine: its own addresses are those of its interfaces' routes.
    pub fn of_this_machine(allow_loopback: bool) -> AddressRules {
        AddressRules { allow_loopback, own: own_addresses() }
    }

    /// Whether a name may lead there. The metadata services of clouds are link-local or in the list of their own.
    pub fn allow(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if address.is_loopback() {
            return self.allow_loopback;
        }
        if address.is_unspecified() || address.is_multicast() || METADATA.contains(&address.to_string().as_str()) {
            return false;
        }
        let special = match address {
            // 0.0.0.0/8 is "this network" (RFC 6890).
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
            // ::/96 (IPv4-compatible, RFC 4291) and 64:ff9b::/96 (NAT64, RFC 6052) lead to IPv4 addresses again.
            IpAddr::V6(v6) => {
                v6.is_unicast_link_local()
                    || v6.segments().starts_with(&[0; 6])
                    || v6.segments().starts_with(&[0x64, 0xff9b])
            }
        };
        !special && (self.allow_loopback || !self.own.contains(&address))
    }
}

/// Metadata services that are not link-local: AWS on IPv6, Alibaba Cloud, Oracle Cloud (old), Azure's host.
const METADATA: [&str; 4] = ["fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"];

/// The addresses of this machine's interfaces, as far as the kernel lists them.
fn own_addresses() -> Vec<IpAddr> {
    let mut own = Vec::new();
    // Each local address stands before a line `/32 host LOCAL`.
    let text = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let mut last = None;
    for line in text.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<IpAddr>().ok();
        } else if line == "/32 host LOCAL" {
            own.extend(last);
        }
    }
    let text = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    for line in text.lines() {
        let digits = line.split_whitespace().next().unwrap_or_default();
        if let Ok(bits) = u128::from_str_radix(digits, 16) {
            own.push(IpAddr::V6(bits.into()));
        }
    }
    own.sort_unstable();
    own.dedup();
    own
}

impl Resolver {
    /// A resolver with these rules.
    pub fn new(rules: AddressRules) -> Resolver {
        Resolver { rules, names: Mutex::default() }
    }

    /// The addresses of a name, with this port, kept up to date while somebody holds them. They are empty until the first
    /// answer. Outside of a runtime (`scalwsd check`) nothing is looked up.
    pub fn targets(self: &Arc<Self>, host: &str, port: u16) -> Arc<Targets> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|_, targets| targets.strong_count() > 0);
        let key = (host.to_owned(), port);
        if let Some(known) = names.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let targets = Targets::empty();
        names.insert(key, Arc::downgrade(&targets));
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(keep_up(self.rules.clone(), host.to_owned(), port, Arc::downgrade(&targets)));
        }
        targets
    }
}

async fn keep_up(rules: AddressRules, host: String, port: u16, targets: Weak<Targets>) {
    while targets.strong_count() > 0 {
        let found = tokio::time::timeout(LIMIT, tokio::net::lookup_host((host.as_str(), port))).await;
        let pause = match found {
            Ok(Ok(found)) => {
                let Some(targets) = targets.upgrade() else { return };
                let (allowed, refused): (Vec<SocketAddr>, Vec<SocketAddr>) =
                    found.take(ADDRESSES_MAX).partition(|address| rules.allow(address.ip()));
                if !refused.is_empty() {
                    tracing::warn!(name = ?host, ?refused, "the name leads to addresses that are not allowed");
                }
                targets.set(allowed);
                REFRESH
            }
            // What was found before stays in use: a resolver that is away is no reason to stop.
            Ok(Err(error)) => {
                tracing::warn!(name = ?host, %error, "the name cannot be looked up");
                RETRY
            }
            Err(_) => {
                tracing::warn!(name = ?host, "looking the name up takes too long");
                RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_not_lead_to_this_machine_its_links_or_metadata_services() {
        let rules = AddressRules { allow_loopback: false, own: vec!["192.0.2.1".parse().unwrap()] };
        for denied in [
            "127.0.0.1",
            "127.8.8.8",
            "::1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "169.254.1.1",
            "fe80::1",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "192.0.2.1",
            "::ffff:192.0.2.1",
            "fd00:ec2::254",
            "100.100.100.200",
            "168.63.129.16",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
        ] {
            assert!(!rules.allow(denied.parse().unwrap()), "{denied}");
        }
        for allowed in ["10.0.0.1", "192.0.2.2", "8.8.8.8", "2001:db8::1", "fd00::1", "100.64.0.1"] {
            assert!(rules.allow(allowed.parse().unwrap()), "{allowed}");
        }
    }

    #[test]
    fn loopback_is_reached_only_when_that_was_asked_for() {
        let rules = AddressRules { allow_loopback: true, own: vec!["127.0.0.1".parse().unwrap()] };
        assert!(rules.allow("127.0.0.1".parse().unwrap()));
        assert!(!rules.allow("169.254.169.254".parse().unwrap()));
    }

    #[test]
    fn this_machine_knows_its_own_addresses() {
        assert!(own_addresses().contains(&"127.0.0.1".parse().unwrap()));
    }

    #[tokio::test]
    async fn a_name_is_looked_up_and_shared_by_those_who_use_it() {
        let resolver = Arc::new(Resolver::new(AddressRules { allow_loopback: true, own: Vec::new() }));
        let targets = resolver.targets("localhost", 4242);
        assert!(Arc::ptr_eq(&targets, &resolver.targets("localhost", 4242)));
        let limit = tokio::time::Instant::now() + Duration::from_secs(10);
        while targets.load().is_empty() {
            assert!(tokio::time::Instant::now() < limit, "localhost was not found");
            tokio::task::yield_now().await;
        }
        assert!(targets.load().iter().all(|m| m.address.ip().is_loopback() && m.address.port() == 4242));
    }
}
