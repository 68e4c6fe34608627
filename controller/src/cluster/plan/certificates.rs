//! Certificates are renewed by wall clock, long before they run out, and without a restart: etcd reads them at every handshake.
//! Whom it trusts it reads only when it starts: authorities change in stages, each followed by a restart of every member.

use etcd_operator_api::ValidatedCluster;

use crate::cluster::{
    observed::{AuthorityFacts, Observed, Stage},
    step::{Activity, Plan, Reason, Step},
};

/// Asked before anything else, also while paused and without a quorum: members whose certificates have run out never find
/// one another again. A certificate that is gone is due like one that is old.
pub(super) fn renew(seen: &Observed) -> Option<Plan> {
    let known = &seen.certificates.as_ref()?.members;
    let members: Vec<String> = seen
        .members
        .iter()
        .filter(|(name, member)| {
            let belongs = seen.quorum.is_none() || member.listed.is_some();
            let stays = member.pod.is_some() && !member.leaving();
            belongs && stays && known.get(*name).is_none_or(|known| known.due <= seen.now)
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

/// Asked when every member has taken up the last stage: nobody is to meet a certificate of an authority it has not heard of, nor
/// to be left alone with one that the others have forgotten.
pub(super) fn rotate(_: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let due: Vec<AuthorityFacts> = seen
        .certificates
        .iter()
        .flat_map(|known| &known.authorities)
        .filter(|authority| authority.due <= seen.now)
        .cloned()
        .collect();
    // Those that have begun finish first: then all of them go the rest of the way together.
    let begun: Vec<AuthorityFacts> = due
        .iter()
        .filter(|authority| authority.stage != Stage::Settled)
        .cloned()
        .collect();
    let authorities = if begun.is_empty() { due } else { begun };
    if authorities.is_empty() {
        return None;
    }
    let step = Step::RotateAuthorities { authorities };
    let message = step.to_string();
    Some(Plan::step(
        step,
        Activity::Configuring,
        Reason::RotatingAuthorities,
        message,
    ))
}
