//! Talking to etcd: one short-lived connection per member, straight to its pod's address.
//!
//! By pod address rather than by name, so that what we learn of a member never waits for cluster DNS; under TLS the
//! member's own name is still what the certificate is checked against.

use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, GetOptions, Identity, StatusResponse, TlsOptions,
};

/// How long a member may take to accept a connection, and to answer one question.
/// Longer than an election (1 s by default) so that a change of leader is not mistaken for a dead member.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
/// How long work on a whole database may take: compaction, defragmentation. What is not done by then goes on inside etcd, and the
/// next look sees it.
pub(crate) const WHOLE_DATABASE: Duration = Duration::from_mins(2);

/// Where and how one member is reached.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// `http://10.0.0.1:2379` or `https://…`.
    pub url: String,
    /// What TLS needs; absent on plain HTTP.
    pub tls: Option<ClientIdentity>,
}

/// The operator's certificate for etcd's client port, and what it trusts there.
#[derive(Clone, Debug)]
pub(crate) struct ClientIdentity {
    /// PEM bundle that the server's certificate must verify against.
    pub trusted_ca: String,
    /// The name the server's certificate must carry.
    pub server_name: String,
    /// Our certificate and key (PEM), where the server asks for one.
    pub certificate: Option<(String, String)>,
}

/// What went wrong when a member was asked something.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    #[error(transparent)]
    Refused(#[from] etcd_client::Error),
    #[error("etcd's answer has no header")]
    NoHeader,
}

impl EtcdError {
    /// etcd has authentication on and does not know us as somebody who may ask this.
    pub(crate) fn is_locked_out(&self) -> bool {
        let Self::Refused(error) = self else {
            return false;
        };
        let words = error.to_string();
        [
            "user name is empty",
            "permission denied",
            "invalid auth token",
            "authentication failed",
        ]
        .iter()
        .any(|known| words.contains(known))
    }
}

/// What etcd calls an alarm: one kind of trouble, of one member. Alarms are replicated like keys, and stand until disarmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alarm {
    pub kind: AlarmKind,
    /// Zero where etcd cannot tell whose trouble it is.
    pub member_id: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlarmKind {
    /// The quota is used up: writes are refused.
    NoSpace,
    /// Its data differs from the others': writes are refused.
    Corrupt,
}

impl AlarmKind {
    /// etcd's own word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::NoSpace => "NOSPACE",
            Self::Corrupt => "CORRUPT",
        }
    }
}

impl Alarm {
    /// Reads `memberID:1234 alarm:NOSPACE`, as a member's status has it. Asking for the list of alarms would be a write to
    /// etcd's log each time; the status costs nothing.
    fn read(text: &str) -> Option<Self> {
        let mut words = text
            .split(|c: char| c == ':' || c.is_whitespace())
            .filter(|word| !word.is_empty());
        let (mut member_id, mut kind) = (0, None);
        while let Some(word) = words.next() {
            match word {
                "memberID" => member_id = words.next()?.parse().ok()?,
                "alarm" => {
                    let said = words.next()?;
                    kind = [AlarmKind::NoSpace, AlarmKind::Corrupt]
                        .into_iter()
                        .find(|kind| kind.word() == said);
                }
                _ => return None,
            }
        }
        Some(Self {
            kind: kind?,
            member_id,
        })
    }
}

/// What a member says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub member_id: u64,
    pub cluster_id: u64,
    pub leader_id: u64,
    pub version: String,
    pub learner: bool,
    pub raft_index: u64,
    pub applied_index: u64,
    pub db_size: i64,
    pub db_size_in_use: i64,
    /// The schema of its data, from 3.6 on: a downgrade waits for it.
    pub storage_version: String,
    /// The version a downgrade is under way to.
    pub downgrade_to: Option<String>,
    /// The alarms that stand, as far as this member has heard.
    pub alarms: Vec<Alarm>,
    /// The quota it runs with, from 3.6 on.
    pub quota: Option<u64>,
    /// The revision of its data.
    pub revision: i64,
    /// Nothing older than that revision is kept. Asked only while the quota is used up.
    pub compacted: Option<bool>,
    /// It did not let us read: authentication is on.
    pub locked_out: bool,
    /// The member list, read on this member right after a linearizable read succeeded on it: what it lists is at least
    /// as new as anything committed before we asked. `None` when the linearizable read failed: no quorum, or a learner.
    pub membership: Option<Vec<ListedMember>>,
    /// The member list as this member last heard of it; asked only where the linearizable read failed, and at most a hint.
    pub heard_of: Vec<ListedMember>,
}

/// A line of etcd's member list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedMember {
    pub id: u64,
    /// A founder has its name from the start, a joiner from its first start on.
    pub name: String,
    /// Published by the member itself: it has started at least once.
    pub started: bool,
    pub peer_urls: Vec<String>,
    pub learner: bool,
}

