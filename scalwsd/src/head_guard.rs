//! A second, strict look at HTTP/1 request heads as they are read, for what the HTTP library takes away without a word.
//!
//! hyper drops `Content-Length` when `Transfer-Encoding` is there too, and a `#` with all behind it from the target.
//! Both are signs of request smuggling (RFC 9112 sections 3.2 and 6.1), so the bytes are followed here from head to
//! head. The scanner only has to agree with what hyper accepts: what hyper refuses ends the connection anyway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `Content-Length` and `Transfer-Encoding` together.
    TwoLengths,
    /// A `#` in the request line.
    Fragment,
}

impl Fault {
    /// A sentence for the access log and the answer.
    pub fn sentence(self) -> &'static str {
        match self {
            Fault::TwoLengths => "Content-Length and Transfer-Encoding together",
            Fault::Fragment => "a '#' in the request target",
        }
    }
}

/// What the scanner found, seen from the service: requests are numbered from 0 as they come on the connection.
#[derive(Clone, Debug, Default)]
pub struct Findings(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Number of the first refused head, plus 1.
    first: AtomicU64,
    kind: AtomicU8,
    opaque: AtomicBool,
}

impl Findings {
    /// Why the request of this number must be refused. Every one after the first refused one is, too.
    pub fn fault(&self, number: u64) -> Option<Fault> {
        let first = self.0.first.load(Ordering::Acquire);
        if first == 0 || number + 1 < first {
            return None;
        }
        Some(if self.0.kind.load(Ordering::Acquire) == 1 { Fault::TwoLengths } else { Fault::Fragment })
    }

    /// The connection speaks something else from here on: stop looking.
    pub fn stop(&self) {
        self.0.opaque.store(true, Ordering::Release);
    }

    fn record(&self, number: u64, fault: Fault) {
        let kind = if fault == Fault::TwoLengths { 1 } else { 2 };
        self.0.kind.store(kind, Ordering::Release);
        self.0.first.store(number + 1, Ordering::Release);
    }
}

/// How much of a line is kept: enough for every name and number that matters.
const LINE_KEPT: usize = 128;

/// Follows the bytes of one connection.
#[derive(Debug, Default)]
pub struct Scanner {
    findings: Findings,
    state: State,
    heads: u64,
    line: Vec<u8>,
    /// The line was longer than what is kept.
    cut: bool,
    hash: bool,
    length: Option<u64>,
    encoding: Encoding,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    RequestLine,
    Headers,
    Sized(u64),
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    /// Nothing is looked at any more.
    Over,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Encoding {
    #[default]
    None,
    Chunked,
    Other,
}

impl Scanner {
    /// What it finds.
    pub fn findings(&self) -> Findings {
        self.findings.clone()
    }

    /// Takes the next bytes that were read.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        if self.state != State::Over && self.findings.0.opaque.load(Ordering::Acquire) {
            self.state = State::Over;
        }
        while !bytes.is_empty() {
            match self.state {
                State::Over => return,
                State::Sized(left) | State::ChunkData(left) => {
                    let taken = left.min(bytes.len() as u64);
                    bytes = bytes.get(usize::try_from(taken).unwrap_or(bytes.len())..).unwrap_or_default();
                    self.state = match (self.state, left - taken) {
                        (State::Sized(_), 0) => State::RequestLine,
                        (State::Sized(_), left) => State::Sized(left),
                        (_, 0) => State::ChunkEnd,
                        (_, left) => State::ChunkData(left),
                    };
                }
                _ => {
                    let end = bytes.iter().position(|b| *b == b'\n');
                    let (piece, rest) = bytes.split_at(end.map_or(bytes.len(), |at| at + 1));
                    bytes = rest;
                    self.keep(piece);
                    if end.is_some() {
                        self.line_ends();
                    }
                }
            }
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.state == State::RequestLine && piece.contains(&b'#') {
            self.hash = true;
        }
        let room = LINE_KEPT - self.line.len().min(LINE_KEPT);
        self.cut |= piece.len() > room;
        self.line.extend_from_slice(piece.get(..room).unwrap_or(piece));
    }

    fn line_ends(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        let cut = std::mem::take(&mut self.cut);
        let text = line.trim_ascii_end();
        self.state = match self.state {
            // Empty lines in front of a request are skipped (RFC 9112 section 2.2).
            State::RequestLine if text.is_empty() && !cut => State::RequestLine,
            State::RequestLine => State::Headers,
            State::Headers if text.is_empty() && !cut => self.head_ends(),
            State::Headers => {
                self.header(text, cut);
                State::Headers
            }
            State::ChunkSize => match chunk_size(text) {
                Some(0) => State::Trailers,
                Some(size) => State::ChunkData(size),
                None => State::Over,
            },
            State::ChunkEnd => State::ChunkSize,
            State::Trailers if text.is_empty() && !cut => State::RequestLine,
            other => other,
        };
        line.clear();
        self.line = line;
    }

