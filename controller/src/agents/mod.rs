//! Pods in which the agent carries out one order: how they are made, and what is read of them when they have ended. Pure; shared
//! by backups and restores.

mod ended;
mod store;

use etcd_operator_api::orders::{self, Order, mounts};
use k8s_openapi::{
    api::{
        batch::v1::{
            Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
            PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
        },
        core::v1::{
            Capabilities, Container, EmptyDirVolumeSource, EnvVar,
            PersistentVolumeClaimVolumeSource, PodSecurityContext, PodSpec, PodTemplateSpec,
            SeccompProfile, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

pub use ended::{report, trouble};
pub use store::store;

/// The container that carries out the order.
pub const CONTAINER: &str = "agent";
/// The init container that brings the agent into an image which has etcd's tools and not us.
pub const INSTALL: &str = "install-agent";
/// Where the agent is in the operator's image.
const PROGRAM: &str = "/etcd-operator-agent";
/// Where it is in an image of etcd, once it is installed.
const INSTALLED: &str = "/var/tools/agent";
/// Nobody in particular.
const NONROOT: i64 = 65532;
/// A pod whose agent was killed is followed by so many others. What the agent itself gives up on is not tried again: it has
/// tried long enough.
const FURTHER_PODS: i32 = 2;
/// How a process ends that was killed: SIGKILL, also for want of memory, and SIGTERM.
const KILLED: [i32; 2] = [137, 143];

/// What the agent finds mounted, each by the name of its Secret or claim. Where, says [`mounts`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// Secret with the store's credentials.
    pub credentials: Option<String>,
    /// Secret with the authority of the store's certificate.
    pub store_ca: Option<String>,
    /// Secret with the client certificate for etcd.
    pub etcd: Option<String>,
    /// Secret with `username` and `password` for etcd.
    pub etcd_auth: Option<String>,
    /// Claim of a store of type `PVC`.
    pub volume: Option<String>,
    /// Room for one snapshot.
    pub scratch: bool,
    /// Where the agent is installed for an image of etcd.
    pub tools: bool,
}

impl Mounts {
    /// What this store needs.
    pub fn of_store(store: &orders::Store) -> Self {
        let volume = match store {
            orders::Store::PVC(volume) => volume.claim_name.clone(),
            _ => None,
        };
        Self {
            credentials: store.credentials().map(ToOwned::to_owned),
            store_ca: store.ca().map(ToOwned::to_owned),
            volume,
            scratch: true,
            ..Self::default()
        }
    }

    /// The Secrets without which a pod does not start.
    pub fn secrets(&self) -> impl Iterator<Item = &String> {
        [
            &self.credentials,
            &self.store_ca,
            &self.etcd,
            &self.etcd_auth,
        ]
        .into_iter()
        .flatten()
    }

    /// To be put among the volumes of a pod; none bears the name of a member's volume.
    pub fn volumes(&self) -> Vec<Volume> {
        let mut volumes = Vec::new();
        for (name, secret) in self.by_volume() {
            volumes.push(Volume {
                name: name.to_owned(),
                secret: Some(SecretVolumeSource {
                    secret_name: Some(secret.clone()),
                    // Readable by the pod's group, which `fsGroup` makes ours, and by nobody else.
                    default_mode: Some(0o440),
                    ..SecretVolumeSource::default()
                }),
                ..Volume::default()
            });
        }
        if let Some(claim) = &self.volume {
            volumes.push(Volume {
                name: "agent-backups".to_owned(),
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name: claim.clone(),
                    read_only: None,
                }),
                ..Volume::default()
            });
        }
        for (name, there) in [("agent-scratch", self.scratch), ("agent-tools", self.tools)] {
            if there {
                volumes.push(Volume {
                    name: name.to_owned(),
                    empty_dir: Some(EmptyDirVolumeSource::default()),
                    ..Volume::default()
                });
            }
        }
        volumes
    }

    fn volume_mounts(&self) -> Vec<VolumeMount> {
        let mounted = |name: &str, path: &str, read_only: bool| VolumeMount {
            name: name.to_owned(),
            mount_path: path.to_owned(),
            read_only: read_only.then_some(true),
            ..VolumeMount::default()
        };
        let mut all: Vec<VolumeMount> = self
            .by_volume()
            .into_iter()
            .map(|(name, _)| mounted(name, directory(name), true))
            .collect();
        let rooms = [
            ("agent-backups", mounts::VOLUME, self.volume.is_some()),
            ("agent-scratch", mounts::SCRATCH, self.scratch),
            ("agent-tools", mounts::TOOLS, self.tools),
        ];
        all.extend(
            rooms
                .into_iter()
                .filter(|(.., there)| *there)
                .map(|(name, path, _)| mounted(name, path, false)),
        );
        all
    }

    fn by_volume(&self) -> Vec<(&'static str, &String)> {
        [
            ("agent-store", &self.credentials),
            ("agent-store-ca", &self.store_ca),
            ("agent-etcd", &self.etcd),
            ("agent-etcd-auth", &self.etcd_auth),
        ]
        .into_iter()
        .filter_map(|(name, secret)| Some((name, secret.as_ref()?)))
        .collect()
    }
}

