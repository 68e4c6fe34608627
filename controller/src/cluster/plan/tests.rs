//! Situations in a line or two, and the plan as text.

mod adopt;
mod alone;
mod authorities;
mod before_risk;
mod database;

use etcd_operator_api::{
    ValidatedCluster,
    v1beta2::{BootstrapMember, BootstrapRecord},
};
use jiff::SignedDuration;
use serde_json::json;

use super::{plan, rollout};
use crate::cluster::{
    fixtures::{cluster, formed, healthy_member, id_of, lose_pod, member, nothing, now, settle},
    names,
    observed::{Certificates, ClaimFacts, Listed, Member, Observed},
    step::{Outlook, Plan},
};

fn text(plan: &Plan) -> String {
    let step = plan
        .step
        .as_ref()
        .map_or_else(|| "no step".to_owned(), ToString::to_string);
    match &plan.outlook {
        Outlook::Settled => format!("{step}; settled"),
        Outlook::Working {
            activity,
            reason,
            message,
        } => format!("{step}; {activity:?} {}: {message}", reason.as_str()),
        Outlook::Stalled { reason, message } => {
            format!("{step}; stalled {}: {message}", reason.as_str())
        }
    }
}

pub(super) fn plans(cluster: &ValidatedCluster, seen: &Observed) -> String {
    text(&plan(cluster, seen))
}

#[test]
fn a_new_resource_first_writes_down_its_founders() {
    let cluster = cluster(json!({}));
    let founders = names::founders(&cluster).join(", ");
    assert_eq!(
        plans(&cluster, &nothing()),
        format!("record the founders {founders}; Creating Bootstrapping: creating 3 members")
    );
}

#[test]
fn founders_get_claims_then_the_claims_are_written_down_then_all_start_at_once() {
    let cluster = cluster(json!({}));
    let founders = names::founders(&cluster);
    let all = founders.join(", ");
    let mut seen = nothing();
    seen.bootstrap = Some(BootstrapRecord {
        token: "t".to_owned(),
        members: founders
            .iter()
            .map(|name| BootstrapMember {
                name: name.clone(),
                claim_uid: None,
            })
            .collect(),
        ..BootstrapRecord::default()
    });
    seen.certificates = Some(Certificates::default());
    assert_eq!(
        plans(&cluster, &seen),
        format!("prepare {all}; Creating Bootstrapping: creating 3 members")
    );

    for name in &founders {
        let claim = Some(ClaimFacts {
            uid: format!("claim-{name}"),
            terminating: false,
            requested: Some(8 << 30),
            capacity: None,
            retained: false,
            version: None,
            lost: false,
        });
        seen.members.insert(
            name.clone(),
            Member {
                claim,
                ..Member::default()
            },
        );
    }
    let mut seen = settle(&cluster, seen);
    assert_eq!(
        plans(&cluster, &seen),
        format!("record the claims of {all}; Creating Bootstrapping: creating 3 members")
    );

    for founder in &mut seen.bootstrap.as_mut().unwrap().members {
        founder.claim_uid = Some(format!("claim-{}", founder.name));
    }
    assert_eq!(
        plans(&cluster, &seen),
        format!(
            "start {all}: the cluster is being created; Creating Bootstrapping: starting 3 members"
        )
    );
}

#[test]
fn a_founder_is_never_started_on_a_claim_other_than_the_recorded_one() {
    let cluster = cluster(json!({}));
    let founders = names::founders(&cluster);
    let mut seen = nothing();
    seen.bootstrap = Some(BootstrapRecord {
        token: "t".to_owned(),
        members: founders
            .iter()
            .map(|name| BootstrapMember {
                name: name.clone(),
                claim_uid: Some(format!("claim-{name}")),
            })
            .collect(),
        ..BootstrapRecord::default()
    });
    for name in &founders {
        let claim = Some(ClaimFacts {
            uid: format!("claim-{name}"),
            terminating: false,
            requested: Some(8 << 30),
            capacity: None,
            retained: false,
            version: None,
            lost: false,
        });
        seen.members.insert(
            name.clone(),
            Member {
                claim,
                ..Member::default()
            },
        );
    }
    member(&mut seen, &founders[1]).claim.as_mut().unwrap().uid = "another".to_owned();
    let seen = settle(&cluster, seen);
    assert!(
        plans(&cluster, &seen).starts_with("no step; stalled FounderLost"),
        "{}",
        plans(&cluster, &seen)
    );
}

