//! A second, strict look at HTTP/1 requests as they are read, for what the HTTP library takes away without a word.
//!
//! hyper drops `Content-Length` when `Transfer-Encoding` is there too, and a `#` with all behind it from the target.
//! Both are signs of request smuggling (RFC 9112 sections 3.2 and 6.1), so the bytes are followed here from head to
//! head, one by one and without keeping them, so that no line is too long. What is not understood to the last byte is a
//! fault: then nothing on the connection is served from there on, whatever hyper makes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `Content-Length` and `Transfer-Encoding` together.
    TwoLengths,
    /// A `#` in the request line.
    Fragment,
    /// Its head, or the body in front of it, is not spelled as RFC 9112 has it, so that its bounds are not certain.
    Unclear,
}

impl Fault {
    /// A sentence for the access log and the answer.
    pub fn sentence(self) -> &'static str {
        match self {
            Fault::TwoLengths => "Content-Length and Transfer-Encoding together",
            Fault::Fragment => "a '#' in the request target",
            Fault::Unclear => "it is not certain where the request begins and ends",
        }
    }
}

/// What the scanner found, seen from the service: requests are numbered from 0 as they come on the connection.
#[derive(Clone, Debug, Default)]
pub struct Findings(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Number of the first refused request, plus 1.
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
        Some(match self.0.kind.load(Ordering::Acquire) {
            1 => Fault::TwoLengths,
            2 => Fault::Fragment,
            _ => Fault::Unclear,
        })
    }

    /// The connection speaks something else from here on: stop looking.
    pub fn stop(&self) {
        self.0.opaque.store(true, Ordering::Release);
    }

    fn record(&self, number: u64, fault: Fault) {
        let kind = match fault {
            Fault::TwoLengths => 1,
            Fault::Fragment => 2,
            Fault::Unclear => 3,
        };
        self.0.kind.store(kind, Ordering::Release);
        self.0.first.store(number + 1, Ordering::Release);
    }
}

/// The two names that say where a body ends. Nothing else in a head does (RFC 9112 section 6).
const CONTENT_LENGTH: &[u8] = b"content-length";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding";
/// The one coding that is served.
const CHUNKED: &[u8] = b"chunked";

/// Follows the bytes of one connection.
#[derive(Debug, Default)]
pub struct Scanner {
    findings: Findings,
    state: State,
    /// Heads that are over.
    heads: u64,
    hash: bool,
    length: Option<u64>,
    encoding: Encoding,
    /// The name of the header at hand, as long as it may be one of the two, in lower case.
    name: [u8; TRANSFER_ENCODING.len()],
    /// How long that name is, also when it is longer than what is kept.
    name_length: usize,
    /// The length or the size of a chunk, as far as it was read.
    number: u64,
}

/// What comes next. Each arm of [`Scanner::step`] says which bytes may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// A request, or an empty line in front of it (RFC 9112 section 2.2).
    #[default]
    Start,
    /// The end of such an empty line.
    StartLf,
    RequestLine,
    /// A header, or the end of the head.
    LineStart,
    Name,
    /// The value of a header that says nothing of lengths.
    Value,
    Length(Part),
    /// How much of `chunked` was read.
    Encoding(Part, usize),
    /// The end of a line of the head.
    LineLf,
    /// The end of the head.
    HeadLf,
    Sized(u64),
    ChunkStart,
    ChunkSize,
    ChunkSpace,
    ChunkExtension,
    ChunkLf,
    ChunkData(u64),
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    /// The end of a chunked body.
    BodyLf,
    /// Nothing is looked at any more.
    Over,
}

