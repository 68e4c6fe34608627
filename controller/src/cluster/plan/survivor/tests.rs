//! What is done, and above all what is not, when the majority is lost.

use serde_json::json;

use super::*;
use crate::{
    cluster::{
        fixtures::{CLUSTER_ID, cluster, formed, id_of, lose_pod, member, now},
        plan::{plan, tests::plans},
        reliance::{BackupFacts, Relied, RunFacts, Saved},
        step::Outlook,
    },
    etcd::ListedMember,
};

const ALL: [&str; 3] = ["c-a", "c-b", "c-c"];

fn line(name: &str) -> ListedMember {
    ListedMember {
        id: id_of(name),
        name: name.to_owned(),
        started: true,
        peer_urls: vec![format!("https://{name}.c.n.svc:2380")],
        learner: false,
    }
}

fn three() -> ValidatedCluster {
    cluster(json!({}))
}

/// Of these members, the lost have neither pod nor claim, and the others answer without a leader.
fn without(lost: &[&str]) -> Observed {
    let mut seen = formed(&three(), &ALL);
    seen.quorum = None;
    for name in lost {
        seen.members.remove(*name);
    }
    for member in seen.members.values_mut() {
        member.listed = None;
        let answer = member.answer.as_mut().unwrap();
        answer.membership = None;
        answer.leader_id = 0;
        answer.heard_of = ALL.map(line).to_vec();
    }
    seen
}

fn asked(mut seen: Observed) -> Observed {
    seen.recovery_request = Some(format!("{CLUSTER_ID:x}"));
    seen
}

fn chosen(seen: &Observed) -> SurvivorRecovery {
    match plan(&three(), seen).step {
        Some(Step::RecordRecovery { recovery }) => *recovery,
        other => panic!("{other:?}"),
    }
}

/// The recovery has been recorded, and what was set aside is.
fn begun(lost: &[&str]) -> Observed {
    let mut seen = asked(without(lost));
    let recovery = chosen(&seen);
    let (aside, members) = std::mem::take(&mut seen.members)
        .into_iter()
        .partition(|(name, _)| recovery.others.contains(name));
    (seen.aside, seen.members) = (aside, members);
    seen.recovery = Some(recovery);
    seen
}

#[test]
fn without_being_asked_nothing_is_done_and_what_is_left_is_said_with_the_commands() {
    let plan = plan(&three(), &without(&["c-b", "c-c"]));
    assert_eq!(plan.step, None);
    let Outlook::Stalled { reason, message } = plan.outlook else {
        panic!("{:?}", plan.outlook)
    };
    assert_eq!(reason, Reason::QuorumLost);
    for words in [
        "of 3 voters, c-b, c-c have neither pod nor volume",
        "Left: c-a at revision 100 (raft index 1000)",
        "kubectl -n n annotate etcdcluster c etcd.database.coreos.com/recover-from-survivor=c1",
        "no EtcdBackup of this namespace has a good one",
    ] {
        assert!(message.contains(words), "{message}");
    }
    let mut seen = without(&["c-b", "c-c"]);
    seen.saved = Some(Saved {
        backup: "nightly".to_owned(),
        revision: Some(90),
        at: Some(now()),
    });
    let said = plans(&three(), &seen);
    for words in [
        "the last good backup (nightly, of revision 90, taken 2026-01-01T12:00:00Z)",
        r#""metadata":{"name":"c-c1"},"spec":{"backupName":"nightly","etcdCluster":{"clusterID":"c1","name":"c"}}"#,
        "kubectl -n n create -f -",
    ] {
        assert!(said.contains(words), "{said}");
    }
    // Also where nobody at all is left.
    seen.members.clear();
    let said = plans(&three(), &seen);
    assert!(said.contains("kubectl -n n create -f -"), "{said}");
}

#[test]
fn a_quorum_that_may_come_back_is_not_called_lost_for_good() {
    let mut seen = without(&["c-c"]);
    lose_pod(&mut seen, "c-b");
    member(&mut seen, "c-b").claim.as_mut().unwrap().terminating = true;
    let said = plans(&three(), &seen);
    assert!(!said.contains("for good"), "{said}");
}

#[test]
fn the_member_that_has_committed_most_is_chosen_and_the_others_are_kept() {
    let cluster = cluster(json!({"size": 5}));
    let five = ["c-a", "c-b", "c-c", "c-d", "c-e"];
    let mut seen = formed(&cluster, &five);
    seen.quorum = None;
    for lost in ["c-c", "c-d", "c-e"] {
        seen.members.remove(lost);
    }
    for member in seen.members.values_mut() {
        member.listed = None;
        let answer = member.answer.as_mut().unwrap();
        answer.membership = None;
        answer.heard_of = five.map(line).to_vec();
    }
    let seen = &mut asked(seen);
    member(seen, "c-b").answer.as_mut().unwrap().raft_index = 1001;
    let Some(Step::RecordRecovery { recovery }) = plan(&cluster, seen).step else {
        panic!()
    };
    assert_eq!(recovery.survivor, "c-b");
    assert_eq!(recovery.others, ["c-a"]);
    assert_eq!(recovery.claim_uid.as_deref(), Some("claim-c-b"));
    // What has not been a voter is no survivor, however far it is.
    member(seen, "c-b").answer.as_mut().unwrap().learner = true;
    let Some(Step::RecordRecovery { recovery }) = plan(&cluster, seen).step else {
        panic!()
    };
    assert_eq!(recovery.survivor, "c-a");
}

