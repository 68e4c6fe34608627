//! Deployments and permissions of a ClusterServiceVersion, from those of the chart. Pure.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value as Json, json};

/// The API server calls this one where Helm installs; OLM makes its own.
pub(super) const SERVICE_OF_THE_CHART: &str = "etcd-operator-webhook";
/// Where the chart mounts a certificate that another keeps.
const CHARTS_FOLDER: &str = "/tls";
/// Where OLM mounts it, by itself, into every container.
const OLMS_FOLDER: &str = "/tmp/k8s-webhook-server/serving-certs";

/// `install.spec.deployments`
pub(super) fn deployments(rendered: &[Json]) -> Result<Vec<Json>> {
    rendered
        .iter()
        .map(|deployment| {
            let mut spec = deployment["spec"].clone();
            if serves(deployment) {
                with_olms_certificate(&mut spec, &deployment["metadata"]["name"])?;
            }
            Ok(json!({
                "name": deployment["metadata"]["name"],
                "label": deployment["metadata"]["labels"],
                "spec": spec,
            }))
        })
        .collect()
}

/// Whether this is the webhook's.
pub(super) fn serves(deployment: &Json) -> bool {
    webhook_port(deployment).is_ok()
}

pub(super) fn webhook_port(deployment: &Json) -> Result<Json> {
    let ports = deployment["spec"]["template"]["spec"]["containers"][0]["ports"].as_array();
    ports
        .into_iter()
        .flatten()
        .find(|port| port["name"] == "https")
        .map(|port| port["containerPort"].clone())
        .context("no port named https")
}

fn with_olms_certificate(spec: &mut Json, name: &Json) -> Result<()> {
    let name = name.as_str().context("a Deployment has a name")?;
    let pod = &mut spec["template"]["spec"];
    let (mut served, mut named) = (false, false);
    let container = &mut pod["containers"][0];
    for argument in container["args"].as_array_mut().context("arguments")? {
        let text = argument.as_str().unwrap_or_default();
        if text == format!("--certificate-directory={CHARTS_FOLDER}") {
            *argument = json!(format!("--certificate-directory={OLMS_FOLDER}"));
            served = true;
        } else if text.starts_with("--service-name=") {
            // As OLM calls the Service that it makes for a Deployment.
            *argument = json!(format!("--service-name={name}-service"));
            named = true;
        }
    }
    ensure!(
        served && named,
        "the webhook of the chart takes its certificate from elsewhere"
    );
    let mounted = |mount: &Json| mount["mountPath"] == CHARTS_FOLDER;
    let volume = container["volumeMounts"]
        .as_array()
        .and_then(|mounts| mounts.iter().find(|mount| mounted(mount)))
        .map(|mount| mount["name"].clone())
        .context("no mount of a certificate")?;
    without(container, "volumeMounts", |mount| mounted(mount));
    without(pod, "volumes", |found| found["name"] == volume);
    Ok(())
}

/// Removes what matches from the list under `key`, and a list that is empty then.
fn without(of: &mut Json, key: &str, matches: impl Fn(&Json) -> bool) {
    if let Some(fields) = of.as_object_mut() {
        if let Some(Json::Array(items)) = fields.get_mut(key) {
            items.retain(|item| !matches(item));
        }
        if fields
            .get(key)
            .and_then(Json::as_array)
            .is_some_and(Vec::is_empty)
        {
            fields.remove(key);
        }
    }
}

/// `install.spec.clusterPermissions` and `install.spec.permissions`: the rules of each account everywhere, and beside the operator.
pub(super) fn permissions(
    roles: &[Json],
    bindings: &[Json],
    namespace: &str,
) -> Result<(Vec<Json>, Vec<Json>)> {
    let (mut everywhere, mut here) = (Vec::new(), Vec::new());
    for binding in bindings {
        let wanted = &binding["roleRef"];
        let name = &binding["metadata"]["name"];
        let rules = roles
            .iter()
            .find(|role| {
                role["kind"] == wanted["kind"] && role["metadata"]["name"] == wanted["name"]
            })
            .map(|role| role["rules"].clone())
            .with_context(|| format!("{name} binds a role that is not rendered"))?;
        let place = match binding["metadata"]["namespace"].as_str() {
            None => &mut everywhere,
            Some(place) if place == namespace => &mut here,
            Some(place) => bail!("{name} gives rights in {place}, which OLM cannot"),
        };
        for subject in binding["subjects"].as_array().into_iter().flatten() {
            ensure!(
                subject["kind"] == "ServiceAccount",
                "{name} binds a {}",
                subject["kind"]
            );
            place.push(json!({"serviceAccountName": subject["name"], "rules": rules}));
        }
    }
    Ok((everywhere, here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_webhook_serves_what_olm_mounts_under_the_name_of_olms_service() {
        let deployment = json!({
            "metadata": {"name": "w", "labels": {"a": "b"}},
            "spec": {"template": {"spec": {
                "containers": [{
                    "args": ["--service-name=old", "--certificate-directory=/tls", "--other"],
                    "ports": [{"name": "https", "containerPort": 10250}],
                    "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
                }],
                "volumes": [{"name": "tls"}, {"name": "kept"}],
            }}},
        });
        let made = deployments(&[deployment]).unwrap();
        let pod = &made[0]["spec"]["template"]["spec"];
        assert_eq!(
            pod["containers"][0]["args"],
            json!([
                "--service-name=w-service",
                "--certificate-directory=/tmp/k8s-webhook-server/serving-certs",
                "--other"
            ])
        );
        assert!(pod["containers"][0].get("volumeMounts").is_none());
        assert_eq!(pod["volumes"], json!([{"name": "kept"}]));
    }

    #[test]
    fn a_webhook_that_keeps_its_own_certificate_is_refused() {
        let deployment = json!({
            "metadata": {"name": "w"},
            "spec": {"template": {"spec": {"containers": [{
                "args": ["--ca-secret=x", "--service-name=w"],
                "ports": [{"name": "https", "containerPort": 10250}],
            }]}}},
        });
        assert!(deployments(&[deployment]).is_err());
    }

    #[test]
    fn rights_follow_the_bindings() {
        let role = |kind: &str, verb: &str| json!({"kind": kind, "metadata": {"name": "r"}, "rules": [{"verbs": [verb]}]});
        let binding = |kind: &str, namespace: Option<&str>| {
            json!({
                "metadata": {"name": "b", "namespace": namespace},
                "roleRef": {"kind": kind, "name": "r"},
                "subjects": [{"kind": "ServiceAccount", "name": "a"}],
            })
        };
        let roles = [role("ClusterRole", "get"), role("Role", "update")];
        let bindings = [binding("ClusterRole", None), binding("Role", Some("n"))];
        let (everywhere, here) = permissions(&roles, &bindings, "n").unwrap();
        assert_eq!(
            everywhere,
            [json!({"serviceAccountName": "a", "rules": [{"verbs": ["get"]}]})]
        );
        assert_eq!(
            here,
            [json!({"serviceAccountName": "a", "rules": [{"verbs": ["update"]}]})]
        );
        assert!(permissions(&roles, &[binding("Role", Some("other"))], "n").is_err());
        assert!(permissions(&[], &bindings, "n").is_err());
    }
}
