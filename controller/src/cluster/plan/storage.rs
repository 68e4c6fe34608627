//! Volumes grow with the spec, all at once and while members serve. They never shrink: admission refuses that.

use etcd_operator_api::{ValidatedCluster, validated::Storage};

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::cluster::{
        fixtures::{cluster, formed, member},
        observed::Observed,
        plan::plan,
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
