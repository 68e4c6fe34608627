//! A real HorizontalPodAutoscaler on the real controller manager. What it wants is whatever the metric says; what the cluster gets is a
//! size etcd can have.

use std::{collections::BTreeSet, pin::pin, sync::Arc};

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Context, METRIC, MetricsApi, Outcome, until};
use futures::StreamExt;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::{
    api::{DynamicObject, PostParams},
    runtime::{WatchStreamExt, watcher::watch_object},
};
use serde_json::json;
use tokio::sync::Mutex;

pub(crate) async fn a_horizontal_pod_autoscaler_never_makes_an_even_or_an_eighth_member(
    context: &Context,
) -> Outcome {
    let metric = MetricsApi::serve(context, 3).await?;
    let scaled = scaled_by(context, &metric).await;
    metric.remove(context).await?;
    scaled
}

async fn scaled_by(context: &Context, metric: &MetricsApi) -> Outcome {
    // Paused: members would only cost time, the size is what an autoscaler writes.
    context
        .cluster("scaled")
        .create(&json!({"size": 3, "paused": true}))
        .await?;
    until(
        context.clusters(),
        "scaled",
        "the status an autoscaler reads",
        |found| found.is_some_and(|cluster| cluster.data["status"]["selector"].is_string()),
    )
    .await?;
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let watching = tokio::spawn(note_sizes(context.clone(), Arc::clone(&sizes)));
    create_autoscaler(context).await?;

    // (what the metric asks for, the size that is to come of it): an even wish, more than there can be, and down again.
    for (wish, size) in [(4_u8, 5), (9, 7), (6, 7), (2, 3)] {
        metric.set(wish.into());
        wanted(context, wish.into()).await?;
        size_is(context, size).await?;
    }
    // Where wish and size agree it rests.
    metric.set(5);
    wanted(context, 5).await?;
    size_is(context, 5).await?;

    watching.abort();
    let sizes: BTreeSet<i64> = sizes.lock().await.iter().copied().collect();
    ensure!(
        sizes == BTreeSet::from([3, 5, 7]),
        "sizes on the way: {sizes:?}"
    );
    Ok(())
}

async fn create_autoscaler(context: &Context) -> Outcome {
    // At once in both directions: how fast is not the question here.
    let at_once = json!({"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 10, "periodSeconds": 1}]});
    let autoscaler: HorizontalPodAutoscaler = serde_json::from_value(json!({
        "metadata": {"name": "scaled"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster", "name": "scaled"},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [{"type": "External", "external": {
                "metric": {"name": METRIC},
                "target": {"type": "AverageValue", "averageValue": "1"},
            }}],
            "behavior": {"scaleUp": at_once, "scaleDown": at_once},
        },
    }))?;
    context
        .api::<HorizontalPodAutoscaler>()
        .create(&PostParams::default(), &autoscaler)
        .await?;
    Ok(())
}

/// Waits until the autoscaler has wished for so many and says that it can scale.
async fn wanted(context: &Context, wish: i32) -> Outcome {
    let holds = |autoscaler: &HorizontalPodAutoscaler, kind: &str| {
        let conditions = autoscaler
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref());
        conditions.is_some_and(|all| {
            all.iter()
                .any(|one| one.type_ == kind && one.status == "True")
        })
    };
    until(
        context.api(),
        "scaled",
        &format!("the autoscaler to want {wish} and to be able to"),
        |found: Option<&HorizontalPodAutoscaler>| {
            found.is_some_and(|autoscaler| {
                let wants = autoscaler
                    .status
                    .as_ref()
                    .map(|status| status.desired_replicas);
                wants == Some(wish)
                    && holds(autoscaler, "AbleToScale")
                    && holds(autoscaler, "ScalingActive")
            })
        },
    )
    .await?;
    Ok(())
}

async fn size_is(context: &Context, size: i64) -> Outcome {
    until(
        context.clusters(),
        "scaled",
        &format!("a size of {size}"),
        |found| found.is_some_and(|cluster| cluster.data["spec"]["size"] == size),
    )
    .await?;
    Ok(())
}

/// Every size there ever was.
async fn note_sizes(context: Context, sizes: Arc<Mutex<Vec<i64>>>) -> Outcome {
    let mut seen = pin!(watch_object(context.clusters(), "scaled").default_backoff());
    while let Some(object) = seen.next().await {
        let Ok(Some(cluster)) = object else { continue };
        let cluster: DynamicObject = cluster;
        let size = cluster.data["spec"]["size"].as_i64().context("a size")?;
        sizes.lock().await.push(size);
    }
    Ok(())
}
