//! What a scenario is given: a namespace of its own, a client, and the tools a person would use.

use std::{fmt, sync::Arc};

use k8s_openapi::{NamespaceResourceScope, api::core::v1::Namespace};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, DynamicObject, PostParams},
};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{Cluster, Environment, Finished, Requests, cluster::etcdclusters, command};

#[derive(Clone)]
pub struct Context {
    environment: Arc<Environment>,
    client: Client,
    namespace: String,
    suite_began: Requests,
}

impl fmt::Debug for Context {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Context")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// Makes the namespace. It enforces the restricted Pod Security level, so that every scenario also
    /// shows that the operator's pods need no privilege.
    pub(crate) async fn enter(
        environment: Arc<Environment>,
        client: Client,
        namespace: String,
        suite_began: Requests,
    ) -> anyhow::Result<Self> {
        let context = Self {
            environment,
            client,
            namespace,
            suite_began,
        };
        context.create_namespace(&context.namespace).await?;
        Ok(context)
    }

    pub async fn create_namespace(&self, name: &str) -> anyhow::Result<()> {
        let namespace = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        }))?;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        match namespaces.create(&PostParams::default(), &namespace).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks for the namespace to go and does not wait for it: its finalizers run beside the next scenario.
    pub(crate) async fn leave(&self) -> anyhow::Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces
            .delete(&self.namespace, &DeleteParams::default())
            .await?;
        Ok(())
    }

    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// What the API server was asked from now on.
    pub fn requests(&self) -> anyhow::Result<Requests> {
        Requests::from_now(&self.environment.audit_log)
    }

    /// What the API server was asked since the suite began: a cluster that was kept has older stories to tell.
    pub fn requests_of_suite(&self) -> Requests {
        self.suite_began.clone()
    }

    /// Objects of a built-in kind in the scenario's namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// EtcdClusters in the scenario's namespace, as plain objects: the tests read what a user would, not
    /// what our own types make of it.
    pub fn clusters(&self) -> Api<DynamicObject> {
        etcdclusters(self.client.clone(), &self.namespace)
    }

    pub fn cluster(&self, name: &str) -> Cluster<'_> {
        Cluster::named(self, name)
    }

    /// An EtcdCluster manifest for this namespace.
    pub fn manifest(&self, name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdCluster",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        })
    }

    /// `kubectl …` in the scenario's namespace.
    pub async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<Finished> {
        command::run(self.kubectl_command(arguments), None).await
    }

    /// `kubectl <arguments> -f -` with `manifest` as its input.
    pub async fn kubectl_with(
        &self,
        arguments: &[&str],
        manifest: &Value,
    ) -> anyhow::Result<Finished> {
        let mut command = self.kubectl_command(arguments);
        command.args(["-f", "-"]);
        command::run(command, Some(&manifest.to_string())).await
    }

    fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.environment.kubectl);
        // First, because after a `--` it would belong to the program that `exec` runs.
        command
            .args(["--namespace", &self.namespace])
            .args(arguments);
        command.env("KUBECONFIG", &self.environment.kubeconfig);
        command
    }
}
