//! Alarms and maintenance: what the plan does about the database itself.

use etcd_operator_api::ValidatedCluster;
use jiff::SignedDuration;
use serde_json::json;

use super::plans;
use crate::{
    cluster::{
        fixtures::{cluster, formed, healthy_member, id_of, member, now},
        observed::Observed,
    },
    etcd::{Alarm, AlarmKind, Answer},
};

const MIB: i64 = 1 << 20;

fn answer<'a>(seen: &'a mut Observed, name: &str) -> &'a mut Answer {
    member(seen, name).answer.as_mut().unwrap()
}

fn alarmed(cluster: &ValidatedCluster, kind: AlarmKind, member_id: u64) -> Observed {
    let mut seen = formed(cluster, &["c-a", "c-b", "c-d"]);
    for name in ["c-a", "c-b", "c-d"] {
        answer(&mut seen, name).alarms = vec![Alarm { kind, member_id }];
    }
    seen
}

#[test]
fn a_corrupt_member_is_removed_and_the_alarm_disarmed_when_it_is_gone() {
    let cluster = cluster(json!({}));
    let mut seen = alarmed(&cluster, AlarmKind::Corrupt, id_of("c-b"));
    assert_eq!(
        plans(&cluster, &seen),
        "remove c-b from the cluster: its data differ from the others'; Recovering DataCorrupt: replacing c-b: its data \
         differ from the others'"
    );
    seen.members.remove("c-b");
    assert_eq!(
        plans(&cluster, &seen),
        format!(
            "disarm the alarm CORRUPT of {:x}; Recovering DataCorrupt: the member it was about is gone",
            id_of("c-b")
        )
    );
}

#[test]
fn a_corrupt_leader_hands_over_to_a_sound_member_first() {
    let cluster = cluster(json!({}));
    let seen = alarmed(&cluster, AlarmKind::Corrupt, id_of("c-a"));
    let plan = plans(&cluster, &seen);
    assert!(
        plan.starts_with("move leadership from c-a to c-d; Recovering DataCorrupt"),
        "{plan}"
    );
}

#[test]
fn nothing_is_removed_when_nobody_can_say_who_is_right() {
    let cluster = cluster(json!({}));
    let unknown = plans(&cluster, &alarmed(&cluster, AlarmKind::Corrupt, 0));
    assert!(
        unknown.starts_with(
            "no step; stalled DataCorrupt: the members' data differ and etcd cannot tell"
        ),
        "{unknown}"
    );
    let mut seen = alarmed(&cluster, AlarmKind::Corrupt, id_of("c-b"));
    let second = Alarm {
        kind: AlarmKind::Corrupt,
        member_id: id_of("c-d"),
    };
    answer(&mut seen, "c-a").alarms.push(second);
    let two = plans(&cluster, &seen);
    assert!(
        two.starts_with("no step; stalled DataCorrupt")
            && two.contains("only 1 of 3 voters are sound"),
        "{two}"
    );
}

#[test]
fn a_shrink_never_takes_the_last_sound_member_while_a_corrupt_one_leads() {
    let cluster = cluster(json!({"size": 1}));
    let mut seen = alarmed(&cluster, AlarmKind::Corrupt, id_of("c-a"));
    seen.members.remove("c-d");
    assert!(
        plans(&cluster, &seen)
            .starts_with("move leadership from c-a to c-b; Recovering DataCorrupt")
    );
    // It cannot lead now: its pod is being moved to another node. It comes back on its volume.
    member(&mut seen, "c-b").pod.as_mut().unwrap().terminating = true;
    assert_eq!(
        plans(&cluster, &seen),
        "no step; Scaling MemberUnhealthy: not shrinking yet: removing c-b would leave nobody whose data are sound"
    );
    seen.quorum.as_mut().unwrap().leader_id = id_of("c-b");
    member(&mut seen, "c-b").pod.as_mut().unwrap().terminating = false;
    assert!(
        plans(&cluster, &seen).starts_with("remove c-a from the cluster: the cluster is to be"),
        "{}",
        plans(&cluster, &seen)
    );
}

/// A quota of 100 MiB that is used up, and so much of it in use.
fn full(cluster: &ValidatedCluster, in_use: i64) -> Observed {
    let mut seen = alarmed(cluster, AlarmKind::NoSpace, id_of("c-b"));
    for name in ["c-a", "c-b", "c-d"] {
        let answer = answer(&mut seen, name);
        (answer.db_size, answer.db_size_in_use) = (100 * MIB, in_use * MIB);
        answer.quota = Some(100 << 20);
        answer.compacted = Some(true);
    }
    seen
}

