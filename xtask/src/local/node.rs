//! One node: a containerd and a kubelet with folders, sockets and addresses of their own. Writes their configuration.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::json;

use super::{
    component::Component,
    control_plane::{file, flag},
    layout::{DNS_SERVICE, Layout, Node},
};
use crate::programs::{Program, Programs};

/// Pods whose sandbox this image holds open; made here, never pulled.
pub const PAUSE_IMAGE: &str = "etcd-operator.local/pause:1";
pub const CONTAINERD: &str = "/usr/bin/containerd";
const NETWORK_PLUGINS: &str = "/usr/lib/cni";

pub fn runtime(layout: &Layout, node: &Node) -> Result<Component> {
    fs::create_dir_all(node.volumes())?;
    let config = write_runtime_config(&layout.name, node)?;
    Ok(Component::inside(
        format!("containerd-{}", node.name),
        CONTAINERD.into(),
        vec![file("config", &config)],
    ))
}

/// Where a node's containerd keeps images and layers.
pub fn runtime_root(state: &Path) -> PathBuf {
    state.join("containerd")
}

/// Writes what containerd is configured with, and its pod network, and says where.
pub fn write_runtime_config(cluster: &str, node: &Node) -> Result<PathBuf> {
    let networks = node.state.join("cni");
    for folder in [&networks, &node.run] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let network = serde_json::to_vec_pretty(&network(cluster, node))?;
    fs::write(networks.join("10-pods.conflist"), network)?;
    let config = node.state.join("containerd.toml");
    fs::write(&config, containerd(node, &networks))?;
    Ok(config)
}

pub fn kubelet(layout: &Layout, node: &Node, programs: &Programs) -> Result<Component> {
    let config = node.state.join("kubelet.yaml");
    let resolver = node.state.join("resolv.conf");
    fs::write(&resolver, "")?;
    let settings = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address(),
        "port": 10250,
        "readOnlyPort": 0,
        "healthzBindAddress": node.address(),
        "healthzPort": 10248,
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true}, "x509": {"clientCAFile": layout.pki("ca.crt")}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": layout.pki(&format!("{}.crt", node.name)),
        "tlsPrivateKeyFile": layout.pki(&format!("{}.key", node.name)),
        "containerRuntimeEndpoint": format!("unix://{}", node.runtime_socket().display()),
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": "cluster.local",
        "resolvConf": resolver,
        // Two kubelets that share a folder delete each other's logs.
        "podLogsDir": node.state.join("pod-logs"),
        "volumePluginDir": node.state.join("volume-plugins"),
        // Works with and without systemd, in a container too, under either version of cgroups.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "failSwapOn": false,
        "featureGates": {"KubeletInUserNamespace": true},
        // The nodes share one disk with everything else on the machine: its filling up is no reason to evict pods.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"nodefs.available": "200Mi", "nodefs.inodesFree": "1%", "imagefs.available": "200Mi", "memory.available": "100Mi"},
        "maxPods": 200,
        // Images are there before the pods; and there is nobody to spare from bursts of requests.
        "serializeImagePulls": false,
        "eventRecordQPS": 0,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
    });
    fs::write(&config, serde_yaml_ng::to_string(&settings)?)?;
    let arguments = vec![
        file("config", &config),
        file(
            "kubeconfig",
            layout.pki(&format!("{}.kubeconfig", node.name)),
        ),
        flag("hostname-override", &node.name),
        flag("node-ip", node.address()),
        // Each node is a zone of its own, so that spreading over zones can be seen.
        flag(
            "node-labels",
            format!(
                "topology.kubernetes.io/region=local,topology.kubernetes.io/zone=zone{}",
                node.number
            ),
        ),
        file("root-dir", node.state.join("kubelet")),
        file("cert-dir", node.state.join("kubelet/pki")),
    ];
    Ok(Component::inside(
        format!("kubelet-{}", node.name),
        programs.file(&Program::Kubelet)?,
        arguments,
    ))
}

/// A pair of interfaces per pod and routes between them. No bridge: a packet between two pods of a node then passes the rules for
/// Services even on a kernel whose bridges do not call them.
fn network(cluster: &str, node: &Node) -> serde_json::Value {
    json!({
        "cniVersion": "0.4.0",
        "name": node.network(cluster),
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": false,
                "ipam": {"type": "host-local", "dataDir": node.state.join("ipam"), "ranges": [[{"subnet": node.pod_subnet()}]], "routes": [{"dst": "0.0.0.0/0"}]},
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

fn containerd(node: &Node, networks: &Path) -> String {
    format!(
        r#"version = 2
root = "{root}"
state = "{state}"
# Nothing of another containerd on this machine may be read or written.
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]

[grpc]
  address = "{socket}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  # So that tear-down finds them among the mounts below our folder.
  netns_mounts_under_state_dir = true

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "{runc}"
        SystemdCgroup = false

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{NETWORK_PLUGINS}"
    conf_dir = "{networks}"
"#,
        root = runtime_root(&node.state).display(),
        state = node.run.join("state").display(),
        socket = node.runtime_socket().display(),
        runc = node.run.join("runc").display(),
        networks = networks.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;

    #[test]
    fn two_nodes_share_neither_folder_nor_socket_nor_address() {
        let layout = Layout::new(&Cache::at("/cache"), "demo").unwrap();
        let (one, two) = (layout.node(1), layout.node(2));
        let of = |node: &Node| {
            (
                containerd(node, &node.state),
                network("demo", node).to_string(),
            )
        };
        assert!(!of(&one).0.contains("node2") && !of(&two).0.contains("node1"));
        assert!(of(&two).1.contains("10.244.2.0/24"));
        assert_ne!(one.address(), two.address());
    }

    #[test]
    fn a_pod_network_is_named_after_its_cluster_too() {
        let node = Layout::new(&Cache::at("/cache"), "demo").unwrap().node(1);
        assert_ne!(
            network("demo", &node)["name"],
            network("test", &node)["name"]
        );
    }
}
