//! Whether each right that the chart grants was used: least privilege, measured. Reads the API server's audit log after all scenarios were
//! played, and the chart as Helm renders it. Tells of each right that nothing used and that does not stand in `RARE` with the reason.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value as Json;

use crate::{operator::NAMESPACE, rendered};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    account: String,
    verb: String,
    group: String,
    resource: String,
}

impl std::fmt::Display for Right {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            account,
            verb,
            group,
            resource,
        } = self;
        write!(formatter, "{account}: {verb} {resource} ({group})")
    }
}

/// (account's ending, verb, resource): granted although no scenario comes to use it.
const RARE: &[(&str, &str, &str, &str)] = &[
    (
        "-controller",
        "update",
        "etcdclusters/finalizers",
        "asked for only by API servers that guard owner references",
    ),
    (
        "-controller",
        "update",
        "etcdbackups/finalizers",
        "asked for only by API servers that guard owner references",
    ),
    (
        "-controller",
        "update",
        "etcdrestores/finalizers",
        "asked for only by API servers that guard owner references",
    ),
    (
        "-controller",
        "patch",
        "pods/resize",
        "the local kubelets, which make no cgroups, cannot resize",
    ),
];

/// After all tiers: the log tells of all of them.
pub(crate) fn check(logs: &Path) -> Result<()> {
    let granted = granted(&rendered::with_hooks(NAMESPACE, &[])?)?;
    ensure!(!granted.is_empty(), "the chart grants nothing");
    let mut used = BTreeSet::new();
    for log in audit_logs(logs)? {
        let file =
            fs::File::open(&log).with_context(|| format!("cannot read {}", log.display()))?;
        for line in BufReader::new(file).lines() {
            used.extend(request(&line?));
        }
    }
    let unused: Vec<String> = granted
        .iter()
        .filter(|right| !used.contains(*right) && !rare(right))
        .map(ToString::to_string)
        .collect();
    if !unused.is_empty() {
        println!(
            "granted by the chart, and used by nothing that was played:\n  {}",
            unused.join("\n  ")
        );
    }
    Ok(())
}

fn rare(right: &Right) -> bool {
    RARE.iter().any(|(account, verb, resource, _)| {
        right.account.ends_with(account) && right.verb == *verb && right.resource == *resource
    })
}

/// The log, and what was rotated away from it.
fn audit_logs(logs: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(logs).with_context(|| format!("cannot read {}", logs.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("audit") && path.extension().is_some_and(|ending| ending == "log") {
            found.push(path);
        }
    }
    ensure!(!found.is_empty(), "there is no audit log");
    Ok(found)
}

/// What an answered request of a service account used; what the authorizer forbade used nothing.
fn request(line: &str) -> Option<Right> {
    // Most lines are of others, and there are hundreds of thousands.
    if !line.contains("\"system:serviceaccount:") {
        return None;
    }
    let event: Json = serde_json::from_str(line).ok()?;
    if event["annotations"]["authorization.k8s.io/decision"] == "forbid" {
        return None;
    }
    let object = &event["objectRef"];
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    Some(Right {
        account: event["user"]["username"]
            .as_str()?
            .rsplit(':')
            .next()?
            .to_owned(),
        verb: text(&event["verb"]),
        group: text(&object["apiGroup"]),
        resource: match object["subresource"].as_str() {
            Some(subresource) => format!("{}/{subresource}", text(&object["resource"])),
            None => text(&object["resource"]),
        },
    })
}

/// Every right that a role bound to an account grants.
fn granted(objects: &[Json]) -> Result<BTreeSet<Right>> {
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let mut rights = BTreeSet::new();
    for binding in of_kind("ClusterRoleBinding").chain(of_kind("RoleBinding")) {
        let wanted = &binding["roleRef"];
        let role = objects
            .iter()
            .find(|object| {
                object["kind"] == wanted["kind"] && object["metadata"]["name"] == wanted["name"]
            })
            .with_context(|| format!("the chart has no role {}", wanted["name"]))?;
        for subject in list(&binding["subjects"]) {
            for rule in list(&role["rules"]) {
                for right in rule_grants(rule) {
                    let (verb, group, resource) = right;
                    rights.insert(Right {
                        account: words(&subject["name"]),
                        verb,
                        group,
                        resource,
                    });
                }
            }
        }
    }
    Ok(rights)
}

fn rule_grants(rule: &Json) -> impl Iterator<Item = (String, String, String)> {
    list(&rule["apiGroups"]).iter().flat_map(move |group| {
        list(&rule["resources"]).iter().flat_map(move |resource| {
            list(&rule["verbs"])
                .iter()
                .map(move |verb| (words(verb), words(group), words(resource)))
        })
    })
}

fn list(value: &Json) -> &[Json] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn words(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn right(verb: &str, group: &str, resource: &str) -> Right {
        Right {
            account: "x-controller".to_owned(),
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
        }
    }

    #[test]
    fn a_role_grants_each_verb_on_each_resource_to_whom_it_is_bound() {
        let objects = [
            json!({"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [
                {"apiGroups": [""], "resources": ["pods", "pods/eviction"], "verbs": ["get", "create"]},
            ]}),
            json!({"kind": "ClusterRoleBinding", "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"name": "x-controller"}]}),
            json!({"kind": "Role", "metadata": {"name": "unbound"}, "rules": [
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]},
            ]}),
        ];
        let all = granted(&objects).unwrap();
        assert_eq!(
            all.into_iter().collect::<Vec<_>>(),
            [
                right("create", "", "pods"),
                right("create", "", "pods/eviction"),
                right("get", "", "pods"),
                right("get", "", "pods/eviction"),
            ]
        );
    }

    #[test]
    fn a_request_uses_a_right_unless_it_was_forbidden() {
        let line = r#"{"verb":"create","user":{"username":"system:serviceaccount:n:x-controller"},"objectRef":{"apiGroup":"policy","resource":"pods","subresource":"eviction"},"annotations":{"authorization.k8s.io/decision":"allow"}}"#;
        assert_eq!(
            request(line),
            Some(right("create", "policy", "pods/eviction"))
        );
        assert_eq!(request(&line.replace("allow", "forbid")), None);
        assert_eq!(
            request(&line.replace("system:serviceaccount:n:", "system:")),
            None
        );
    }
}
