//! An example on its way through the guards.

use anyhow::{Context as _, anyhow, bail};
use etcd_operator_api::{
    examples::{Example, breaking},
    policy::Policy,
};
use etcd_operator_tests::{Context, GROUP};
use kube::{
    Api, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
    },
};
use serde_json::{Value, json};

/// One example on its way through the guards.
#[derive(Clone, Debug)]
pub(super) struct Walker {
    pub(super) number: usize,
    pub(super) example: Example,
    /// What the judge says of it: (field, message).
    pub(super) words: Vec<(String, String)>,
}

impl Walker {
    pub(super) fn all() -> anyhow::Result<Vec<Self>> {
        breaking()
            .into_iter()
            .enumerate()
            .map(|(number, example)| {
                let judgement = example.judge(&Policy::default())?;
                let words = judgement.violations.into_iter();
                Ok(Self {
                    number,
                    words: words.map(|wrong| (wrong.field, wrong.message)).collect(),
                    example,
                })
            })
            .collect()
    }

    pub(super) fn is_change(&self) -> bool {
        self.example.old.is_some()
    }

    /// A change of version is judged against what runs: by the controller against etcd itself.
    pub(super) fn is_of_running_etcd(&self) -> bool {
        self.is_change() && !self.example.by_api_server
    }

    pub(super) fn api(&self, context: &Context) -> Api<DynamicObject> {
        let kind = self.example.kind();
        let kind = GroupVersionKind::gvk(GROUP, "v1beta2", kind);
        let plural = format!("{}s", kind.kind.to_lowercase());
        let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
        Api::namespaced_with(context.client(), context.namespace(), &resource)
    }

    /// The object of the scenario's namespace; one that is stored gets a name of its own, unless its name is what is wrong.
    pub(super) fn object(
        &self,
        context: &Context,
        from: &Value,
        name: &str,
    ) -> anyhow::Result<DynamicObject> {
        let mut object = from.clone();
        object["metadata"]["namespace"] = json!(context.namespace());
        if object["metadata"]["name"] == "example" {
            object["metadata"]["name"] = json!(format!("{name}-{}", self.number));
        }
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
        }
        Ok(serde_json::from_value(object)?)
    }

    /// Puts the example before whoever guards, storing nothing of it. For a change, what stood before is stored, with its status: that
    /// stands in for an etcd that runs, and no controller is there to correct it.
    pub(super) async fn refusal(
        &self,
        context: &Context,
        name: &str,
    ) -> anyhow::Result<Option<kube::core::Status>> {
        let api = self.api(context);
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let new = self.object(context, &self.example.new, name)?;
        let answer = match &self.example.old {
            None => api.create(&dry_run, &new).await,
            Some(old) => {
                let before = self.object(context, old, name)?;
                let mut stored = api
                    .create(&PostParams::default(), &before)
                    .await
                    .with_context(|| format!("{self}: storing what stood before"))?;
                if !old["status"].is_null() {
                    let status = Patch::Merge(json!({"status": old["status"]}));
                    let params = PatchParams::default();
                    stored = api
                        .patch_status(&stored.name_any(), &params, &status)
                        .await
                        .with_context(|| format!("{self}: giving it the status it has"))?;
                }
                stored.data["spec"] = new.data["spec"].clone();
                let answer = api.replace(&stored.name_any(), &dry_run, &stored).await;
                // Gone before there is a controller again that would make it real.
                api.delete(&stored.name_any(), &DeleteParams::default())
                    .await?;
                answer
            }
        };
        match answer {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) => Ok(Some(*status)),
            Err(error) => Err(anyhow!(error).context(self.to_string())),
        }
    }
}

impl std::fmt::Display for Walker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Example { reason, what, .. } = &self.example;
        write!(formatter, "{} {reason} ({what})", self.example.kind())
    }
}

impl Walker {
    pub(super) fn running_name(&self) -> String {
        format!("runs-{}", self.number)
    }

    /// What runs, without repetition.
    pub(super) fn versions(&self) -> anyhow::Result<Vec<String>> {
        let old = self.example.old.as_ref().context("a change")?;
        let members = old["status"]["memberStatus"]
            .as_array()
            .context("a cluster that runs")?;
        let mut versions: Vec<String> = members
            .iter()
            .filter_map(|member| Some(member["version"].as_str()?.to_owned()))
            .collect();
        versions.dedup();
        if versions.is_empty() {
            bail!("{self}: nothing runs");
        }
        Ok(versions)
    }
}
