//! What a person sees with kubectl.

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{
    Context, Outcome, condition_is,
    kstatus::{self, Verdict},
    until,
};
use serde_json::json;

pub(crate) async fn kubectl_wait_get_and_describe_tell_the_story(context: &Context) -> Outcome {
    let cluster = context.cluster("story");
    context
        .kubectl_with(&["apply"], &context.manifest("story", &json!({})))
        .await?
        .ok()?;
    // Flux calls it good when, and not before, we do.
    let good = until(
        context.clusters(),
        "story",
        "kstatus to call the cluster current",
        |cluster| {
            cluster
                .and_then(|cluster| serde_json::to_value(cluster).ok())
                .is_some_and(|cluster| kstatus::verdict(&cluster) == Verdict::Current)
        },
    )
    .await?
    .context("a current cluster exists")?;
    ensure!(
        condition_is(&good, "Ready", "True"),
        "kstatus calls it current, and it is not Ready: {:#}",
        good.data["status"]
    );
    context
        .kubectl(&[
            "wait",
            "--for=condition=Ready",
            "etcdcluster/story",
            "--timeout=180s",
        ])
        .await?
        .ok()?;
    let version = cluster.get().await?.data["spec"]["version"]
        .as_str()
        .context("a version")?
        .to_owned();

    let table = context.kubectl(&["get", "etcd", "story"]).await?.ok()?;
    let mut lines = table.lines();
    let header: Vec<&str> = lines
        .next()
        .context("a header")?
        .split_whitespace()
        .collect();
    ensure!(
        header == ["NAME", "READY", "STATUS", "VERSION", "AGE"],
        "columns: {header:?}"
    );
    let row: Vec<&str> = lines.next().context("a row")?.split_whitespace().collect();
    ensure!(
        row.starts_with(&["story", "3/3"]) && row.contains(&version.as_str()),
        "row: {row:?}"
    );

    let wide = context
        .kubectl(&["get", "etcd", "story", "--output=wide"])
        .await?
        .ok()?;
    for column in ["LEADER", "CLIENT", "DB SIZE"] {
        ensure!(wide.contains(column), "no column {column}:\n{wide}");
    }
    let members = cluster.members().await?;
    ensure!(
        members.iter().any(|member| wide.contains(&member.name)),
        "no leader:\n{wide}"
    );

    let story = context
        .kubectl(&["describe", "etcdcluster", "story"])
        .await?
        .ok()?;
    for word in [
        "Conditions:",
        "Available",
        "Ready",
        "Observed Generation",
        "Events:",
    ] {
        ensure!(story.contains(word), "no {word}:\n{story}");
    }
    for member in &members {
        ensure!(
            story.contains(&member.name),
            "no line for {}:\n{story}",
            member.name
        );
    }
    let events = story.split("Events:").last().unwrap_or_default();
    ensure!(
        events.contains("Normal") && events.contains("etcd-operator"),
        "no event of the operator:\n{events}"
    );
    Ok(())
}

pub(crate) async fn the_scale_subresource_tells_size_and_selector(context: &Context) -> Outcome {
    let cluster = context.cluster("scale");
    cluster.create(&json!({"size": 1})).await?;
    cluster.ready().await?;
    let scale = context.clusters().get_scale("scale").await?;
    let status = scale.status.context("a scale has a status")?;
    ensure!(
        scale.spec.and_then(|spec| spec.replicas) == Some(1) && status.replicas == 1,
        "{status:?}"
    );
    let selector = status.selector.context("a scale has a selector")?;
    let names = context
        .kubectl(&["get", "pods", "--selector", &selector, "--output=name"])
        .await?
        .ok()?;
    ensure!(
        names.lines().count() == 1 && names.contains("pod/scale-"),
        "{selector} selects {names}"
    );
    let refused = context
        .kubectl(&["scale", "etcdcluster/scale", "--replicas=4"])
        .await?
        .refused()?;
    ensure!(refused.contains('3') && refused.contains('5'), "{refused}");
    Ok(())
}
