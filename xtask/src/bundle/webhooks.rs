//! The chart's webhook configurations as definitions of a ClusterServiceVersion. Pure.
//!
//! OLM knows no match conditions: what they keep away from the webhook in the chart comes to it under OLM, and it answers it the same way,
//! for it asks the same questions itself.

use anyhow::{Context, Result};
use serde_json::{Value as Json, json};

use super::{definitions, install};

/// The port of the Service that OLM makes; its name for it is misleading.
const SERVICE_PORT: u16 = 443;
/// What both have, and what a definition takes over.
const TAKEN_OVER: [&str; 8] = [
    "admissionReviewVersions",
    "failurePolicy",
    "matchPolicy",
    "objectSelector",
    "reinvocationPolicy",
    "rules",
    "sideEffects",
    "timeoutSeconds",
];

pub(super) fn all(configurations: &[Json], crds: &[Json], deployment: &Json) -> Result<Vec<Json>> {
    let port = install::webhook_port(deployment)?;
    let base = |name: &Json, kind: &str, path: &Json| {
        json!({
            "generateName": name,
            "type": kind,
            "deploymentName": deployment["metadata"]["name"],
            "containerPort": SERVICE_PORT,
            "targetPort": port,
            "webhookPath": path,
        })
    };
    let mut all = Vec::new();
    for configuration in configurations {
        let kind = match configuration["kind"].as_str() {
            Some("MutatingWebhookConfiguration") => "MutatingAdmissionWebhook",
            _ => "ValidatingAdmissionWebhook",
        };
        for hook in configuration["webhooks"]
            .as_array()
            .context("a configuration has webhooks")?
        {
            let path = &hook["clientConfig"]["service"]["path"];
            let mut definition = base(&hook["name"], kind, path);
            for key in TAKEN_OVER {
                if let Some(value) = hook.get(key) {
                    definition[key] = value.clone();
                }
            }
            all.push(definition);
        }
    }
    let converted: Vec<&Json> = crds
        .iter()
        .filter(|definition| definitions::converts(definition))
        .collect();
    if let Some(first) = converted.first() {
        let conversion = &first["spec"]["conversion"]["webhook"];
        let mut definition = base(
            &json!("convert.etcd.database.coreos.com"),
            "ConversionWebhook",
            &conversion["clientConfig"]["service"]["path"],
        );
        definition["admissionReviewVersions"] = conversion["conversionReviewVersions"].clone();
        definition["sideEffects"] = json!("None");
        definition["conversionCRDs"] = converted
            .iter()
            .map(|definition| definition["metadata"]["name"].clone())
            .collect();
        all.push(definition);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_keep_their_rules_and_lose_what_olm_writes_itself() {
        let deployment = json!({
            "metadata": {"name": "w"},
            "spec": {"template": {"spec": {"containers": [{"ports": [{"name": "https", "containerPort": 10250}]}]}}},
        });
        let configuration = json!({"kind": "MutatingWebhookConfiguration", "webhooks": [{
            "name": "m.x.y",
            "clientConfig": {"service": {"name": "s", "path": "/mutate"}},
            "matchConditions": [{}],
            "rules": [{"operations": ["CREATE"]}],
            "sideEffects": "None",
        }]});
        let crd = json!({
            "metadata": {"name": "things.x"},
            "spec": {"conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"service": {"path": "/convert"}},
            }}},
        });
        let all = all(&[configuration], &[crd], &deployment).unwrap();
        assert_eq!(
            all,
            [
                json!({
                    "generateName": "m.x.y", "type": "MutatingAdmissionWebhook", "deploymentName": "w",
                    "containerPort": 443, "targetPort": 10250, "webhookPath": "/mutate",
                    "rules": [{"operations": ["CREATE"]}], "sideEffects": "None",
                }),
                json!({
                    "generateName": "convert.etcd.database.coreos.com", "type": "ConversionWebhook", "deploymentName": "w",
                    "containerPort": 443, "targetPort": 10250, "webhookPath": "/convert",
                    "admissionReviewVersions": ["v1"], "sideEffects": "None", "conversionCRDs": ["things.x"],
                }),
            ]
        );
    }
}
