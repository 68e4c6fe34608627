//! Members that a restore in place or a recovery has set aside: none of them runs, and their claims are kept until the cluster
//! that takes their place is whole. Only then are they members like any other that etcd does not list, and cleared away.

use etcd_operator_api::ValidatedCluster;

use crate::cluster::{
    observed::Observed,
    step::{Activity, Plan, Reason, Step, Why},
};

/// Asked first: two of them that run could take each other for a cluster.
pub(super) fn stop(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let running = || {
        seen.aside
            .iter()
            .filter_map(|(name, member)| Some((name, member.pod.as_ref()?)))
    };
    let (first, _) = running().next()?;
    let message = format!("stopping {first}; its volume is kept");
    Some(match running().find(|(_, pod)| !pod.terminating) {
        Some((name, pod)) => Plan::step(
            Step::DeletePod {
                name: name.clone(),
                pod_uid: pod.uid.clone(),
                why: Why::SetAside,
            },
            Activity::Recovering,
            Reason::SettingAside,
            message,
        ),
        None => Plan::waiting(
            Activity::Recovering,
            Reason::SettingAside,
            format!(
                "waiting for {first} to stop; its volume is kept. If its node is gone for good: kubectl -n {} delete pod {first} \
                 --force",
                cluster.namespace
            ),
        ),
    })
}

/// Asked last: whatever took the place of former members is whole.
pub(super) fn release(_: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let record = seen.bootstrap.as_ref()?;
    record.former.as_ref()?;
    Some(Plan::beside(Step::ReleaseFormer))
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::v1beta2::{BootstrapMember, BootstrapRecord, FormerMembers, Seed};
    use serde_json::json;

    use crate::cluster::{
        fixtures::{cluster, formed, healthy_member, member, nothing, settle},
        observed::{ClaimFacts, Member, Observed, Start},
        plan::{plan, tests::plans},
        step::Step,
    };

    /// A restore in place was recorded: `c-old` was the cluster, `c-a`, `c-b`, `c-c` are to be.
    fn record(claimed: bool) -> BootstrapRecord {
        BootstrapRecord {
            token: "second".to_owned(),
            members: ["c-a", "c-b", "c-c"]
                .map(|name| BootstrapMember {
                    name: name.to_owned(),
                    claim_uid: claimed.then(|| format!("claim-{name}")),
                })
                .to_vec(),
            seed: Some(Seed::default()),
            former: Some(FormerMembers {
                token: "first".to_owned(),
                cluster_id: Some("c0".to_owned()),
                members: vec!["c-old".to_owned()],
            }),
        }
    }

    fn begun() -> Observed {
        let mut seen = nothing();
        seen.bootstrap = Some(record(false));
        let old = healthy_member(&cluster(json!({})), "c-old");
        seen.aside.insert("c-old".to_owned(), old);
        settle(&cluster(json!({})), seen)
    }

    #[test]
    fn former_members_stop_before_anything_of_the_new_ones_exists_and_keep_their_claims() {
        let cluster = cluster(json!({}));
        let mut seen = begun();
        assert!(plans(&cluster, &seen).starts_with("delete pod c-old: it is set aside"));
        let old = seen.aside.get_mut("c-old").unwrap();
        old.pod.as_mut().unwrap().terminating = true;
        assert_eq!(plan(&cluster, &seen).step, None);
        seen.aside.get_mut("c-old").unwrap().pod = None;
        assert!(plans(&cluster, &seen).starts_with("prepare c-a, c-b, c-c"));
    }

    #[test]
    fn a_lost_volume_of_a_new_member_is_never_a_reason_to_delete_what_keeps_the_old_ones() {
        let cluster = cluster(json!({}));
        let mut seen = begun();
        seen.aside.get_mut("c-old").unwrap().pod = None;
        seen.bootstrap = Some(record(true));
        seen.bootstrap
            .as_mut()
            .unwrap()
            .seed
            .as_mut()
            .unwrap()
            .restore = "back".to_owned();
        let said = plans(&cluster, &seen);
        assert!(said.starts_with("no step; stalled FounderLost"), "{said}");
        assert!(said.contains("do not delete this resource"), "{said}");
        assert!(
            said.contains("kubectl -n n delete etcdrestore back"),
            "{said}"
        );
        seen.bootstrap.as_mut().unwrap().former = None;
        let said = plans(&cluster, &seen);
        assert!(
            said.contains("Delete this resource, and restore it again"),
            "{said}"
        );
    }

    #[test]
    fn founders_from_a_snapshot_are_never_told_to_start_empty() {
        let seen = begun();
        for founder in ["c-a", "c-b", "c-c"] {
            assert!(
                matches!(&seen.starts[founder], Start::Resume { initial_cluster } if !initial_cluster.contains(',')),
                "{:?}",
                seen.starts
            );
        }
    }

    #[test]
    fn former_claims_go_only_after_the_new_cluster_is_whole() {
        let cluster = cluster(json!({}));
        let mut seen = formed(&cluster, &["c-a", "c-b", "c-c"]);
        seen.bootstrap = Some(record(true));
        let claim = healthy_member(&cluster, "c-old").claim;
        let old = Member {
            claim,
            ..Member::default()
        };
        seen.aside.insert("c-old".to_owned(), old);
        // While a member is unwell, nothing of the former is let go.
        let mut unwell = seen.clone();
        member(&mut unwell, "c-b").answer = None;
        assert_ne!(plan(&cluster, &unwell).step, Some(Step::ReleaseFormer));
        let settled = plan(&cluster, &seen);
        assert_eq!(settled.step, Some(Step::ReleaseFormer));
        seen.bootstrap.as_mut().unwrap().former = None;
        seen.members.append(&mut seen.aside);
        assert!(plans(&cluster, &seen).starts_with("delete claim c-old"));
    }

    #[test]
    fn former_members_that_come_back_start_on_their_own_claims() {
        let cluster = cluster(json!({}));
        let mut seen = formed(&cluster, &["c-old"]);
        seen.quorum = None;
        let old = member(&mut seen, "c-old");
        (old.pod, old.answer, old.listed) = (None, None, None);
        assert!(old.claim.as_ref().is_some_and(ClaimFacts::usable));
        seen.bootstrap = Some(BootstrapRecord {
            seed: None,
            former: Some(FormerMembers {
                members: vec!["c-a".to_owned()],
                ..FormerMembers::default()
            }),
            ..record(false)
        });
        let given_up = healthy_member(&cluster, "c-a");
        seen.aside.insert("c-a".to_owned(), given_up);
        assert!(plans(&cluster, &seen).starts_with("delete pod c-a: it is set aside"));
        seen.aside.get_mut("c-a").unwrap().pod = None;
        assert!(plans(&cluster, &seen).starts_with("start c-old: its pod was gone"));
    }
}
