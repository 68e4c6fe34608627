//! etcd's own tool, which makes a data directory of a snapshot. Runs in the image of etcd.

use std::{path::Path, process::Stdio};

use etcd_operator_api::orders::{FailureReason, RestoreTool, RestoredMember};
use tokio::process::Command;

use crate::{failure::Failure, places::Places};

/// Restores `file`, which was checked, into `folder`, which must not be there.
pub(crate) async fn restore(
    places: &Places,
    tool: RestoreTool,
    file: &Path,
    folder: &Path,
    member: &RestoredMember,
) -> Result<(), Failure> {
    let name = match tool {
        RestoreTool::Etcdutl { .. } => "etcdutl",
        RestoreTool::Etcdctl => "etcdctl",
    };
    let program = places.tool(name).ok_or_else(|| {
        Failure::new(
            FailureReason::RestoreToolFailed,
            format!("this image has no {name}: it must be an image of etcd"),
        )
    })?;
    let mut command = Command::new(program);
    if tool == RestoreTool::Etcdctl {
        command.env("ETCDCTL_API", "3");
    }
    command
        .args(["snapshot", "restore"])
        .arg(file)
        .args(arguments(tool, member, &folder.to_string_lossy()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let output = command.output().await;
    let output = output.map_err(|error| tool_failed(name, &error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stderr, output.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    if said.contains("no space left on device") {
        return Err(Failure::new(
            FailureReason::DiskFull,
            format!("{name} found no space left on the volume while it restored"),
        ));
    }
    Err(tool_failed(name, &last_words(&said)))
}

fn tool_failed(name: &str, said: &str) -> Failure {
    Failure::new(
        FailureReason::RestoreToolFailed,
        format!("{name} failed: {said}"),
    )
}

/// The last lines, which hold the reason.
pub(crate) fn last_words(said: &str) -> String {
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = lines
        .get(lines.len().saturating_sub(3)..)
        .unwrap_or_default();
    let words = last.join(" · ");
    let skip = words.chars().count().saturating_sub(1200);
    words.chars().skip(skip).collect()
}

/// What follows the file. Pure.
fn arguments(tool: RestoreTool, member: &RestoredMember, folder: &str) -> Vec<String> {
    let pair = |flag: &str, value: &str| [flag.to_owned(), value.to_owned()];
    let mut arguments: Vec<String> = [
        pair("--name", &member.name),
        pair("--initial-cluster", &member.initial_cluster),
        pair("--initial-cluster-token", &member.token),
        pair("--initial-advertise-peer-urls", &member.peer_url),
        pair("--data-dir", folder),
    ]
    .concat();
    // The hash was checked as the file came.
    arguments.push("--skip-hash-check=true".to_owned());
    if let (RestoreTool::Etcdutl { bumps: true }, Some(by)) = (tool, member.bump_revision) {
        arguments.extend(pair("--bump-revision", &by.to_string()));
        arguments.push("--mark-compacted".to_owned());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_revision_is_raised_only_where_asked_and_where_the_tool_can() {
        let mut member = RestoredMember {
            name: "a".to_owned(),
            peer_url: "http://a:2380".to_owned(),
            initial_cluster: "a=http://a:2380".to_owned(),
            token: "t".to_owned(),
            data_dir: "data".to_owned(),
            bump_revision: Some(7),
        };
        let bumps = |tool, member: &RestoredMember| {
            arguments(tool, member, "/d")
                .join(" ")
                .contains("--bump-revision 7 --mark-compacted")
        };
        assert!(bumps(RestoreTool::Etcdutl { bumps: true }, &member));
        assert!(!bumps(RestoreTool::Etcdutl { bumps: false }, &member));
        assert!(!bumps(RestoreTool::Etcdctl, &member));
        member.bump_revision = None;
        assert!(!bumps(RestoreTool::Etcdutl { bumps: true }, &member));
    }

    #[test]
    fn of_much_that_is_said_the_end_is_kept() {
        assert_eq!(last_words("a\nb\n\nc\nd\n"), "b · c · d");
        assert_eq!(last_words(&"x".repeat(5000)).len(), 1200);
    }
}
