//! Simulation, process tests, cases and benches.