#[test]
fn nothing_is_done_at_rest() {
    let cluster = cluster(json!({}));
    assert_eq!(
        plans(&cluster, &formed(&cluster, &["c-a", "c-b", "c-d"])),
        "no step; settled"
    );
}

#[test]
fn a_lost_pod_comes_back_on_its_claim_without_a_change_of_membership() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    lose_pod(&mut seen, "c-b");
    assert_eq!(
        plans(&cluster, &seen),
        "start c-b: its pod was gone; Recovering MembersMissing: starting c-b"
    );
}

#[test]
fn all_pods_lost_at_once_come_back_on_their_claims() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    for name in ["c-a", "c-b", "c-d"] {
        lose_pod(&mut seen, name);
        member(&mut seen, name).listed = None;
    }
    seen.quorum = None;
    assert_eq!(
        plans(&cluster, &seen),
        "start c-a, c-b, c-d: its pod was gone; Recovering MembersMissing: no quorum: bringing members back on their volumes"
    );
}

#[test]
fn a_lost_claim_means_remove_first() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    lose_pod(&mut seen, "c-b");
    member(&mut seen, "c-b").claim = None;
    assert_eq!(
        plans(&cluster, &seen),
        "remove c-b from the cluster: its data is lost; Recovering ReplacingMember: replacing c-b: its data is lost"
    );
}

#[test]
fn nothing_is_started_on_a_claim_that_is_being_deleted() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    lose_pod(&mut seen, "c-b");
    member(&mut seen, "c-b").claim.as_mut().unwrap().terminating = true;
    assert_eq!(
        plans(&cluster, &seen),
        "no step; Recovering WaitingForMembers: waiting for c-b"
    );
}

#[test]
fn what_is_left_of_a_removed_member_goes_pod_first() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    seen.members.insert(
        "c-x".to_owned(),
        Member {
            listed: None,
            ..healthy_member(&cluster, "c-x")
        },
    );
    assert!(plans(&cluster, &seen).starts_with("delete pod c-x: it is no longer a member;"));
    lose_pod(&mut seen, "c-x");
    assert!(plans(&cluster, &seen).starts_with("delete claim c-x: it is no longer a member;"));
}

#[test]
fn a_missing_voter_is_replaced_by_a_learner_that_is_promoted_when_it_has_caught_up() {
    let cluster = cluster(json!({}));
    let seen = formed(&cluster, &["c-a", "c-b"]);
    let newcomer = names::newcomer(&cluster, &seen);
    assert_eq!(
        plans(&cluster, &seen),
        format!(
            "add {newcomer} as a learner; Scaling ScalingUp: 2 of 3 members: adding {newcomer}"
        )
    );

    let mut seen = formed(&cluster, &["c-a", "c-b"]);
    let listed = Some(Listed {
        id: 9,
        learner: true,
        started: false,
    });
    seen.members.insert(
        "c-n".to_owned(),
        Member {
            listed,
            ..Member::default()
        },
    );
    assert!(
        plans(&cluster, &seen).starts_with("prepare c-n;"),
        "{}",
        plans(&cluster, &seen)
    );

    member(&mut seen, "c-n").claim = Some(ClaimFacts {
        uid: "u".to_owned(),
        terminating: false,
        requested: Some(8 << 30),
        capacity: None,
        retained: false,
        version: None,
        lost: false,
    });
    let mut seen = settle(&cluster, seen);
    assert!(
        plans(&cluster, &seen).starts_with("start c-n: it joins the cluster;"),
        "{}",
        plans(&cluster, &seen)
    );

    let mut learner = healthy_member(&cluster, "c-n");
    learner.listed = Some(Listed {
        id: 9,
        learner: true,
        started: true,
    });
    learner.answer.as_mut().unwrap().learner = true;
    learner.answer.as_mut().unwrap().membership = None;
    learner.answer.as_mut().unwrap().leader_id = id_of("c-a");
    learner.answer.as_mut().unwrap().applied_index = 10;
    seen.members.insert("c-n".to_owned(), learner);
    assert_eq!(
        plans(&cluster, &seen),
        "no step; Scaling LearnerCatchingUp: c-n is 990 entries behind the leader"
    );

    member(&mut seen, "c-n")
        .answer
        .as_mut()
        .unwrap()
        .applied_index = 999;
    assert_eq!(
        plans(&cluster, &seen),
        "promote c-n to a voter; Scaling ScalingUp: promoting c-n"
    );
}

