//! Situations in a line or two, and the plan as text.

mod adopt;
mod alone;
mod authorities;
mod before_risk;
mod configuration;
mod database;
mod founding;
mod members;
mod put_back;
mod repair;
mod versions;

use etcd_operator_api::ValidatedCluster;
use serde_json::json;

use super::plan;
use crate::cluster::{
    fixtures::{cluster, formed, lose_pod, member, now},
    observed::Observed,
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
fn nothing_is_done_at_rest() {
    let cluster = cluster(json!({}));
    assert_eq!(
        plans(&cluster, &formed(&cluster, &["c-a", "c-b", "c-d"])),
        "no step; settled"
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
fn a_certificate_that_is_gone_is_made_anew_even_while_paused_or_without_a_quorum() {
    let cluster = cluster(json!({"paused": true}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    let known = &mut seen.certificates.as_mut().unwrap().members;
    known.remove("c-b");
    seen.quorum = None;
    assert!(plans(&cluster, &seen).starts_with("renew the certificates of c-b;"));
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