/// Asks one member for its status and, where it can vouch for it, the member list.
pub(crate) async fn ask(endpoint: &Endpoint) -> Result<Answer, EtcdError> {
    let mut client = Box::pin(connect_for(endpoint, PATIENCE)).await?;
    let status = within(client.status()).await?;
    let mut answer = read_status(&status).ok_or(EtcdError::NoHeader)?;
    // A learner serves no linearizable reads; without a leader nobody does, and asking would only cost the time-out.
    if answer.learner || answer.leader_id == 0 {
        answer.heard_of = heard_of(&mut client).await;
        return Ok(answer);
    }
    let linearizable = GetOptions::new().with_keys_only().with_limit(1);
    match within(client.get("health", Some(linearizable))).await {
        Ok(_) => {}
        Err(error) => {
            answer.locked_out = error.is_locked_out();
            answer.heard_of = heard_of(&mut client).await;
            return Ok(answer);
        }
    }
    answer.membership = Some(members(&mut client).await?);
    if answer
        .alarms
        .iter()
        .any(|alarm| alarm.kind == AlarmKind::NoSpace)
    {
        answer.compacted = is_compacted(&mut client, answer.revision).await;
    }
    Ok(answer)
}

/// The member list as this member has it.
async fn members(client: &mut Client) -> Result<Vec<ListedMember>, EtcdError> {
    let list = within(client.member_list()).await?;
    let lines = list.members().iter().map(|member| ListedMember {
        id: member.id(),
        name: member.name().to_owned(),
        started: !member.client_urls().is_empty(),
        peer_urls: member.peer_urls().to_vec(),
        learner: member.is_learner(),
    });
    Ok(lines.collect())
}

/// The same, where nothing vouches for it; a member that says nothing has heard of nobody.
async fn heard_of(client: &mut Client) -> Vec<ListedMember> {
    members(client).await.unwrap_or_default()
}

fn read_status(status: &StatusResponse) -> Option<Answer> {
    let header = status.header()?;
    Some(Answer {
        member_id: header.member_id(),
        cluster_id: header.cluster_id(),
        leader_id: status.leader(),
        version: status.version().to_owned(),
        learner: status.is_learner(),
        raft_index: status.raft_index(),
        applied_index: status.raft_applied_index(),
        db_size: status.db_size(),
        db_size_in_use: status.raft_used_db_size(),
        storage_version: status.storage_version().to_owned(),
        downgrade_to: status
            .downgrade_info()
            .filter(|downgrade| downgrade.enabled())
            .map(|downgrade| downgrade.target_version().to_owned()),
        alarms: status
            .errors()
            .iter()
            .filter_map(|error| Alarm::read(error))
            .collect(),
        quota: u64::try_from(status.db_size_quota())
            .ok()
            .filter(|quota| *quota > 0),
        revision: header.revision(),
        compacted: None,
        locked_out: false,
        membership: None,
        heard_of: Vec::new(),
    })
}

/// Whether the revision before this one can no longer be read.
async fn is_compacted(client: &mut Client, revision: i64) -> Option<bool> {
    if revision <= 1 {
        return Some(true);
    }
    let before = GetOptions::new()
        .with_revision(revision - 1)
        .with_serializable()
        .with_keys_only()
        .with_limit(1);
    match within(client.get("health", Some(before))).await {
        Ok(_) => Some(false),
        Err(EtcdError::Refused(error)) if error.to_string().contains("has been compacted") => {
            Some(true)
        }
        Err(_) => None,
    }
}

/// Opens a connection to one member for calls that may take this long.
pub(crate) async fn connect_for(
    endpoint: &Endpoint,
    patience: Duration,
) -> Result<Client, EtcdError> {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(PATIENCE)
        .with_timeout(patience);
    if let Some(identity) = &endpoint.tls {
        let mut tls = TlsOptions::new()
            .domain_name(&identity.server_name)
            .ca_certificate(Certificate::from_pem(&identity.trusted_ca));
        if let Some((certificate, key)) = &identity.certificate {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        options = options.with_tls(tls);
    }
    Box::pin(within(Client::connect([&endpoint.url], Some(options)))).await
}

/// Bounds one call in time: a frozen process accepts connections and answers nothing.
pub(crate) async fn within<T>(
    call: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, EtcdError> {
    within_for(PATIENCE, call).await
}

/// The same, for work that takes longer.
pub(crate) async fn within_for<T>(
    patience: Duration,
    call: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, EtcdError> {
    match tokio::time::timeout(patience, call).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(EtcdError::Silent(patience)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_read_from_the_words_of_a_status() {
        let no_space = Some(Alarm {
            kind: AlarmKind::NoSpace,
            member_id: 10_276_657_743_932_975_437,
        });
        // As 3.4 to 3.6 write it, and as 3.7 does: its printer adds blanks at random.
        for text in [
            "memberID:10276657743932975437 alarm:NOSPACE ",
            "memberID:10276657743932975437  alarm:NOSPACE",
        ] {
            assert_eq!(Alarm::read(text), no_space, "{text}");
        }
        // etcd leaves out what is zero: it cannot tell whose data is wrong.
        assert_eq!(
            Alarm::read("alarm:CORRUPT "),
            Some(Alarm {
                kind: AlarmKind::Corrupt,
                member_id: 0
            })
        );
        for text in [
            "etcdserver: no leader",
            "",
            "memberID:7 ",
            "memberID:7 alarm:NEW",
        ] {
            assert_eq!(Alarm::read(text), None, "{text}");
        }
    }
}
