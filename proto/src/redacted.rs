//! `Debug` of the messages that can hold a secret: lengths only.

use std::fmt;

use crate::v1::{Blob, Chunk, EnrollRequest};

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
