//! One record of a journal: one JSON object on one line.
//!
//! `config.jsonl` holds [`Record::Journal`] first, then transactions: puts and removes, a commit, a try for each attempt,
//! and `accepted`. `members.jsonl` holds [`Record::Journal`] first, then [`Record::Set`] and [`Record::Drop`].

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{Digest, Key, digest};

/// What a commit says about its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// Grows within one journal, from 1.
    pub id: u64,
    /// The epoch of the version that the state has after it.
    pub epoch: u64,
    /// The generation of that version.
    pub generation: u64,
    /// The root of the state after it.
    pub root: Digest,
    /// [`checksum`] over the transaction.
    pub checksum: Digest,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Names the journal. Always the first record and only there.
    Journal {
        /// Random.
        id: String,
    },
    /// The highest epoch that the agent has seen.
    Epoch {
        /// The epoch.
        highest: u64,
    },
    /// A resource appears or gets another body.
    Put {
        /// Kind and name.
        key: Key,
        /// The secrets that the body names.
        secrets: Arc<[Digest]>,
        /// One compact JSON value; see [`check_body`].
        body: Bytes,
    },
    /// A resource goes.
    Remove {
        /// Kind and name.
        key: Key,
    },
    /// Ends the changes of a transaction.
    Commit(Commit),
    /// The agent is about to ask `scalwsd` to load the commit before it.
    Try {
        /// The commit.
        commit: u64,
        /// The start id of that `scalwsd`.
        start: String,
    },
    /// `scalwsd` runs the commit before it.
    Accepted {
        /// The commit.
        id: u64,
    },
    /// Leaves on which `scalwsd` died: the whole list, which replaces the one before.
    Condemned {
        /// Sorted.
        leaves: Vec<Digest>,
    },
    /// A member set as `scalwsd` took it.
    Set {
        /// The set.
        name: Arc<str>,
        /// `address:port`, sorted.
        members: Arc<[Arc<str>]>,
        /// [`digest::members`] of both.
        digest: Digest,
    },
    /// A member set is gone.
    Drop {
        /// The set.
        name: Arc<str>,
    },
}

/// The form in which a line is read and written, except a put's body, which is written as it came.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line<'a> {
    Journal {
        #[serde(borrow)]
        id: Cow<'a, str>,
    },
    Epoch {
        highest: u64,
    },
    Put {
        #[serde(borrow)]
        kind: Cow<'a, str>,
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        secrets: Vec<Digest>,
        #[serde(borrow)]
        body: &'a RawValue,
    },
    Remove {
        #[serde(borrow)]
        kind: Cow<'a, str>,
        #[serde(borrow)]
        name: Cow<'a, str>,
    },
    Commit(Commit),
    Try {
        commit: u64,
        #[serde(borrow)]
        start: Cow<'a, str>,
    },
    Accepted {
        id: u64,
    },
    Condemned {
        leaves: Vec<Digest>,
    },
    Set {
        #[serde(borrow)]
        name: Cow<'a, str>,
        members: Vec<Cow<'a, str>>,
        digest: Digest,
    },
    Drop {
        #[serde(borrow)]
        name: Cow<'a, str>,
    },
}

/// A body or a line that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes are not what a journal may hold as a body.
    #[error("the body of {key} {why}; it must be one compact JSON value without control characters")]
    Body {
        /// The resource.
        key: Key,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A line is no record.
    #[error("not a journal record: {0}")]
    Line(String),
}

/// Checks that a body may stand in a journal: one JSON value in UTF-8, no white space between its tokens, no byte
/// below 0x20.
///
/// # Errors
/// When it may not, with what is wrong.
pub fn check_body(key: &Key, body: &[u8]) -> Result<(), RecordError> {
    check_form(key, body)?;
    if serde_json::from_slice::<&RawValue>(body).is_err() {
        return Err(RecordError::Body { key: key.clone(), why: "is not one JSON value" });
    }
    Ok(())
}

