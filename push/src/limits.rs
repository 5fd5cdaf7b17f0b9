//! Every bound and every interval of the protocol, in one place.

/// The protocol version that this build speaks, lowest and highest.
pub const PROTOCOL: (u32, u32) = (1, 1);

/// [`PROTOCOL`], unless a test makes this process one of another release.
pub fn protocol() -> (u32, u32) {
    #[cfg(all(feature = "skew", debug_assertions))]
    if let Some(protocol) = crate::skew::protocol() {
        return protocol;
    }
    PROTOCOL
}

/// The longest chunk of a transfer, in bytes.
pub const CHUNK: usize = 256 * 1024;
/// How long the chunks are that we send, in bytes: a stream's buffer stays as large as its longest message.
pub const SENT_CHUNK: usize = 8 * 1024;
/// The longest gRPC message, in bytes: the largest member set is the largest message.
pub const MESSAGE: usize = 8 * 1024 * 1024;
/// What one field of a message may take of it, in bytes; the rest is for names and lengths.
pub const CONTENT: usize = MESSAGE - 64 * 1024;
/// How often a controller sends a heartbeat unless it is given another interval, in milliseconds.
pub const HEARTBEAT_MS: u64 = 5_000;
/// The shortest and the longest interval that a controller can be given, in milliseconds. Agents believe longer ones too.
pub const HEARTBEAT_RANGE_MS: (u64, u64) = (100, 5_000);
/// After so many intervals without a word from the other side a stream is closed.
pub const MISSES: u64 = 3;
/// A push has so long, in milliseconds, from the start of sending and again from each part that the connection took, ...
pub const PUSH_MS: u64 = 10_000;
/// ... and so much more for each MiB.
pub const PUSH_MS_PER_MIB: u64 = 1_000;
/// ... and, however often that begins again, no more than one second for each so many bytes that the connection took: the
/// rate below which a push ends.
pub const PUSH_BYTES_PER_S: u64 = 16 * 1024;
/// What flow control lets be under way of a transfer, in bytes: taken by the connection, and maybe not there yet.
pub const UNDER_WAY: u64 = 512 * 1024;
/// After each push that was overdue the next one has twice the time, so many times at most.
pub const PATIENCE: u32 = 6;
/// How long the swap waits for the member message that Begin names, in milliseconds.
pub const MEMBER_WAIT_MS: u64 = 1_000;
/// How long a stream may stay without a Hello, in milliseconds.
pub const HELLO_MS: u64 = 10_000;
/// A controller that has to think about a Hello says something within this time, in milliseconds: agents that know of other
/// controllers do not wait much longer.
pub const FIRST_WORD_MS: u64 = 500;
/// How long a Hello waits for the controller to raise its epoch, in milliseconds.
pub const EPOCH_MS: u64 = 5_000;
/// A reported epoch so far above ours is not believed.
pub const EPOCH_JUMP: u64 = 1 << 20;
/// Member messages that may be without an acknowledgement.
pub const MEMBER_WINDOW: u64 = 256;
/// Condemned leaves that a Hello may list, and refused leaves of one verdict.
pub const CONDEMNED: usize = 64;
/// Entries of one not_live list.
pub const NOT_LIVE: usize = 10_000;
/// The longest message text of a verdict, in bytes; longer ones are cut.
pub const TEXT: usize = 1_024;
/// The longest kind or resource name, in bytes.
pub const NAME: usize = 4_096;
/// The longest set name, in bytes.
pub const SET_NAME: usize = 1_024;
/// The longest member (`address:port`), in bytes.
pub const MEMBER: usize = 512;
/// The most members of one set.
pub const MEMBERS: usize = 100_000;
/// Secrets that one resource may name.
pub const SECRETS: usize = 256;
/// Secrets that one BlobRequest may ask for.
pub const BLOBS: usize = 4_096;
/// Sets in one MemberSets message.
pub const MEMBER_SETS: usize = 1_024;
/// What an agent stages for one transfer unless told otherwise, in bytes.
pub const STAGING: u64 = 256 * 1024 * 1024;

/// The time of a push of so many bytes, in milliseconds from the start of sending, and again from each part of it; also how
/// long a place for an agent that is brought up may be held.
pub fn push_deadline_ms(bytes: u64) -> u64 {
    PUSH_MS.saturating_add((bytes >> 20).saturating_mul(PUSH_MS_PER_MIB))
}
