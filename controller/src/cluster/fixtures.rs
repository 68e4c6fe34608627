//! Situations for tests: a cluster at rest, and the ways it can be disturbed.

use std::collections::BTreeMap;

use etcd_operator_api::{
    Policy, ValidatedCluster,
    v1beta2::{BootstrapRecord, EtcdCluster},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    children::{self, InPlace, starts},
    observed::{
        AuthorityFacts, Certificates, ClaimFacts, Listed, Member, MemberCertificates, Observed,
        PodFacts, Quorum, Stage, is_ephemeral,
    },
    reliance::Relied,
};
use crate::etcd::Answer;

pub(crate) const CLUSTER_ID: u64 = 0xc1;

/// What every member has loaded while no authority changes.
pub(crate) const LOADS: &str = "first";

/// These members have certificates that are due then, of an authority that stays.
pub(crate) fn certified<'a>(
    members: impl IntoIterator<Item = &'a String>,
    due: Timestamp,
) -> Certificates {
    let loads = LOADS.to_owned();
    Certificates {
        members: members
            .into_iter()
            .map(|name| {
                let loads = loads.clone();
                (name.clone(), MemberCertificates { due, loads })
            })
            .collect(),
        authorities: vec![AuthorityFacts {
            secret: "c-peer-ca".to_owned(),
            stage: Stage::Settled,
            due: Timestamp::MAX,
        }],
    }
}

pub(crate) fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

#[allow(clippy::needless_pass_by_value)] // Reads as a literal where it is called.
pub(crate) fn object(spec: Value) -> EtcdCluster {
    serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdCluster",
        "metadata": {"name": "c", "namespace": "n", "uid": "11111111-2222-3333-4444-555555555555", "generation": 1},
        "spec": spec,
    }))
    .unwrap()
}

/// The same, read as the controller reads it.
pub(crate) fn cluster(spec: Value) -> ValidatedCluster {
    ValidatedCluster::new(&object(spec), &Policy::default()).unwrap()
}

pub(crate) fn nothing() -> Observed {
    Observed {
        now: now(),
        seed: 7,
        bootstrap: None,
        cluster_id: None,
        members: BTreeMap::new(),
        quorum: None,
        aside: BTreeMap::new(),
        planted: None,
        recovery_request: None,
        recovery: None,
        coreos: None,
        foreign: Vec::new(),
        retained: Vec::new(),
        start_afresh: false,
        last_ran: None,
        log_readable_by: None,
        compacted: None,
        locked_out: false,
        starts: BTreeMap::new(),
        was_ready: false,
        available_since: None,
        certificates: None,
        rotation_request: None,
        relied: Relied::Unknown,
        saved: None,
    }
}

pub(crate) fn id_of(name: &str) -> u64 {
    name.bytes().fold(17, |id, byte| {
        id.wrapping_mul(31).wrapping_add(u64::from(byte))
    })
}

pub(crate) fn healthy_member(cluster: &ValidatedCluster, name: &str) -> Member {
    Member {
        pod: Some(PodFacts {
            uid: format!("pod-{name}"),
            node: Some("node1".to_owned()),
            ip: Some("10.0.0.1".to_owned()),
            ready: true,
            since: now() - SignedDuration::from_hours(1),
            terminating: false,
            starting: false,
            ran: true,
            finished: false,
            version: Some(cluster.version),
            config: children::fingerprint(cluster, name),
            in_place: InPlace::of(cluster),
            does_not_fit: false,
            loads: Some(LOADS.to_owned()),
            restarts: 0,
            scratch: is_ephemeral(cluster),
            adopted: false,
            forced: false,
            awaits: None,
            trouble: None,
        }),
        claim: (!is_ephemeral(cluster)).then(|| ClaimFacts {
            uid: format!("claim-{name}"),
            requested: Some(8 << 30),
            ..ClaimFacts::default()
        }),
        listed: Some(Listed {
            id: id_of(name),
            learner: false,
            started: true,
        }),
        answer: Some(Answer {
            member_id: id_of(name),
            cluster_id: CLUSTER_ID,
            leader_id: 0,
            version: cluster.version.to_string(),
            learner: false,
            raft_index: 1000,
            applied_index: 1000,
            db_size: 1 << 20,
            db_size_in_use: 1 << 19,
            storage_version: String::new(),
            downgrade_to: None,
            alarms: Vec::new(),
            quota: None,
            revision: 100,
            compacted: None,
            locked_out: false,
            membership: Some(Vec::new()),
            heard_of: Vec::new(),
        }),
        unwell_since: None,
        defragmented: None,
    }
}

/// A cluster of these members at rest; the first leads.
pub(crate) fn formed(cluster: &ValidatedCluster, members: &[&str]) -> Observed {
    let mut seen = nothing();
    seen.was_ready = true;
    seen.available_since = Some(now() - SignedDuration::from_hours(1));
    seen.cluster_id = Some(CLUSTER_ID);
    seen.last_ran = Some(cluster.version);
    seen.bootstrap = Some(BootstrapRecord {
        token: "t".to_owned(),
        ..BootstrapRecord::default()
    });
    seen.quorum = Some(Quorum {
        cluster_id: CLUSTER_ID,
        leader_id: id_of(members[0]),
        strangers: Vec::new(),
    });
    for name in members {
        seen.members
            .insert((*name).to_owned(), healthy_member(cluster, name));
    }
    settle(cluster, seen)
}

/// What `act` would have written for this situation is there.
pub(crate) fn settle(cluster: &ValidatedCluster, mut seen: Observed) -> Observed {
    seen.starts = starts::desired(cluster, &seen);
    seen.certificates = Some(certified(
        seen.starts.keys(),
        now() + SignedDuration::from_hours(100),
    ));
    seen
}

pub(crate) fn member<'a>(seen: &'a mut Observed, name: &str) -> &'a mut Member {
    seen.members.get_mut(name).unwrap()
}

/// The pod is not there, and with it nothing answers.
pub(crate) fn lose_pod(seen: &mut Observed, name: &str) {
    member(seen, name).pod = None;
    member(seen, name).answer = None;
}
