//! The control plane's components: what each is started with. Writes the audit policy and kube-proxy's configuration.

use std::{
    fmt::Display,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde_json::json;

use super::{
    component::Component,
    layout::{API_PORT, API_SERVER, Layout, PODS, SERVICES},
};
use crate::programs::{ETCD_OF_THE_CONTROL_PLANE, Program, Programs};

const ETCD_CLIENTS: &str = "http://127.0.0.1:2379";

/// Who asked for what, without bodies: enough to compare a role with what its holder really does. The machinery's own traffic is
/// most of all requests and nobody asks about it.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, userGroups: [system:nodes]}
- {level: None, users: [system:apiserver, system:kube-scheduler, system:kube-proxy, system:kube-controller-manager]}
- {level: None, userGroups: ['system:serviceaccounts:kube-system']}
- {level: None, nonResourceURLs: ['/healthz*', '/readyz*', '/livez*', '/openapi/*', '/version', '/api', '/apis', '/api/*', '/apis/*']}
- {level: Metadata}
";

pub fn etcd(layout: &Layout, programs: &Programs) -> Result<Component> {
    let program = programs.etcd(ETCD_OF_THE_CONTROL_PLANE)?.file("etcd");
    let arguments = vec![
        file("data-dir", layout.state.join("etcd")),
        flag("listen-client-urls", ETCD_CLIENTS),
        flag("advertise-client-urls", ETCD_CLIENTS),
        flag("listen-peer-urls", "http://127.0.0.1:2380"),
        flag("initial-advertise-peer-urls", "http://127.0.0.1:2380"),
        flag("initial-cluster", "default=http://127.0.0.1:2380"),
        flag("log-level", "warn"),
        // A throw-away cluster: losing its last second in a power cut is worth a faster start.
        "--unsafe-no-fsync".to_owned(),
    ];
    Ok(Component::inside("etcd", program, arguments))
}

pub fn api_server(layout: &Layout, programs: &Programs) -> Result<Component> {
    let policy = layout.state.join("audit-policy.yaml");
    fs::write(&policy, AUDIT_POLICY)?;
    let admission = write_admission(layout)?;
    let arguments = vec![
        flag("advertise-address", API_SERVER),
        flag("secure-port", API_PORT),
        flag("etcd-servers", ETCD_CLIENTS),
        file("client-ca-file", layout.pki("ca.crt")),
        file("tls-cert-file", layout.pki("apiserver.crt")),
        file("tls-private-key-file", layout.pki("apiserver.key")),
        flag(
            "service-account-issuer",
            "https://kubernetes.default.svc.cluster.local",
        ),
        file("service-account-key-file", layout.pki("sa.pub")),
        file("service-account-signing-key-file", layout.pki("sa.key")),
        flag("authorization-mode", "Node,RBAC"),
        flag("enable-admission-plugins", "NodeRestriction"),
        file("admission-control-config-file", &admission),
        flag("service-cluster-ip-range", SERVICES),
        file(
            "kubelet-client-certificate",
            layout.pki("apiserver-kubelet.crt"),
        ),
        file("kubelet-client-key", layout.pki("apiserver-kubelet.key")),
        file("kubelet-certificate-authority", layout.pki("ca.crt")),
        flag("kubelet-preferred-address-types", "InternalIP"),
        file("requestheader-client-ca-file", layout.pki("ca.crt")),
        flag("requestheader-allowed-names", "front-proxy"),
        flag("requestheader-username-headers", "X-Remote-User"),
        flag("requestheader-group-headers", "X-Remote-Group"),
        flag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        file("proxy-client-cert-file", layout.pki("front-proxy.crt")),
        file("proxy-client-key-file", layout.pki("front-proxy.key")),
        flag("allow-privileged", true),
        file("audit-policy-file", &policy),
        file("audit-log-path", layout.logs().join("audit.log")),
        flag("audit-log-maxsize", 200),
        flag("audit-log-maxbackup", 5),
        flag("profiling", false),
    ];
    Ok(Component::inside(
        "kube-apiserver",
        programs.file(&Program::KubeApiserver)?,
        arguments,
    ))
}

/// Makes the API server show a certificate to webhooks that want to see one, as some real clusters do.
fn write_admission(layout: &Layout) -> Result<PathBuf> {
    let caller = layout.state.join("webhook-caller.kubeconfig");
    let user = json!({
        "client-certificate": layout.pki("webhook-caller.crt"),
        "client-key": layout.pki("webhook-caller.key"),
    });
    let kubeconfig =
        json!({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]});
    fs::write(&caller, serde_yaml_ng::to_string(&kubeconfig)?)?;
    let plugin = |name: &str| {
        json!({"name": name, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": caller,
        }})
    };
    let admission = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [plugin("MutatingAdmissionWebhook"), plugin("ValidatingAdmissionWebhook")],
    });
    let path = layout.state.join("admission.yaml");
    fs::write(&path, serde_yaml_ng::to_string(&admission)?)?;
    Ok(path)
}

pub fn controller_manager(layout: &Layout, programs: &Programs) -> Result<Component> {
    let mut arguments = vec![
        file("service-account-private-key-file", layout.pki("sa.key")),
        file("root-ca-file", layout.pki("ca.crt")),
        file("cluster-signing-cert-file", layout.pki("ca.crt")),
        file("cluster-signing-key-file", layout.pki("ca.key")),
        flag("use-service-account-credentials", true),
        flag("cluster-cidr", PODS),
        flag("allocate-node-cidrs", false),
        // Nobody wants to wait 15 s for a size to follow a metric.
        flag("horizontal-pod-autoscaler-sync-period", "1s"),
    ];
    arguments.extend(follower(layout, "controller-manager"));
    Ok(Component::inside(
        "kube-controller-manager",
        programs.file(&Program::KubeControllerManager)?,
        arguments,
    ))
}

pub fn scheduler(layout: &Layout, programs: &Programs) -> Result<Component> {
    Ok(Component::inside(
        "kube-scheduler",
        programs.file(&Program::KubeScheduler)?,
        follower(layout, "scheduler"),
    ))
}

/// One for all nodes: they share the network namespace, and with it the rules that kube-proxy writes.
pub fn proxy(layout: &Layout, programs: &Programs) -> Result<Component> {
    let config = layout.state.join("kube-proxy.yaml");
    let text = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": layout.pki("proxy.kubeconfig")},
        "clusterCIDR": PODS,
        "hostnameOverride": "node1",
        // The namespace may not change the kernel's connection tracking limits.
        "conntrack": {"maxPerCore": 0, "min": 0},
        // A Service's new endpoint should be reachable at once.
        "iptables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
    });
    fs::write(&config, serde_yaml_ng::to_string(&text)?)?;
    Ok(Component::inside(
        "kube-proxy",
        programs.file(&Program::KubeProxy)?,
        vec![file("config", config)],
    ))
}

/// What controller manager and scheduler have in common: both follow the API server with an identity of their own.
fn follower(layout: &Layout, component: &str) -> Vec<String> {
    let kubeconfig = layout.pki(&format!("{component}.kubeconfig"));
    let mut arguments = vec![flag("leader-elect", false), flag("profiling", false)];
    arguments.extend(
        [
            "kubeconfig",
            "authentication-kubeconfig",
            "authorization-kubeconfig",
        ]
        .map(|name| file(name, &kubeconfig)),
    );
    arguments
}

/// `--name=value`
pub fn flag(name: &str, value: impl Display) -> String {
    format!("--{name}={value}")
}

/// `--name=/path`
pub fn file(name: &str, path: impl AsRef<Path>) -> String {
    flag(name, path.as_ref().display())
}