    fn header(&mut self, line: &[u8], cut: bool) {
        let Some(colon) = line.iter().position(|b| *b == b':') else { return };
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let number = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
            // A length that cannot be read is refused by hyper; u64::MAX swallows whatever follows it.
            self.length = Some(number.filter(|_| !cut).unwrap_or(u64::MAX));
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let chunked = value.eq_ignore_ascii_case(b"chunked") && self.encoding == Encoding::None;
            self.encoding = if chunked { Encoding::Chunked } else { Encoding::Other };
        }
    }

    fn head_ends(&mut self) -> State {
        let (length, encoding) = (self.length.take(), std::mem::take(&mut self.encoding));
        let hash = std::mem::take(&mut self.hash);
        let number = self.heads;
        self.heads += 1;
        let fault = match (length, encoding) {
            (Some(_), Encoding::Chunked | Encoding::Other) => Some(Fault::TwoLengths),
            _ => hash.then_some(Fault::Fragment),
        };
        if let Some(fault) = fault {
            self.findings.record(number, fault);
            return State::Over;
        }
        match (length, encoding) {
            (_, Encoding::Chunked) => State::ChunkSize,
            // Refused by the edge, and the connection closes.
            (_, Encoding::Other) => State::Over,
            (Some(length @ 1..), Encoding::None) => State::Sized(length),
            (_, Encoding::None) => State::RequestLine,
        }
    }
}

/// The size in front of a chunk; extensions are skipped (RFC 9112 section 7.1).
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|b| *b == b';').next()?.trim_ascii();
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first fault in a stream of bytes and its number, the same whatever pieces they come in.
    fn fault(stream: &str) -> Option<(u64, Fault)> {
        let results: Vec<_> = [1, 2, 7, 4096]
            .into_iter()
            .map(|size| {
                let mut scanner = Scanner::default();
                stream.as_bytes().chunks(size).for_each(|piece| scanner.feed(piece));
                let findings = scanner.findings();
                (0..9).find_map(|n| findings.fault(n).map(|f| (n, f)))
            })
            .collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{results:?}");
        results[0]
    }

    #[test]
    fn two_lengths_are_found_in_every_order_and_spelling() {
        for head in [
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTRANSFER-ENCODING: chunked\r\nhost: a\r\ncontent-length: 4\r\n\r\n",
            "POST / HTTP/1.1\nTransfer-Encoding:chunked\ncontent-LENGTH:0\n\n",
            "POST / HTTP/1.1\r\nContent-Length: 00000000000000000000000000000000000000000000000000000000000000000000\
             00000000000000000000000000000000000000000000000000000000000000000000000000004\r\nTransfer-Encoding: x\r\n\r\n",
        ] {
            assert_eq!(fault(head), Some((0, Fault::TwoLengths)), "{head:?}");
        }
    }

    #[test]
    fn a_fault_counts_for_its_own_request_only() {
        let good = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
        let sized = "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab\ncd";
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
                       5;ext=1\r\nab\r\nc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
        let bad = "POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(fault(&[good, sized, chunked, good].concat()), None);
        assert_eq!(fault(&[good, sized, chunked, good, bad].concat()), Some((4, Fault::TwoLengths)));
        assert_eq!(fault(&["\r\n\r\n", good, bad].concat()), Some((1, Fault::TwoLengths)));
    }

    #[test]
    fn text_in_a_body_is_no_head() {
        let inner = "POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
        let outer = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{inner}GET / HTTP/1.1\r\n\r\n", inner.len());
        assert_eq!(fault(&outer), None);
    }

    #[test]
    fn a_fragment_in_the_target_is_found_and_a_hash_elsewhere_is_not() {
        assert_eq!(fault("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n"), Some((0, Fault::Fragment)));
        assert_eq!(fault("GET /a HTTP/1.1\r\nHost: a\r\nX: #\r\n\r\n"), None);
    }

    #[test]
    fn nothing_is_looked_at_after_the_connection_was_handed_over() {
        let mut scanner = Scanner::default();
        scanner.feed(b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n");
        scanner.findings().stop();
        scanner.feed(b"POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(scanner.findings().fault(9), None);
    }
}
