//! The ScalWS proxy: listeners, forwarding, pools, TLS and the admin API.
