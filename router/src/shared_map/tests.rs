//! Tests of the shared map.
