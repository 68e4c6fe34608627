//! What may not change. Admission judges a change against the spec that stood before; the controller, which sees only what is stored,
//! against what it last acted on. Both by the same rules, in the same words.

use super::finding::{Judgement, Violation};
use super::{claim, storage, tls, version};
use crate::defaults::volume_size;
use crate::v1beta2::{Accepted, EtcdCluster, EtcdClusterSpec, EtcdClusterStatus};
use crate::versions::{Version, release};

/// What of a spec, with its defaults, these rules compare.
pub(super) fn facts(spec: &EtcdClusterSpec) -> Accepted {
    let storage = spec.storage.as_ref();
    let modes = tls::modes(spec);
    Accepted {
        size: volume_size(spec).cloned(),
        class_name: storage.and_then(|storage| storage.class_name.clone()),
        ephemeral: storage
            .and_then(|storage| storage.ephemeral)
            .filter(|ephemeral| *ephemeral),
        persistent_volume_claim_spec: claim::without_size(spec).map(Box::new),
        peer_tls: modes.map(|(peer, _)| peer),
        client_tls: modes.map(|(_, client)| client),
    }
}

/// Judges the change from `old` to `new`, both with their defaults and with the stored status. What slipped past every guard may be put
/// back: refused is only what neither the old spec nor what was acted on allows.
pub(super) fn judge(new: &EtcdCluster, old: &EtcdCluster, judgement: &mut Judgement) {
    let asked = facts(&new.spec);
    let mut refused = since(new, &asked, &facts(&old.spec));
    if let Some(accepted) = accepted(old)
        && !refused.is_empty()
    {
        let touched = |one: &Violation| {
            let same = |known: &Violation| known.field == one.field && known.reason == one.reason;
            refused.iter().any(same)
        };
        refused = since(new, &asked, accepted)
            .into_iter()
            .filter(touched)
            .collect();
    }
    judgement.violations.extend(refused);
    if runs(old) {
        tls::warn_of_another_secret(&new.spec, &old.spec, judgement);
    }
    let parsed = |cluster: &EtcdCluster| {
        cluster
            .spec
            .version
            .as_deref()
            .and_then(|text| text.parse::<Version>().ok())
    };
    if let Some(target) = parsed(new).filter(|target| Some(*target) != parsed(old)) {
        // A minor that is not known is refused as such.
        if release(target.minor()).is_some() {
            version::check_step(target, old.status.as_ref(), judgement);
        }
    }
}

/// Judges a stored cluster, with its defaults, against what was last acted on. The step of version is not judged here: it is asked
/// of etcd.
pub(super) fn judge_since_accepted(cluster: &EtcdCluster, judgement: &mut Judgement) {
    if let Some(accepted) = accepted(cluster) {
        let asked = facts(&cluster.spec);
        judgement
            .violations
            .extend(since(cluster, &asked, accepted));
    }
}

/// `asked` are the facts of `new`.
fn since(new: &EtcdCluster, asked: &Accepted, old: &Accepted) -> Vec<Violation> {
    let mut judgement = Judgement::default();
    let status = new.status.as_ref();
    let claimed = status.and_then(|status| status.volume_size.as_ref());
    if !status.is_some_and(EtcdClusterStatus::may_choose_storage) {
        storage::check_change(asked, old, claimed, &mut judgement);
    }
    if runs(new) {
        tls::check_change(asked, old, new.spec.tls.is_some(), &mut judgement);
    }
    judgement.violations
}

fn accepted(cluster: &EtcdCluster) -> Option<&Accepted> {
    cluster.status.as_ref()?.accepted.as_ref()
}

/// Whether its first members were ever to be started.
fn runs(cluster: &EtcdCluster) -> bool {
    let status = cluster.status.as_ref();
    status.is_some_and(|status| status.bootstrap.is_some())
}

/// In CEL at the root: what was last acted on.
pub(super) const ACCEPTED: &str = "oldSelf.status.accepted";

/// In CEL at the root: there is something that was acted on, and this holds for it.
pub(super) fn accepts(condition: &str) -> String {
    format!("(has(oldSelf.status) && has({ACCEPTED}) && {condition})")
}

/// In CEL at the root: `EtcdClusterStatus::may_choose_storage` of what is stored.
pub(super) fn storage_is_open() -> String {
    let status = "oldSelf.status";
    format!(
        "(has({status}) && ((has({status}.phase) && !has({status}.summary) && !has({status}.bootstrap) && !has({status}.clusterID)) || \
         (has({status}.origin) && {status}.origin == 'CoreOS')) && \
         (!has({ACCEPTED}) || (has({ACCEPTED}.ephemeral) && {ACCEPTED}.ephemeral)))"
    )
}

/// In CEL at the root: a field of what was acted on.
pub(super) fn or_unset(field: &str, unset: &str) -> String {
    format!("(has({ACCEPTED}.{field}) ? {ACCEPTED}.{field} : {unset})")
}

#[cfg(test)]
mod tests;