fn directory(volume: &str) -> &'static str {
    match volume {
        "agent-store" => mounts::CREDENTIALS,
        "agent-store-ca" => mounts::STORE_CA,
        "agent-etcd" => mounts::ETCD,
        _ => mounts::ETCD_AUTH,
    }
}

/// An order that cannot be written down, which is a defect of ours.
#[derive(Debug, thiserror::Error)]
#[error("an order for the agent cannot be written")]
pub struct BadOrder(#[from] serde_json::Error);

/// The agent in the operator's image.
pub fn container(agent_image: &str, order: &Order, mounts: &Mounts) -> Result<Container, BadOrder> {
    with(CONTAINER, agent_image, PROGRAM, order, mounts)
}

/// Copies the agent to where [`beside_etcd`] finds it. `mounts.tools` must be set.
pub fn install(agent_image: &str) -> Result<Container, BadOrder> {
    let tools = Mounts {
        tools: true,
        ..Mounts::default()
    };
    let order = Order::Install {
        to: INSTALLED.to_owned(),
    };
    with(INSTALL, agent_image, PROGRAM, &order, &tools)
}

/// The agent in an image of etcd, after [`install`].
pub fn beside_etcd(
    etcd_image: &str,
    order: &Order,
    mounts: &Mounts,
) -> Result<Container, BadOrder> {
    with(CONTAINER, etcd_image, INSTALLED, order, mounts)
}

fn with(
    name: &str,
    image: &str,
    program: &str,
    order: &Order,
    mounts: &Mounts,
) -> Result<Container, BadOrder> {
    Ok(Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        command: Some(vec![program.to_owned()]),
        env: Some(vec![EnvVar {
            name: orders::ORDER.to_owned(),
            value: Some(serde_json::to_string(order)?),
            value_from: None,
        }]),
        volume_mounts: Some(mounts.volume_mounts()),
        // An agent that could not write its report has at least said something.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
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
    })
}

/// A pod of its own for the agent. It gets the token of a ServiceAccount only where one is named, for workload identity.
pub fn pod_spec(
    init: Option<Container>,
    agent: Container,
    mounts: &Mounts,
    service_account: Option<&str>,
) -> PodSpec {
    PodSpec {
        init_containers: init.map(|init| vec![init]),
        containers: vec![agent],
        volumes: Some(mounts.volumes()),
        restart_policy: Some("Never".to_owned()),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(NONROOT),
            run_as_group: Some(NONROOT),
            fs_group: Some(NONROOT),
            // A volume full of backups is not walked at every start.
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        service_account_name: service_account.map(ToOwned::to_owned),
        automount_service_account_token: Some(service_account.is_some()),
        enable_service_links: Some(false),
        ..PodSpec::default()
    }
}

