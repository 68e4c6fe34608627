//! Certificates are renewed by wall clock, long before they run out, and without a restart: etcd reads them at every handshake.

use crate::cluster::{
    observed::Observed,
    step::{Activity, Plan, Reason, Step},
};

/// Asked before anything else, also while paused and without a quorum: members whose certificates have run out never find
/// one another again. A certificate that is gone is due like one that is old.
pub(super) fn renew(seen: &Observed) -> Option<Plan> {
    let due = seen.certificates.as_ref()?;
    let members: Vec<String> = seen
        .members
        .iter()
        .filter(|(name, member)| {
            let belongs = seen.quorum.is_none() || member.listed.is_some();
            let stays = member.pod.is_some() && !member.leaving();
            belongs && stays && due.get(*name).is_none_or(|due| *due <= seen.now)
        })
        .map(|(name, _)| name.clone())
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
