//! Every developer command, `cargo xtask …`: the local Kubernetes, the demonstration, the tests, the benchmark, generated files.

pub mod bench;
pub mod bundle;
pub mod cache;
pub mod cli;
pub mod command;
mod committed;
pub mod demo;
pub mod generate;
pub mod images;
pub mod local;
pub mod manifests;
pub mod operator;
pub mod packages;
pub mod programs;
pub mod progress;
mod rendered;
pub mod supply;
pub mod test;
mod yaml;
