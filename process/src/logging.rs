//! Log lines on stderr, as text for people or JSON for collectors. Touches the global tracing subscriber, once.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::LogFormat;

/// `--log-level` is neither a level nor a filter.
#[derive(Debug, thiserror::Error)]
#[error(
    "--log-level `{given}` must be a level (error, warn, info, debug, trace) or a filter such as `info,kube=debug`"
)]
pub struct LogFilterError {
    given: String,
    #[source]
    source: ParseError,
}

/// Starts logging; a second call in the same process (tests) changes nothing.
pub fn init(level: &str, format: LogFormat) -> Result<(), LogFilterError> {
    let filter = EnvFilter::try_new(with_quiet_client(level)).map_err(|source| LogFilterError {
        given: level.to_owned(),
        source,
    })?;
    let lines = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match format {
        LogFormat::Text => lines.finish().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging was already set up");
    }
    Ok(())
}

/// kube logs every failed request and watch on its own, although the caller gets it too and says it better; silent unless the
/// filter names kube.
fn with_quiet_client(level: &str) -> String {
    if level.contains("kube") {
        level.to_owned()
    } else {
        format!("{level},kube_client::client::builder=off,kube_runtime::watcher=error")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused_with_what_would_be_accepted() {
        let error = init("info,=", LogFormat::Text).unwrap_err();
        assert!(error.to_string().contains("must be a level"), "{error}");
    }

    #[test]
    fn kube_is_quiet_unless_named() {
        assert_eq!(
            with_quiet_client("info"),
            "info,kube_client::client::builder=off,kube_runtime::watcher=error"
        );
        assert_eq!(with_quiet_client("info,kube=debug"), "info,kube=debug");
    }
}