#[test]
fn a_smaller_size_removes_one_member_and_never_the_leader() {
    let cluster = cluster(json!({"size": 3}));
    let seen = formed(&cluster, &["c-z", "c-a", "c-b", "c-d", "c-e"]);
    assert_eq!(
        plans(&cluster, &seen),
        "remove c-e from the cluster: the cluster is to be smaller; Scaling ScalingDown: 5 members, 3 wanted: removing c-e"
    );
}

#[test]
fn a_shrink_takes_the_unhealthy_member() {
    let cluster = cluster(json!({"size": 3}));
    let mut seen = formed(&cluster, &["c-z", "c-a", "c-b", "c-d", "c-e"]);
    member(&mut seen, "c-a").answer = None;
    assert!(plans(&cluster, &seen).starts_with("remove c-a from the cluster"));
}

#[test]
fn nothing_is_removed_when_the_rest_would_be_no_quorum() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    lose_pod(&mut seen, "c-b");
    member(&mut seen, "c-b").claim = None;
    member(&mut seen, "c-d").answer = None;
    assert_eq!(
        plans(&cluster, &seen),
        "no step; stalled QuorumLost: c-b cannot come back (its data is lost), but only 1 of 3 voters are healthy: nothing is removed"
    );
}

#[test]
fn a_new_version_rolls_through_followers_first_and_moves_leadership_before_the_leader_stops() {
    let old = cluster(json!({"version": "3.6.10"}));
    let new = cluster(json!({"version": "3.6.16"}));
    let mut seen = formed(&old, &["c-a", "c-b", "c-d"]);
    assert_eq!(
        plans(&new, &seen),
        "restart c-b: it is to run another version; Upgrading RollingVersion: 0 of 3 members on 3.6.16"
    );
    for name in ["c-b", "c-d"] {
        seen.members
            .insert(name.to_owned(), healthy_member(&new, name));
    }
    assert!(
        plans(&new, &seen).starts_with("move leadership from c-a to c-"),
        "{}",
        plans(&new, &seen)
    );
    seen.quorum.as_mut().unwrap().leader_id = id_of("c-d");
    assert_eq!(
        plans(&new, &seen),
        "restart c-a: it is to run another version; Upgrading RollingVersion: 2 of 3 members on 3.6.16"
    );
}

#[test]
fn a_version_that_may_not_follow_what_runs_is_not_rolled_out() {
    let old = cluster(json!({"version": "3.5.35"}));
    let new = cluster(json!({"version": "3.7.3"}));
    assert_eq!(
        plans(&new, &formed(&old, &["c-a", "c-b", "c-d"])),
        "no step; stalled IllegalVersionChange: must not skip a minor: 3.5.35 runs, go to 3.6.16 first"
    );
}

#[test]
fn the_next_minor_waits_until_etcd_has_finished_the_last() {
    let old = cluster(json!({"version": "3.6.16"}));
    let new = cluster(json!({"version": "3.7.3"}));
    let mut seen = formed(&old, &["c-a", "c-b", "c-d"]);
    member(&mut seen, "c-d")
        .answer
        .as_mut()
        .unwrap()
        .storage_version = "3.5.0".to_owned();
    assert_eq!(
        plans(&new, &seen),
        "no step; Upgrading RollingVersion: waiting until etcd counts itself as 3.6, before it goes on to 3.7"
    );
    member(&mut seen, "c-d")
        .answer
        .as_mut()
        .unwrap()
        .storage_version = "3.6.0".to_owned();
    seen.log_readable_by = Some(new.version.minor());
    assert!(plans(&new, &seen).starts_with("restart c-b: it is to run another version;"));
}

