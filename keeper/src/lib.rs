//! The socket keeper: listening sockets that outlive the processes which accept on them.
