//! The Gateway API kinds, only the fields that we read or write.
