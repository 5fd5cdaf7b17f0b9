//! A journal written anew: the accepted state as one transaction, each put copied as it stands.

use std::io::{self, Write};

use crate::digest::Place;
use crate::record::{Checksum, Commit, Record};
use crate::{Key, Outline};

/// What a journal holds when it is written anew. Its puts are still those of the old text.
#[derive(Debug)]
pub struct Anew<'a> {
    first: Vec<u8>,
    puts: Vec<&'a [u8]>,
    last: Vec<u8>,
}

impl Anew<'_> {
    /// What `text` says, as a journal with another id. The commit, its version and its root stay the same.
    ///
    /// # Errors
    /// When `text` is not a journal up to a settled offset, whole and undamaged: then it would say less than it did.
    pub fn of<'a>(text: &'a [u8], id: &str) -> io::Result<Anew<'a>> {
        Anew::from_outline(text, Outline::of(text), id)
    }

    /// As [`Anew::of`], but of no epoch: none was seen, and the version is 0.0, which no controller gives and which is below all others.
    /// For a volume whose epoch no controller believes. What was not settled is left out.
    ///
    /// # Errors
    /// When `text` is damaged before the end of what it settled.
    pub fn without_epoch<'a>(text: &'a [u8], id: &str) -> io::Result<Anew<'a>> {
        let settled = usize::try_from(Outline::of(text).settled).ok().and_then(|len| text.get(..len));
        let text = settled.ok_or(io::ErrorKind::InvalidData)?;
        let mut outline = Outline::of(text);
        outline.highest_epoch = 0;
        outline.head.iter_mut().for_each(|head| head.version = (0, 0));
        Anew::from_outline(text, outline, id)
    }

    fn from_outline<'a>(text: &'a [u8], outline: Outline, id: &str) -> io::Result<Anew<'a>> {
        if outline.settled != text.len() as u64 {
            let why =
                outline.corrupt.map_or_else(|| "it does not end settled".to_owned(), |corrupt| corrupt.to_string());
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the journal is damaged: {why}")));
        }
        let mut anew = Anew { first: Vec::new(), puts: Vec::new(), last: Vec::new() };
        Record::Journal { id: id.to_owned() }.encode_into(&mut anew.first);
        if outline.highest_epoch > 0 {
            Record::Epoch { highest: outline.highest_epoch }.encode_into(&mut anew.first);
        }
        if !outline.condemned.is_empty() {
            let leaves = outline.condemned.into_iter().collect();
            Record::Condemned { leaves }.encode_into(&mut anew.first);
        }
        let Some(head) = outline.head else { return Ok(anew) };
        let mut places: Vec<(&Key, Place)> = outline.tree.places().collect();
        places.sort_unstable_by_key(|(key, _)| *key);
        let puts: Option<Vec<&[u8]>> = places.iter().map(|(_, place)| line_of(text, *place)).collect();
        anew.puts = puts.ok_or(io::ErrorKind::InvalidData)?;
        let mut sum = Checksum::over(anew.puts.iter().map(|line| line.len() as u64).sum());
        anew.puts.iter().for_each(|line| sum.add(line));
        let (epoch, generation) = head.version;
        let checksum = sum.end(head.commit, epoch, generation, &head.root);
        let commit = Commit { id: head.commit, epoch, generation, root: head.root, checksum };
        Record::Commit(commit).encode_into(&mut anew.last);
        Record::Accepted { id: head.commit }.encode_into(&mut anew.last);
        Ok(anew)
    }

    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&*self.first).chain(self.puts.iter().copied()).chain(std::iter::once(&*self.last))
    }

    /// How many bytes it has.
    pub fn len(&self) -> u64 {
        self.parts().map(|part| part.len() as u64).sum()
    }

    /// Never: it has a first record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes it.
    ///
    /// # Errors
    /// When that fails.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        self.parts().try_for_each(|part| out.write_all(part))
    }
}

/// The whole line of the put whose body stands there, its line feed included.
fn line_of(text: &[u8], place: Place) -> Option<&[u8]> {
    let from = usize::try_from(place.offset()).ok()?;
    let start = text.get(..from)?.iter().rposition(|b| *b == b'\n')? + 1;
    // Two braces and the line feed follow.
    text.get(start..from + place.len() + 3)
}
