//! The agent's process: one order from the environment, one report, an exit code.

use std::process::ExitCode;

use etcd_operator_agent::{Agent, PATIENCE, Places, Stop, give};
use etcd_operator_api::orders::{FailureReason, ORDER, Order, Report};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("LOG_LEVEL").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let places = Places::given();
    let report =
        obey(places.clone()).unwrap_or_else(|(reason, message)| Report::Failed { reason, message });
    give(&report, &places);
    match report {
        Report::Failed { .. } => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

fn obey(places: Places) -> Result<Report, (FailureReason, String)> {
    let invalid = |words: String| (FailureReason::InvalidOrder, words);
    let internal = |error: std::io::Error| (FailureReason::Internal, error.to_string());
    let order = std::env::var(ORDER)
        .map_err(|_| invalid(format!("there is no order: {ORDER} must hold one, as JSON")))?;
    let order: Order = serde_json::from_str(&order)
        .map_err(|error| invalid(format!("{ORDER} holds no order: {error}")))?;
    // One cryptography for TLS to etcd and to stores; a second call would only find it there.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Two: parts of a backup are encrypted and sent while etcd's stream is received.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(internal)?;
    let report = runtime.block_on(async {
        let agent = Agent {
            places,
            patience: PATIENCE,
            stop: Stop::at_signals()?,
        };
        Ok(agent.obey(order).await)
    });
    // A thread that still writes must not hold up the end.
    runtime.shutdown_background();
    report.map_err(internal)
}
