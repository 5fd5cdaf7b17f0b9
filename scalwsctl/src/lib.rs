//! What people type: up, lint, status, wait.
