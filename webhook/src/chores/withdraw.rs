//! After an uninstall: definitions that are kept no longer convert at a Service that is gone, so that stored objects stay readable and
//! writable. A definition that converts elsewhere is another release's and is left alone.
//!
//! Versions that are not stored are no longer served, until the next install: without a converter the API server would call what is
//! stored by the other version's name, show what that version's schema happens to know of it, and store what it is given.

use clap::Parser;
use etcd_operator_process::metrics::RestRequests;
use etcd_operator_process::{CommonArgs, ConnectError, Drain, HasCommonArgs, connect};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

const FIELD_MANAGER: &str = "etcd-operator-withdraw";
/// Definitions are seldom written: who loses that often is up against something that never rests.
const TRIES: usize = 10;

/// Resets the conversion of definitions whose webhook is gone.
#[derive(Clone, Debug, Parser)]
#[command(name = "etcd-operator-webhook withdraw")]
pub struct WithdrawFlags {
    #[command(flatten)]
    pub common: CommonArgs,

    /// Namespace of the Service
    #[arg(long, value_name = "NS", env = "POD_NAMESPACE")]
    pub namespace: String,

    /// Service that converted
    #[arg(long, value_name = "NAME")]
    pub service_name: String,

    /// CustomResourceDefinition to look at; may be given several times
    #[arg(long = "crd", value_name = "NAME")]
    pub crds: Vec<String>,
}

impl HasCommonArgs for WithdrawFlags {
    fn common(&self) -> &CommonArgs {
        &self.common
    }
}

/// Why a definition still converts at a Service that is gone.
#[derive(Debug, thiserror::Error)]
pub enum WithdrawError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("cannot {verb} the CustomResourceDefinition {name}")]
    Definition {
        verb: &'static str,
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("the CustomResourceDefinition {0} was changed by somebody else each of {TRIES} times")]
    Outrun(String),
}

pub async fn withdraw(flags: WithdrawFlags, _drain: Drain) -> Result<(), WithdrawError> {
    let client = connect(flags.common.kubeconfig.as_deref(), &RestRequests::default()).await?;
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let resource = ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions");
    let definitions: Api<DynamicObject> = Api::all_with(client, &resource);
    for name in &flags.crds {
        reset(&definitions, name, &flags).await?;
    }
    Ok(())
}

/// First the conversion, then the trace of who reset it: with Helm 4 an owner of `spec.conversion` would be in conflict with the next install.
async fn reset(
    definitions: &Api<DynamicObject>,
    name: &str,
    flags: &WithdrawFlags,
) -> Result<(), WithdrawError> {
    let failed = |verb, source| WithdrawError::Definition {
        verb,
        name: name.to_owned(),
        source: Box::new(source),
    };
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    for _ in 0..TRIES {
        let found = definitions.get_opt(name).await;
        let Some(definition) = found.map_err(|error| failed("read", error))? else {
            tracing::info!(name, "there is no such definition");
            return Ok(());
        };
        let Some(patch) = due(&definition, flags) else {
            tracing::info!(name, "does not convert here");
            return Ok(());
        };
        match definitions.patch(name, &params, &Patch::Merge(patch)).await {
            Ok(_) => tracing::info!(name, "conversion reset, or its trace removed"),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(failed("change", error)),
        }
    }
    Err(WithdrawError::Outrun(name.to_owned()))
}

/// What is left to do, as a merge patch that meets only the very object it was made for; none when all is done.
fn due(definition: &DynamicObject, flags: &WithdrawFlags) -> Option<Value> {
    let version = definition.resource_version();
    if converts_at(definition, &flags.service_name, &flags.namespace) {
        return Some(json!({
            "metadata": {"resourceVersion": version},
            "spec": {
                "conversion": {"strategy": "None", "webhook": null},
                "versions": only_the_stored_served(definition),
            },
        }));
    }
    let owners = definition.managed_fields();
    let others: Vec<_> = owners
        .iter()
        .filter(|owner| owner.manager.as_deref() != Some(FIELD_MANAGER))
        .collect();
    (others.len() < owners.len())
        .then(|| json!({"metadata": {"resourceVersion": version, "managedFields": others}}))
}

fn only_the_stored_served(definition: &DynamicObject) -> Value {
    let mut versions = definition.data["spec"]["versions"].clone();
    for version in versions.as_array_mut().into_iter().flatten() {
        if version["storage"] != true {
            version["served"] = json!(false);
        }
    }
    versions
}

fn converts_at(definition: &DynamicObject, service: &str, namespace: &str) -> bool {
    let conversion = &definition.data["spec"]["conversion"];
    let called = &conversion["webhook"]["clientConfig"]["service"];
    conversion["strategy"] == "Webhook"
        && called["name"] == service
        && called["namespace"] == namespace
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> WithdrawFlags {
        let words = ["withdraw", "--namespace=ns", "--service-name=w", "--crd=x"];
        WithdrawFlags::try_parse_from(words).unwrap()
    }

    fn definition(owners: &[&str], conversion: &Value) -> DynamicObject {
        let owners: Vec<Value> = owners
            .iter()
            .map(|owner| json!({"manager": owner, "operation": "Update"}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "x", "resourceVersion": "7", "managedFields": owners},
            "spec": {"conversion": conversion, "versions": [
                {"name": "new", "served": true, "storage": true, "schema": {}},
                {"name": "old", "served": true, "storage": false, "schema": {}},
            ]},
        }))
        .unwrap()
    }

    fn webhook(namespace: &str) -> Value {
        json!({"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "w", "namespace": namespace}}}})
    }

    #[test]
    fn a_definition_that_converts_here_is_reset_and_serves_what_is_stored() {
        assert_eq!(
            due(&definition(&["helm"], &webhook("ns")), &flags()),
            Some(json!({
                "metadata": {"resourceVersion": "7"},
                "spec": {
                    "conversion": {"strategy": "None", "webhook": null},
                    "versions": [
                        {"name": "new", "served": true, "storage": true, "schema": {}},
                        {"name": "old", "served": false, "storage": false, "schema": {}},
                    ],
                },
            }))
        );
    }

    #[test]
    fn a_definition_that_converts_elsewhere_or_not_at_all_is_left_alone() {
        for conversion in [webhook("elsewhere"), json!({"strategy": "None"})] {
            assert_eq!(due(&definition(&["helm"], &conversion), &flags()), None);
        }
    }

    #[test]
    fn no_trace_stays_that_the_next_install_would_be_in_conflict_with() {
        let reset = definition(&["helm", FIELD_MANAGER], &json!({"strategy": "None"}));
        let patch = due(&reset, &flags()).unwrap();
        let left = patch["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0]["manager"], "helm");
        assert_eq!(patch.get("spec"), None);
    }
}
