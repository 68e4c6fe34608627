//! The answer: the last line that is printed, and the termination message of the container.

use std::{fs::OpenOptions, io::Write as _};

use etcd_operator_api::orders::{LONGEST_REPORT, Report};

use crate::places::Places;

/// The report as one line that Kubernetes keeps whole. Pure.
pub fn line(report: &Report) -> String {
    let text = |report: &Report| serde_json::to_string(report).unwrap_or_default();
    let mut report = report.clone();
    let mut line = text(&report);
    while line.len() > LONGEST_REPORT {
        let (Report::Failed { message, .. }
        | Report::Saved {
            prune_failure: Some(message),
            ..
        }) = &mut report
        else {
            break;
        };
        let shorter = message
            .chars()
            .count()
            .saturating_sub(line.len() - LONGEST_REPORT + 4);
        *message = message.chars().take(shorter).chain(['…']).collect();
        if shorter == 0 {
            return text(&report);
        }
        line = text(&report);
    }
    line
}

/// Prints it, and leaves it for Kubernetes where there is a place for that.
pub fn give(report: &Report, places: &Places) {
    let line = line(report);
    let path = places.termination_message();
    let message = OpenOptions::new().write(true).truncate(true).open(path);
    if let Ok(mut file) = message {
        let _ = file.write_all(line.as_bytes());
    }
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::orders::FailureReason;

    use super::*;

    #[test]
    fn a_message_that_is_too_long_is_cut_and_can_still_be_read() {
        for message in ["x".repeat(10_000), "\"ü\n".repeat(4000), "short".to_owned()] {
            let line = line(&Report::Failed {
                reason: FailureReason::Internal,
                message: message.clone(),
            });
            assert!(line.len() <= LONGEST_REPORT, "{}", line.len());
            let Report::Failed { message: read, .. } = serde_json::from_str(&line).unwrap() else {
                panic!("{line}");
            };
            assert_eq!(read == message, message == "short");
        }
    }
}