#[test]
fn refuses_what_was_not_meant_for_this_cluster_or_is_not_needed_or_cannot_be() {
    let lost = &["c-b", "c-c"][..];
    let table: [(&str, Observed); 6] = [
        ("names cluster c2, but this is cluster c1", {
            let mut seen = without(lost);
            seen.recovery_request = Some("c2".to_owned());
            seen
        }),
        ("Take the annotation away and set it anew", {
            let mut seen = asked(without(lost));
            seen.recovery = Some(SurvivorRecovery {
                finished: Some(Time(now())),
                ..SurvivorRecovery::default()
            });
            seen
        }),
        ("c-a knows a leader", {
            let mut seen = asked(without(lost));
            member(&mut seen, "c-a").answer.as_mut().unwrap().leader_id = 7;
            seen
        }),
        (
            "2 of 3 voters are there, which are a quorum",
            asked(without(&["c-c"])),
        ),
        ("c-b cannot be asked yet", {
            let mut seen = asked(without(&["c-c"]));
            member(&mut seen, "c-b").answer = None;
            seen
        }),
        ("could say who the members were", {
            let mut seen = asked(without(lost));
            member(&mut seen, "c-a").answer.as_mut().unwrap().heard_of = Vec::new();
            seen
        }),
    ];
    for (words, seen) in table {
        let said = plans(&three(), &seen);
        assert!(said.contains(words), "{said}");
        assert_eq!(plan(&three(), &seen).step, None, "{words}");
    }
    let ephemeral = cluster(json!({"storage": {"ephemeral": true}}));
    let said = plans(&ephemeral, &asked(without(lost)));
    assert!(said.contains("scratch space"), "{said}");
}

#[test]
fn a_backup_of_what_is_left_comes_before_a_recovery_and_holds_it_when_it_fails() {
    let relies = cluster(json!({"backup": {"backupName": "nightly"}}));
    let word = "c is recovered from c-a at raft index 1000 (11111111)";
    let mut seen = asked(without(&["c-b", "c-c"]));
    let mut facts = BackupFacts {
        saves_us: true,
        ..BackupFacts::default()
    };
    seen.relied = Relied::Found(facts.clone());
    let asks = Step::RequestBackup {
        backup: "nightly".to_owned(),
        word: word.to_owned(),
    };
    assert_eq!(plan(&relies, &seen).step, Some(asks));
    for (good, expected) in [
        (None, "no step; Recovering BackingUp"),
        (Some(false), "no step; stalled BackupFailed"),
        (Some(true), "recover the cluster from c-a"),
    ] {
        facts.runs = vec![RunFacts {
            request: Some(word.to_owned()),
            good,
            started: Some(now()),
            words: "StoreUnreachable: it is down".to_owned(),
        }];
        seen.relied = Relied::Found(facts.clone());
        let said = plans(&relies, &seen);
        assert!(said.starts_with(expected), "{said}");
    }
    seen.relied = Relied::Missing;
    let never = cluster(json!({"backup": {"backupName": "nightly", "beforeRisk": "Never"}}));
    assert!(matches!(
        plan(&never, &seen).step,
        Some(Step::RecordRecovery { .. })
    ));
}

#[test]
fn a_quorum_that_serves_makes_the_request_idle() {
    let seen = asked(formed(&three(), &ALL));
    assert_eq!(plan(&three(), &seen).step, None);
}

#[test]
fn the_survivor_goes_on_alone_and_is_started_anew_before_anybody_may_join() {
    let cluster = three();
    let mut seen = begun(&["c-b", "c-c"]);
    assert!(goes_on_alone(&seen, "c-a"));
    assert!(
        plans(&cluster, &seen).starts_with("delete pod c-a: it is to go on as the only member")
    );
    lose_pod(&mut seen, "c-a");
    assert!(plans(&cluster, &seen).starts_with("start c-a: it is to go on as the only member"));

    // It answers as the only member.
    let mut seen = formed(&cluster, &["c-a"]);
    seen.recovery_request = Some("c1".to_owned());
    seen.recovery = begun(&["c-b", "c-c"]).recovery;
    member(&mut seen, "c-a").pod.as_mut().unwrap().forced = true;
    let recovery = chosen(&seen);
    assert!(recovery.alone.is_some() && recovery.finished.is_none());

    seen.recovery = Some(recovery);
    assert!(!goes_on_alone(&seen, "c-a"));
    assert!(plans(&cluster, &seen).starts_with("delete pod c-a: it is the only member now"));
    member(&mut seen, "c-a").pod.as_mut().unwrap().terminating = true;
    assert_eq!(plan(&cluster, &seen).step, None, "nobody joins meanwhile");
    lose_pod(&mut seen, "c-a");
    seen.quorum = None;
    assert!(plans(&cluster, &seen).starts_with("start c-a: its pod was gone"));

    let mut alone = formed(&cluster, &["c-a"]);
    alone.recovery = seen.recovery.clone();
    let said = plans(&cluster, &alone);
    assert!(said.contains("as a learner"), "{said}");

    let mut whole = formed(&cluster, &ALL);
    whole.recovery = seen.recovery;
    whole.recovery_request = Some("c1".to_owned());
    let recovery = chosen(&whole);
    assert!(recovery.finished.is_some());
    whole.recovery = Some(recovery);
    assert!(plan(&cluster, &whole).is_rest());
    whole.recovery_request = None;
    assert_eq!(plan(&cluster, &whole).step, Some(Step::ForgetRecovery));
}