/// As [`check_body`], for what is one JSON value.
fn check_form(key: &Key, body: &[u8]) -> Result<(), RecordError> {
    let fail = |why| Err(RecordError::Body { key: key.clone(), why });
    if body.iter().any(|b| *b < 0x20) {
        return fail("holds a byte below 0x20");
    }
    if has_loose_space(body) {
        return fail("holds white space between its tokens");
    }
    Ok(())
}

/// Whether there is a space outside of strings.
fn has_loose_space(body: &[u8]) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    for byte in body {
        match (quoted, byte) {
            (false, b' ') => return true,
            (false, b'"') => quoted = true,
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => quoted = false,
            _ => {}
        }
    }
    false
}

/// The checksum of a transaction: over the bytes of its lines before the commit, and what the commit says.
pub fn checksum(lines: &[u8], id: u64, epoch: u64, generation: u64, root: &Digest) -> Digest {
    digest::hash(&[lines, &id.to_le_bytes(), &epoch.to_le_bytes(), &generation.to_le_bytes(), &root.0])
}

/// [`checksum`] over lines that come one after the other.
pub(crate) struct Checksum(blake3::Hasher);

impl Checksum {
    /// Over lines of so many bytes in all.
    pub(crate) fn over(len: u64) -> Checksum {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&len.to_le_bytes());
        Checksum(hasher)
    }

    pub(crate) fn add(&mut self, line: &[u8]) {
        self.0.update(line);
    }

    pub(crate) fn end(mut self, id: u64, epoch: u64, generation: u64, root: &Digest) -> Digest {
        for part in [&id.to_le_bytes()[..], &epoch.to_le_bytes(), &generation.to_le_bytes(), &root.0] {
            self.0.update(&(part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
        Digest(*self.0.finalize().as_bytes())
    }
}

impl Record {
    /// Appends the line, its line feed included. A body is written byte for byte.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        match self {
            Record::Put { key, secrets, body } => encode_put(key, secrets, body, out),
            Record::Journal { id } => write_line(&Line::Journal { id: id.into() }, out),
            Record::Epoch { highest } => write_line(&Line::Epoch { highest: *highest }, out),
            Record::Remove { key } => {
                write_line(&Line::Remove { kind: Cow::from(&*key.kind), name: Cow::from(&*key.name) }, out);
            }
            Record::Commit(commit) => write_line(&Line::Commit(*commit), out),
            Record::Try { commit, start } => write_line(&Line::Try { commit: *commit, start: start.into() }, out),
            Record::Accepted { id } => write_line(&Line::Accepted { id: *id }, out),
            Record::Condemned { leaves } => write_line(&Line::Condemned { leaves: leaves.clone() }, out),
            Record::Set { name, members, digest } => {
                let members = members.iter().map(|m| Cow::from(&**m)).collect();
                write_line(&Line::Set { name: Cow::from(&**name), members, digest: *digest }, out);
            }
            Record::Drop { name } => write_line(&Line::Drop { name: Cow::from(&**name) }, out),
        }
    }

    /// Reads a line without its line feed.
    ///
    /// # Errors
    /// When it is no record: unknown fields, a body that [`check_body`] refuses or that is not last in its line.
    pub fn decode(line: &[u8]) -> Result<Record, RecordError> {
        Ok(match Read::of(line)? {
            Read::Put { key, secrets, body } => Record::Put { key, secrets, body: Bytes::copy_from_slice(body) },
            Read::Other(record) => record,
        })
    }
}

/// A record whose body stays where it was read.
pub(crate) enum Read<'a> {
    /// [`Record::Put`].
    Put { key: Key, secrets: Arc<[Digest]>, body: &'a [u8] },
    /// Every other one.
    Other(Record),
}

