//! Addresses and names that a tenant must not make the proxy connect to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is left alone. None: it may be reached.
pub(crate) fn refused(address: IpAddr, allow_loopback: bool) -> Option<&'static str> {
    // An IPv4 address written as IPv6 (RFC 4291 section 2.5.5.2) reaches the same place.
    let address = match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    if address.is_loopback() {
        return (!allow_loopback).then_some("a loopback address");
    }
    if address.is_unspecified() {
        return Some("the unspecified address");
    }
    if address.is_multicast() {
        return Some("a multicast address");
    }
    match address {
        IpAddr::V4(v4) => {
            // Oracle and Alibaba Cloud keep their metadata service outside of the link-local range.
            let metadata = [Ipv4Addr::new(192, 0, 0, 192), Ipv4Addr::new(100, 100, 100, 200)];
            if v4.is_link_local() {
                Some("a link-local address, where metadata services are")
            } else if metadata.contains(&v4) {
                Some("the address of a metadata service")
            } else if v4.is_broadcast() || v4.octets()[0] == 0 {
                Some("no address of a host")
            } else {
                None
            }
        }
        IpAddr::V6(v6) => {
            // Amazon's metadata service has a unique local address.
            let metadata = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
            if v6.is_unicast_link_local() {
                Some("a link-local address")
            } else if v6 == metadata {
                Some("the address of a metadata service")
            } else {
                None
            }
        }
    }
}

/// Why the name of an ExternalName Service is refused before anybody resolves it. The proxy also checks what it resolves to.
pub(crate) fn refused_name(name: &str) -> Option<&'static str> {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    if name == "localhost" || name.ends_with(".localhost") || name == "localhost.localdomain" {
        return Some("it points back at the proxy");
    }
    if name == "metadata.google.internal" {
        return Some("it is the name of a metadata service");
    }
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(&name);
    match bare.parse::<IpAddr>() {
        Ok(address @ IpAddr::V4(_)) => return refused(address, false),
        Ok(IpAddr::V6(_)) => return Some("it is no DNS name"),
        Err(_) => {}
    }
    // `127.1`, `0x7f.1` and `2130706433` are addresses for many resolvers.
    let numeric = |label: &str| {
        label.bytes().all(|b| b.is_ascii_digit())
            || label.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    if name.rsplit('.').next().is_some_and(numeric) {
        return Some("it is neither a DNS name nor an address in its normal form");
    }
    if name.contains('*') || name.parse::<config::Domain>().is_err() {
        return Some("it is no DNS name");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_lead_astray_are_refused() {
        for text in [
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "::",
            "169.254.169.254",
            "fe80::1",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "100.100.100.200",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "0.1.2.3",
        ] {
            assert!(refused(text.parse().unwrap(), false).is_some(), "{text}");
        }
        for text in ["10.244.0.1", "fd00:10:244::1", "2001:db8::1", "192.168.0.1", "8.8.8.8"] {
            assert_eq!(refused(text.parse().unwrap(), false), None, "{text}");
        }
    }

    #[test]
    fn loopback_may_be_allowed_and_nothing_else() {
        assert_eq!(refused("127.0.0.1".parse().unwrap(), true), None);
        assert_eq!(refused("::1".parse().unwrap(), true), None);
        assert!(refused("169.254.1.1".parse().unwrap(), true).is_some());
    }

    #[test]
    fn names_of_the_proxy_itself_are_refused() {
        for name in [
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.0x1",
            "metadata.google.internal",
            "*.x.y",
            "a..b",
        ] {
            assert!(refused_name(name).is_some(), "{name}");
        }
        for name in ["ext.example.net", "api.example.net.", "10.1.2.3", "my_db.example.net"] {
            assert_eq!(refused_name(name), None, "{name}");
        }
    }
}
