//! `Debug` of the messages that can hold a secret: lengths only.

use std::fmt;

use crate::v1::{Begin, Blob, Chunk, EnrollRequest};

impl fmt::Debug for Begin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begin")
            .field("version", &self.version)
            .field("base_root", &self.base_root)
            .field("root", &self.root)
            .field("bytes", &self.bytes)
            .field("member_seq", &self.member_seq)
            .field("replaced_buckets", &self.replaced_buckets)
            .field("transfer", &self.transfer)
            .field("whole_len", &self.whole.as_ref().map(bytes::Bytes::len))
            .finish()
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.data.len();
        f.debug_struct("Chunk")
            .field("transfer", &self.transfer)
            .field("offset", &self.offset)
            .field("len", &bytes)
            .finish()
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blob").field("len", &self.data.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for EnrollRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnrollRequest").field("csr_len", &self.csr.len()).finish_non_exhaustive()
    }
}
