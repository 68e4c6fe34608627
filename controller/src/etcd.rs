//! Talking to etcd: one short-lived connection per member, straight to its pod's address.
//!
//! By pod address rather than by name, so that what we learn of a member never waits for cluster DNS; under TLS the
//! member's own name is still what the certificate is checked against.

use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, GetOptions, Identity, TlsOptions};

/// How long a member may take to accept a connection, and to answer one question.
/// Longer than an election (1 s by default) so that a change of leader is not mistaken for a dead member.
const PATIENCE: Duration = Duration::from_secs(3);

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
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
    #[error(transparent)]
    Refused(#[from] etcd_client::Error),
    #[error("etcd's answer has no header")]
    NoHeader,
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
    pub errors: Vec<String>,
    /// The member list, read on this member right after a linearizable read succeeded on it: what it lists is at least
    /// as new as anything committed before we asked. `None` when the linearizable read failed: no quorum, or a learner.
    pub membership: Option<Vec<ListedMember>>,
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
    let mut client = connect(endpoint).await?;
    let status = within(client.status()).await?;
    let header = status.header().ok_or(EtcdError::NoHeader)?;
    let mut answer = Answer {
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
        errors: status.errors().to_vec(),
        membership: None,
    };
    // A learner serves no linearizable reads; without a leader nobody does, and asking would only cost the time-out.
    if answer.learner || answer.leader_id == 0 {
        return Ok(answer);
    }
    let linearizable = GetOptions::new().with_keys_only().with_limit(1);
    if within(client.get("health", Some(linearizable)))
        .await
        .is_ok()
    {
        let list = within(client.member_list()).await?;
        answer.membership = Some(
            list.members()
                .iter()
                .map(|member| ListedMember {
                    id: member.id(),
                    name: member.name().to_owned(),
                    started: !member.client_urls().is_empty(),
                    peer_urls: member.peer_urls().to_vec(),
                    learner: member.is_learner(),
                })
                .collect(),
        );
    }
    Ok(answer)
}

/// Opens a connection to one member.
pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Client, EtcdError> {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(PATIENCE)
        .with_timeout(PATIENCE);
    if let Some(identity) = &endpoint.tls {
        let mut tls = TlsOptions::new()
            .domain_name(&identity.server_name)
            .ca_certificate(Certificate::from_pem(&identity.trusted_ca));
        if let Some((certificate, key)) = &identity.certificate {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        options = options.with_tls(tls);
    }
    within(Client::connect([&endpoint.url], Some(options))).await
}

/// Bounds one call in time: a frozen process accepts connections and answers nothing.
pub(crate) async fn within<T>(
    call: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, EtcdError> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(EtcdError::Silent),
    }
}