impl Read<'_> {
    /// As [`Record::decode`].
    pub(crate) fn of(line: &[u8]) -> Result<Read<'_>, RecordError> {
        let fail = |e: serde_json::Error| RecordError::Line(e.to_string());
        let key = |kind: Cow<'_, str>, name: Cow<'_, str>| Key::new(&kind, &name);
        Ok(Read::Other(match serde_json::from_slice::<Line<'_>>(line).map_err(fail)? {
            Line::Put { kind, name, secrets, body } => {
                let key = key(kind, name);
                let body = body.get().as_bytes();
                check_form(&key, body)?;
                if !line.strip_suffix(b"}}").is_some_and(|head| head.ends_with(body)) {
                    return Err(RecordError::Line(format!("the body of {key} is not last in its line")));
                }
                // Most name none, and the empty list is shared.
                let secrets = if secrets.is_empty() { Arc::default() } else { secrets.into() };
                return Ok(Read::Put { key, secrets, body });
            }
            Line::Journal { id } => Record::Journal { id: id.into_owned() },
            Line::Epoch { highest } => Record::Epoch { highest },
            Line::Remove { kind, name } => Record::Remove { key: key(kind, name) },
            Line::Commit(commit) => Record::Commit(commit),
            Line::Try { commit, start } => Record::Try { commit, start: start.into_owned() },
            Line::Accepted { id } => Record::Accepted { id },
            Line::Condemned { leaves } => Record::Condemned { leaves },
            Line::Set { name, members, digest } => {
                let members = members.iter().map(|m| Arc::from(&**m)).collect();
                Record::Set { name: Arc::from(&*name), members, digest }
            }
            Line::Drop { name } => Record::Drop { name: Arc::from(&*name) },
        }))
    }
}

/// Key and body of a line that is a put, as [`Record::encode_into`] writes it: for lines whose checksum is known. The
/// body is not looked at.
pub(crate) fn put_at(line: &[u8]) -> Option<(Key, std::ops::Range<usize>)> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        kind: Cow<'a, str>,
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(default, rename = "secrets")]
        _secrets: Vec<Digest>,
    }
    const BODY: &[u8] = br#","body":"#;
    let inner = line.strip_prefix(br#"{"put":"#)?;
    // No text before the body holds a quote that is not escaped.
    let at = inner.windows(BODY.len()).position(|window| window == BODY)?;
    let head = [inner.get(..at)?, b"}"].concat();
    let head: Head<'_> = serde_json::from_slice(&head).ok()?;
    let from = line.len() - inner.len() + at + BODY.len();
    Some((Key::new(&head.kind, &head.name), from..line.len().checked_sub(2)?))
}

fn write_line(line: &Line<'_>, out: &mut Vec<u8>) {
    // A Vec takes every write, and no map here has keys that are not strings.
    let _infallible = serde_json::to_writer(&mut *out, line);
    out.push(b'\n');
}

fn encode_put(key: &Key, secrets: &[Digest], body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"put":{"kind":"#);
    let _infallible = serde_json::to_writer(&mut *out, &*key.kind);
    out.extend_from_slice(br#","name":"#);
    let _infallible = serde_json::to_writer(&mut *out, &*key.name);
    if !secrets.is_empty() {
        out.extend_from_slice(br#","secrets":"#);
        let _infallible = serde_json::to_writer(&mut *out, secrets);
    }
    out.extend_from_slice(br#","body":"#);
    out.extend_from_slice(body);
    out.extend_from_slice(b"}}\n");
}

/// Appends a whole transaction up to its commit: the changes and the commit with its checksum.
pub fn encode_transaction(
    changes: impl IntoIterator<Item = Record>,
    id: u64,
    version: (u64, u64),
    root: Digest,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    for change in changes {
        change.encode_into(out);
    }
    let (epoch, generation) = version;
    let checksum = checksum(&out[start..], id, epoch, generation, &root);
    Record::Commit(Commit { id, epoch, generation, root, checksum }).encode_into(out);
}
