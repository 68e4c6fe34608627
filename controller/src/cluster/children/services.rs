//! The two Services: the headless one gives members their addresses, the client one is where applications connect.

use etcd_operator_api::ValidatedCluster;
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::labels;
use crate::cluster::names;

pub const CLIENT_PORT: i32 = 2379;
pub const PEER_PORT: i32 = 2380;
pub const METRICS_PORT: i32 = 2381;

/// Publishes addresses of members that are not ready: peers must find one another before any can be.
pub(crate) fn headless(cluster: &ValidatedCluster) -> Service {
    Service {
        metadata: labels::metadata(
            cluster,
            names::headless_service(cluster),
            labels::of_cluster(cluster),
        ),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(labels::selector(cluster)),
            ports: Some(vec![port("client", CLIENT_PORT), port("peer", PEER_PORT)]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// Ready members only.
pub(crate) fn client(cluster: &ValidatedCluster) -> Service {
    let mut all_labels = cluster.client_service.labels.clone();
    all_labels.extend(labels::of_cluster(cluster));
    let mut metadata = labels::metadata(cluster, names::client_service(cluster), all_labels);
    metadata.annotations = Some(cluster.client_service.annotations.clone())
        .filter(|annotations| !annotations.is_empty());
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(cluster.client_service.type_.as_str().to_owned()),
            selector: Some(labels::selector(cluster)),
            ports: Some(vec![port("client", CLIENT_PORT)]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn port(name: &str, number: i32) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: number,
        target_port: Some(IntOrString::Int(number)),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}
