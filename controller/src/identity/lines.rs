//! Lines from a descriptor that may carry keys: nothing of them stays in memory longer than needed.

use std::io;
use std::os::fd::AsFd;

use zeroize::{Zeroize, Zeroizing};

/// The longest line, in bytes.
const LONGEST: usize = 64 * 1024;

/// Reads lines without leaving copies in buffers of others.
#[derive(Debug)]
pub(super) struct Lines<F> {
    fd: F,
    buffer: Zeroizing<Vec<u8>>,
}

impl<F: AsFd> Lines<F> {
    pub(super) fn new(fd: F) -> Lines<F> {
        // Never grown, so that no old copy is left behind.
        Lines { fd, buffer: Zeroizing::new(Vec::with_capacity(LONGEST + 4096)) }
    }

    /// The next line without its end; nothing at the end of the input. Blocks.
    pub(super) fn next(&mut self) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line = Zeroizing::new(self.buffer[..end].to_vec());
                let length = self.buffer.len();
                self.buffer.copy_within(end + 1.., 0);
                self.buffer[length - end - 1..].zeroize();
                self.buffer.truncate(length - end - 1);
                return Ok(Some(line));
            }
            if self.buffer.len() > LONGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is longer than 64 KiB"));
            }
            let mut chunk = Zeroizing::new([0; 4096]);
            match rustix::io::read(&self.fd, &mut chunk[..]) {
                Ok(0) => return Ok(None),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_come_one_by_one_whatever_the_writes_were() {
        let (read, mut write) = io::pipe().unwrap();
        let writer = std::thread::spawn(move || {
            for part in ["on", "e\ntwo\nth", "ree\n", "", "rest"] {
                write.write_all(part.as_bytes()).unwrap();
            }
        });
        let mut lines = Lines::new(read);
        for expected in ["one", "two", "three"] {
            assert_eq!(lines.next().unwrap().unwrap().as_slice(), expected.as_bytes());
        }
        assert!(lines.next().unwrap().is_none());
        writer.join().unwrap();
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let (read, mut write) = io::pipe().unwrap();
        let writer = std::thread::spawn(move || {
            // The reader may have gone away by then.
            let _ = write.write_all(&vec![b'x'; LONGEST * 2]);
        });
        assert!(Lines::new(read).next().is_err());
        writer.join().unwrap();
    }
}
