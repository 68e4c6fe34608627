//! The chart with every documented set of values, as the API server sees it.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Context, Helm, Outcome, run};
use serde_json::{Value, json};
use tokio::process::Command;

/// Definitions of other projects that the chart may render objects of: (group, kind, plural). Empty ones are enough to be found by.
const FOREIGN: [(&str, &str, &str); 4] = [
    ("cert-manager.io", "Certificate", "certificates"),
    ("cert-manager.io", "Issuer", "issuers"),
    ("monitoring.coreos.com", "PrometheusRule", "prometheusrules"),
    ("monitoring.coreos.com", "ServiceMonitor", "servicemonitors"),
];

pub(crate) async fn the_api_server_accepts_the_chart_with_every_documented_set_of_values(
    context: &Context,
) -> Outcome {
    for (group, kind, plural) in FOREIGN {
        let definition = stub(group, kind, plural);
        context
            .kubectl_with(&["apply", "--server-side"], &definition)
            .await?
            .ok()?;
    }
    let names = FOREIGN.map(|(group, _, plural)| format!("crd/{plural}.{group}"));
    let mut words = vec!["wait", "--for=condition=Established", "--timeout=60s"];
    words.extend(names.iter().map(String::as_str));
    context.kubectl(&words).await?.ok()?;

    let accepted = every_set(context).await;

    let mut words = vec!["delete", "--wait=false"];
    words.extend(names.iter().map(String::as_str));
    context.kubectl(&words).await?.ok()?;
    accepted
}

async fn every_set(context: &Context) -> Outcome {
    let folder = context.environment().chart.join("ci");
    let mut sets: Vec<PathBuf> = fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    sets.sort();
    ensure!(sets.len() > 3, "sets of values: {sets:?}");
    let chart = context.environment().chart.to_string_lossy();
    for set in sets {
        let values = set.to_string_lossy();
        // Pods of hooks want an account that only a real release has; `helm test` and `helm uninstall` are played elsewhere.
        let words = [
            "template",
            "documented",
            &chart,
            "--no-hooks",
            "--values",
            &values,
        ];
        let rendered = Helm::Four
            .run(context, context.namespace(), &words)
            .await?
            .ok()?;
        // Not in one namespace: the chart says where each object belongs.
        let mut kubectl = Command::new(&context.environment().kubectl);
        kubectl
            .args(["apply", "--server-side", "--force-conflicts"])
            .args(["--dry-run=server", "-f", "-"])
            .env("KUBECONFIG", &context.environment().kubeconfig);
        run(kubectl, Some(&rendered))
            .await?
            .ok()
            .with_context(|| values.into_owned())?;
    }
    Ok(())
}

fn stub(group: &str, kind: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}
