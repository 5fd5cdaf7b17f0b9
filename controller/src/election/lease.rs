//! What a Lease says (`coordination.k8s.io/v1`), as far as the election reads or writes it.

/// The content of a Lease. Times in it are only written: whoever reads them has another clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// `spec.holderIdentity`; empty when nobody holds it.
    pub holder: String,
    /// Where agents reach the holder: annotation `scalws.io/address`.
    pub address: String,
    /// `spec.leaseDurationSeconds`, in milliseconds.
    pub lease_ms: u64,
    /// `spec.leaseTransitions`: how often the holder became another.
    pub transitions: u32,
    /// The counter of epochs: annotation `scalws.io/epoch`. 0 when there is none that can be read.
    pub epoch: u64,
    /// `spec.acquireTime`, in microseconds since 1970.
    pub acquired_us: i64,
    /// `spec.renewTime`, in microseconds since 1970. Each of our writes has another one.
    pub renewed_us: i64,
}

/// A Lease as the API server has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observed {
    /// `metadata.uid`: a Lease that was deleted and made again has another.
    pub uid: String,
    /// `metadata.resourceVersion`, which every write has to name.
    pub version: String,
    /// What it says.
    pub record: Record,
}
