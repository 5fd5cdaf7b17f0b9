//! Fragments of routes in, request to route out; pure.
