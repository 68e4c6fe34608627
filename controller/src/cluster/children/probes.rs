//! How Kubernetes asks a member whether it lives and serves, as its own minor can be asked.

use etcd_operator_api::{ValidatedCluster, validated::ClientTls};
use k8s_openapi::{
    api::core::v1::{HTTPGetAction, Probe, TCPSocketAction},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::services::{CLIENT_PORT, METRICS_PORT};

pub(super) struct Probes {
    pub(super) startup: Probe,
    pub(super) liveness: Probe,
    pub(super) readiness: Probe,
}

/// Where a member answers whom nobody knows.
enum Door {
    /// Plain HTTP, at this port.
    Http(i32),
    /// Nowhere: that it accepts a connection must do.
    Closed,
}

impl Probes {
    /// Liveness asks the member alone (a serializable read), never the quorum: killing a member because *others* are gone
    /// makes things worse. The startup probe gives a member with a large database an hour to open it.
    pub(super) fn of(cluster: &ValidatedCluster) -> Self {
        let abilities = cluster.version.abilities();
        // Where clients come in, and only once the member serves.
        let front = if cluster.client_tls == ClientTls::Off {
            Door::Http(CLIENT_PORT)
        } else {
            Door::Closed
        };
        let (alive, ready) = if abilities.livez_readyz {
            let aside = Door::Http(METRICS_PORT);
            (aside.ask("/livez"), aside.ask("/readyz"))
        } else if abilities.health_is_read {
            // It needs a quorum: good for readiness only.
            let aside = Door::Http(METRICS_PORT);
            (aside.ask("/metrics"), aside.ask("/health"))
        } else if abilities.listen_metrics_urls {
            (
                Door::Http(METRICS_PORT).ask("/metrics"),
                front.ask("/version"),
            )
        } else {
            (front.ask("/metrics"), front.ask("/version"))
        };
        Self {
            startup: Probe {
                period_seconds: Some(1),
                timeout_seconds: Some(5),
                failure_threshold: Some(3600),
                ..alive.clone()
            },
            liveness: Probe {
                period_seconds: Some(10),
                timeout_seconds: Some(15),
                failure_threshold: Some(6),
                ..alive
            },
            readiness: Probe {
                period_seconds: Some(5),
                timeout_seconds: Some(5),
                failure_threshold: Some(3),
                ..ready
            },
        }
    }
}

impl Door {
    fn ask(&self, path: &str) -> Probe {
        match self {
            Self::Http(port) => Probe {
                http_get: Some(HTTPGetAction {
                    path: Some(path.to_owned()),
                    port: IntOrString::Int(*port),
                    scheme: Some("HTTP".to_owned()),
                    ..HTTPGetAction::default()
                }),
                ..Probe::default()
            },
            Self::Closed => Probe {
                tcp_socket: Some(TCPSocketAction {
                    port: IntOrString::Int(CLIENT_PORT),
                    host: None,
                }),
                ..Probe::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::fixtures::cluster;

    /// `path@port`, or `@port` where only a connection is tried.
    fn asked(probe: &Probe) -> String {
        let port = |port: &IntOrString| match port {
            IntOrString::Int(port) => port.to_string(),
            IntOrString::String(name) => name.clone(),
        };
        let http = probe.http_get.as_ref().map(|get| {
            let path = get.path.clone().unwrap_or_default();
            format!("{path}@{}", port(&get.port))
        });
        let tcp = probe.tcp_socket.as_ref();
        http.or_else(|| tcp.map(|tcp| format!("@{}", port(&tcp.port))))
            .unwrap_or_default()
    }

    #[test]
    fn each_minor_is_asked_where_and_what_it_can_be_asked() {
        let sealed = json!({"clientTLS": {"mode": "Auto"}});
        let open = json!({"clientTLS": {"mode": "Off"}});
        for (version, security, alive, ready) in [
            ("3.1.10", &open, "/metrics@2379", "/version@2379"),
            ("3.2.13", &open, "/metrics@2379", "/version@2379"),
            ("3.2.13", &sealed, "@2379", "@2379"),
            ("3.3.27", &sealed, "/metrics@2381", "@2379"),
            ("3.4.28", &open, "/metrics@2381", "/version@2379"),
            ("3.4.31", &open, "/livez@2381", "/readyz@2381"),
            ("3.5.10", &sealed, "/metrics@2381", "/health@2381"),
            ("3.7.3", &sealed, "/livez@2381", "/readyz@2381"),
        ] {
            let probes = Probes::of(&cluster(json!({"version": version, "security": security})));
            assert_eq!(asked(&probes.startup), alive, "{version}");
            assert_eq!(asked(&probes.liveness), alive, "{version}");
            assert_eq!(asked(&probes.readiness), ready, "{version}");
        }
    }
}