/// Where in a value: white space may stand before and after it (RFC 9112 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Before,
    Within,
    After,
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

    /// How many heads have ended in what was read.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Takes the next bytes that were read.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        if self.state != State::Over && self.findings.0.opaque.load(Ordering::Acquire) {
            self.state = State::Over;
        }
        while let Some((byte, rest)) = bytes.split_first() {
            match self.state {
                State::Over => return,
                State::Sized(left) | State::ChunkData(left) => {
                    let taken = left.min(bytes.len() as u64);
                    bytes = bytes.get(usize::try_from(taken).unwrap_or(bytes.len())..).unwrap_or_default();
                    self.state = match (self.state, left - taken) {
                        (State::Sized(_), 0) => State::Start,
                        (State::Sized(_), left) => State::Sized(left),
                        (_, 0) => State::DataCr,
                        (_, left) => State::ChunkData(left),
                    };
                }
                State::RequestLine | State::Value => {
                    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
                    let (text, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
                    self.hash |= self.state == State::RequestLine && text.contains(&b'#');
                    bytes = rest;
                    if let Some((end, rest)) = rest.split_first() {
                        self.state = if *end == b'\r' { State::LineLf } else { State::LineStart };
                        bytes = rest;
                    }
                }
                _ => {
                    self.state = self.step(*byte);
                    bytes = rest;
                }
            }
        }
    }

    fn step(&mut self, byte: u8) -> State {
        match (self.state, byte) {
            (State::Start, b'\r') => State::StartLf,
            (State::Start | State::StartLf, b'\n') => State::Start,
            (State::Start, _) => {
                self.hash = byte == b'#';
                State::RequestLine
            }
            (State::LineLf, b'\n') => State::LineStart,
            (State::LineStart, b'\r') => State::HeadLf,
            (State::LineStart | State::HeadLf, b'\n') => self.head_ends(),
            (State::LineStart, _) if is_token(byte) => {
                self.name_length = 0;
                self.name_goes_on(byte)
            }
            (State::Name, b':') => self.name_ends(),
            (State::Name, _) if is_token(byte) => self.name_goes_on(byte),
            (State::Length(part), _) => self.length_goes_on(part, byte),
            (State::Encoding(part, read), _) => self.encoding_goes_on(part, read, byte),
            (State::ChunkStart, _) if byte.is_ascii_hexdigit() => {
                self.number = 0;
                self.chunk_size_goes_on(byte)
            }
            (State::ChunkSize, _) if byte.is_ascii_hexdigit() => self.chunk_size_goes_on(byte),
            (State::ChunkSize | State::ChunkSpace, b' ' | b'\t') => State::ChunkSpace,
            (State::ChunkSize | State::ChunkSpace, b';') => State::ChunkExtension,
            (State::ChunkSize | State::ChunkSpace | State::ChunkExtension, b'\r') => State::ChunkLf,
            (State::ChunkExtension, _) if byte != b'\n' => State::ChunkExtension,
            (State::ChunkLf, b'\n') if self.number == 0 => State::TrailerStart,
            (State::ChunkLf, b'\n') => State::ChunkData(self.number),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::ChunkStart,
            (State::TrailerStart, b'\r') => State::BodyLf,
            (State::Trailer, b'\r') => State::TrailerLf,
            // Where one server sees the end of a line in a bare LF and another does not, one ends the body and the other
            // does not.
            (State::TrailerStart | State::Trailer, _) if byte != b'\n' => State::Trailer,
            (State::TrailerLf, b'\n') => State::TrailerStart,
            (State::BodyLf, b'\n') => State::Start,
            _ => self.unclear(),
        }
    }

    /// Whatever comes next is refused: the head at hand, or the first one behind the body at hand.
    fn unclear(&mut self) -> State {
        self.findings.record(self.heads, Fault::Unclear);
        State::Over
    }

    fn name_goes_on(&mut self, byte: u8) -> State {
        if let Some(kept) = self.name.get_mut(self.name_length) {
            *kept = byte.to_ascii_lowercase();
        }
        self.name_length = self.name_length.saturating_add(1);
        State::Name
    }

    fn name_ends(&mut self) -> State {
        match self.name.get(..self.name_length) {
            Some(CONTENT_LENGTH) => State::Length(Part::Before),
            Some(TRANSFER_ENCODING) => State::Encoding(Part::Before, 0),
            _ => State::Value,
        }
    }

    fn length_goes_on(&mut self, part: Part, byte: u8) -> State {
        match (part, byte) {
            (Part::Before, b' ' | b'\t') => State::Length(Part::Before),
            (Part::Within | Part::After, b' ' | b'\t') => State::Length(Part::After),
            (Part::Before | Part::Within, b'0'..=b'9') => {
                let before = if part == Part::Before { 0 } else { self.number };
                let number = before.checked_mul(10).and_then(|n| n.checked_add(u64::from(byte - b'0')));
                match number {
                    Some(number) => {
                        self.number = number;
                        State::Length(Part::Within)
                    }
                    None => self.unclear(),
                }
            }
            (Part::Within | Part::After, b'\r' | b'\n') => {
                if self.length.is_some_and(|length| length != self.number) {
                    return self.unclear();
                }
                self.length = Some(self.number);
                line_ends(byte)
            }
            _ => self.unclear(),
        }
    }

    fn encoding_goes_on(&mut self, part: Part, read: usize, byte: u8) -> State {
        match (part, byte) {
            (Part::Before, b' ' | b'\t') => State::Encoding(Part::Before, 0),
            (Part::Within | Part::After, b' ' | b'\t') => State::Encoding(Part::After, read),
            (_, b'\r' | b'\n') => {
                let chunked = read == CHUNKED.len() && self.encoding == Encoding::None;
                self.encoding = if chunked { Encoding::Chunked } else { Encoding::Other };
                line_ends(byte)
            }
            (Part::Before | Part::Within, _) if CHUNKED.get(read) == Some(&byte.to_ascii_lowercase()) => {
                State::Encoding(Part::Within, read + 1)
            }
            _ => {
                self.encoding = Encoding::Other;
                State::Value
            }
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
            (_, Encoding::Chunked) => State::ChunkStart,
            // hyper or the edge refuses it by a status of its own. Where its body ends is not known.
            (_, Encoding::Other) => self.unclear(),
            (Some(length @ 1..), Encoding::None) => State::Sized(length),
            (_, Encoding::None) => State::Start,
        }
    }

    /// The size in front of a chunk (RFC 9112 section 7.1).
    fn chunk_size_goes_on(&mut self, byte: u8) -> State {
        let digit = char::from(byte).to_digit(16).map(u64::from);
        match digit.and_then(|digit| self.number.checked_mul(16)?.checked_add(digit)) {
            Some(number) => {
                self.number = number;
                State::ChunkSize
            }
            None => self.unclear(),
        }
    }
}