#[test]
fn others_that_are_left_are_stopped_first_and_their_claims_go_only_when_the_cluster_is_whole() {
    let cluster = three();
    let mut seen = begun(&["c-b", "c-c"]);
    let other = seen.members["c-a"].clone();
    seen.aside.insert("c-d".to_owned(), other);
    assert!(plans(&cluster, &seen).starts_with("delete pod c-d: it is set aside"));
    let aside = seen.aside.get_mut("c-d").unwrap();
    aside.pod.as_mut().unwrap().terminating = true;
    assert_eq!(plan(&cluster, &seen).step, None);
    aside_pod_gone(&mut seen);
    assert!(plans(&cluster, &seen).starts_with("delete pod c-a"));

    let mut whole = formed(&cluster, &ALL);
    whole.recovery = Some(SurvivorRecovery {
        alone: Some(Time(now())),
        ..seen.recovery.clone().unwrap()
    });
    whole.aside = seen.aside.clone();
    assert!(
        chosen(&whole).finished.is_some(),
        "no claim goes before that"
    );
    // Now it is a member like any other that etcd does not list.
    whole.members.append(&mut whole.aside);
    whole.recovery = None;
    member(&mut whole, "c-d").listed = None;
    assert!(plans(&cluster, &whole).starts_with("delete claim c-d"));
}

fn aside_pod_gone(seen: &mut Observed) {
    seen.aside.get_mut("c-d").unwrap().pod = None;
}

#[test]
fn others_that_come_back_in_time_end_the_recovery_before_it_has_done_anything() {
    let mut seen = formed(&three(), &ALL);
    seen.recovery_request = Some("c1".to_owned());
    seen.recovery = begun(&["c-b", "c-c"]).recovery;
    let recovery = chosen(&seen);
    assert!(recovery.finished.is_some() && recovery.alone.is_none());
}

#[test]
fn a_survivor_whose_volume_is_lost_meanwhile_is_not_followed_by_another() {
    let mut seen = begun(&["c-b", "c-c"]);
    member(&mut seen, "c-a").claim.as_mut().unwrap().uid = "another".to_owned();
    let said = plans(&three(), &seen);
    assert!(said.contains("SurvivorLost"), "{said}");
    assert_eq!(plan(&three(), &seen).step, None);
    // Whoever takes the request back may ask anew, among those that are still left.
    seen.recovery_request = None;
    assert_eq!(plan(&three(), &seen).step, Some(Step::ForgetRecovery));
}

#[test]
fn a_recovery_that_is_over_can_be_asked_for_again_although_no_quorum_says_that_all_is_well() {
    let mut seen = without(&["c-b", "c-c"]);
    seen.recovery = Some(SurvivorRecovery {
        finished: Some(Time(now())),
        ..SurvivorRecovery::default()
    });
    assert_eq!(plan(&three(), &seen).step, Some(Step::ForgetRecovery));
    seen.recovery = None;
    assert_eq!(chosen(&asked(seen)).survivor, "c-a");
}

#[test]
fn the_best_is_neither_chosen_nor_passed_over_while_its_volume_is_being_deleted() {
    let five = cluster(json!({"size": 5}));
    let names = ["c-a", "c-b", "c-c", "c-d", "c-e"];
    let mut seen = asked(without(&["c-c"]));
    for member in seen.members.values_mut() {
        member.answer.as_mut().unwrap().heard_of = names.map(line).to_vec();
    }
    member(&mut seen, "c-b").answer.as_mut().unwrap().raft_index = 1001;
    assert_eq!(chosen(&seen).survivor, "c-b");
    for spoil in [
        |claim: &mut Option<ClaimFacts>| claim.as_mut().unwrap().terminating = true,
        |claim: &mut Option<ClaimFacts>| *claim = None,
    ] {
        let mut seen = seen.clone();
        spoil(&mut member(&mut seen, "c-b").claim);
        let said = plans(&five, &seen);
        assert!(
            said.starts_with(
                "no step; stalled QuorumLost: no quorum, and c-b, which has committed most"
            ),
            "{said}"
        );
    }
    // Its pod is gone, and the volume with it: now the next is the best there is.
    seen.members.remove("c-b");
    assert_eq!(chosen(&seen).survivor, "c-a");
}