#[test]
fn before_3_7_every_member_takes_a_snapshot_of_its_log_by_way_of_a_feigned_downgrade() {
    let old = cluster(json!({"version": "3.6.16"}));
    let new = cluster(json!({"version": "3.7.3"}));
    let mut seen = formed(&old, &["c-a", "c-b", "c-d"]);
    let storage = |seen: &mut Observed, names: &[&str], version: &str| {
        for name in names {
            let answer = member(seen, name).answer.as_mut().unwrap();
            answer.downgrade_to = Some("3.5.0".to_owned());
            answer.storage_version = version.to_owned();
        }
    };
    assert_eq!(
        plans(&new, &seen),
        "prepare etcd for a downgrade to 3.5; Upgrading RollingVersion: making every member's log readable for 3.7"
    );
    storage(&mut seen, &["c-a", "c-b", "c-d"], "3.6.0");
    storage(&mut seen, &["c-a"], "3.5.0");
    assert!(
        plans(&new, &seen)
            .starts_with("no step; Upgrading RollingVersion: every member is about to"),
        "{}",
        plans(&new, &seen)
    );
    storage(&mut seen, &["c-a", "c-b", "c-d"], "3.5.0");
    assert!(plans(&new, &seen).starts_with("go on to 3.7: every log is readable;"));
    // Whoever changes their mind stays where they are.
    assert!(plans(&old, &seen).starts_with("cancel the downgrade;"));

    for name in ["c-a", "c-b", "c-d"] {
        let answer = member(&mut seen, name).answer.as_mut().unwrap();
        answer.downgrade_to = None;
    }
    seen.log_readable_by = Some(new.version.minor());
    assert!(
        plans(&new, &seen).contains("waiting until etcd counts itself as 3.6"),
        "{}",
        plans(&new, &seen)
    );
}

#[test]
fn one_minor_down_waits_for_the_data_before_the_first_lower_binary_starts() {
    let high = cluster(json!({"version": "3.6.16"}));
    let low = cluster(json!({"version": "3.5.35"}));
    let mut seen = formed(&high, &["c-a", "c-b", "c-d"]);
    assert_eq!(
        plans(&low, &seen),
        "prepare etcd for a downgrade to 3.5; Upgrading Downgrading: preparing the data for 3.5"
    );
    for name in ["c-a", "c-b", "c-d"] {
        let answer = member(&mut seen, name).answer.as_mut().unwrap();
        answer.downgrade_to = Some("3.5.0".to_owned());
        answer.storage_version = "3.6.0".to_owned();
    }
    assert_eq!(
        plans(&low, &seen),
        "no step; Upgrading Downgrading: 3 members still prepare their data for 3.5"
    );
    // A change of mind is told to etcd first.
    assert_eq!(
        plans(&high, &seen),
        "cancel the downgrade; Upgrading Downgrading: going on with 3.6"
    );
    for name in ["c-a", "c-b", "c-d"] {
        member(&mut seen, name)
            .answer
            .as_mut()
            .unwrap()
            .storage_version = "3.5.0".to_owned();
    }
    assert!(
        plans(&low, &seen).starts_with("restart c-b: it is to run another version;"),
        "{}",
        plans(&low, &seen)
    );
}

#[test]
fn no_member_is_restarted_while_another_is_unwell() {
    let old = cluster(json!({}));
    let new = cluster(json!({"options": {"quotaBackend": "4Gi"}}));
    let mut seen = formed(&old, &["c-a", "c-b", "c-d"]);
    assert!(
        plans(&new, &seen).starts_with("restart c-b: its configuration has changed;"),
        "{}",
        plans(&new, &seen)
    );
    member(&mut seen, "c-d").pod.as_mut().unwrap().ready = false;
    assert_eq!(
        plans(&new, &seen),
        "no step; Recovering WaitingForMembers: waiting for c-d"
    );
}

