//! The worst day: more voters are lost for good than a quorum can spare. Nothing is done until somebody asks for it by name of the
//! cluster; then the member that has committed most goes on alone, and others join it.
//!
//! etcd's `--force-new-cluster` drops what a member has not committed and strikes everybody else from its list. What members have
//! committed is the same on all of them as far as it goes, so the one with the highest committed index has all that any of them has;
//! terms only count elections. A pod with that flag that is started again strikes out whoever has joined since: so it is made anew
//! without it before anybody may join, and the flag is in the pod and nowhere that outlives it.
//!
//! Each stage is written down before it is begun: chosen, alone, finished.

use etcd_operator_api::{ValidatedCluster, v1beta2::SurvivorRecovery};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::before_risk;
use crate::{
    cluster::{
        children::labels,
        names,
        observed::{ClaimFacts, Member, Observed, is_ephemeral, quorum_of},
        step::{Activity, Plan, Reason, Step, Why},
    },
    etcd::{Answer, ListedMember},
};

/// Whether a member's pod is to be started as the only member.
pub(crate) fn goes_on_alone(seen: &Observed, name: &str) -> bool {
    under_way(seen).is_some_and(|recovery| recovery.alone.is_none() && recovery.survivor == name)
}

fn under_way(seen: &Observed) -> Option<&SurvivorRecovery> {
    let recovery = seen.recovery.as_ref();
    recovery.filter(|recovery| recovery.finished.is_none())
}

/// A recovery that was begun is seen through.
pub(super) fn go_on(seen: &Observed) -> Option<Plan> {
    let recovery = under_way(seen)?;
    let name = &recovery.survivor;
    let survivor = seen.members.get(name);
    let pod = survivor.and_then(|member| member.pod.as_ref());
    let working = |step: Option<Step>, message: String| {
        let (activity, reason) = (Activity::Recovering, Reason::RecoveringFromSurvivor);
        Some(Plan {
            step,
            ..Plan::waiting(activity, reason, message)
        })
    };
    let delete = |uid: &String, why| {
        Some(Step::DeletePod {
            name: name.clone(),
            pod_uid: uid.clone(),
            why,
        })
    };
    if recovery.alone.is_some() {
        // Whoever joined it now would be struck out at the next start of its container.
        let forced = pod.filter(|pod| pod.forced)?;
        let step = (!forced.terminating)
            .then(|| delete(&forced.uid, Why::NoLongerAlone))
            .flatten();
        return working(
            step,
            format!("{name} is the only member, and is started anew as one that others may join"),
        );
    }
    let record = |change: SurvivorRecovery| {
        let step = Step::RecordRecovery {
            recovery: Box::new(change),
        };
        let message = step.to_string();
        working(Some(step), message)
    };
    if seen.quorum.is_some() {
        let mut listed = seen.members.iter().filter(|(_, one)| one.listed.is_some());
        let itself = listed.all(|(listed, _)| listed == name) && seen.voter_count() == 1;
        return if itself {
            record(SurvivorRecovery {
                alone: Some(Time(seen.now)),
                ..recovery.clone()
            })
        } else {
            // Others came back in time: there is nothing to recover from.
            record(SurvivorRecovery {
                finished: Some(Time(seen.now)),
                ..recovery.clone()
            })
        };
    }
    let claim = survivor.and_then(|member| member.claim.as_ref());
    if claim.is_none_or(|claim| !claim.usable() || Some(&claim.uid) != recovery.claim_uid.as_ref())
    {
        if seen.recovery_request.is_none() {
            return working(
                Some(Step::ForgetRecovery),
                format!("the volume of {name} is lost, and the recovery from it is given up"),
            );
        }
        return Some(Plan::stalled(
            Reason::SurvivorLost,
            format!(
                "the volume of {name}, from which the cluster was being recovered, is lost: nothing is touched. Restore from a \
                 backup{}",
                kept(recovery)
            ),
        ));
    }
    match pod {
        None => working(
            Some(Step::Start {
                members: vec![name.clone()],
                why: Why::ToGoOnAlone,
            }),
            format!("starting {name} as the only member"),
        ),
        Some(pod) if pod.terminating => working(None, format!("waiting for {name} to stop")),
        Some(pod) if !pod.forced || pod.finished => working(
            delete(&pod.uid, Why::ToGoOnAlone),
            format!("{name} is started anew as the only member"),
        ),
        Some(_) => working(
            None,
            format!(
                "waiting for {name} to serve as the only member{}",
                super::restart::troubles(seen)
            ),
        ),
    }
}

fn kept(recovery: &SurvivorRecovery) -> String {
    if recovery.others.is_empty() {
        return String::new();
    }
    format!(
        "; or take the annotation {} away, and {}, whose volumes were kept, are started again",
        labels::RECOVER_FROM_SURVIVOR,
        recovery.others.join(", ")
    )
}

