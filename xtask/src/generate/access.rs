//! What the chart's service accounts may do, as a page for people: read from the rules in the chart's templates, so that it cannot tell
//! another story. Pure.
//!
//! A comment directly above a rule says what it is for. Lists stand on one line; a name that only Helm can fill in is told in words.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};

/// Where a template of the chart grants something, and to whom.
pub(super) struct Account {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Below the chart's `templates`.
    pub(super) template: &'static str,
    /// Where a ClusterRole of this template counts.
    cluster_role_counts: &'static str,
}

const WATCHED: &str = "namespaces it looks after";
const OWN: &str = "its own namespace";
const CLUSTER: &str = "the cluster";

pub(super) const ACCOUNTS: [Account; 4] = [
    Account {
        name: "<release>-webhook",
        title: "The webhook",
        template: "webhook/rbac.yaml",
        cluster_role_counts: CLUSTER,
    },
    Account {
        name: "<release>-controller",
        title: "The controller",
        template: "controller/rbac.yaml",
        cluster_role_counts: WATCHED,
    },
    Account {
        name: "<release>-test",
        title: "`helm test`",
        template: "hooks/test.yaml",
        cluster_role_counts: CLUSTER,
    },
    Account {
        name: "<release>-uninstall",
        title: "`helm uninstall`",
        template: "hooks/uninstall.yaml",
        cluster_role_counts: CLUSTER,
    },
];

/// Names that Helm fills in, told in words.
const NAMES: [(&str, &str); 4] = [
    ("etcd-operator.clusterName", "this release's"),
    ("etcd-operator.crdNames", "those that convert"),
    ("etcd-operator.webhook.caSecret", "`<release>-webhook-ca`"),
    (
        "etcd-operator.controller.fullname",
        "`<release>-controller`",
    ),
];

#[derive(Debug, Default, PartialEq, Eq)]
struct Rule {
    place: String,
    groups: Vec<String>,
    resources: Vec<String>,
    names: String,
    verbs: Vec<String>,
    purpose: String,
}

/// The page; `texts` are the accounts' templates, in their order.
pub(super) fn page(texts: &[String]) -> anyhow::Result<String> {
    let mut page = "\
<!-- Generated from the chart's templates by `cargo xtask generate`. Do not edit. -->

# What the operator's accounts may do

Every right that the chart grants, from its templates. \"Namespaces it looks after\" are all, or those of `watchNamespaces`. What is not here is refused by the API
server: no account may list other Secrets than its own, change a spec, run commands in pods, or touch webhook configurations and definitions that are not its own.
"
    .to_owned();
    for (account, text) in ACCOUNTS.iter().zip(texts) {
        let rules = rules(text, account).with_context(|| account.template.to_owned())?;
        if rules.is_empty() {
            bail!("{}: no rule was found", account.template);
        }
        // Writing to a String cannot fail.
        let _ = write!(
            page,
            "\n## {}\n\nService account `{}`.\n\n| what | may | where | only | to what end |\n|---|---|---|---|---|\n",
            account.title, account.name
        );
        for rule in rules {
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} | {} |",
                rule.told(),
                rule.verbs.join(", "),
                rule.place,
                rule.names,
                rule.purpose
            );
        }
    }
    Ok(page)
}

impl Rule {
    fn told(&self) -> String {
        let of = match self.groups.first().map(String::as_str) {
            None | Some("") => String::new(),
            Some(group) => format!(" ({group})"),
        };
        let all: Vec<String> = self
            .resources
            .iter()
            .map(|resource| format!("`{resource}`"))
            .collect();
        format!("{}{of}", all.join(", "))
    }
}

