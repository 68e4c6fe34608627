//! The gate before every voluntary step: would the voters left healthy still be a quorum?

use crate::cluster::observed::{Observed, quorum_of};

/// Why a member may not be stopped now. Absence of a reason means it is safe.
pub(super) fn why_not_stop(seen: &Observed, name: &str) -> Option<String> {
    let voters = seen.voter_count();
    // A cluster of one cannot be restarted without a pause; its owner was warned of that when it was created.
    if voters == 1 {
        return None;
    }
    let left = healthy_voters_without(seen, name);
    (left < quorum_of(voters)).then(|| {
        format!(
            "stopping {name} would leave {left} healthy of {voters} voters, and {} are a quorum",
            quorum_of(voters)
        )
    })
}

/// Why a member may not be taken out of the cluster now.
pub(super) fn why_not_remove(seen: &Observed, name: &str) -> Option<String> {
    let voters = seen.voter_count();
    let left = healthy_voters_without(seen, name);
    // Removing is itself a change that a quorum of the *present* voters must agree to, the one leaving included.
    let agreeing = left
        + usize::from(
            seen.members
                .get(name)
                .is_some_and(|member| member.is_voter() && member.healthy()),
        );
    if agreeing < quorum_of(voters) {
        return Some(format!("only {agreeing} of {voters} voters are healthy"));
    }
    if leaves_nobody_sound(seen, name) {
        return Some(format!(
            "removing {name} would leave nobody whose data are sound"
        ));
    }
    (left < quorum_of(voters - 1)).then(|| {
        format!(
            "removing {name} would leave {left} healthy of {} voters",
            voters - 1
        )
    })
}

fn healthy_voters_without(seen: &Observed, name: &str) -> usize {
    seen.voters()
        .filter(|(voter, member)| *voter != name && member.healthy() && !member.leaving())
        .count()
}

/// Whoever is left would only have copies of data that etcd itself has called corrupt.
fn leaves_nobody_sound(seen: &Observed, name: &str) -> bool {
    let mut others = seen.voters().filter(|(voter, _)| *voter != name);
    seen.voters().any(|(_, member)| seen.is_corrupt(member))
        && !others.any(|(_, member)| member.healthy() && !seen.is_corrupt(member))
}
