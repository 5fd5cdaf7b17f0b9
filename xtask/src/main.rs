//! The one door to everything a developer does: `cargo xtask <verb>`.

fn main() {}
