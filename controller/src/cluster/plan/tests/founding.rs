//! The one bootstrap, and what stands in its way.

use etcd_operator_api::v1beta2::{BootstrapMember, BootstrapRecord};
use serde_json::json;

use super::plans;
use crate::cluster::{
    fixtures::{cluster, member, nothing, settle},
    names,
    observed::{Certificates, ClaimFacts, Member},
};

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
            requested: Some(8 << 30),
            ..ClaimFacts::default()
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
            requested: Some(8 << 30),
            ..ClaimFacts::default()
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
