//! How a process says why it stops: one line on stderr, never a backtrace. Pure text.

use std::error::Error;

/// The whole chain of causes as one line.
///
/// Many libraries print their cause inside their own message *and* give it as `source`; a cause already said is not said twice.
pub fn one_line(error: &(dyn Error + 'static)) -> String {
    let mut line = squeeze(&error.to_string());
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = squeeze(&error.to_string());
        if !text.is_empty() && !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        cause = error.source();
    }
    line
}

/// What clap has to say about bad flags, in one line: the reason and any tip, without the usage block.
pub fn usage_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let told: Vec<&str> = text
        .split("\n\n")
        .map(str::trim)
        .filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more information"))
        .collect();
    let line = squeeze(&told.join("; "));
    format!("{}; see --help", line.trim_start_matches("error: "))
}

/// Runs of white space, newlines among them, become one blank.
fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, thiserror::Error)]
    #[error("bottom")]
    struct Bottom;

    #[derive(Debug, thiserror::Error)]
    #[error("middle: {0}")]
    struct Middle(#[source] Bottom);

    #[derive(Debug, thiserror::Error)]
    #[error("top\n  of it")]
    struct Top(#[source] Middle);

    #[test]
    fn a_chain_of_causes_becomes_one_line_and_no_cause_is_said_twice() {
        assert_eq!(one_line(&Top(Middle(Bottom))), "top of it: middle: bottom");
    }

    #[derive(Parser, Debug)]
    struct Flags {
        #[arg(long)]
        namespace: String,
        #[arg(long)]
        service_name: String,
    }

    #[test]
    fn every_missing_flag_is_named_in_one_line() {
        let error = Flags::try_parse_from(["x"]).unwrap_err();
        assert_eq!(
            usage_line(&error),
            "the following required arguments were not provided: --namespace <NAMESPACE> --service-name <SERVICE_NAME>; see --help"
        );
    }

    #[test]
    fn an_unknown_flag_keeps_claps_tip_on_the_same_line() {
        let error = Flags::try_parse_from(["x", "--namespac", "y"]).unwrap_err();
        let line = usage_line(&error);
        assert!(
            line.starts_with("unexpected argument '--namespac' found; tip:"),
            "{line}"
        );
        assert!(!line.contains('\n'), "{line}");
    }
}
