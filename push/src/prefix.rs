//! The beginning of a digest, where the whole of it would be most of a message.

use journal::Digest;

use crate::wire::Broken;

/// The first 16 bytes of a digest.
///
/// 128 bits tell apart what errors of the two ends, or lost messages, can confuse. Nobody gains from two things with the
/// same beginning: what is compared was also sent, over a connection that is authenticated, and the roots that
/// configurations and heartbeats compare are whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix([u8; 16]);

impl Prefix {
    /// How many bytes it has.
    pub const LEN: usize = 16;

    /// The beginning of this digest.
    pub fn of(digest: &Digest) -> Prefix {
        let mut prefix = [0; Prefix::LEN];
        prefix.copy_from_slice(&digest.0[..Prefix::LEN]);
        Prefix(prefix)
    }

    /// Whether the digest begins so.
    pub fn fits(&self, digest: &Digest) -> bool {
        Prefix::of(digest) == *self
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Reads exactly 16 bytes.
    pub(crate) fn from_wire(bytes: &[u8]) -> Result<Prefix, Broken> {
        bytes.try_into().map(Prefix).map_err(|_| Broken("the beginning of a digest is not 16 bytes long"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_has_sixteen_bytes_and_fits_its_digest_only() {
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        let prefix = Prefix::of(&one);
        assert!(prefix.fits(&one) && !prefix.fits(&other));
        assert_eq!(Prefix::from_wire(&one.0[..16]), Ok(prefix));
        for length in [0, 15, 17, 32] {
            assert!(Prefix::from_wire(&one.0[..length]).is_err(), "{length} bytes are taken");
        }
    }
}