#[test]
fn a_used_up_quota_is_compacted_then_defragmented_leader_last_then_disarmed() {
    let cluster = cluster(json!({"options": {"quotaBackend": "100Mi"}}));
    let mut seen = full(&cluster, 10);
    answer(&mut seen, "c-d").compacted = Some(false);
    answer(&mut seen, "c-d").revision = 99;
    assert_eq!(
        plans(&cluster, &seen),
        "compact to revision 99; Recovering NoSpace: the quota is used up: dropping old revisions"
    );
    answer(&mut seen, "c-d").compacted = Some(true);
    seen.compacted = Some(now());
    for name in ["c-b", "c-d"] {
        assert!(
            plans(&cluster, &seen).starts_with(&format!("defragment {name}; Recovering NoSpace")),
            "{}",
            plans(&cluster, &seen)
        );
        answer(&mut seen, name).db_size = 11 * MIB;
        member(&mut seen, name).defragmented = Some(now());
    }
    assert!(plans(&cluster, &seen).starts_with("move leadership from c-a to c-"));
    seen.quorum.as_mut().unwrap().leader_id = id_of("c-d");
    assert!(plans(&cluster, &seen).starts_with("defragment c-a;"));
    answer(&mut seen, "c-a").db_size = 11 * MIB;
    member(&mut seen, "c-a").defragmented = Some(now());
    assert_eq!(
        plans(&cluster, &seen),
        format!(
            "disarm the alarm NOSPACE of {:x}; Recovering NoSpace: there is room again",
            id_of("c-b")
        )
    );
}

#[test]
fn each_file_is_tried_once_after_each_compaction_whatever_it_says_is_in_use() {
    let cluster = cluster(json!({"options": {"quotaBackend": "100Mi"}}));
    let mut seen = full(&cluster, 99);
    seen.compacted = Some(now());
    for name in ["c-a", "c-b", "c-d"] {
        member(&mut seen, name).defragmented = Some(now());
    }
    assert!(plans(&cluster, &seen).starts_with("no step; stalled NoSpace"));
    member(&mut seen, "c-d").defragmented = Some(now() - SignedDuration::from_secs(1));
    assert!(plans(&cluster, &seen).starts_with("defragment c-d; Recovering NoSpace"));
    // Also one that is not quite full itself: it would be the next to raise the alarm.
    answer(&mut seen, "c-d").db_size = 90 * MIB;
    assert!(plans(&cluster, &seen).starts_with("defragment c-d; Recovering NoSpace"));
}

#[test]
fn writes_are_not_let_in_where_the_next_would_not_fit() {
    let cluster = cluster(json!({"options": {"quotaBackend": "16Mi"}}));
    let mut seen = full(&cluster, 13);
    for name in ["c-a", "c-b", "c-d"] {
        answer(&mut seen, name).quota = Some(16 << 20);
        answer(&mut seen, name).db_size = 15 * MIB;
        answer(&mut seen, name).db_size_in_use = 14 * MIB;
        member(&mut seen, name).defragmented = Some(now());
    }
    assert!(plans(&cluster, &seen).starts_with("no step; stalled NoSpace"));
    for name in ["c-a", "c-b", "c-d"] {
        answer(&mut seen, name).db_size = 14 * MIB;
    }
    assert!(plans(&cluster, &seen).starts_with("disarm the alarm NOSPACE"));
}

#[test]
fn room_is_made_only_while_every_member_answers() {
    let cluster = cluster(json!({"options": {"quotaBackend": "100Mi"}}));
    let mut seen = full(&cluster, 10);
    member(&mut seen, "c-d").answer = None;
    member(&mut seen, "c-d").pod.as_mut().unwrap().ready = false;
    assert!(plans(&cluster, &seen).starts_with("no step; Recovering WaitingForMembers"));
}