/// The cluster is whole: the recovery is over, and what was kept for it may go. One that nobody asks for any more is forgotten.
pub(super) fn finish(_: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let recovery = seen.recovery.as_ref()?;
    if recovery.finished.is_some() {
        return seen
            .recovery_request
            .is_none()
            .then(|| Plan::beside(Step::ForgetRecovery));
    }
    Some(Plan::beside(Step::RecordRecovery {
        recovery: Box::new(SurvivorRecovery {
            finished: Some(Time(seen.now)),
            ..recovery.clone()
        }),
    }))
}

/// Nobody serves, and somebody asks for a recovery: it is begun, or there is a word on why not.
pub(super) fn asked_for(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let over = |recovery: &SurvivorRecovery| recovery.finished.is_some();
    let Some(request) = seen.recovery_request.as_ref() else {
        // The last one is over: another may be asked for, also without a quorum to say that all is well.
        return seen.recovery.as_ref().filter(|it| over(it)).map(|_| {
            Plan::step(
                Step::ForgetRecovery,
                Activity::Recovering,
                Reason::QuorumLost,
                "no quorum again, after a recovery that is over",
            )
        });
    };
    let stalled = |message: String| Some(Plan::stalled(Reason::QuorumLost, message));
    let waiting = |message: String| {
        let (activity, reason) = (Activity::Recovering, Reason::RecoveringFromSurvivor);
        Some(Plan::waiting(activity, reason, message))
    };
    let annotation = labels::RECOVER_FROM_SURVIVOR;
    let cluster_id = seen.cluster_id?;
    if u64::from_str_radix(request, 16) != Ok(cluster_id) {
        return stalled(format!(
            "no quorum, and the annotation {annotation} names cluster {request}, but this is cluster {cluster_id:x}: nothing is touched"
        ));
    }
    if seen.recovery.is_some() {
        return stalled(format!(
            "no quorum again; the recovery that the annotation {annotation} asked for was done. Take the annotation away and set it \
             anew to ask for another"
        ));
    }
    if is_ephemeral(cluster) {
        return stalled(
            "no quorum, and the members live on scratch space: none can be started anew without losing its data. Take a snapshot of \
             one that answers with `etcdctl snapshot save`, and restore it into a new cluster"
                .to_owned(),
        );
    }
    let silent: Vec<&str> = seen
        .members
        .iter()
        .filter(|(_, member)| {
            let there = member.claim.as_ref().is_some_and(|claim| !claim.lost);
            (member.pod.is_some() || there) && member.answer.is_none()
        })
        .map(|(name, _)| name.as_str())
        .collect();
    if !silent.is_empty() {
        return waiting(format!(
            "a recovery is asked for, but {} cannot be asked yet, and may have committed more than the others{}. If it is lost for \
             good, delete its pod and its claim",
            silent.join(", "),
            super::restart::troubles(seen)
        ));
    }
    let led = seen.members.iter().find(|(_, member)| {
        member
            .answer
            .as_ref()
            .is_some_and(|answer| answer.leader_id != 0)
    });
    if let Some((name, _)) = led {
        return waiting(format!(
            "a recovery is asked for, but {name} knows a leader: a quorum may be there"
        ));
    }
    let left = Left::of(cluster, seen);
    if left.voters.is_empty() {
        return stalled(
            "no quorum, and nobody is left who could say who the members were: restore from a backup".to_owned(),
        );
    }
    if left.can_be_a_quorum() {
        return waiting(format!(
            "a recovery is asked for, but {} of {} voters are there, which are a quorum: they are waited for",
            left.present(),
            left.voters.len()
        ));
    }
    let Some((name, member, answer)) = left.best else {
        return stalled("no quorum, and no voter is left: restore from a backup".to_owned());
    };
    let usable = member.claim.as_ref().is_some_and(ClaimFacts::usable);
    if !usable {
        return stalled(format!(
            "no quorum, and {name}, which has committed most (revision {}), is on a volume that is lost or being deleted: it goes \
             with its pod. Nothing is touched. Save what it has while it runs: etcdctl snapshot save, asked of {name}; to go on \
             without it, delete its pod",
            answer.revision
        ));
    }
    if let Some(plan) = before_risk::recovery(cluster, seen, name, answer.raft_index) {
        return Some(plan);
    }
    let recovery = SurvivorRecovery {
        cluster_id: format!("{cluster_id:x}"),
        survivor: name.to_owned(),
        claim_uid: member.claim.as_ref().map(|claim| claim.uid.clone()),
        raft_index: i64::try_from(answer.raft_index).ok(),
        others: seen
            .members
            .keys()
            .filter(|one| *one != name)
            .cloned()
            .collect(),
        started: Some(Time(seen.now)),
        alone: None,
        finished: None,
    };
    let step = Step::RecordRecovery {
        recovery: Box::new(recovery),
    };
    let message = step.to_string();
    Some(Plan::step(
        step,
        Activity::Recovering,
        Reason::RecoveringFromSurvivor,
        message,
    ))
}

