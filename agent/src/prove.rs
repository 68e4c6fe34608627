//! The proof of a backup: it is restored with etcd's own tool and served by etcd, in this pod alone, then thrown away.

use std::{
    fs::File,
    net::TcpListener,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use etcd_client::{Client, ConnectOptions, GetOptions};
use etcd_operator_api::orders::{
    Facts, FailureReason, Report, RestoreTool, RestoredMember, SnapshotRef, Store,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::{Child, Command},
};

use crate::{
    Agent,
    bolt::Bolt,
    disk, etcd,
    failure::Failure,
    fetch::{self, Fetched},
    snapshot::Depth,
    status::Status,
    tool,
};

/// How long etcd may take to serve what was restored.
const START: Duration = Duration::from_mins(5);
const CALL: Duration = Duration::from_secs(30);
const BETWEEN: Duration = Duration::from_millis(100);
/// What etcd writes beside the database.
const LOGS: u64 = 160 * 1024 * 1024;

pub(crate) async fn prove(
    agent: &Agent,
    store: &Store,
    snapshot: &SnapshotRef,
    with: RestoreTool,
) -> Result<Report, Failure> {
    let opened = agent.open(store)?;
    let scratch = agent.places.scratch();
    let (file, data) = (scratch.join("snapshot.db"), scratch.join("proof"));
    disk::remove(&data)?;
    let proven = async {
        let fetched = fetch::fetch(
            &opened,
            snapshot,
            &file,
            |size| 2 * size + LOGS,
            Depth::Whole,
        )
        .await?;
        let ports = Ports::free()?;
        let member = ports.member();
        tool::restore(&agent.places, with, &file, &data, &member).await?;
        compare_database(&fetched, &data.join("member/snap/db")).await?;
        serve_and_compare(agent, &fetched.facts, &data, &ports, &member).await?;
        Ok::<Facts, Failure>(fetched.facts)
    };
    let proven = proven.await;
    disk::remove(&data)?;
    disk::remove(&file)?;
    Ok(Report::Sound { facts: proven? })
}

fn unproven(why: &str) -> Failure {
    Failure::new(
        FailureReason::ProofFailed,
        format!("the restored backup is not what was backed up: {why}"),
    )
}

/// All revisions of all keys, as the tool has left them.
async fn compare_database(fetched: &Fetched, database: &Path) -> Result<(), Failure> {
    let path = database.to_owned();
    let read = move || {
        let failed = |error: std::io::Error| Failure::file("read", &path, &error);
        let file = File::open(&path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut bolt = Bolt::open(&file, length).map_err(|error| unproven(&error.to_string()))?;
        Status::of(&mut bolt).map_err(|error| unproven(&error.to_string()))
    };
    let restored = tokio::task::spawn_blocking(read)
        .await
        .map_err(|error| Failure::internal(format!("the comparison ended abruptly: {error}")))??;
    let before = &fetched.status;
    let same = restored.data == before.data
        && restored.revision == before.revision
        && restored.keys == before.keys;
    if same {
        return Ok(());
    }
    Err(unproven(&format!(
        "{} keys at revision {}, and {} at {} were restored",
        before.keys, before.revision, restored.keys, restored.revision
    )))
}

/// Ports on loopback that nobody has.
struct Ports {
    client: u16,
    peer: u16,
}

impl Ports {
    fn free() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::internal(format!("no free port: {error}"));
        let bind = || TcpListener::bind(("127.0.0.1", 0));
        // Both are held until both are known, so that they differ.
        let (one, other) = (bind().map_err(failed)?, bind().map_err(failed)?);
        let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
        Ok(Self {
            client: port(&one).map_err(failed)?,
            peer: port(&other).map_err(failed)?,
        })
    }

    fn client(&self) -> String {
        format!("http://127.0.0.1:{}", self.client)
    }

    fn member(&self) -> RestoredMember {
        let peer_url = format!("http://127.0.0.1:{}", self.peer);
        RestoredMember {
            name: "proof".to_owned(),
            initial_cluster: format!("proof={peer_url}"),
            peer_url,
            token: "proof".to_owned(),
            data_dir: String::new(),
            bump_revision: None,
        }
    }
}

async fn serve_and_compare(
    agent: &Agent,
    facts: &Facts,
    data: &Path,
    ports: &Ports,
    member: &RestoredMember,
) -> Result<(), Failure> {
    let program = agent.places.tool("etcd").ok_or_else(|| {
        Failure::new(
            FailureReason::ProofFailed,
            "this image has no etcd to serve the backup with",
        )
    })?;
    let said = agent.places.scratch().join("proof.log");
    let log = File::create(&said).map_err(|error| Failure::file("write", &said, &error))?;
    let client = ports.client();
    let mut etcd = Command::new(program)
        .args(["--name", &member.name])
        .arg("--data-dir")
        .arg(data)
        .args(["--listen-client-urls", &client])
        .args(["--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &member.peer_url])
        .args(["--initial-advertise-peer-urls", &member.peer_url])
        .args(["--initial-cluster", &member.initial_cluster])
        .args(["--initial-cluster-token", &member.token])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            Failure::new(
                FailureReason::ProofFailed,
                format!("etcd cannot be started: {error}"),
            )
        })?;
    let served = compare(facts, &client, &mut etcd, &said).await;
    let _ = etcd.kill().await;
    disk::remove(&said)?;
    served
}

async fn compare(
    facts: &Facts,
    endpoint: &str,
    etcd: &mut Child,
    said: &Path,
) -> Result<(), Failure> {
    serving(endpoint, etcd, said).await?;
    let told = async {
        let options = ConnectOptions::new()
            .with_connect_timeout(CALL)
            .with_timeout(CALL);
        let mut client = Box::pin(Client::connect([endpoint], Some(options))).await?;
        let hash = client.hash_kv(0).await?;
        let all = GetOptions::new().with_all_keys().with_count_only();
        let counted = client.get("", Some(all)).await?;
        Ok((hash, counted))
    };
    let (hash, counted) = match told.await {
        Ok(told) => told,
        Err(error) => {
            let failure = etcd::explain(endpoint, &error);
            if failure.reason != FailureReason::EtcdAccessDenied {
                return Err(unproven(&failure.message));
            }
            // With authentication on, nobody but its users may ask; that it asks for them is the backup's own doing, and what is in the
            // database was compared before.
            tracing::info!("etcd serves the backup, with authentication on");
            return Ok(());
        }
    };
    let revision = hash
        .header()
        .map_or(0, etcd_client::ResponseHeader::revision);
    // An empty etcd is at revision 1, and its database does not say so.
    if revision != facts.revision.max(1) {
        return Err(unproven(&format!(
            "it is served at revision {revision}, and was taken at {}",
            facts.revision
        )));
    }
    let keys = u64::try_from(counted.count()).unwrap_or(0);
    if keys != facts.keys {
        return Err(unproven(&format!(
            "{keys} keys are served, and {} were backed up",
            facts.keys
        )));
    }
    tracing::info!(revision, keys, hash = hash.hash(), "etcd serves the backup");
    Ok(())
}

/// Waits until etcd says that it is healthy, which it says to anybody and only with a leader.
async fn serving(endpoint: &str, etcd: &mut Child, said: &Path) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        if let Ok(Some(status)) = etcd.try_wait() {
            let words = std::fs::read_to_string(said).unwrap_or_default();
            return Err(unproven(&format!(
                "etcd does not start with it ({status}): {}",
                tool::last_words(&words)
            )));
        }
        if let Ok(Ok(true)) = tokio::time::timeout(CALL, healthy(endpoint)).await {
            return Ok(());
        }
        if begun.elapsed() > START {
            return Err(unproven(&format!(
                "etcd does not serve it within {} s",
                START.as_secs()
            )));
        }
        tokio::time::sleep(BETWEEN).await;
    }
}

async fn healthy(endpoint: &str) -> std::io::Result<bool> {
    let address = endpoint.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await?;
    let question = format!("GET /health HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(question.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer).await?;
    // Old ones put a blank after the colon.
    let answer = String::from_utf8_lossy(&answer).replace(' ', "");
    Ok(answer.contains("\"health\":\"true\""))
}
