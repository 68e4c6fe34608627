//! Certificates are renewed by wall clock, long before they run out, and without a restart: etcd reads them at every handshake.

use etcd_operator_api::ValidatedCluster;

use crate::cluster::{
    observed::Observed,
    step::{Activity, Plan, Reason, Step},
};

pub(super) fn renew(_: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let members: Vec<String> = seen
        .certificates
        .iter()
        .flatten()
        .filter(|(_, due)| **due <= seen.now)
        .map(|(member, _)| member.clone())
        .collect();
    if members.is_empty() {
        return None;
    }
    let message = format!("renewing the certificates of {}", members.join(", "));
    Some(Plan::step(
        Step::Renew { members },
        Activity::Configuring,
        Reason::RenewingCertificates,
        message,
    ))
}
