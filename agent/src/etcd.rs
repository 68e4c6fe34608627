//! Which member of a cluster is asked for a snapshot, and the asking.

use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, Error, GetOptions, Identity, StatusResponse, TlsOptions,
};
use etcd_operator_api::orders::{EtcdAccess, FailureReason, mounts};

use crate::{failure::Failure, places::Places};

/// How long one question may take; longer than an election.
const PATIENCE: Duration = Duration::from_secs(5);
/// A stream that says nothing for so long says nothing any more.
pub(crate) const SILENCE: Duration = Duration::from_mins(1);

/// What a member says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) cluster_id: u64,
    pub(crate) leader: u64,
    pub(crate) learner: bool,
    pub(crate) applied: u64,
    pub(crate) revision: i64,
    pub(crate) version: String,
    pub(crate) size: u64,
}

/// The member that is asked.
pub(crate) struct Source {
    pub(crate) client: Client,
    pub(crate) answer: Answer,
    pub(crate) endpoint: String,
}

/// Asks every endpoint how it is, and chooses.
pub(crate) async fn choose(access: &EtcdAccess, places: &Places) -> Result<Source, Failure> {
    if access.endpoints.is_empty() {
        return Err(Failure::invalid("no endpoint of etcd is named"));
    }
    let options = connect_options(access, places)?;
    let mut asked = Vec::new();
    let mut failures = Vec::new();
    let answers = access
        .endpoints
        .iter()
        .map(|endpoint| ask(endpoint, &options));
    for (endpoint, outcome) in access
        .endpoints
        .iter()
        .zip(futures::future::join_all(answers).await)
    {
        match outcome {
            Ok((client, answer)) => asked.push((endpoint, client, answer)),
            Err(failure) => {
                tracing::warn!(%endpoint, %failure, "does not answer");
                failures.push(failure);
            }
        }
    }
    let answers: Vec<&Answer> = asked.iter().map(|(_, _, answer)| answer).collect();
    let index = best(&answers, access).map_err(|failure| {
        // Where nobody answered, the first reason why is the best there is.
        failures
            .into_iter()
            .next()
            .filter(|_| asked.is_empty())
            .unwrap_or(failure)
    })?;
    let (endpoint, mut client, answer) = asked.swap_remove(index);
    if !access.lone {
        linearizable(&mut client, endpoint).await?;
    }
    Ok(Source {
        client,
        answer,
        endpoint: endpoint.clone(),
    })
}

/// The healthy one that is furthest along. Pure.
fn best(answers: &[&Answer], access: &EtcdAccess) -> Result<usize, Failure> {
    if let Some(wanted) = access.cluster_id.as_deref() {
        let id = u64::from_str_radix(wanted.trim_start_matches("0x"), 16).map_err(|_| {
            Failure::invalid(format!(
                "\"{wanted}\" is no cluster ID: it must be hexadecimal"
            ))
        })?;
        if let Some(other) = answers.iter().find(|answer| answer.cluster_id != id) {
            return Err(Failure::new(
                FailureReason::DifferentCluster,
                format!(
                    "the endpoints are of cluster {:x}, and a backup of cluster {id:x} is wanted",
                    other.cluster_id
                ),
            ));
        }
    }
    if answers.is_empty() {
        return Err(Failure::new(
            FailureReason::EtcdUnreachable,
            "no endpoint of etcd answers",
        ));
    }
    let voters = answers
        .iter()
        .enumerate()
        .filter(|(_, answer)| !answer.learner && (access.lone || answer.leader != 0));
    voters
        .max_by_key(|(_, answer)| (answer.applied, answer.revision))
        .map(|(index, _)| index)
        .ok_or_else(|| no_quorum("no member that answers has a leader"))
}

fn no_quorum(why: &str) -> Failure {
    Failure::new(
        FailureReason::NoQuorum,
        format!("{why}: what a lone member has may be old, so no backup is taken of it"),
    )
}

async fn ask(endpoint: &str, options: &ConnectOptions) -> Result<(Client, Answer), Failure> {
    let connected = Client::connect([endpoint], Some(options.clone()));
    let mut client = within(endpoint, Box::pin(connected)).await?;
    let status = within(endpoint, client.status()).await?;
    let answer = read(&status).ok_or_else(|| {
        Failure::new(
            FailureReason::EtcdUnreachable,
            format!("{endpoint} answers, but not as etcd does"),
        )
    })?;
    Ok((client, answer))
}

fn read(status: &StatusResponse) -> Option<Answer> {
    let header = status.header()?;
    Some(Answer {
        cluster_id: header.cluster_id(),
        leader: status.leader(),
        learner: status.is_learner(),
        applied: status.raft_applied_index().max(status.raft_index()),
        revision: header.revision(),
        version: status.version().to_owned(),
        size: u64::try_from(status.db_size()).unwrap_or(0),
    })
}