fn line_ends(byte: u8) -> State {
    if byte == b'\r' { State::LineLf } else { State::LineStart }
}

/// A character of a header's name (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
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

    const BAD: &str = "POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[test]
    fn no_line_is_too_long_to_be_understood() {
        let (spaces, tabs, zeros, long) = (" ".repeat(300), "\t".repeat(300), "0".repeat(300), "x".repeat(300));
        for (what, good) in [
            ("spaces before a length", format!("POST / HTTP/1.1\r\nContent-Length:{spaces}3\r\n\r\nabc")),
            ("spaces after a length", format!("POST / HTTP/1.1\r\nContent-Length: 3{spaces}\r\n\r\nabc")),
            ("tabs before a length", format!("POST / HTTP/1.1\r\nContent-Length:{tabs}3{tabs}\r\n\r\nabc")),
            ("zeros before a length", format!("POST / HTTP/1.1\r\nContent-Length: {zeros}3\r\n\r\nabc")),
            (
                "spaces around a coding",
                format!("POST / HTTP/1.1\r\nTransfer-Encoding:{spaces}chunked{tabs}\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
            ),
            (
                "zeros before the size of a chunk",
                format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{zeros}3\r\nabc\r\n{zeros}\r\n\r\n"),
            ),
            (
                "spaces and a long extension behind the size of a chunk",
                format!(
                    "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3{spaces};{long}\r\nabc\r\n0;{long}\r\n\r\n"
                ),
            ),
            (
                "a long trailer",
                format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{long}: {long}\r\n\r\n"),
            ),
            ("a long name", format!("GET / HTTP/1.1\r\nContent-Length{long}: 3\r\n{long}: a\r\n\r\n")),
            ("a long target", format!("GET /{long} HTTP/1.1\r\n\r\n")),
            ("empty lines in front", format!("{}GET / HTTP/1.1\r\n\r\n", "\r\n\n".repeat(200))),
        ] {
            assert_eq!(fault(&[&good, &*good].concat()), None, "{what}");
            assert_eq!(fault(&[&good, BAD].concat()), Some((1, Fault::TwoLengths)), "{what}");
        }
    }

    #[test]
    fn a_head_that_is_not_understood_is_refused() {
        for (what, head) in [
            ("a folded line", "GET / HTTP/1.1\r\nX: a\r\n Content-Length: 3\r\n\r\n"),
            ("a line of spaces", "GET / HTTP/1.1\r\nX: a\r\n \r\n\r\n"),
            ("a line without colon", "GET / HTTP/1.1\r\nX\r\n\r\n"),
            ("a space in a name", "GET / HTTP/1.1\r\nContent-Length : 3\r\n\r\n"),
            ("a byte of no name", "GET / HTTP/1.1\r\nContent\0Length: 3\r\n\r\n"),
            ("an empty name", "GET / HTTP/1.1\r\n: 3\r\n\r\n"),
            ("a bare CR in a value", "GET / HTTP/1.1\r\nX: a\rContent-Length: 3\r\n\r\n"),
            ("a bare CR in the request line", "GET /\r HTTP/1.1\r\n\r\n"),
            ("a bare CR in front", "\rGET / HTTP/1.1\r\n\r\n"),
            ("a bare CR at the end", "GET / HTTP/1.1\r\n\rX: a\r\n\r\n"),
            ("no length", "GET / HTTP/1.1\r\nContent-Length:\r\n\r\n"),
            ("a sign", "GET / HTTP/1.1\r\nContent-Length: +3\r\n\r\n"),
            ("a list", "GET / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\n"),
            ("two numbers", "GET / HTTP/1.1\r\nContent-Length: 3 3\r\n\r\n"),
            ("a huge number", "GET / HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n\r\n"),
            ("another base", "GET / HTTP/1.1\r\nContent-Length: 0x3\r\n\r\n"),
            ("a form feed", "GET / HTTP/1.1\r\nContent-Length: \x0c3\r\n\r\n"),
            ("two lengths that differ", "GET / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n"),
        ] {
            assert_eq!(fault(head), Some((0, Fault::Unclear)), "{what}");
        }
        assert_eq!(fault("GET / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 01\r\n\r\nx"), None);
    }

    #[test]
    fn nothing_is_served_behind_a_body_that_is_not_understood() {
        for coding in
            ["gzip", "chunked, chunked", "xchunked", "chunkedx", "chunk", "", "chunked\r\nTransfer-Encoding: chunked"]
        {
            let head = format!("POST / HTTP/1.1\r\nTransfer-Encoding: {coding}\r\n\r\n");
            assert_eq!(fault(&head), Some((1, Fault::Unclear)), "{coding}");
        }
        for body in [
            "\r\n",
            " 3\r\nabc\r\n",
            "+3\r\nabc\r\n",
            "0x3\r\nabc\r\n",
            "3\nabc\r\n",
            "3 3\r\nabc\r\n",
            "3\rabc",
            "3;a\nb\r\n",
            "3;a\rb\r\n",
            "3\r\nabcd\r\n",
            "3\r\nabc\n",
            "3\r\nabc\rx",
            "10000000000000000\r\n",
            "0\r\n\n",
            "0\r\nX: a\n\r\n",
            "0\r\nX: a\rb\r\n",
            "0\r\n\rx",
            "0\n",
        ] {
            let stream = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
            assert_eq!(fault(&stream), Some((1, Fault::Unclear)), "{body:?}");
        }
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
