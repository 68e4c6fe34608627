//! A member's pod.

use std::collections::BTreeMap;

use etcd_operator_api::{ValidatedCluster, validated::Storage};
use k8s_openapi::{
    api::core::v1::{
        Affinity, Capabilities, ConfigMapKeySelector, Container, ContainerPort,
        EmptyDirVolumeSource, EnvVar, EnvVarSource, PersistentVolumeClaimVolumeSource, Pod,
        PodAffinityTerm, PodAntiAffinity, PodReadinessGate, PodSecurityContext, PodSpec,
        SeccompProfile, SecretVolumeSource, SecurityContext, TopologySpreadConstraint, Volume,
        VolumeMount,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::{
    InPlace, fingerprint, flags, labels,
    probes::Probes,
    services::{CLIENT_PORT, METRICS_PORT, PEER_PORT},
    starts, tls,
};
use crate::cluster::names;

/// Nobody in particular: etcd needs no right beyond its data directory.
const NONROOT: i64 = 65532;

pub(crate) fn pod(cluster: &ValidatedCluster, member: &str) -> Pod {
    let policy = &cluster.pod;
    // Ours win over the user's: reserved ones are refused at admission, this is the second lock.
    let mut all_labels = policy.labels.clone();
    all_labels.extend(labels::of_member(cluster, member));
    all_labels.insert(labels::VERSION.to_owned(), cluster.version.to_string());
    let mut annotations = policy.annotations.clone();
    annotations.insert(labels::CONFIG.to_owned(), fingerprint(cluster, member));
    annotations.insert(labels::IN_PLACE.to_owned(), InPlace::of(cluster).text());
    let mut metadata = labels::metadata(cluster, member, all_labels);
    metadata.annotations = Some(annotations);

    Pod {
        metadata,
        spec: Some(PodSpec {
            // Together they make `<member>.<cluster>.<namespace>.svc`, the address in etcd's member list.
            hostname: Some(member.to_owned()),
            subdomain: Some(names::headless_service(cluster).to_owned()),
            containers: vec![container(cluster, member)],
            volumes: Some(volumes(cluster, member)),
            restart_policy: Some("Always".to_owned()),
            termination_grace_period_seconds: i64::try_from(
                policy.termination_grace_period.as_secs(),
            )
            .ok(),
            security_context: Some(security_context(policy.security_context.clone())),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            affinity: affinity(cluster),
            topology_spread_constraints: Some(spread(cluster)),
            node_selector: Some(policy.node_selector.clone())
                .filter(|selector| !selector.is_empty()),
            tolerations: Some(policy.tolerations.clone())
                .filter(|tolerations| !tolerations.is_empty()),
            priority_class_name: policy.priority_class_name.clone(),
            service_account_name: policy.service_account_name.clone(),
            image_pull_secrets: Some(policy.image_pull_secrets.clone())
                .filter(|secrets| !secrets.is_empty()),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// etcd strikes everybody else from its list when it starts. In the pod, so that it goes with it.
pub(crate) const FORCE_NEW_CLUSTER: &str = "--force-new-cluster=true";

/// Lets the member go on as the only one, once: no kubelet starts its container a second time, not even one that is cut off from the
/// API server and has not heard that others have joined since.
pub(crate) fn force_new_cluster(pod: &mut Pod) {
    let Some(spec) = pod.spec.as_mut() else {
        return;
    };
    spec.restart_policy = Some("Never".to_owned());
    // Never ready, so that no client writes to it: what it acknowledged last could be dropped if it had to be started so again.
    spec.readiness_gates = Some(vec![PodReadinessGate {
        condition_type: labels::NO_LONGER_ALONE.to_owned(),
    }]);
    let etcd = |container: &&mut Container| container.name == "etcd";
    for container in spec.containers.iter_mut().filter(etcd) {
        let arguments = container.args.get_or_insert_default();
        arguments.push(FORCE_NEW_CLUSTER.to_owned());
    }
}

/// Puts its data into the claim of its name.
pub(crate) fn on_claim(pod: &mut Pod, member: &str) {
    let volumes = pod.spec.iter_mut().flat_map(|spec| &mut spec.volumes);
    for volume in volumes.flatten().filter(|volume| volume.name == "data") {
        volume.empty_dir = None;
        volume.persistent_volume_claim = Some(PersistentVolumeClaimVolumeSource {
            claim_name: member.to_owned(),
            read_only: None,
        });
    }
}

/// Whether it was made so.
pub(crate) fn is_forced(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut arguments = containers.flat_map(|container| container.args.iter().flatten());
    arguments.any(|argument| argument == FORCE_NEW_CLUSTER)
}

fn container(cluster: &ValidatedCluster, member: &str) -> Container {
    let mounts = [tls::peer(cluster, member), tls::server(cluster, member)];
    let mut volume_mounts = vec![VolumeMount {
        name: "data".to_owned(),
        mount_path: "/var/etcd".to_owned(),
        ..VolumeMount::default()
    }];
    volume_mounts.extend(mounts.into_iter().flatten().map(|mounted| VolumeMount {
        name: mounted.volume.to_owned(),
        mount_path: mounted.directory.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    }));
    let probes = Probes::of(cluster);
    Container {
        name: "etcd".to_owned(),
        image: Some(cluster.image.clone()),
        command: Some(vec!["/usr/local/bin/etcd".to_owned()]),
        args: Some(flags::arguments(cluster, member)),
        env: Some(environment(cluster, member)),
        ports: Some(
            [
                ("client", CLIENT_PORT),
                ("peer", PEER_PORT),
                ("metrics", METRICS_PORT),
            ]
            .map(|(name, port)| ContainerPort {
                name: Some(name.to_owned()),
                container_port: port,
                protocol: Some("TCP".to_owned()),
                ..ContainerPort::default()
            })
            .to_vec(),
        ),
        resources: cluster.pod.resources.clone(),
        volume_mounts: Some(volume_mounts),
        startup_probe: Some(probes.startup),
        liveness_probe: Some(probes.liveness),
        readiness_probe: Some(probes.readiness),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                add: None,
            }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

/// How to start comes from the ConfigMap and is read anew at every start of the container.
fn environment(cluster: &ValidatedCluster, member: &str) -> Vec<EnvVar> {
    let from_config_map = |name: &str, key: String| EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            config_map_key_ref: Some(ConfigMapKeySelector {
                name: cluster.name.clone(),
                key,
                optional: Some(false),
            }),
            ..EnvVarSource::default()
        }),
    };
    let mut environment = vec![
        from_config_map("ETCD_INITIAL_CLUSTER", starts::cluster_key(member)),
        from_config_map("ETCD_INITIAL_CLUSTER_STATE", starts::state_key(member)),
    ];
    environment.extend(cluster.pod.environment.clone());
    environment
}

fn volumes(cluster: &ValidatedCluster, member: &str) -> Vec<Volume> {
    let mut data = Volume {
        name: "data".to_owned(),
        ..Volume::default()
    };
    match &cluster.storage {
        Storage::Ephemeral { size_limit } => {
            data.empty_dir = Some(EmptyDirVolumeSource {
                size_limit: size_limit.clone(),
                medium: None,
            });
        }
        Storage::Claim(_) => {
            data.persistent_volume_claim = Some(PersistentVolumeClaimVolumeSource {
                claim_name: member.to_owned(),
                read_only: None,
            });
        }
    }
    let secrets = [tls::peer(cluster, member), tls::server(cluster, member)];
    std::iter::once(data)
        .chain(secrets.into_iter().flatten().map(|mounted| Volume {
            name: mounted.volume.to_owned(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(mounted.secret),
                // Readable by the member's group, which `fsGroup` makes ours, and by nobody else.
                default_mode: Some(0o440),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        }))
        .collect()
}

fn security_context(wished: Option<PodSecurityContext>) -> PodSecurityContext {
    let mut context = wished.unwrap_or_default();
    context.run_as_non_root.get_or_insert(true);
    context.run_as_user.get_or_insert(NONROOT);
    context.run_as_group.get_or_insert(NONROOT);
    context.fs_group.get_or_insert(NONROOT);
    // A large data directory is not walked at every start.
    context
        .fs_group_change_policy
        .get_or_insert_with(|| "OnRootMismatch".to_owned());
    context
        .seccomp_profile
        .get_or_insert_with(|| SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        });
    context
}

/// CoreOS's `antiAffinity: true`: no two members on one node, ever.
fn affinity(cluster: &ValidatedCluster) -> Option<Affinity> {
    let mut affinity = cluster.pod.affinity.clone();
    if cluster.pod.anti_affinity {
        let term = PodAffinityTerm {
            label_selector: Some(members(cluster)),
            topology_key: "kubernetes.io/hostname".to_owned(),
            ..PodAffinityTerm::default()
        };
        let anti: &mut PodAntiAffinity = affinity
            .get_or_insert_default()
            .pod_anti_affinity
            .get_or_insert_default();
        anti.required_during_scheduling_ignored_during_execution
            .get_or_insert_default()
            .push(term);
    }
    affinity
}

/// Across nodes and zones where there are several, without keeping a member from running where there are not.
fn spread(cluster: &ValidatedCluster) -> Vec<TopologySpreadConstraint> {
    if !cluster.pod.topology_spread_constraints.is_empty() {
        return cluster.pod.topology_spread_constraints.clone();
    }
    ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
        .map(|key| TopologySpreadConstraint {
            max_skew: 1,
            topology_key: key.to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            label_selector: Some(members(cluster)),
            ..TopologySpreadConstraint::default()
        })
        .to_vec()
}

fn members(cluster: &ValidatedCluster) -> LabelSelector {
    LabelSelector {
        match_labels: Some(
            labels::selector(cluster)
                .into_iter()
                .collect::<BTreeMap<_, _>>(),
        ),
        ..LabelSelector::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::fixtures;

    #[test]
    fn a_pod_that_strikes_the_others_out_is_started_once_and_no_other_ever_is_one() {
        let cluster = fixtures::cluster(json!({}));
        let plain = pod(&cluster, "c-a");
        assert!(!is_forced(&plain));
        let policy = |pod: &Pod| pod.spec.clone().unwrap().restart_policy;
        assert_eq!(policy(&plain).as_deref(), Some("Always"));
        let mut forced = plain;
        force_new_cluster(&mut forced);
        assert!(is_forced(&forced));
        assert_eq!(policy(&forced).as_deref(), Some("Never"));
        assert!(forced.spec.unwrap().readiness_gates.is_some());
    }
}
