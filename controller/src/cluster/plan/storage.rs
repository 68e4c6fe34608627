//! Volumes grow with the spec, all at once and while members serve. They never shrink: admission refuses that. Whether they
//! outlive the resource follows the spec too.

use etcd_operator_api::{ValidatedCluster, v1beta2::Reclaim, validated::Storage};

use crate::cluster::{
    observed::{Member, Observed},
    step::{Activity, Plan, Reason, Step},
};

/// A member may be unwell because its disk is full. Nothing else would happen until it is well, so room is made first.
pub(super) fn room_for_the_unwell(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let well = |member: &Member| member.healthy() && member.pod_ready();
    seen.members
        .values()
        .any(|member| member.claim.is_some() && !well(member))
        .then(|| grow(cluster, seen))
        .flatten()
}

pub(super) fn grow(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let Storage::Claim(settings) = &cluster.storage else {
        return None;
    };
    let members: Vec<String> = seen
        .members
        .iter()
        .filter(|(_, member)| {
            let claim = member.claim.as_ref().filter(|claim| claim.usable());
            claim
                .and_then(|claim| claim.requested)
                .is_some_and(|requested| requested < settings.size_bytes)
        })
        .map(|(name, _)| name.clone())
        .collect();
    if members.is_empty() {
        return None;
    }
    let message = format!("growing {} volumes to {}", members.len(), settings.size.0);
    let step = Step::GrowClaims {
        members,
        size: settings.size.0.clone(),
    };
    Some(Plan::step(
        step,
        Activity::Configuring,
        Reason::GrowingStorage,
        message,
    ))
}

/// What was asked for is there only when the volumes have really grown.
pub(super) fn wait_until_grown(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let Storage::Claim(settings) = &cluster.storage else {
        return None;
    };
    let smaller: Vec<&str> = seen
        .members
        .iter()
        .filter(|(_, member)| {
            let claim = member.claim.as_ref().filter(|claim| claim.usable());
            claim
                .and_then(|claim| claim.capacity)
                .is_some_and(|capacity| capacity < settings.size_bytes)
        })
        .map(|(name, _)| name.as_str())
        .collect();
    (!smaller.is_empty()).then(|| {
        Plan::waiting(
            Activity::Configuring,
            Reason::GrowingStorage,
            format!(
                "waiting until the volumes of {} have grown to {}",
                smaller.join(", "),
                settings.size.0
            ),
        )
    })
}

/// Kubernetes collects what has an owner as soon as the resource is deleted, so a claim that is to stay must have lost its owner
/// before. Asked early, and without a quorum too: what somebody wants to keep may be all there is.
pub(super) fn follow_reclaim(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let Storage::Claim(settings) = &cluster.storage else {
        return None;
    };
    let retain = settings.reclaim == Reclaim::Retain;
    let members: Vec<String> = seen
        .members
        .iter()
        .filter(|(_, member)| {
            let claim = member.claim.as_ref().filter(|claim| !claim.terminating);
            claim.is_some_and(|claim| claim.retained != retain)
        })
        .map(|(name, _)| name.clone())
        .collect();
    if members.is_empty() {
        return None;
    }
    let step = Step::Reclaim { members, retain };
    let message = step.to_string();
    Some(Plan::step(
        step,
        Activity::Configuring,
        Reason::ChangingReclaim,
        message,
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::cluster::{
        fixtures::{cluster, formed, member},
        observed::Observed,
        plan::{plan, tests::plans},
    };

    fn step(spec: serde_json::Value, seen: &Observed) -> String {
        let step = plan(&cluster(spec), seen).step;
        step.map_or_else(|| "no step".to_owned(), |step| step.to_string())
    }

    fn larger() -> serde_json::Value {
        json!({"storage": {"size": "20Gi"}})
    }

    fn crash_looping(seen: &mut Observed, name: &str) {
        let member = member(seen, name);
        member.answer = None;
        member.pod.as_mut().unwrap().ready = false;
    }

    #[test]
    fn a_member_that_has_no_room_to_start_is_given_room_and_not_waited_for() {
        let mut seen = formed(&cluster(json!({})), &["c-a", "c-b", "c-d"]);
        crash_looping(&mut seen, "c-b");
        assert_eq!(
            step(larger(), &seen),
            "grow the claims of c-a, c-b, c-d to 20Gi"
        );
        assert_eq!(step(json!({}), &seen), "no step");
    }

    #[test]
    fn a_cluster_is_ready_only_when_its_volumes_have_really_grown() {
        let mut seen = formed(&cluster(json!({})), &["c-a", "c-b", "c-d"]);
        for name in ["c-a", "c-b", "c-d"] {
            let claim = member(&mut seen, name).claim.as_mut().unwrap();
            claim.requested = Some(20 << 30);
            claim.capacity = Some(20 << 30);
        }
        assert_eq!(plans(&cluster(larger()), &seen), "no step; settled");
        let claim = member(&mut seen, "c-b").claim.as_mut().unwrap();
        claim.capacity = Some(8 << 30);
        assert_eq!(
            plans(&cluster(larger()), &seen),
            "no step; Configuring GrowingStorage: waiting until the volumes of c-b have grown to 20Gi"
        );
        // An unready member is still what is said first, and nothing that heals waits for a volume.
        crash_looping(&mut seen, "c-d");
        assert!(plans(&cluster(larger()), &seen).contains("waiting for c-d"));
    }

    #[test]
    fn an_edited_reclaim_is_obeyed_by_the_claims_there_are_with_and_without_a_quorum() {
        let (delete, retain) = (json!({}), json!({"storage": {"reclaim": "Retain"}}));
        let mut seen = formed(&cluster(json!({})), &["c-a", "c-b"]);
        assert_eq!(
            step(retain.clone(), &seen),
            "let the claims of c-a, c-b outlive the cluster"
        );
        seen.quorum = None;
        assert_eq!(
            step(retain.clone(), &seen),
            "let the claims of c-a, c-b outlive the cluster"
        );
        member(&mut seen, "c-a").claim.as_mut().unwrap().retained = true;
        assert_eq!(
            step(retain, &seen),
            "let the claims of c-b outlive the cluster"
        );
        assert_eq!(
            step(delete, &seen),
            "let the claims of c-a go with the cluster"
        );
    }

    #[test]
    fn volumes_grow_without_a_quorum_because_a_full_disk_may_be_why_there_is_none() {
        let mut seen = formed(&cluster(json!({})), &["c-a", "c-b", "c-d"]);
        seen.quorum = None;
        for name in ["c-a", "c-b", "c-d"] {
            crash_looping(&mut seen, name);
        }
        assert_eq!(
            step(larger(), &seen),
            "grow the claims of c-a, c-b, c-d to 20Gi"
        );
        assert_eq!(step(json!({}), &seen), "no step");
    }
}
