//! The bounds of a configuration: what is larger is refused before any work is spent on it.

/// The highest schema version that this code can read and write.
pub const SCHEMA_VERSION: u32 = 1;
/// The most bytes of one resource, envelope and body together.
pub const RESOURCE_BYTES_MAX: usize = 8 << 20;
/// The most bytes of one body.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// The most bytes of an encoded resource name.
pub const NAME_BYTES_MAX: usize = 1024;
/// The most matches of one fragment.
pub const MATCHES_MAX: usize = 10_000;
/// The most listeners that one fragment is served on.
pub const LISTENERS_MAX: usize = 1_024;
/// The most source objects of one resource.
pub const ORIGINS_MAX: usize = 10_000;
/// The most bytes of a path, a pattern, or a value in a match.
pub const MATCH_TEXT_BYTES_MAX: usize = 8 << 10;
/// The most bytes of a method (RFC 9110 sets none).
pub const METHOD_BYTES_MAX: usize = 64;
/// The most header matches, and the most parameter matches, of one match.
pub const CONDITIONS_MAX: usize = 64;
/// The most numbers in the rank of an order key.
pub const RANK_NUMBERS_MAX: usize = 16;
/// The most bytes of a header name.
pub const HEADER_NAME_BYTES_MAX: usize = 256;
/// The most bytes of a header value (Gateway API, `HTTPHeader.value`, allows 4,096).
pub const HEADER_VALUE_BYTES_MAX: usize = 8 << 10;
/// The most entries in each list of header changes.
pub const HEADER_CHANGES_MAX: usize = 256;
/// The most shares of one forwarding action.
pub const SHARES_MAX: usize = 1_000;
/// The greatest weight of a share (Gateway API, `BackendRef.weight`).
pub const WEIGHT_MAX: u32 = 1_000_000;
/// The most certificates that a host may choose from.
pub const CERTIFICATES_MAX: usize = 1_000;
/// The most policies of one route.
pub const POLICIES_MAX: usize = 64;
/// The greatest number of retries.
pub const RETRIES_MAX: u8 = 10;
/// The longest time that may be set, in milliseconds; no sum of such times overflows a clock.
pub const TIMEOUT_MS_MAX: u64 = 1_000_000_000_000;
/// The most characters of a message about a resource.
pub const MESSAGE_CHARS_MAX: usize = 1_000;
