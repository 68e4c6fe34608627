//! How a process says why it stops: one line on stderr, never a backtrace. Pure text.

use std::error::Error;

/// The whole chain of causes as one line.
///
/// Many libraries print their cause inside their own message *and* give it as `source`; a cause already said is not said twice.
pub fn one_line(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let refusal = refusal(error);
        let text = refusal.map_or_else(|| undumped(&error.to_string()), squeeze);
        if !text.is_empty() && !line.contains(&text) {
            if !line.is_empty() {
                line.push_str(": ");
            }
            line.push_str(&text);
        }
        // Below an API server's refusal there is only the same refusal again.
        cause = error.source().filter(|_| refusal.is_none());
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

/// What the API server said, where this is its refusal. A boxed cause is its own type to `downcast_ref`, hence both.
fn refusal<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a str> {
    let kube = error
        .downcast_ref::<kube::Error>()
        .or_else(|| error.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref));
    match kube {
        Some(kube::Error::Api(status)) if !status.message.is_empty() => Some(&status.message),
        _ => None,
    }
}

/// kube prints an API server's answer twice, the second time as a debug dump; so do those that print kube's errors.
fn undumped(text: &str) -> String {
    let text = squeeze(text);
    match text.find(" (Status {") {
        Some(dump) => text[..dump].trim_end_matches(':').to_owned(),
        None => text,
    }
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

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read it")]
    struct Reading(#[source] Box<kube::Error>);

    #[test]
    fn what_the_api_server_says_is_said_once_and_without_a_dump() {
        let status = kube::core::Status {
            message: "secrets \"x\" is forbidden".to_owned(),
            code: 403,
            ..kube::core::Status::default()
        };
        let error = Reading(Box::new(kube::Error::Api(Box::new(status))));
        assert_eq!(
            one_line(&error),
            "cannot read it: secrets \"x\" is forbidden"
        );
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
