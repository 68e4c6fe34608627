//! `spec.service`: the Service clients use.

use super::finding::Judgement;
use super::labels;
use crate::v1beta2::{ClientServiceType, EtcdClusterSpec};
use crate::validated::{ClientService, ClientTls};

const FIELD: &str = "spec.service.client";

pub(super) fn read(
    spec: &EtcdClusterSpec,
    client_tls: Option<&ClientTls>,
    judgement: &mut Judgement,
) -> ClientService {
    let Some(client) = spec
        .service
        .as_ref()
        .and_then(|service| service.client.as_ref())
    else {
        return ClientService::default();
    };
    labels::check_labels(
        client.labels.as_ref(),
        &format!("{FIELD}.labels"),
        judgement,
    );
    labels::check_annotations(
        client.annotations.as_ref(),
        &format!("{FIELD}.annotations"),
        judgement,
    );
    let type_ = client.type_.unwrap_or_default();
    let guarded = client_tls.is_some_and(ClientTls::client_auth);
    if type_ != ClientServiceType::ClusterIP && !guarded {
        judgement.warn(
            "spec.service.client.type",
            format!(
                "{}: reachable from outside without a client certificate",
                type_.as_str()
            ),
        );
    }
    ClientService {
        type_,
        annotations: client.annotations.clone().unwrap_or_default(),
        labels: client.labels.clone().unwrap_or_default(),
    }
}
