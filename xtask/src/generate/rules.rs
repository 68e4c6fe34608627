//! The rules for people: each with an example that breaks it and the very words of the refusal. Pure.
//!
//! The words come from the judge itself, so the page cannot say what admission does not.

use std::fmt::Write as _;

use anyhow::Context as _;
use etcd_operator_api::examples::{self, Example};
use etcd_operator_api::v1beta2::RECOVER_FROM_SURVIVOR;
use etcd_operator_api::{EndOfLife, Judgement, Policy, judge, judge_delete};
use serde_json::{Value as Json, json};

use super::sorted;

const KINDS: [&str; 3] = ["EtcdCluster", "EtcdBackup", "EtcdRestore"];

pub(super) fn page() -> anyhow::Result<String> {
    let mut page = "# Rules\n\n\
        <!-- Generated from the api crate's examples by `cargo xtask generate`. Do not edit. -->\n\n\
        What is refused, an example of each, and the exact words. All that is wrong is said at once. The webhook knows every rule; where the last \
        column says so, the API server refuses by itself, also while no webhook runs. An EtcdCluster that slips past both is held by the \
        controller with the same words.\n"
        .to_owned();
    let policy = Policy::default();
    for kind in KINDS {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(page, "\n## {kind}\n");
        page.push_str("| rule | broken by | refusal | without the webhook |\n|---|---|---|---|\n");
        for example in examples::breaking().iter().filter(|e| e.kind() == kind) {
            let judgement = example
                .judge(&policy)
                .with_context(|| format!("{kind}: {}", example.what))?;
            let by_itself = if example.by_api_server {
                "refused"
            } else {
                "held by the controller"
            };
            row(
                &mut page,
                example.what,
                &shown(example),
                &judgement,
                by_itself,
            )?;
        }
    }
    page.push_str("\n## More than the object\n\n");
    page.push_str("| rule | broken by | refusal | without the webhook |\n|---|---|---|---|\n");
    let deny = Policy {
        end_of_life: EndOfLife::Deny,
        ..policy
    };
    let aged = serde_json::from_value(examples::cluster(json!({"version": "3.4.31"})))?;
    row(
        &mut page,
        "an end-of-life version where the chart says `versions.endOfLife: Deny`",
        "spec: {\"version\":\"3.4.31\"}",
        &judge(&aged, None, &deny),
        "held by the controller",
    )?;
    let kept = serde_json::from_value(examples::cluster(json!({"deletionProtection": true})))?;
    row(
        &mut page,
        "deleting a protected cluster",
        "kubectl delete etcdcluster example",
        &judge_delete(&kept),
        "deleted",
    )?;
    let request = |id: &str, available: &str| -> anyhow::Result<Judgement> {
        let mut runs = examples::cluster(json!({}));
        runs["status"] = json!({
            "clusterID": "6a1b2c3d4e5f6071",
            "bootstrap": {"token": "example"},
            "conditions": [{
                "type": "Available", "status": available, "reason": "QuorumServes", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        });
        let mut asked = runs.clone();
        asked["metadata"]["annotations"] = json!({RECOVER_FROM_SURVIVOR: id});
        let (asked, runs) = (
            serde_json::from_value(asked)?,
            serde_json::from_value(runs)?,
        );
        Ok(judge(&asked, Some(&runs), &policy))
    };
    row(
        &mut page,
        "a recovery that is meant for another cluster",
        "kubectl annotate etcdcluster example etcd.database.coreos.com/recover-from-survivor=1234",
        &request("1234", "False")?,
        "held by the controller",
    )?;
    row(
        &mut page,
        "a recovery while a quorum serves",
        "kubectl annotate etcdcluster example etcd.database.coreos.com/recover-from-survivor=6a1b2c3d4e5f6071",
        &request("6a1b2c3d4e5f6071", "True")?,
        "ignored by the controller while the quorum serves",
    )?;
    Ok(page)
}

fn row(
    page: &mut String,
    what: &str,
    example: &str,
    judgement: &Judgement,
    by_itself: &str,
) -> anyhow::Result<()> {
    let first = judgement
        .violations
        .first()
        .with_context(|| format!("nothing is wrong with {what}"))?;
    let words: Vec<String> = judgement
        .violations
        .iter()
        .map(|violation| code(&violation.to_string()))
        .collect();
    let _ = writeln!(
        page,
        "| `{}` | {what}: {} | {} | {by_itself} |",
        first.reason,
        code(example),
        words.join("<br>")
    );
    Ok(())
}

/// What matters of an example: its name where that is the point, its spec, and what it was before.
fn shown(example: &Example) -> String {
    let name = &example.new["metadata"]["name"];
    if name != "example" {
        return format!("metadata: {{\"name\":{name}}}");
    }
    let annotations = &example.new["metadata"]["annotations"];
    if !annotations.is_null() {
        return format!("metadata: {{\"annotations\":{annotations}}}");
    }
    let spec = |object: &Json| sorted(object["spec"].clone()).to_string();
    match &example.old {
        None => format!("spec: {}", spec(&example.new)),
        Some(old) => {
            let runs = running(old);
            format!("spec: {}{runs} → {}", spec(old), spec(&example.new))
        }
    }
}

/// The versions its members run, or how far it is.
fn running(object: &Json) -> String {
    let status = &object["status"];
    let members = status["memberStatus"].as_array();
    let versions: Vec<&str> = members
        .into_iter()
        .flatten()
        .filter_map(|member| member["version"].as_str())
        .collect();
    match (versions.as_slice(), status["phase"].as_str()) {
        ([], None) => String::new(),
        ([], Some(phase)) => format!(" ({phase})"),
        (versions, _) => format!(" (running {})", versions.join(" and ")),
    }
}

/// Text as it is, in a table's cell.
fn code(text: &str) -> String {
    format!("`` {} ``", text.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_has_a_row_with_the_words_of_the_judge() {
        let page = page().unwrap();
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, examples::breaking().len() + 4);
        assert!(page.contains(
            "| `SizeNotAllowed` | an even size: `` spec: {\"size\":4} `` | `` spec.size: must be odd: 4 members"
        ));
        assert!(page.contains("kubectl -n default patch etcdcluster example"));
    }

    #[test]
    fn a_change_shows_what_was_and_what_runs() {
        let page = page().unwrap();
        assert!(
            page.contains(
                "`` spec: {\"version\":\"3.5.35\"} (running 3.5.35) → {\"version\":\"3.7.3\"} ``"
            ),
            "{page}"
        );
    }
}
