//! What is asked of a cluster by annotation, where a slip would cost data: the snapshot it starts from, and the recovery from a survivor.

use super::finding::{Judgement, Reason};
use crate::v1beta2::condition::AVAILABLE;
use crate::v1beta2::{EtcdCluster, EtcdClusterStatus, RECOVER_FROM_SURVIVOR, SEED, Seed};

fn annotation<'a>(cluster: &'a EtcdCluster, key: &str) -> Option<&'a String> {
    cluster.metadata.annotations.as_ref()?.get(key)
}

/// Whether both ask for the same by annotation.
pub fn same_requests(one: &EtcdCluster, other: &EtcdCluster) -> bool {
    [SEED, RECOVER_FROM_SURVIVOR]
        .iter()
        .all(|key| annotation(one, key) == annotation(other, key))
}

/// A cluster that has not begun yet starts from what its seed says, or not at all. Afterwards its own record counts.
pub(super) fn check_seed(cluster: &EtcdCluster, judgement: &mut Judgement) {
    let begun = cluster
        .status
        .as_ref()
        .is_some_and(|status| status.bootstrap.is_some());
    let Some(text) = annotation(cluster, SEED).filter(|_| !begun) else {
        return;
    };
    if let Err(error) = Seed::read(text) {
        judgement.refuse(
            format!("metadata.annotations[{SEED}]"),
            Reason::SeedInvalid,
            error.to_string(),
        );
    }
}

/// A recovery gives up what the lost members knew: it is asked for by the ID of the cluster that is meant, and only while no quorum
/// serves. `old` is what is stored, with the status it has. A request that was there before is not judged again.
pub(super) fn check_recovery(
    new: &EtcdCluster,
    old: Option<&EtcdCluster>,
    judgement: &mut Judgement,
) {
    let request = annotation(new, RECOVER_FROM_SURVIVOR);
    let (Some(request), true) = (
        request,
        request != old.and_then(|old| annotation(old, RECOVER_FROM_SURVIVOR)),
    ) else {
        return;
    };
    let field = format!("metadata.annotations[{RECOVER_FROM_SURVIVOR}]");
    let status = old.and_then(|old| old.status.as_ref());
    if let Some((reason, words)) = recovery_refused(request, status, Recovery::FromSurvivor) {
        judgement.refuse(field, reason, words);
    }
}

/// From what a cluster is to be recovered that has lost its quorum for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    FromSurvivor,
    FromBackup,
}

/// Why a recovery of the cluster with this ID is none of the cluster with this status.
pub fn recovery_refused(
    request: &str,
    status: Option<&EtcdClusterStatus>,
    recovery: Recovery,
) -> Option<(Reason, String)> {
    let cluster_id = status.and_then(|status| status.cluster_id.as_deref());
    if Some(request) != cluster_id {
        let words = cluster_id.map_or_else(
            || "must not be set: the cluster has no ID yet, and nothing to recover".to_owned(),
            |id| format!("must be the ID of the cluster that is meant: this one is {id}"),
        );
        return Some((Reason::RecoveryOfAnother, words));
    }
    let served = status.is_some_and(|status| {
        let mut conditions = status.conditions.iter();
        conditions.any(|known| known.type_ == AVAILABLE && known.status == "True")
    });
    let instead = match recovery {
        Recovery::FromSurvivor => {
            "it would give up every member but one; members that are lost are replaced without it"
        }
        Recovery::FromBackup => {
            "members that are lost are replaced without it; to replace the data of a cluster that serves, leave `clusterID` out"
        }
    };
    served.then(|| {
        let words = format!("must not be set while a quorum serves: {instead}");
        (Reason::RecoveryNotNeeded, words)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::policy::Policy;
    use crate::v1beta2::{EtcdCluster, RECOVER_FROM_SURVIVOR, SEED};
    use crate::validation::{Reason, judge};
    use crate::{ValidatedCluster, examples};

    use super::{Recovery, recovery_refused};

    fn with(key: &str, value: Option<&str>, status: Value) -> EtcdCluster {
        let mut cluster = examples::cluster(json!({"size": 3}));
        cluster["metadata"]["uid"] = json!("u");
        if let Some(value) = value {
            cluster["metadata"]["annotations"] = json!({(key): value});
        }
        cluster["status"] = status;
        serde_json::from_value(cluster).unwrap()
    }

    fn asked(value: &str) -> EtcdCluster {
        with(RECOVER_FROM_SURVIVOR, Some(value), Value::Null)
    }

    fn runs(available: &str) -> EtcdCluster {
        let condition = json!({
            "type": "Available", "status": available, "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({
            "clusterID": "c1", "bootstrap": {"token": "t"}, "conditions": [condition],
        });
        with(RECOVER_FROM_SURVIVOR, None, status)
    }

    fn refusal(new: &EtcdCluster, old: Option<&EtcdCluster>) -> Option<(Reason, String)> {
        let found = judge(new, old, &Policy::default()).violations.pop()?;
        Some((found.reason, found.message))
    }

    #[test]
    fn accepts_a_recovery_of_this_cluster_without_a_quorum() {
        assert_eq!(refusal(&asked("c1"), Some(&runs("False"))), None);
        // What was let in stays: only a new request is judged.
        let mut before = runs("True");
        before.metadata.annotations = asked("c1").metadata.annotations;
        assert_eq!(refusal(&asked("c1"), Some(&before)), None);
        assert_eq!(refusal(&runs("True"), Some(&before)), None);
    }

    #[test]
    #[allow(clippy::useless_vec)] // Whole clusters: too large for the stack.
    fn rejects_a_recovery_of_another_cluster_or_with_a_quorum() {
        for (new, old, reason, words) in vec![
            (
                asked("c2"),
                Some(runs("False")),
                Reason::RecoveryOfAnother,
                "this one is c1",
            ),
            (asked("c1"), None, Reason::RecoveryOfAnother, "no ID yet"),
            (
                asked("c1"),
                Some(runs("True")),
                Reason::RecoveryNotNeeded,
                "while a quorum serves",
            ),
        ] {
            let (found, message) = refusal(&new, old.as_ref()).unwrap();
            assert_eq!(found, reason);
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn a_recovery_from_a_backup_is_held_to_the_same_rules() {
        let refused = |id: &str, cluster: &EtcdCluster| {
            let found = recovery_refused(id, cluster.status.as_ref(), Recovery::FromBackup);
            found.map(|(reason, _)| reason)
        };
        assert_eq!(refused("c1", &runs("False")), None);
        assert_eq!(
            refused("c2", &runs("False")),
            Some(Reason::RecoveryOfAnother)
        );
        assert_eq!(
            refused("c1", &runs("True")),
            Some(Reason::RecoveryNotNeeded)
        );
        assert_eq!(
            refused("c1", &asked("c1")),
            Some(Reason::RecoveryOfAnother),
            "no status, no ID"
        );
    }

    #[test]
    fn rejects_a_seed_that_is_none_until_the_cluster_has_begun() {
        let unread = with(SEED, Some("{}"), Value::Null);
        let (found, message) = refusal(&unread, None).unwrap();
        assert_eq!(found, Reason::SeedInvalid);
        assert!(
            message.contains("must be what an EtcdRestore writes"),
            "{message}"
        );
        assert!(ValidatedCluster::new(&unread, &Policy::default()).is_err());
        let begun = with(SEED, Some("{}"), json!({"bootstrap": {"token": "t"}}));
        assert!(ValidatedCluster::new(&begun, &Policy::default()).is_ok());
    }
}