#[test]
fn a_paused_cluster_is_watched_and_left_alone() {
    let cluster = cluster(json!({"paused": true}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    assert_eq!(plans(&cluster, &seen), "no step; settled");
    lose_pod(&mut seen, "c-b");
    assert!(plans(&cluster, &seen).starts_with("no step; Configuring Paused"));
}

#[test]
fn a_member_unreachable_for_longer_than_the_spec_waits_is_replaced_and_no_sooner() {
    let cluster = cluster(json!({"recovery": {"unreachableAfter": "5m"}}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    let gone = |seen: &mut Observed, minutes: i64| {
        let since = now() - SignedDuration::from_mins(minutes);
        member(seen, "c-b").answer = None;
        member(seen, "c-b").unwell_since = Some(since);
        let pod = member(seen, "c-b").pod.as_mut().unwrap();
        (pod.ready, pod.since) = (false, since);
    };
    gone(&mut seen, 4);
    let waiting = "no step; Recovering WaitingForMembers: waiting for c-b";
    assert_eq!(plans(&cluster, &seen), waiting);
    gone(&mut seen, 6);
    assert!(
        plans(&cluster, &seen)
            .starts_with("remove c-b from the cluster: it has been unreachable for too long;")
    );

    // After an outage everybody has been unready for long: patience starts when there is a quorum again,
    seen.available_since = Some(now() - SignedDuration::from_mins(1));
    assert_eq!(plans(&cluster, &seen), waiting);
    // or when the member was first seen unwell,
    seen.available_since = Some(now() - SignedDuration::from_hours(1));
    member(&mut seen, "c-b").unwell_since = None;
    assert_eq!(plans(&cluster, &seen), waiting);
    // and a process that is opening a large database is given the time its startup probe gives it.
    gone(&mut seen, 30);
    member(&mut seen, "c-b").pod.as_mut().unwrap().starting = true;
    assert_eq!(plans(&cluster, &seen), waiting);
}

#[test]
fn the_only_member_without_a_volume_is_not_restarted() {
    let old = cluster(json!({"size": 1, "storage": {"ephemeral": true}}));
    let new = cluster(
        json!({"size": 1, "storage": {"ephemeral": true}, "options": {"quotaBackend": "4Gi"}}),
    );
    let plan = plans(&new, &formed(&old, &["c-a"]));
    assert!(plan.starts_with("no step; stalled WouldLoseData"), "{plan}");
}

#[test]
fn members_without_volumes_reach_another_minor_by_being_replaced_with_it() {
    let old = cluster(json!({"version": "3.5.35", "storage": {"ephemeral": true}}));
    let new = cluster(json!({"version": "3.6.16", "storage": {"ephemeral": true}}));
    let mut seen = formed(&old, &["c-a", "c-b", "c-d"]);
    assert!(plans(&new, &seen).starts_with("restart c-b: it is to run another version"));
    lose_pod(&mut seen, "c-b");
    assert!(plans(&new, &seen).starts_with("remove c-b from the cluster: its data is lost"));
    seen.members.remove("c-b");
    assert_eq!(rollout::newcomer_version(&new, &seen), new.version);
    // On a volume it comes back as what it was, until its turn has come.
    let claims = cluster(json!({"version": "3.6.16"}));
    assert_eq!(rollout::newcomer_version(&claims, &seen), old.version);
    // What cannot read the others' log does not join them.
    let seen = formed(&new, &["c-a", "c-d"]);
    let last = cluster(json!({"version": "3.7.3", "storage": {"ephemeral": true}}));
    assert_eq!(rollout::newcomer_version(&last, &seen), new.version);
}

#[test]
fn nothing_is_cleared_away_while_etcd_lists_a_member_that_cannot_be_placed() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    seen.quorum.as_mut().unwrap().strangers = vec![99];
    member(&mut seen, "c-d").listed = None;
    let plan = plans(&cluster, &seen);
    assert!(plan.starts_with("no step; stalled UnknownMember"), "{plan}");
}

#[test]
fn a_certificate_that_is_gone_is_made_anew_even_while_paused_or_without_a_quorum() {
    let cluster = cluster(json!({"paused": true}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    let known = &mut seen.certificates.as_mut().unwrap().members;
    known.remove("c-b");
    seen.quorum = None;
    assert!(plans(&cluster, &seen).starts_with("renew the certificates of c-b;"));
}

#[test]
fn putting_the_spec_right_frees_a_pod_that_could_not_start() {
    let wrong = cluster(json!({"pod": {"nodeSelector": {"disk": "typo"}}}));
    let right = cluster(json!({}));
    let mut seen = formed(&wrong, &["c-a", "c-b", "c-d"]);
    for name in ["c-a", "c-d"] {
        seen.members
            .insert(name.to_owned(), healthy_member(&right, name));
    }
    member(&mut seen, "c-b").answer = None;
    member(&mut seen, "c-b").pod.as_mut().unwrap().ready = false;
    assert!(plans(&wrong, &seen).starts_with("no step; Recovering WaitingForMembers"));
    assert!(plans(&right, &seen).starts_with("restart c-b: its configuration has changed;"));
}

#[test]
fn a_member_that_does_not_run_is_taken_to_another_patch_but_to_no_other_minor() {
    let before = cluster(json!({"size": 1, "version": "3.6.10"}));
    let mut seen = formed(&before, &["c-a"]);
    seen.quorum = None;
    let stuck = member(&mut seen, "c-a");
    stuck.answer = None;
    stuck.listed = None;
    stuck.pod.as_mut().unwrap().ready = false;
    for (version, restarted) in [("3.6.16", true), ("3.7.3", false), ("3.5.35", false)] {
        let after = cluster(json!({"size": 1, "version": version}));
        let planned = plans(&after, &seen);
        assert_eq!(planned.starts_with("restart c-a"), restarted, "{planned}");
    }
}

#[test]
fn a_half_done_upgrade_is_taken_back_without_a_downgrade() {
    let old = cluster(json!({"version": "3.5.35"}));
    let new = cluster(json!({"version": "3.6.16"}));
    let mut seen = formed(&old, &["c-a", "c-b", "c-d"]);
    let mut upgraded = healthy_member(&new, "c-b");
    upgraded.answer.as_mut().unwrap().storage_version = "3.5.0".to_owned();
    seen.members.insert("c-b".to_owned(), upgraded);
    let plan = plans(&old, &seen);
    assert!(
        plan.starts_with("restart c-b: it is to run another version;"),
        "{plan}"
    );
}

#[test]
fn members_that_serve_another_etcd_cluster_are_not_touched() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    seen.quorum.as_mut().unwrap().cluster_id = 0xbad;
    assert!(plans(&cluster, &seen).starts_with("no step; stalled DifferentCluster"));
}

#[test]
fn certificates_are_renewed_when_they_are_due() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    let known = &mut seen.certificates.as_mut().unwrap().members;
    known.get_mut("c-b").unwrap().due = now();
    assert!(plans(&cluster, &seen).starts_with("renew the certificates of c-b;"));
}

#[test]
fn a_member_that_has_started_once_is_told_of_itself_alone() {
    let cluster = cluster(json!({}));
    let seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    assert_eq!(
        seen.starts["c-b"].initial_cluster(),
        "c-b=https://c-b.c.n.svc:2380"
    );
    assert_eq!(seen.starts["c-b"].state(), "existing");
}

#[test]
fn a_namesake_waits_until_the_former_clusters_children_are_collected() {
    let cluster = cluster(json!({}));
    let mut seen = nothing();
    seen.foreign = vec!["Service c".to_owned()];
    assert!(
        plans(&cluster, &seen)
            .starts_with("no step; Creating WaitingForOldChildren: waiting until Service c")
    );
}

#[test]
fn volumes_grow_with_the_spec_while_members_serve() {
    let cluster = cluster(json!({"storage": {"size": "20Gi"}}));
    let seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    assert_eq!(
        plans(&cluster, &seen),
        "grow the claims of c-a, c-b, c-d to 20Gi; Configuring GrowingStorage: growing 3 volumes to 20Gi"
    );
}

#[test]
fn a_cluster_that_lets_nobody_in_is_not_called_lost() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    seen.quorum = None;
    seen.locked_out = true;
    for name in ["c-a", "c-b", "c-d"] {
        member(&mut seen, name).answer = None;
        member(&mut seen, name).listed = None;
    }
    let plan = plans(&cluster, &seen);
    assert!(
        plan.starts_with("no step; stalled AuthEnabled: etcd has authentication enabled"),
        "{plan}"
    );
}

#[test]
fn a_young_learner_is_not_promoted_while_it_lacks_most_of_a_short_log() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-n"]);
    for name in ["c-a", "c-b", "c-n"] {
        member(&mut seen, name).answer.as_mut().unwrap().raft_index = 100;
    }
    let learner = member(&mut seen, "c-n");
    learner.listed.as_mut().unwrap().learner = true;
    let answer = learner.answer.as_mut().unwrap();
    (answer.learner, answer.applied_index) = (true, 80);
    (answer.leader_id, answer.membership) = (id_of("c-a"), None);
    assert!(plans(&cluster, &seen).contains("c-n is 20 entries behind the leader"));
    member(&mut seen, "c-n")
        .answer
        .as_mut()
        .unwrap()
        .applied_index = 95;
    assert!(plans(&cluster, &seen).starts_with("promote c-n to a voter;"));
}

#[test]
fn an_etcd_without_learners_takes_a_voter_only_while_all_are_well_and_by_what_runs() {
    let old = cluster(json!({"version": "3.3.27"}));
    let new = cluster(json!({"version": "3.4.45"}));
    let mut seen = formed(&old, &["c-a", "c-b"]);
    for cluster in [&old, &new] {
        let plan = plans(cluster, &seen);
        assert!(
            plan.starts_with("add c-") && plan.contains("as a voter; Scaling ScalingUp"),
            "{plan}"
        );
    }
    member(&mut seen, "c-b").pod.as_mut().unwrap().ready = false;
    assert!(
        plans(&old, &seen).starts_with("no step; Recovering WaitingForMembers"),
        "{}",
        plans(&old, &seen)
    );
}

#[test]
fn a_namesake_does_not_start_empty_beside_retained_claims_unless_asked_to() {
    let cluster = cluster(json!({}));
    let mut seen = nothing();
    seen.retained = vec!["c-old".to_owned()];
    let plan = plans(&cluster, &seen);
    assert!(
        plan.starts_with("no step; stalled ClaimsRetained: a former cluster of this name has left its data in the claims c-old"),
        "{plan}"
    );
    seen.start_afresh = true;
    assert!(plans(&cluster, &seen).starts_with("record the founders"));
}

#[test]
fn labels_and_resources_are_changed_in_place_one_member_at_a_time() {
    let old = cluster(json!({}));
    let new = cluster(json!({"pod": {
        "labels": {"team": "a"},
        "resources": {"requests": {"memory": "1Gi"}},
    }}));
    let mut seen = formed(&old, &["c-a", "c-b", "c-d"]);
    assert_eq!(
        plans(&new, &seen),
        "change the pod of c-b in place; Configuring RollingConfiguration: 0 of 3 members have the new labels, annotations \
         and resources"
    );
    for name in ["c-a", "c-b", "c-d"] {
        seen.members
            .insert(name.to_owned(), healthy_member(&new, name));
    }
    assert_eq!(plans(&new, &seen), "no step; settled");
    // Resources that the node has no room for: elsewhere, perhaps.
    member(&mut seen, "c-d").pod.as_mut().unwrap().does_not_fit = true;
    assert!(plans(&new, &seen).starts_with("restart c-d: its configuration has changed;"));
}