/// The Job around such a pod. Its pods carry the Job's own labels.
pub fn job(metadata: ObjectMeta, pod: PodSpec, timeout_seconds: i64) -> Job {
    let labels = metadata.labels.clone();
    Job {
        metadata,
        spec: Some(JobSpec {
            backoff_limit: Some(FURTHER_PODS),
            active_deadline_seconds: Some(timeout_seconds),
            pod_failure_policy: Some(PodFailurePolicy {
                rules: vec![
                    PodFailurePolicyRule {
                        action: "Ignore".to_owned(),
                        on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
                            type_: "DisruptionTarget".to_owned(),
                            status: "True".to_owned(),
                        }]),
                        on_exit_codes: None,
                    },
                    PodFailurePolicyRule {
                        action: "FailJob".to_owned(),
                        on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
                            container_name: None,
                            operator: "NotIn".to_owned(),
                            values: KILLED.to_vec(),
                        }),
                        on_pod_conditions: None,
                    },
                ],
            }),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels,
                    ..ObjectMeta::default()
                }),
                spec: Some(pod),
            },
            ..JobSpec::default()
        }),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::{
        orders::{SnapshotRef, Store},
        v1beta2::{PvcStore, S3Store},
    };

    use super::*;

    fn s3() -> Store {
        Store::S3(S3Store {
            path: Some("b/k".to_owned()),
            aws_secret: Some("aws".to_owned()),
            ca_secret: Some("authority".to_owned()),
            ..S3Store::default()
        })
    }

    fn inspect(store: Store) -> Order {
        Order::Inspect {
            store,
            snapshot: SnapshotRef {
                name: "k".to_owned(),
                sha256: None,
            },
        }
    }

    #[test]
    fn the_agent_is_given_its_order_and_the_names_of_its_secrets_only() {
        let mounts = Mounts::of_store(&s3());
        let agent = container("operator:1", &inspect(s3()), &mounts).unwrap();
        let order = agent.env.clone().unwrap().remove(0);
        assert_eq!(order.name, orders::ORDER);
        let order: Order = serde_json::from_str(&order.value.unwrap()).unwrap();
        assert_eq!(order, inspect(s3()));
        let pod = pod_spec(None, agent, &mounts, None);
        let secrets: Vec<_> = pod
            .volumes
            .iter()
            .flatten()
            .filter_map(|volume| volume.secret.as_ref()?.secret_name.as_deref())
            .collect();
        assert_eq!(secrets, ["aws", "authority"]);
        assert_eq!(mounts.secrets().collect::<Vec<_>>(), ["aws", "authority"]);
    }

    #[test]
    fn every_mount_has_its_volume_and_every_volume_is_mounted() {
        let mounts = Mounts {
            etcd: Some("client".to_owned()),
            etcd_auth: Some("user".to_owned()),
            volume: Some("claim".to_owned()),
            tools: true,
            ..Mounts::of_store(&s3())
        };
        let named: Vec<String> = mounts.volumes().into_iter().map(|one| one.name).collect();
        let mounted: Vec<(String, String)> = mounts
            .volume_mounts()
            .into_iter()
            .map(|one| (one.name, one.mount_path))
            .collect();
        assert_eq!(
            named,
            mounted
                .iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        );
        assert_eq!(
            mounted
                .iter()
                .map(|(_, path)| path.as_str())
                .collect::<Vec<_>>(),
            [
                mounts::CREDENTIALS,
                mounts::STORE_CA,
                mounts::ETCD,
                mounts::ETCD_AUTH,
                mounts::VOLUME,
                mounts::SCRATCH,
                mounts::TOOLS,
            ]
        );
    }

    #[test]
    fn a_pod_meets_the_restricted_level_and_asks_for_no_resources() {
        let store = Store::PVC(PvcStore {
            claim_name: Some("claim".to_owned()),
            path: Some("k".to_owned()),
        });
        let mounts = Mounts {
            tools: true,
            ..Mounts::of_store(&store)
        };
        let agent = beside_etcd("etcd:v1", &inspect(store), &mounts).unwrap();
        let pod = pod_spec(
            Some(install("operator:1").unwrap()),
            agent,
            &mounts,
            Some("me"),
        );
        assert_eq!(
            pod.security_context.as_ref().unwrap().run_as_non_root,
            Some(true)
        );
        let containers = pod.init_containers.iter().flatten().chain(&pod.containers);
        for container in containers {
            let context = container.security_context.as_ref().unwrap();
            assert_eq!(context.allow_privilege_escalation, Some(false));
            assert_eq!(context.read_only_root_filesystem, Some(true));
            assert_eq!(container.resources, None);
        }
        assert_eq!(pod.automount_service_account_token, Some(true));
        assert_eq!(
            pod.containers[0].command.as_deref(),
            Some(&["/var/tools/agent".to_owned()][..])
        );
    }

    #[test]
    fn without_a_service_account_of_its_own_a_pod_has_no_token() {
        let mounts = Mounts::of_store(&s3());
        let agent = container("operator:1", &inspect(s3()), &mounts).unwrap();
        let pod = pod_spec(None, agent, &mounts, None);
        assert_eq!(pod.automount_service_account_token, Some(false));
    }

    #[test]
    fn only_an_agent_that_was_killed_is_followed_by_another() {
        let mounts = Mounts::of_store(&s3());
        let agent = container("operator:1", &inspect(s3()), &mounts).unwrap();
        let job = job(
            ObjectMeta::default(),
            pod_spec(None, agent, &mounts, None),
            60,
        );
        let spec = job.spec.unwrap();
        assert_eq!(spec.active_deadline_seconds, Some(60));
        let rules = spec.pod_failure_policy.unwrap().rules;
        let [moved, gave_up] = rules.as_slice() else {
            panic!("{rules:?}")
        };
        assert_eq!(moved.action, "Ignore");
        assert_eq!(gave_up.action, "FailJob");
        let codes = gave_up.on_exit_codes.as_ref().unwrap();
        assert_eq!(
            (codes.operator.as_str(), codes.values.as_slice()),
            ("NotIn", &KILLED[..])
        );
    }
}
