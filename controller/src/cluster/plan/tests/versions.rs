//! Upgrades, downgrades, and their order.

use serde_json::json;

use super::plans;
use crate::cluster::{
    fixtures::{cluster, formed, healthy_member, id_of, lose_pod, member},
    observed::Observed,
    plan::rollout,
};

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
