//! Opening a port on all addresses, IPv4 and IPv6 on one socket.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::Transport;

/// How many connections may wait to be accepted (the kernel caps it at `net.core.somaxconn`).
pub const BACKLOG: i32 = 4096;

/// Opens a port on `[::]`, IPv4 included, or on `0.0.0.0` where there is no IPv6. Port 0 lets the kernel choose.
///
/// The socket is non-blocking, close-on-exec, has `SO_REUSEADDR` and never `SO_REUSEPORT`: with that, each process
/// would have a queue of its own, and its death would lose what waits in it.
///
/// # Errors
/// What socket(2), bind(2) or listen(2) say.
pub fn bind(transport: Transport, port: u16) -> io::Result<OwnedFd> {
    match bind_family(transport, SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))) {
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL | Errno::PROTONOSUPPORT) => {
            let address = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
            bind_family(transport, address).map_err(io::Error::from)
        }
        result => result.map_err(io::Error::from),
    }
}

fn bind_family(transport: Transport, address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let kind = match transport {
        Transport::Tcp => SocketType::STREAM,
        Transport::Udp => SocketType::DGRAM,
    };
    let socket = rustix::net::socket_with(family, kind, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    if transport == Transport::Tcp {
        // Lets a port be opened again while old connections of it are still in TIME_WAIT (RFC 9293 section 3.6.1).
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    if transport == Transport::Tcp {
        rustix::net::listen(&socket, BACKLOG)?;
    }
    Ok(socket)
}

/// The port that a socket is bound to.
///
/// # Errors
/// When it is no internet socket.
pub fn local_port(socket: &OwnedFd) -> io::Result<u16> {
    let address = rustix::net::getsockname(socket)?;
    let address = SocketAddr::try_from(address).map_err(io::Error::from)?;
    Ok(address.port())
}
