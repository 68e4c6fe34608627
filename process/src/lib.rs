//! What both binaries share: flags, logging, the Kubernetes client, readiness, the health port, metrics, signals and exit.
//!
//! It may touch the process (signals, stderr, one plain HTTP port) and open a client to the API server; of etcd it knows only
//! the policy its flags set, and nothing of our custom resources or of certificates.

mod args;
mod client;
mod exit;
mod health;
mod logging;
pub mod metrics;
mod readiness;
mod run;
mod shutdown;

pub use args::{CommonArgs, EndOfLifeVersions, LogFormat};
pub use client::{ConnectError, connect, install_crypto_provider};
pub use exit::{one_line, usage_line};
pub use health::{BindError, HealthServer, bind};
pub use logging::{LogFilterError, init as init_logging};
pub use readiness::{Gate, NotReady, Readiness};
pub use run::{HasCommonArgs, run, run_with};
pub use shutdown::{Drain, DrainTrigger, Signals};
