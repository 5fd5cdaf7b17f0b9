//! Sockets through the keeper: shared, queued connections that outlive a worker, and what closes a port.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use keeper::client::Client;
use keeper::server::Keeper;
use keeper::{Transport, codes, socket};
use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

struct Place {
    dir: tempfile::TempDir,
    keeper: Keeper,
}

impl Place {
    async fn new(grace: Duration) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let keeper = Keeper::with_grace(grace);
        let listener = UnixListener::bind(dir.path().join("k")).unwrap();
        let serving = keeper.clone();
        tokio::spawn(async move { serving.serve(listener).await });
        Place { dir, keeper }
    }

    async fn client(&self) -> Client {
        Client::connect(self.dir.path().join("k")).await.unwrap()
    }
}

const LONG: Duration = Duration::from_secs(3600);

/// Waits until the keeper has exactly these ports open.
async fn wait_for_ports(keeper: &Keeper, wanted: &[u16]) {
    let wanted: Vec<String> = wanted.iter().map(|p| format!("tcp/{p}")).collect();
    let limit = Instant::now() + Duration::from_secs(10);
    while keeper.open_ports() != wanted {
        assert!(Instant::now() < limit, "open: {:?}, wanted: {wanted:?}", keeper.open_ports());
        tokio::task::yield_now().await;
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    socket::local_port(&socket::bind(Transport::Tcp, 0).unwrap()).unwrap()
}

fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(false).unwrap();
    listener.accept().unwrap().0
}

#[tokio::test]
async fn a_connection_queued_for_a_dead_worker_is_accepted_by_the_next_one() {
    let place = Place::new(LONG).await;
    let port = free_port();
    let mut first = place.client().await;
    let socket = first.listen_tcp(port).await.unwrap();
    let mut visitor = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    visitor.write_all(b"hello").unwrap();
    // The worker dies: its descriptors and its connection to the keeper go at once.
    drop(socket);
    drop(first);
    let mut second = place.client().await;
    let socket = second.listen_tcp(port).await.unwrap();
    let mut bytes = [0; 5];
    accept(&socket).read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
}

#[tokio::test]
async fn all_askers_get_the_same_socket() {
    let place = Place::new(LONG).await;
    let port = free_port();
    let (mut one, mut two) = (place.client().await, place.client().await);
    let (first, second) = (one.listen_tcp(port).await.unwrap(), two.listen_tcp(port).await.unwrap());
    // Two sockets of one port would need SO_REUSEPORT, and each would have its own queue.
    assert!(!sockopt::socket_reuseport(first.as_fd()).unwrap());
    let cookie = |socket: &TcpListener| sockopt::socket_cookie(socket.as_fd()).unwrap();
    assert_eq!(cookie(&first), cookie(&second));
}

#[tokio::test]
async fn one_socket_serves_ipv4_and_ipv6() {
    let place = Place::new(LONG).await;
    let port = free_port();
    let socket = place.client().await.listen_tcp(port).await.unwrap();
    for address in [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))] {
        let visitor = TcpStream::connect(address).unwrap();
        let accepted = accept(&socket);
        assert_eq!(accepted.peer_addr().unwrap().port(), visitor.local_addr().unwrap().port());
    }
}

#[tokio::test]
async fn a_port_closes_when_its_last_holder_releases_it() {
    let place = Place::new(LONG).await;
    let port = free_port();
    let (mut one, mut two) = (place.client().await, place.client().await);
    drop(one.listen_tcp(port).await.unwrap());
    drop(two.listen_tcp(port).await.unwrap());
    // Asking twice holds it once.
    drop(two.listen_tcp(port).await.unwrap());
    one.release(Transport::Tcp, port).await.unwrap();
    wait_for_ports(&place.keeper, &[port]).await;
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    two.release(Transport::Tcp, port).await.unwrap();
    wait_for_ports(&place.keeper, &[]).await;
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap_err();
}

#[tokio::test]
async fn a_port_whose_holder_vanished_closes_after_the_grace() {
    let place = Place::new(Duration::from_millis(20)).await;
    let port = free_port();
    let mut client = place.client().await;
    drop(client.listen_tcp(port).await.unwrap());
    drop(client);
    wait_for_ports(&place.keeper, &[]).await;
}

#[tokio::test]
async fn a_pinned_port_stays_whoever_releases_it() {
    let place = Place::new(Duration::ZERO).await;
    let port = place.keeper.pin(0).unwrap();
    let mut client = place.client().await;
    drop(client.listen_tcp(port).await.unwrap());
    client.release(Transport::Tcp, port).await.unwrap();
    wait_for_ports(&place.keeper, &[port]).await;
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
}

#[tokio::test]
async fn a_taken_port_is_reported_with_its_code_and_the_connection_goes_on() {
    let place = Place::new(LONG).await;
    let other = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    let taken = other.local_addr().unwrap().port();
    let mut client = place.client().await;
    let error = client.listen_tcp(taken).await.unwrap_err();
    assert_eq!(error.code, codes::PORT_TAKEN);
    assert!(error.message.contains(&taken.to_string()), "{error}");
    assert_eq!(place.keeper.pin(taken).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    drop(other);
    client.listen_tcp(taken).await.unwrap();
}

#[tokio::test]
async fn a_request_that_makes_no_sense_is_answered_and_hurts_nobody_else() {
    let place = Place::new(LONG).await;
    let path = place.dir.path().join("k");
    for bad in [
        "nonsense\n".to_owned(),
        r#"{"listen":{"transport":"sctp","port":80}}"#.to_owned() + "\n",
        r#"{"listen":{"transport":"tcp","port":0}}"#.to_owned() + "\n",
        r#"{"listen":{"transport":"tcp","port":80,"more":1}}"#.to_owned() + "\n",
        "x".repeat(5000),
    ] {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(bad.as_bytes()).await.unwrap();
        let mut answer = [0; 200];
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
        assert!(answer.contains(codes::BAD_REQUEST), "{bad:?} was answered {answer:?}");
    }
    place.client().await.listen_tcp(free_port()).await.unwrap();
}

#[tokio::test]
async fn a_keeper_that_is_not_there_is_named() {
    let error = Client::connect("/nonexistent/keeper.sock").await.unwrap_err();
    assert_eq!(error.code, codes::UNREACHABLE);
    assert!(error.message.contains("/nonexistent/keeper.sock"), "{error}");
}

#[tokio::test]
async fn udp_ports_are_kept_too() {
    let place = Place::new(LONG).await;
    let port = socket::local_port(&socket::bind(Transport::Udp, 0).unwrap()).unwrap();
    let socket = place.client().await.listen(Transport::Udp, port).await.unwrap();
    assert_eq!(socket::local_port(&socket).unwrap(), port);
}
