//! A cluster's life from `kubectl apply` to `kubectl delete`.

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Context, Outcome, until_all};
use k8s_openapi::api::{
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::{ResourceExt, runtime::watcher};
use serde_json::json;

pub(crate) async fn a_bare_spec_gives_a_ready_three_member_cluster(context: &Context) -> Outcome {
    let cluster = context.cluster("bare");
    context
        .kubectl_with(&["apply"], &context.manifest("bare", &json!({})))
        .await?
        .ok()?;
    let ready = cluster.ready().await?;

    let spec = &ready.data["spec"];
    for (field, wanted) in [
        ("/size", json!(3)),
        ("/storage/size", json!("8Gi")),
        ("/security/peerTLS/mode", json!("Auto")),
    ] {
        ensure!(
            spec.pointer(field) == Some(&wanted),
            "the stored object does not show spec{field}: {spec:#}"
        );
    }
    let members = cluster.members().await?;
    ensure!(
        members.len() == 3 && members.iter().all(|member| !member.learner),
        "members: {members:?}"
    );
    let pods: Vec<String> = cluster
        .pods()
        .await?
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    let claims: Vec<String> = cluster
        .claims()
        .await?
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    ensure!(
        names == pods && names == claims,
        "members {names:?}, pods {pods:?}, claims {claims:?}"
    );

    let status = &ready.data["status"];
    for (field, wanted) in [
        ("/phase", json!("Running")),
        ("/size", json!(3)),
        ("/readyMembers", json!(3)),
        ("/currentVersion", spec["version"].clone()),
        ("/serviceName", json!("bare-client")),
        ("/clientPort", json!(2379)),
    ] {
        ensure!(
            status.pointer(field) == Some(&wanted),
            "status{field} should be {wanted}: {status:#}"
        );
    }
    ensure!(
        status["memberStatus"]
            .as_array()
            .is_some_and(|members| members.len() == 3),
        "status: {status:#}"
    );
    let leader = status["leader"].as_str().context("status names a leader")?;
    ensure!(
        names.contains(&leader),
        "the leader {leader} is none of {names:?}"
    );
    Ok(())
}

pub(crate) async fn a_key_written_through_the_client_service_is_read_by_every_member(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("kv");
    cluster.create(&json!({})).await?;
    cluster.ready().await?;
    cluster.etcd().await?.put("greeting", "hello", None).await?;
    let pods = cluster.pods().await?;
    ensure!(pods.len() == 3, "{} pods", pods.len());
    for pod in &pods {
        let answer = cluster.etcd_of(pod).await?.get("greeting", None).await?;
        let value = answer
            .kvs()
            .first()
            .context("the key is there")?
            .value_str()?
            .to_owned();
        ensure!(value == "hello", "{} says {value}", pod.name_any());
    }
    // By its name too, as an application would, from inside a pod.
    let endpoint = format!(
        "--endpoints=http://kv-client.{}.svc:2379",
        context.namespace()
    );
    let first = pods[0].name_any();
    let text = context
        .kubectl(&[
            "exec",
            &first,
            "--",
            "etcdctl",
            &endpoint,
            "get",
            "greeting",
            "--print-value-only",
        ])
        .await?;
    ensure!(text.stdout.trim() == "hello", "{text}");
    Ok(())
}

pub(crate) async fn deleting_the_resource_removes_all_that_belonged_to_it(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("gone");
    cluster.create(&json!({})).await?;
    cluster.ready().await?;
    ensure!(cluster.claims().await?.len() == 3, "three claims before");
    context
        .kubectl(&["delete", "etcdcluster", "gone", "--wait=true"])
        .await?
        .ok()?;
    cluster.gone().await?;
    // The namespace is the scenario's own: what is left in it was the cluster's.
    let all = watcher::Config::default;
    until_all(
        context.api::<Pod>(),
        all(),
        "the pods to be gone",
        <[_]>::is_empty,
    )
    .await?;
    until_all(
        context.api::<PersistentVolumeClaim>(),
        all(),
        "the claims to be gone",
        <[_]>::is_empty,
    )
    .await?;
    until_all(
        context.api::<Service>(),
        all(),
        "the services to be gone",
        <[_]>::is_empty,
    )
    .await?;
    until_all(
        context.api::<PodDisruptionBudget>(),
        all(),
        "the budget to be gone",
        <[_]>::is_empty,
    )
    .await?;
    // Every namespace has the API server's own certificate.
    until_all(
        context.api::<ConfigMap>(),
        all(),
        "the config maps to be gone",
        |left| left.iter().all(|one| one.name_any() == "kube-root-ca.crt"),
    )
    .await?;
    until_all(
        context.api::<Secret>(),
        all(),
        "the secrets to be gone",
        <[_]>::is_empty,
    )
    .await?;
    Ok(())
}

pub(crate) async fn a_single_member_and_five_members_become_ready(context: &Context) -> Outcome {
    for (name, size) in [("one", 1), ("five", 5)] {
        let cluster = context.cluster(name);
        cluster.create(&json!({"size": size})).await?;
        let ready = cluster.ready().await?;
        ensure!(
            ready.data["status"]["readyMembers"] == size,
            "{:#}",
            ready.data["status"]
        );
        let members = cluster.members().await?;
        ensure!(members.len() == size, "{members:?}");
        cluster.delete().await?;
    }
    Ok(())
}
