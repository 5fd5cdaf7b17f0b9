//! The agent beside each proxy: takes pushes, applies them to scalwsd and says whether they took.

pub mod core;
