//! What is fuzzed: functions that take any bytes, and panic when a property of ours does not hold.
//!
//! `cargo xtask fuzz` drives them with libFuzzer; `cargo test -p fuzz` runs them over the inputs in `seeds/`.

mod config_load;
mod head_guard;
mod journal_damage;
mod journal_replay;
mod manifest;
mod push_pair;
mod push_server;
mod router_paths;
mod wire;

/// One thing that is fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name on the command line, and of its folder in `seeds/`.
    pub name: &'static str,
    /// Takes any bytes; panics when a property does not hold.
    pub run: fn(&[u8]),
}

/// Every target. Each has a folder of inputs in `seeds/`, from which `cargo xtask fuzz` knows it.
pub const TARGETS: &[Target] = &[
    Target { name: "config-load", run: config_load::run },
    Target { name: "head-guard", run: head_guard::run },
    Target { name: "journal-replay", run: journal_replay::run },
    Target { name: "journal-damage", run: journal_damage::run },
    Target { name: "manifest", run: manifest::run },
    Target { name: "push-pair", run: push_pair::run },
    Target { name: "push-server", run: push_server::run },
    Target { name: "router-paths", run: router_paths::run },
    Target { name: "wire", run: wire::run },
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}
