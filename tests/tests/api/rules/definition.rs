//! The clusters' definition without its rules.

use std::time::Duration;

use etcd_operator_tests::{Context, GROUP, Outcome, until_answer};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};

/// Plays with every CEL rule taken out of the clusters' definition: what then reaches the controller is what an old definition, or one
/// of somebody's own making, would let in.
pub(super) async fn without_rules_in_the_definition(
    context: &Context,
    play: impl Future<Output = Outcome>,
) -> Outcome {
    let definitions: Api<CustomResourceDefinition> = Api::all(context.client());
    let name = format!("etcdclusters.{GROUP}");
    let saved = definitions.get(&name).await?;
    replace_definition(context, &saved, Rules::Gone).await?;
    let played = play.await;
    replace_definition(context, &saved, Rules::There).await?;
    played
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    There,
    Gone,
}

async fn replace_definition(
    context: &Context,
    saved: &CustomResourceDefinition,
    rules: Rules,
) -> Outcome {
    let definitions: Api<CustomResourceDefinition> = Api::all(context.client());
    let now = definitions.get(&saved.name_any()).await?;
    let mut definition = serde_json::to_value(saved)?;
    definition["metadata"] = serde_json::to_value(&now.metadata)?;
    if rules == Rules::Gone {
        forget_rules(&mut definition);
    }
    let definition = serde_json::from_value(definition)?;
    let params = PostParams::default();
    definitions
        .replace(&saved.name_any(), &params, &definition)
        .await?;
    until_answer(
        "the API server to heed its definition",
        Duration::from_millis(100),
        || async {
            let even = context.manifest("even", &json!({"size": 4}));
            let even: DynamicObject = serde_json::from_value(even)?;
            let dry_run = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            let refused = context.clusters().create(&dry_run, &even).await.is_err();
            Ok((refused == (rules == Rules::There)).then_some(()))
        },
    )
    .await
}

fn forget_rules(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(forget_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_rules),
        _ => {}
    }
}