/// A member that lost the others believes in its leader for a while: only a read that needs a quorum shows that there is one.
async fn linearizable(client: &mut Client, endpoint: &str) -> Result<(), Failure> {
    let one = GetOptions::new().with_keys_only().with_limit(1);
    match within(endpoint, client.get("health", Some(one))).await {
        Ok(_) => Ok(()),
        // Not allowed to read this key, and that is said after the quorum was asked.
        Err(failure) if failure.message.contains("permission denied") => Ok(()),
        Err(failure) if failure.reason == FailureReason::EtcdAccessDenied => Err(failure),
        Err(failure) => Err(no_quorum(&format!(
            "a read that needs a quorum was not answered ({})",
            failure.message
        ))),
    }
}

pub(crate) async fn within<T>(
    endpoint: &str,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(explain(endpoint, &error)),
        Err(_) => Err(Failure::new(
            FailureReason::EtcdUnreachable,
            format!("{endpoint} does not answer within {} s", PATIENCE.as_secs()),
        )),
    }
}

/// etcd's words for who is not let in.
const DENIED: &[&str] = &[
    "user name is empty",
    "user name not found",
    "permission denied",
    "invalid auth token",
    "authentication failed",
    "authentication is not enabled",
];

pub(crate) fn explain(endpoint: &str, error: &Error) -> Failure {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !words.contains(&said) {
            words = format!("{words}: {said}");
        }
        cause = inner.source();
    }
    if DENIED.iter().any(|known| words.contains(known)) {
        return Failure::new(
            FailureReason::EtcdAccessDenied,
            format!("{endpoint} does not let us in ({words}): a snapshot needs the role `root`"),
        );
    }
    if words.contains("no leader") {
        return no_quorum(&format!("{endpoint} has no leader"));
    }
    Failure::new(
        FailureReason::EtcdUnreachable,
        format!("{endpoint} cannot be reached: {words}"),
    )
}

fn connect_options(access: &EtcdAccess, places: &Places) -> Result<ConnectOptions, Failure> {
    // No time-out for whole calls: a snapshot takes as long as it takes.
    let mut options = ConnectOptions::new()
        .with_connect_timeout(PATIENCE)
        .with_keep_alive(Duration::from_secs(10), Duration::from_secs(20));
    let file = |mount: &str, key: &str| {
        let missing = || {
            Failure::new(
                FailureReason::CredentialsMissing,
                format!("the Secret for etcd lacks the key `{key}`"),
            )
        };
        places.secret(mount, key)?.ok_or_else(missing)
    };
    if let Some(files) = &access.tls {
        let tls = TlsOptions::new()
            .ca_certificate(Certificate::from_pem(file(mounts::ETCD, &files.ca)?))
            .identity(Identity::from_pem(
                file(mounts::ETCD, &files.certificate)?,
                file(mounts::ETCD, &files.key)?,
            ));
        options = options.with_tls(tls);
    }
    if access.auth {
        let (name, password) = (
            file(mounts::ETCD_AUTH, "username")?,
            file(mounts::ETCD_AUTH, "password")?,
        );
        options = options.with_user(name, password);
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(leader: u64, applied: u64) -> Answer {
        Answer {
            cluster_id: 0xabc,
            leader,
            learner: false,
            applied,
            revision: 1,
            version: "3.6.16".to_owned(),
            size: 0,
        }
    }

    fn of(cluster_id: &str) -> EtcdAccess {
        EtcdAccess {
            cluster_id: Some(cluster_id.to_owned()),
            ..EtcdAccess::default()
        }
    }

    #[test]
    fn the_member_with_a_leader_that_is_furthest_along_is_asked() {
        let (behind, ahead, alone) = (answer(1, 5), answer(1, 9), answer(0, 12));
        let learner = Answer {
            learner: true,
            ..answer(1, 20)
        };
        assert_eq!(
            best(&[&behind, &ahead, &alone, &learner], &of("ABC")).unwrap(),
            1
        );
    }

    #[test]
    fn without_a_leader_no_backup_is_taken() {
        let failure = best(&[&answer(0, 3), &answer(0, 12)], &of("abc")).unwrap_err();
        assert_eq!(failure.reason, FailureReason::NoQuorum);
        assert_eq!(
            best(&[], &of("abc")).unwrap_err().reason,
            FailureReason::EtcdUnreachable
        );
        let lone = EtcdAccess {
            lone: true,
            ..of("abc")
        };
        let learner = Answer {
            learner: true,
            ..answer(0, 20)
        };
        let left = [&answer(0, 3), &answer(0, 12), &learner];
        assert_eq!(best(&left, &lone).unwrap(), 1, "unless it is asked for");
    }

    #[test]
    fn another_cluster_is_refused_and_a_bad_id_said() {
        let failure = best(&[&answer(1, 1)], &of("def")).unwrap_err();
        assert_eq!(failure.reason, FailureReason::DifferentCluster);
        let failure = best(&[&answer(1, 1)], &of("hello")).unwrap_err();
        assert_eq!(failure.reason, FailureReason::InvalidOrder);
    }
}
