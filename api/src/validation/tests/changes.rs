//! What may change, and what runs decides about versions.

use super::*;

#[test]
fn versions_old_and_new_are_accepted_with_the_warnings_they_deserve() {
    for version in ["3.7.3", "v3.6.16", "3.6.99", "3.1.10", "3.2.13", "3.5.3"] {
        accepts(json!({"version": version}));
    }
    warns(
        json!({"version": "3.4.31"}),
        "END OF LIFE and gets no security fixes; the next step up is 3.5.35",
    );
    warns(
        json!({"version": "3.6.12"}),
        "3.6.12 is outdated; the newest 3.6 known is 3.6.16",
    );
    warns(
        json!({"version": "3.5.21"}),
        "can corrupt data when a snapshot meets a defragmentation; use 3.5.35",
    );
    rejects(
        json!({"version": "3.8.0"}),
        "spec.version",
        Reason::VersionUnknown,
        "it knows etcd 3.1 to 3.7",
    );
    rejects(
        json!({"version": "2.3.8"}),
        "spec.version",
        Reason::VersionUnknown,
        "it knows etcd 3.1 to 3.7",
    );
    rejects(
        json!({"version": "3.5.2"}),
        "spec.version",
        Reason::VersionKnownBad,
        "use 3.5.35",
    );
}

#[test]
fn end_of_life_can_be_denied_but_never_to_a_cluster_that_runs() {
    let deny = Policy {
        end_of_life: EndOfLife::Deny,
        ..Policy::default()
    };
    let fresh = typed(&cluster(json!({"version": "3.3.27"})));
    let violations = judge(&fresh, None, &deny).violations;
    assert_eq!(violations[0].reason, Reason::VersionEndOfLife);

    let mut old = cluster(json!({"version": "3.2.32"}));
    old["status"] = json!({"currentVersion": "3.2.32"});
    let mut climbs = old.clone();
    climbs["spec"]["version"] = json!("3.3.27");
    assert_eq!(
        judge(&typed(&climbs), Some(&typed(&old)), &deny).violations,
        []
    );
}

#[test]
fn a_typo_corrected_before_anything_moved_passes() {
    // 3.5.35 runs; 3.7.3 slipped in; going to 3.6.16 is one minor from what runs, though down from the spec.
    let mut old = cluster(json!({"version": "3.7.3"}));
    old["status"] = json!({"currentVersion": "3.5.35", "memberStatus": [{"name": "a", "version": "3.5.35", "healthy": true}]});
    let mut new = old.clone();
    new["spec"]["version"] = json!("3.6.16");
    assert_eq!(
        judge(&typed(&new), Some(&typed(&old)), &Policy::default()).violations,
        []
    );
}

#[test]
fn a_change_of_version_while_a_member_is_down_warns() {
    let mut old = cluster(json!({"version": "3.6.16"}));
    old["status"] = json!({"currentVersion": "3.6.16", "memberStatus": [
        {"name": "a", "version": "3.6.16", "healthy": true}, {"name": "b", "healthy": false}]});
    let mut new = old.clone();
    new["spec"]["version"] = json!("3.7.3");
    let judgement = judge(&typed(&new), Some(&typed(&old)), &Policy::default());
    assert!(judgement.allowed());
    assert!(
        judgement
            .warnings
            .iter()
            .any(|w| w.message.starts_with("1 of 2 members is not healthy"))
    );
}

#[test]
fn what_a_client_sends_as_status_is_not_what_runs() {
    let mut old = cluster(json!({"version": "3.5.35"}));
    old["status"] = json!({"currentVersion": "3.5.35"});
    let mut new = cluster(json!({"version": "3.7.3"}));
    new["status"] = json!({"currentVersion": "3.6.16"});
    let violations = judge(&typed(&new), Some(&typed(&old)), &Policy::default()).violations;
    assert_eq!(violations[0].reason, Reason::VersionSkipsMinor);
}

