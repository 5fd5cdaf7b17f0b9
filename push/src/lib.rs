//! The push conversation: snapshots, session state machines without sockets, and the gRPC binding.
