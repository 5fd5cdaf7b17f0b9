//! Simulation, process tests, cases and benches: everything that looks at the whole. Nobody imports it.

pub mod checks;
pub mod cluster;
pub mod http_client;
pub mod machine;
pub mod process;
pub mod replicas;
pub mod shop;
pub mod sim;
pub mod swarm;
pub mod traffic;