#[test]
fn a_version_dropped_from_the_manifest_is_no_upgrade() {
    let old = cluster(json!({"version": "3.5.35"}));
    let mut new = typed(&cluster(json!({})));
    default_update(&mut new, &typed(&old), &Policy::default());
    assert_eq!(new.spec.version.as_deref(), Some("3.5.35"));
}

#[test]
fn what_was_wrong_before_and_is_not_touched_is_not_refused() {
    let policy = Policy::default();
    let old = typed(&cluster(
        json!({"size": 4, "options": {"snapshotCount": 1}}),
    ));
    // Unchanged, or changed elsewhere: mended step by step.
    assert_eq!(judge(&old, Some(&old), &policy).violations, []);
    let paused = typed(&cluster(
        json!({"size": 4, "paused": true, "options": {"snapshotCount": 1}}),
    ));
    assert_eq!(judge(&paused, Some(&old), &policy).violations, []);
    let mended = typed(&cluster(
        json!({"size": 3, "options": {"snapshotCount": 1}}),
    ));
    assert_eq!(judge(&mended, Some(&old), &policy).violations, []);
    // Another wrong value is a new wrong.
    let worse = typed(&cluster(
        json!({"size": 6, "options": {"snapshotCount": 1}}),
    ));
    assert_eq!(
        judge(&worse, Some(&old), &policy).violations[0].reason,
        Reason::SizeNotAllowed
    );
}

#[test]
fn an_object_being_deleted_is_never_refused() {
    let mut object = cluster(json!({"size": 4}));
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(judge(&typed(&object), None, &Policy::default()).allowed());
}

#[test]
fn deletion_protection_names_the_command_that_lifts_it() {
    let unprotected = typed(&cluster(json!({})));
    assert!(judge_delete(&unprotected).allowed());
    let protected = typed(&cluster(json!({"deletionProtection": true})));
    let violations = judge_delete(&protected).violations;
    let command = r#"kubectl -n default patch etcdcluster example --type=merge -p '{"spec":{"deletionProtection":false}}'"#;
    assert!(violations[0].message.contains(command), "{}", violations[0]);
}

#[test]
fn storage_may_grow_and_a_claim_spec_is_honoured_alone() {
    let grown = |old: Value, new: Value| {
        judge(
            &typed(&cluster(new)),
            Some(&typed(&cluster(old))),
            &Policy::default(),
        )
        .violations
    };
    let sized = |size: &str| json!({"storage": {"size": size}});
    assert_eq!(grown(sized("8Gi"), sized("9Gi")), []);
    assert_eq!(grown(sized("8Gi"), sized("8192Mi")), []);
    assert_eq!(grown(json!({}), sized("8Gi")), []);
    accepts(json!({"storage": {"ephemeral": true}}));
    accepts(json!({"storage": {"ephemeral": true, "size": "1Gi"}}));
    accepts(json!({"storage": {"size": 10_737_418_240_i64}}));
}

#[test]
fn peers_may_change_their_tls_only_before_they_run() {
    let mut old = cluster(json!({"security": {"peerTLS": {"mode": "Off"}}}));
    let new = cluster(json!({"security": {"peerTLS": {"mode": "Auto"}}}));
    let violations =
        |old: &Value| judge(&typed(&new), Some(&typed(old)), &Policy::default()).violations;
    assert_eq!(violations(&old), []);
    old["status"] = json!({"bootstrap": {"token": "t"}});
    assert_eq!(violations(&old)[0].reason, Reason::TlsImmutable);
}

#[test]
fn clients_keep_the_tls_mode_their_cluster_runs_with() {
    let mut old = cluster(json!({}));
    let new = cluster(json!({"security": {"clientTLS": {"mode": "Auto"}}}));
    let violations =
        |old: &Value| judge(&typed(&new), Some(&typed(old)), &Policy::default()).violations;
    assert_eq!(violations(&old), []);
    old["status"] = json!({"bootstrap": {"token": "t"}});
    let refused = violations(&old);
    assert_eq!(refused[0].field, "spec.security.clientTLS.mode");
    assert_eq!(refused[0].reason, Reason::TlsImmutable);
}