/// What is left of a cluster without a quorum, by the word of the member that has committed most.
pub(super) struct Left<'a> {
    /// Every voter it has heard of, and whether there is anything left of it.
    voters: Vec<(&'a ListedMember, bool)>,
    /// The voter that has committed most.
    best: Option<(&'a str, &'a Member, &'a Answer)>,
}

impl<'a> Left<'a> {
    pub(super) fn of(cluster: &ValidatedCluster, seen: &'a Observed) -> Self {
        let best = seen
            .members
            .iter()
            .filter_map(|(name, member)| Some((name.as_str(), member, member.answer.as_ref()?)))
            .filter(|(_, _, answer)| !answer.learner && Some(answer.cluster_id) == seen.cluster_id)
            .max_by_key(|(name, _, answer)| {
                (
                    answer.raft_index,
                    answer.applied_index,
                    std::cmp::Reverse(*name),
                )
            });
        let heard_of = best.map_or(&[][..], |(_, _, answer)| &answer.heard_of);
        let there = |line: &ListedMember| {
            let mut urls = line.peer_urls.iter();
            let by_address = urls.find_map(|url| names::member_of_peer_url(cluster, url));
            let name = by_address.unwrap_or_else(|| line.name.clone());
            seen.members.get(&name).is_some_and(|member| {
                member.pod.is_some() || member.claim.as_ref().is_some_and(|claim| !claim.lost)
            })
        };
        let voters = heard_of.iter().filter(|line| !line.learner);
        Self {
            voters: voters.map(|line| (line, there(line))).collect(),
            best,
        }
    }

    fn present(&self) -> usize {
        self.voters.iter().filter(|(_, there)| *there).count()
    }

    /// Enough of them may still come back; also where nobody can say who they are.
    pub(super) fn can_be_a_quorum(&self) -> bool {
        self.voters.is_empty() || self.present() >= quorum_of(self.voters.len())
    }

    /// How many of how many voters are lost, who is left and how far, and what can be done.
    pub(super) fn words(&self, cluster: &ValidatedCluster, seen: &Observed) -> Option<String> {
        let (best, _, answer) = self.best?;
        if self.can_be_a_quorum() {
            return None;
        }
        let lost: Vec<&str> = self
            .voters
            .iter()
            .filter(|(_, there)| !there)
            .map(|(line, _)| line.name.as_str())
            .collect();
        let left: Vec<String> = seen
            .members
            .iter()
            .filter_map(|(name, member)| {
                let answer = member.answer.as_ref()?;
                Some(format!(
                    "{name} at revision {} (raft index {})",
                    answer.revision, answer.raft_index
                ))
            })
            .collect();
        let annotate = format!(
            "kubectl -n {} annotate etcdcluster {} {}={:x}",
            cluster.namespace,
            cluster.name,
            labels::RECOVER_FROM_SURVIVOR,
            seen.cluster_id?
        );
        Some(format!(
            "the quorum is lost for good: of {} voters, {} have neither pod nor volume. Left: {}. Nothing is deleted. Bring their \
             volumes back; or go on from {best}, giving up whatever was written after its revision {}: {annotate}; or {}",
            self.voters.len(),
            lost.join(", "),
            left.join(", "),
            answer.revision,
            from_backup(cluster, seen)
        ))
    }
}

/// What the newest backup has, and the command that brings it back.
pub(super) fn from_backup(cluster: &ValidatedCluster, seen: &Observed) -> String {
    let Some(saved) = &seen.saved else {
        return format!(
            "restore a backup: no EtcdBackup of this namespace has a good one of it; an EtcdRestore with `etcdCluster.name: {}` \
             takes one from any store",
            cluster.name
        );
    };
    let id = seen.cluster_id.unwrap_or_default();
    let revision = saved.revision.map_or_else(
        || "an unknown revision".to_owned(),
        |number| format!("revision {number}"),
    );
    let at = saved.at.map(|at| format!(", taken {at}"));
    let restore = serde_json::json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdRestore",
        "metadata": {"name": format!("{}-{id:x}", cluster.name)},
        "spec": {
            "backupName": saved.backup,
            "etcdCluster": {"name": cluster.name, "clusterID": format!("{id:x}")},
        },
    });
    format!(
        "go back to the last good backup ({}, of {revision}{}): echo '{restore}' | kubectl -n {} create -f -",
        saved.backup,
        at.unwrap_or_default(),
        cluster.namespace
    )
}

#[cfg(test)]
mod tests;