fn rules(template: &str, account: &Account) -> anyhow::Result<Vec<Rule>> {
    let mut found = Vec::new();
    let mut rule = Rule::default();
    let mut place = account.cluster_role_counts;
    let mut comment: Vec<&str> = Vec::new();
    for line in template.lines() {
        let line = line.trim();
        if let Some(words) = line.strip_prefix("# ") {
            comment.push(words);
            continue;
        }
        match line {
            "kind: ClusterRole" => place = account.cluster_role_counts,
            "kind: Role" | "namespace: {{ .Release.Namespace }}" => place = OWN,
            "namespace: {{ . }}" | "namespace: {{ $namespace }}" => place = WATCHED,
            // What is written once and included in more than one role is what counts where clusters are.
            _ if line.starts_with("{{- define ") => place = WATCHED,
            _ => {}
        }
        let key = line.trim_start_matches("- ");
        if let Some(groups) = key.strip_prefix("apiGroups: ") {
            rule = Rule {
                place: place.to_owned(),
                groups: list(groups)?,
                purpose: comment.join(" "),
                ..Rule::default()
            };
        } else if let Some(resources) = key.strip_prefix("resources: ") {
            rule.resources = list(resources)?;
        } else if let Some(names) = key.strip_prefix("resourceNames: ") {
            rule.names = told(names)?;
        } else if let Some(verbs) = key.strip_prefix("verbs: ") {
            rule.verbs = list(verbs)?;
            found.push(std::mem::take(&mut rule));
        }
        comment.clear();
    }
    Ok(found)
}

fn list(text: &str) -> anyhow::Result<Vec<String>> {
    serde_json::from_str(text).with_context(|| format!("`{text}` is not a list on one line"))
}

/// `["x"]` as it is; what Helm fills in, in words.
fn told(names: &str) -> anyhow::Result<String> {
    if let Ok(names) = list(names) {
        let all: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        return Ok(all.join(", "));
    }
    NAMES
        .iter()
        .find(|(template, _)| names.contains(&format!("\"{template}\"")))
        .map(|(_, words)| (*words).to_owned())
        .with_context(|| format!("no words are known for the names {names}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = r#"
kind: ClusterRole
rules:
  # to look
  # at it
  - apiGroups: ["apps"]
    resources: ["deployments", "deployments/scale"]
    verbs: ["get", "list"]
  {{- if .Values.x }}
  - apiGroups: [""]
    resources: ["secrets"]
    resourceNames: [{{ include "etcd-operator.webhook.caSecret" . | quote }}]
    verbs: ["get"]
  {{- end }}
---
kind: Role
metadata:
  namespace: {{ .Release.Namespace }}
rules:
  - apiGroups: [""]
    resources: ["pods"]
    resourceNames: ["one"]
    verbs: ["delete"]
---
kind: Role
metadata:
  namespace: {{ . }}
rules:
  - apiGroups: [""]
    resources: ["pods"]
    verbs: ["get"]
"#;

    #[test]
    fn every_rule_is_told_with_its_place_its_names_and_its_purpose() {
        let rules = rules(TEMPLATE, &ACCOUNTS[0]).unwrap();
        let told: Vec<(String, &str, &str, &str)> = rules
            .iter()
            .map(|rule| {
                (
                    rule.told(),
                    rule.place.as_str(),
                    rule.names.as_str(),
                    rule.purpose.as_str(),
                )
            })
            .collect();
        let of = |what: &str| what.to_owned();
        assert_eq!(
            told,
            [
                (
                    of("`deployments`, `deployments/scale` (apps)"),
                    CLUSTER,
                    "",
                    "to look at it"
                ),
                (of("`secrets`"), CLUSTER, "`<release>-webhook-ca`", ""),
                (of("`pods`"), OWN, "`one`", ""),
                (of("`pods`"), WATCHED, "", ""),
            ]
        );
    }

    #[test]
    fn names_that_nobody_has_words_for_are_refused() {
        let template = TEMPLATE.replace("webhook.caSecret", "webhook.somethingNew");
        let error = rules(&template, &ACCOUNTS[0]).unwrap_err();
        assert!(error.to_string().contains("somethingNew"), "{error}");
    }
}