#[test]
fn data_that_do_not_fit_are_left_to_a_person_and_a_larger_quota_is_rolled_out() {
    let small = cluster(json!({"options": {"quotaBackend": "100Mi"}}));
    let large = cluster(json!({"options": {"quotaBackend": "200Mi"}}));
    let mut seen = full(&small, 99);
    for name in ["c-a", "c-b", "c-d"] {
        member(&mut seen, name).defragmented = Some(now());
    }
    assert_eq!(
        plans(&small, &seen),
        "no step; stalled NoSpace: etcd refuses writes: the quota of 100Mi is used up, 99Mi are in use: raise \
         options.quotaBackend or delete keys, the rest goes by itself"
    );
    // The alarm is not disarmed for a quota the members do not have yet, whether or not they say what theirs is.
    for quota in [Some(100 << 20), None] {
        for name in ["c-a", "c-b", "c-d"] {
            answer(&mut seen, name).quota = quota;
        }
        assert!(
            plans(&large, &seen).starts_with("restart c-b: its configuration has changed;"),
            "{}",
            plans(&large, &seen)
        );
    }
    for name in ["c-a", "c-b", "c-d"] {
        let old = member(&mut seen, name).answer.take();
        *member(&mut seen, name) = healthy_member(&large, name);
        member(&mut seen, name).defragmented = Some(now());
        member(&mut seen, name).answer = old;
    }
    assert!(
        plans(&large, &seen).starts_with("disarm the alarm NOSPACE"),
        "{}",
        plans(&large, &seen)
    );
}

#[test]
fn whoever_asked_for_a_report_gets_one_and_loses_no_revision() {
    let cluster = cluster(json!({
        "options": {"quotaBackend": "100Mi"},
        "maintenance": {"onNoSpace": "Report"},
    }));
    let mut seen = full(&cluster, 10);
    answer(&mut seen, "c-d").compacted = Some(false);
    let plan = plans(&cluster, &seen);
    assert!(
        plan.starts_with("no step; stalled NoSpace: etcd refuses writes"),
        "{plan}"
    );
}

/// Files of 100 MiB in a quota of 200 MiB, of which so much is in use.
fn sparse(cluster: &ValidatedCluster, in_use: i64) -> Observed {
    let mut seen = formed(cluster, &["c-a", "c-b", "c-d"]);
    for name in ["c-a", "c-b", "c-d"] {
        let answer = answer(&mut seen, name);
        (answer.db_size, answer.db_size_in_use) = (100 * MIB, in_use * MIB);
    }
    seen
}

#[test]
fn a_large_file_of_which_little_is_in_use_is_defragmented_beside_a_settled_cluster() {
    let spec = json!({"options": {"quotaBackend": "200Mi"}});
    let cluster = cluster(spec);
    let mut seen = sparse(&cluster, 49);
    assert_eq!(plans(&cluster, &seen), "defragment c-b; settled");
    for name in ["c-b", "c-d"] {
        answer(&mut seen, name).db_size = 50 * MIB;
    }
    assert!(plans(&cluster, &seen).starts_with("move leadership from c-a to c-"));
    seen.quorum.as_mut().unwrap().leader_id = id_of("c-d");
    assert_eq!(plans(&cluster, &seen), "defragment c-a; settled");
}

#[test]
fn files_are_left_alone_that_are_small_or_in_use_or_were_done_lately_or_when_told_so() {
    let quota = |text: &str| cluster(json!({"options": {"quotaBackend": text}}));
    let settled = "no step; settled";
    assert_eq!(
        plans(&quota("200Mi"), &sparse(&quota("200Mi"), 51)),
        settled
    );
    assert_eq!(
        plans(&quota("400Mi"), &sparse(&quota("400Mi"), 10)),
        settled
    );
    let off = cluster(json!({
        "options": {"quotaBackend": "200Mi"},
        "maintenance": {"defragment": "Off"},
    }));
    assert_eq!(plans(&off, &sparse(&off, 10)), settled);
    // A release in which a defragmentation can do harm.
    let old = cluster(json!({"version": "3.6.4", "options": {"quotaBackend": "200Mi"}}));
    assert_eq!(plans(&old, &sparse(&old, 10)), settled);
    let paused = cluster(json!({"paused": true, "options": {"quotaBackend": "200Mi"}}));
    assert_eq!(plans(&paused, &sparse(&paused, 10)), settled);

    let cluster = quota("200Mi");
    let mut seen = sparse(&cluster, 10);
    for name in ["c-a", "c-b", "c-d"] {
        member(&mut seen, name).defragmented = Some(now() - SignedDuration::from_mins(59));
    }
    assert_eq!(plans(&cluster, &seen), settled);
    member(&mut seen, "c-d").defragmented = Some(now() - SignedDuration::from_mins(61));
    assert_eq!(plans(&cluster, &seen), "defragment c-d; settled");
    // Somebody is still catching up.
    answer(&mut seen, "c-b").applied_index = 1;
    assert_eq!(plans(&cluster, &seen), settled);
}
