//! Regular expressions with bounds, in linear time: of paths (anchored at the start) and of values (anchored at both ends).

use std::ops::Range;

use config::limits::MATCH_TEXT_BYTES_MAX;
use regex_automata::meta::{Config, Regex};
use regex_automata::util::captures::Captures as Slots;
use regex_automata::{Anchored, Input};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, Look};

/// The most memory of one compiled expression, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// How deep groups may nest.
const NESTING_MAX: u32 = 64;

/// A compiled expression.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Regex);

/// The parts of a path that the groups of an expression took. Group 0 is the whole match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captures(Vec<Option<Range<usize>>>);

impl Captures {
    /// The text of a group in the path that was matched; empty when the group took no part or does not exist.
    pub fn text<'p>(&self, path: &'p str, group: usize) -> &'p str {
        self.0.get(group).cloned().flatten().and_then(|range| path.get(range)).unwrap_or("")
    }
}

impl Pattern {
    /// An expression for paths: it must match from the first character on, and may end anywhere.
    pub(crate) fn of_path(text: &str) -> Result<Pattern, String> {
        Pattern::build(text, |hir| vec![Hir::look(Look::Start), hir])
    }

    /// An expression for values: it must match the whole value.
    pub(crate) fn of_value(text: &str) -> Result<Pattern, String> {
        Pattern::build(text, |hir| vec![Hir::look(Look::Start), hir, Hir::look(Look::End)])
    }

    // The anchors are put around the parsed expression, so no text can reach out of them.
    fn build(text: &str, anchor: impl FnOnce(Hir) -> Vec<Hir>) -> Result<Pattern, String> {
        if text.len() > MATCH_TEXT_BYTES_MAX {
            return Err(format!("the expression is longer than {MATCH_TEXT_BYTES_MAX} bytes"));
        }
        let hir = ParserBuilder::new()
            .nest_limit(NESTING_MAX)
            .build()
            .parse(text)
            .map_err(|e| format!("the expression {text:?} cannot be read: {}", reason(&e)))?;
        let config = Config::new()
            .nfa_size_limit(Some(PATTERN_BYTES_MAX))
            .onepass_size_limit(Some(PATTERN_BYTES_MAX / 4))
            .hybrid_cache_capacity(PATTERN_BYTES_MAX / 4)
            .dfa(false);
        let regex = Regex::builder()
            .configure(config)
            .build_from_hir(&Hir::concat(anchor(hir)))
            .map_err(|_| format!("the expression {text:?} is too large when it is built"))?;
        Ok(Pattern(regex))
    }

    /// The memory it holds, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.memory_usage()
    }

    pub(crate) fn is_match(&self, text: &[u8]) -> bool {
        self.0.is_match(Input::new(text).anchored(Anchored::Yes))
    }

    pub(crate) fn captures(&self, path: &str) -> Captures {
        let mut slots: Slots = self.0.create_captures();
        self.0.search_captures(&Input::new(path).anchored(Anchored::Yes), &mut slots);
        Captures(slots.iter().map(|span| span.map(|span| span.range())).collect())
    }
}

/// What is wrong with an expression, without the drawing that the parser adds.
fn reason(error: &regex_syntax::Error) -> String {
    match error {
        regex_syntax::Error::Parse(e) => e.kind().to_string(),
        regex_syntax::Error::Translate(e) => e.kind().to_string(),
        _ => "unknown fault".to_owned(),
    }
}

/// A text that every match of an expression of paths begins with, at worst `/`. It spares most searches, and stands in for
/// an expression that cannot be built; so it may be too short but never too long.
pub(crate) fn literal_prefix(text: &str) -> String {
    let text = text.strip_prefix('^').unwrap_or(text);
    // Alternatives, and flags that change how literals are read, leave nothing certain.
    if text.contains('|') || text.contains("(?") || !text.starts_with('/') {
        return "/".to_owned();
    }
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let literal = match c {
            // An escaped letter or digit is a class or an assertion.
            '\\' => chars.next().filter(|escaped| escaped.is_ascii_punctuation()),
            '.' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$' | '*' | '+' | '?' => None,
            other => Some(other),
        };
        // Only what stands in a normal form as it is; after a `%` the reading is not certain.
        let Some(literal) = literal.filter(|c| c.is_ascii_alphanumeric() || "-._~/:@!&',;=".contains(*c)) else {
            break;
        };
        // A repeated character may be absent.
        if matches!(chars.peek(), Some('*' | '+' | '?' | '{')) {
            break;
        }
        out.push(literal);
    }
    if !out.starts_with('/') { "/".to_owned() } else { out }
}
