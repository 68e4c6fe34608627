//! `helm test`: two EtcdClusters offered to the live API server as dry runs, one sound and one not. Nothing is stored.

use clap::Parser;
use etcd_operator_process::metrics::RestRequests;
use etcd_operator_process::{CommonArgs, ConnectError, Drain, HasCommonArgs, connect};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

const NAME: &str = "admission-proof";

/// Proves that admission works, end to end.
#[derive(Clone, Debug, Parser)]
#[command(name = "etcd-operator-webhook prove-admission")]
pub struct ProveFlags {
    #[command(flatten)]
    pub common: CommonArgs,

    /// Namespace the dry runs are made in: one that this operator looks after
    #[arg(long, value_name = "NS", env = "POD_NAMESPACE")]
    pub namespace: String,
}

impl HasCommonArgs for ProveFlags {
    fn common(&self) -> &CommonArgs {
        &self.common
    }
}

/// Why admission is not proven.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("a sound EtcdCluster was refused")]
    Refused(#[source] Box<kube::Error>),
    #[error("a sound EtcdCluster was let in without its defaults: no webhook has seen it")]
    NotFilledIn,
    #[error("an EtcdCluster of two members was let in")]
    LetIn,
    #[error("an EtcdCluster of two members was refused, but not by the webhook")]
    RefusedElsewhere(#[source] Box<kube::Error>),
}

pub async fn prove_admission(flags: ProveFlags, _drain: Drain) -> Result<(), ProofError> {
    let client = connect(flags.common.kubeconfig.as_deref(), &RestRequests::default()).await?;
    let kind = GroupVersionKind::gvk("etcd.database.coreos.com", "v1beta2", "EtcdCluster");
    let resource = ApiResource::from_gvk_with_plural(&kind, "etcdclusters");
    let clusters: Api<DynamicObject> = Api::namespaced_with(client, &flags.namespace, &resource);
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let offer = async |spec: Value| {
        let object = DynamicObject::new(NAME, &resource).data(json!({ "spec": spec }));
        clusters.create(&dry_run, &object).await
    };
    was_filled_in(offer(json!({})).await)?;
    tracing::info!("a sound EtcdCluster was let in and filled in");
    let reason = was_refused(offer(json!({"size": 2})).await)?;
    tracing::info!(%reason, "an EtcdCluster of two members was refused");
    Ok(())
}

/// The version is filled in by the webhook alone; what the definition itself fills in proves nothing.
fn was_filled_in(answer: kube::Result<DynamicObject>) -> Result<(), ProofError> {
    let object = answer.map_err(|source| ProofError::Refused(Box::new(source)))?;
    if object.data["spec"]["version"].is_string() {
        Ok(())
    } else {
        Err(ProofError::NotFilledIn)
    }
}

/// By the webhook and for its size; the API server names the webhook that refused.
fn was_refused(answer: kube::Result<DynamicObject>) -> Result<String, ProofError> {
    match answer {
        Ok(_) => Err(ProofError::LetIn),
        Err(kube::Error::Api(status))
            if status.message.contains("admission webhook \"")
                && status.message.contains("denied the request") =>
        {
            Ok(status.message.clone())
        }
        Err(source) => Err(ProofError::RefusedElsewhere(Box::new(source))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn object(spec: &Value) -> DynamicObject {
        serde_json::from_value(json!({"metadata": {"name": "x"}, "spec": spec})).unwrap()
    }

    fn refusal(message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status {
            message: message.to_owned(),
            code: 422,
            ..Status::default()
        }))
    }

    #[test]
    fn an_object_without_its_defaults_was_seen_by_nobody() {
        was_filled_in(Ok(object(&json!({"version": "3.6.1"})))).unwrap();
        let error = was_filled_in(Ok(object(&json!({"size": 3})))).unwrap_err();
        assert!(matches!(error, ProofError::NotFilledIn));
        let error = was_filled_in(Err(refusal("no endpoints available"))).unwrap_err();
        assert!(matches!(error, ProofError::Refused(_)));
    }

    #[test]
    fn only_the_webhooks_own_refusal_counts() {
        let denied = "admission webhook \"validate-etcdcluster.etcd.database.coreos.com\" denied the request: size";
        assert_eq!(was_refused(Err(refusal(denied))).unwrap(), denied);
        for (answer, wanted) in [
            (Ok(object(&json!({}))), "was let in"),
            (
                Err(refusal("EtcdCluster \"x\" is invalid")),
                "not by the webhook",
            ),
            (
                Err(refusal(
                    "failed calling webhook \"x\": no endpoints available",
                )),
                "not by the webhook",
            ),
        ] {
            let error = was_refused(answer).unwrap_err();
            assert!(error.to_string().contains(wanted), "{error}");
        }
    }
}
