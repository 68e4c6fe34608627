//! The definitions of our kinds without their rules.

use std::time::Duration;

use anyhow::ensure;
use etcd_operator_tests::{Context, GROUP, Outcome, until_answer};
use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::Value;

use super::{KINDS, walker::Walker};

/// Plays with every CEL rule taken out of the definitions: what then reaches the controller is what old definitions, or somebody's own,
/// would let in.
pub(super) async fn without_rules_in_the_definitions(
    context: &Context,
    walkers: &[Walker],
    play: impl Future<Output = Outcome>,
) -> Outcome {
    let definitions: Api<CustomResourceDefinition> = Api::all(context.client());
    let names = KINDS.map(|kind| format!("{}s.{GROUP}", kind.to_lowercase()));
    let saved = try_join_all(names.iter().map(|name| definitions.get(name))).await?;
    for definition in &saved {
        replace_definition(context, walkers, definition, Rules::Gone).await?;
    }
    let played = play.await;
    for definition in &saved {
        replace_definition(context, walkers, definition, Rules::There).await?;
    }
    played
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    There,
    Gone,
}

async fn replace_definition(
    context: &Context,
    walkers: &[Walker],
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
    let known_to_cel: Vec<&Walker> = walkers
        .iter()
        .filter(|walker| walker.example.kind() == saved.spec.names.kind)
        .filter(|walker| walker.example.by_api_server && !walker.is_change())
        // One whose name is its fault may be stored by now.
        .filter(|walker| walker.example.new["metadata"]["name"] == "example")
        .collect();
    ensure!(!known_to_cel.is_empty(), "no rule to take out");
    until_answer(
        "the API server to heed its definition",
        Duration::from_millis(100),
        || async {
            let refused = known_to_cel[0].refusal(context, "asked").await?.is_some();
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