#[test]
fn a_size_that_no_volume_has_reached_may_be_put_back() {
    let claim = |size: &str| {
        json!({"pod": {"persistentVolumeClaimSpec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
        }}})
    };
    let field = |size: &str| json!({"storage": {"size": size}});
    let put_back = |from: Value, to: Value, claimed: Value| {
        let mut old = cluster(from);
        old["status"] = json!({"volumeSize": claimed});
        let mut new = old.clone();
        new["spec"] = to;
        judge(&typed(&new), Some(&typed(&old)), &Policy::default()).violations
    };
    for spec in [&field as &dyn Fn(&str) -> Value, &claim] {
        // The class could not grow: every claim still asks for 8Gi.
        assert_eq!(put_back(spec("20Gi"), spec("8Gi"), json!("8Gi")), []);
        // One of them did.
        let refused = put_back(spec("20Gi"), spec("8Gi"), json!("20Gi"));
        assert_eq!(refused[0].reason, Reason::StorageShrinks);
        assert_eq!(
            put_back(spec("20Gi"), spec("7Gi"), json!("8Gi"))[0].reason,
            Reason::StorageShrinks
        );
    }
}

#[test]
fn what_coreos_left_in_scratch_space_may_move_onto_claims_until_the_last_has_moved() {
    let judged = |from: Value, to: Value, status: Value| {
        let mut old = cluster(from);
        old["status"] = status;
        let mut new = old.clone();
        new["spec"] = to;
        judge(&typed(&new), Some(&typed(&old)), &Policy::default()).violations
    };
    let left = json!({"phase": "Running", "size": 3, "currentVersion": "3.2.13"});
    let taken_over = json!({
        "origin": "CoreOS", "phase": "Running", "summary": "Healthy", "clusterID": "c1", "bootstrap": {"token": "t"},
        "accepted": {"ephemeral": true, "peerTLS": "Off", "clientTLS": "Off"},
    });
    let mut moved = taken_over.clone();
    moved["accepted"] = json!({"size": "8Gi", "peerTLS": "Off", "clientTLS": "Off"});
    let ours = json!({
        "phase": "Running", "summary": "Healthy", "clusterID": "c1", "bootstrap": {"token": "t"},
        "accepted": {"ephemeral": true, "peerTLS": "Auto", "clientTLS": "Off"},
    });
    let (unset, scratch) = (json!({}), json!({"storage": {"ephemeral": true}}));
    let claims = json!({"storage": {"size": "8Gi"}});
    let fast = json!({"storage": {"size": "8Gi", "className": "fast"}});
    let own = json!({"pod": {"persistentVolumeClaimSpec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Gi"}},
    }}});
    for (from, to) in [
        (&unset, &scratch),
        (&unset, &claims),
        (&scratch, &claims),
        (&scratch, &fast),
        (&scratch, &own),
        // A class that does not exist is put right, or the wish taken back.
        (&claims, &fast),
        (&fast, &scratch),
        (&fast, &unset),
    ] {
        for status in [&left, &taken_over] {
            let refused = judged(from.clone(), to.clone(), status.clone());
            assert_eq!(refused, [], "{from} to {to} with {status}");
        }
    }
    for (from, to, status) in [
        (&claims, &scratch, &moved),
        (&claims, &unset, &moved),
        (&claims, &fast, &moved),
        (&scratch, &claims, &ours),
    ] {
        let refused = judged(from.clone(), to.clone(), status.clone());
        assert_eq!(
            refused[0].reason,
            Reason::StorageImmutable,
            "{from} to {to}"
        );
    }
    // Its members speak plain text, and go on to.
    let sealed = json!({"security": {"peerTLS": {"mode": "Auto"}}});
    assert_eq!(
        judged(unset.clone(), json!({"size": 5}), taken_over.clone()),
        []
    );
    let refused = judged(unset, sealed, taken_over);
    assert_eq!(refused[0].reason, Reason::TlsImmutable);
}
