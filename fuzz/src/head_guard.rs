//! The guard beside hyper: both see the same heads end at the same bytes, or the guard refuses; no split of the bytes matters.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, TRANSFER_ENCODING};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use scalwsd::head_guard::{Fault, Scanner};

/// Longer inputs show nothing that shorter ones do not.
const INPUT_BYTES_MAX: usize = 8 << 10;

/// A connection whose client has sent everything and reads whatever comes.
struct Wire {
    data: Rc<[u8]>,
    /// How many bytes hyper has got.
    at: Rc<Cell<usize>>,
    /// How many it gets at a time.
    step: usize,
    scanner: Rc<RefCell<Scanner>>,
}

impl Read for Wire {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let at = self.at.get();
        let end = self.data.len().min(at + self.step.min(buffer.remaining()));
        buffer.put_slice(&self.data[at..end]);
        self.scanner.borrow_mut().feed(&self.data[at..end]);
        self.at.set(end);
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A request that hyper gave to the service.
#[derive(Debug, PartialEq)]
struct Seen {
    method: String,
    target: String,
    /// The whole body, if it came whole.
    body: Option<Bytes>,
    fault: Option<Fault>,
}

/// The same, and where in the bytes it began and its head ended, if hyper got them one by one.
struct Place {
    start: usize,
    head_end: usize,
}

/// Serves the bytes with hyper and the guard as a connection of `scalwsd` does.
fn serve(data: &Rc<[u8]>, step: usize) -> Vec<(Seen, Place)> {
    let scanner = Rc::new(RefCell::new(Scanner::default()));
    let findings = scanner.borrow().findings();
    let at = Rc::new(Cell::new(0));
    let wire = Wire { data: Rc::clone(data), at: Rc::clone(&at), step, scanner };
    let seen = Rc::new(RefCell::new(Vec::new()));
    let start = Rc::new(Cell::new(0));
    let service = service_fn(|request: Request<Incoming>| {
        let (seen, at, start) = (Rc::clone(&seen), Rc::clone(&at), Rc::clone(&start));
        let number = seen.borrow().len() as u64;
        let fault = findings.fault(number);
        let place = Place { start: start.get(), head_end: at.get() };
        let (head, body) = request.into_parts();
        let (method, target) = (head.method.to_string(), head.uri.to_string());
        seen.borrow_mut().push((Seen { method, target, body: None, fault }, place));
        let coded =
            head.headers.get_all(TRANSFER_ENCODING).iter().any(|one| !one.as_bytes().eq_ignore_ascii_case(b"chunked"));
        let coded = coded || head.headers.get_all(TRANSFER_ENCODING).iter().count() > 1;
        async move {
            let mut response = Response::new(Empty::<Bytes>::new());
            if fault.is_some() || coded {
                // As the edge does: nothing of it is served, and the connection ends.
                *response.status_mut() = StatusCode::BAD_REQUEST;
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            } else if let Ok(body) = body.collect().await {
                start.set(at.get());
                if let Some((last, _)) = seen.borrow_mut().last_mut() {
                    last.body = Some(body.to_bytes());
                }
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None).max_buf_size(64 * 1024);
    // Nothing here waits for anything, so one poll after the other ends it.
    let mut connection = std::pin::pin!(builder.serve_connection(wire, service));
    let mut context = Context::from_waker(std::task::Waker::noop());
    let polls = 16 * (data.len() + 16);
    let ended = (0..polls).any(|_| Future::poll(connection.as_mut(), &mut context).is_ready());
    assert!(ended, "a connection whose bytes are over ends");
    seen.take()
}

/// The first refused request and why, and how many heads have ended, for bytes that come in such pieces.
fn verdict(data: &[u8], size: usize) -> (Option<(u64, Fault)>, u64) {
    let mut scanner = Scanner::default();
    data.chunks(size.max(1)).for_each(|piece| scanner.feed(piece));
    let findings = scanner.findings();
    let first = (0..=scanner.heads()).find_map(|number| findings.fault(number).map(|fault| (number, fault)));
    (first, scanner.heads())
}

/// Whether a head shows what must be refused, by a reading of its own. hyper has taken it, so it is well formed.
fn is_smuggling(head: &[u8]) -> bool {
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).skip_while(|line| line.is_empty());
    let hash = lines.next().is_some_and(|line| line.contains(&b'#'));
    let names: Vec<Vec<u8>> =
        lines.filter_map(|line| line.split(|byte| *byte == b':').next()).map(<[u8]>::to_ascii_lowercase).collect();
    let has = |wanted: &[u8]| names.iter().any(|name| name == wanted);
    hash || has(b"content-length") && has(b"transfer-encoding")
}

/// The bytes are those of one connection.
pub(crate) fn run(data: &[u8]) {
    if data.len() > INPUT_BYTES_MAX {
        return;
    }
    let whole = verdict(data, data.len());
    for size in [1, 2, 7, 64] {
        assert_eq!(verdict(data, size), whole, "pieces of {size} bytes change the verdict");
    }
    let shared: Rc<[u8]> = Rc::from(data);
    let one_by_one = serve(&shared, 1);
    let mut scanner = Scanner::default();
    let mut heads = vec![0];
    for byte in data {
        scanner.feed(std::slice::from_ref(byte));
        heads.push(scanner.heads());
    }
    for (number, (seen, place)) in one_by_one.iter().enumerate() {
        if seen.fault.is_some() {
            break;
        }
        let number = number as u64;
        let ended = (heads[place.head_end - 1], heads[place.head_end]);
        assert_eq!(ended, (number, number + 1), "hyper ends head {number} at byte {}: {seen:?}", place.head_end);
        let head = &data[place.start..place.head_end];
        assert!(!is_smuggling(head), "request {number} is served: {}", head.escape_ascii());
    }
    let strip = |seen: Vec<(Seen, Place)>| seen.into_iter().map(|(seen, _)| seen).collect::<Vec<_>>();
    assert_eq!(strip(serve(&shared, usize::MAX / 2)), strip(one_by_one), "one piece is served otherwise");
}
