//! Real programs on loopback: etcd with its tools, a server that speaks S3, a wire that can be cut. And a folder that stands
//! for a pod's `/`.

// Each file of tests compiles this anew and uses a part of it.
#![allow(dead_code, clippy::panic, clippy::unwrap_used)]

use std::{
    env, fs,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use etcd_client::{Client, ConnectOptions};
use etcd_operator_agent::{Agent, Places, Stop};
use etcd_operator_api::{
    orders::{
        EtcdAccess, Facts, FailureReason, Naming, Order, Owner, Report, Retention, SnapshotRef,
        Store, mounts,
    },
    v1beta2::S3Store,
};

const LONGEST: Duration = Duration::from_mins(1);
pub(crate) const BUCKET: &str = "backups";
pub(crate) const ACCESS: &str = "tester";
pub(crate) const SECRET: &str = "only-for-tests";

/// Below the range from which the kernel takes ports for others.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 22_000 + u16::try_from(std::process::id() % 3_000).unwrap();
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed) % 5_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// What `cargo xtask test` hands over; without it there is nothing to run.
pub(crate) struct Programs {
    etcd: Vec<(String, PathBuf)>,
    versitygw: PathBuf,
}

impl Programs {
    pub(crate) fn given() -> Option<Self> {
        let said = |name: &str| env::var(name).ok().filter(|said| !said.is_empty());
        let (Some(etcd), Some(versitygw)) = (said("ETCD_PROGRAMS"), said("VERSITYGW_PROGRAM"))
        else {
            println!(
                "skipped: ETCD_PROGRAMS and VERSITYGW_PROGRAM name no programs; `cargo xtask test` does"
            );
            return None;
        };
        let pair = |pair: &str| {
            let (version, file) = pair.split_once('=').unwrap();
            (version.to_owned(), PathBuf::from(file))
        };
        // The oldest restore with `etcdctl`, and are of no use where `etcdutl` is asked.
        let has_etcdutl = |(_, file): &(String, PathBuf)| file.with_file_name("etcdutl").is_file();
        Some(Self {
            etcd: etcd.split(',').map(pair).filter(has_etcdutl).collect(),
            versitygw: versitygw.into(),
        })
    }

    pub(crate) fn versions(&self) -> Vec<&str> {
        self.etcd
            .iter()
            .map(|(version, _)| version.as_str())
            .collect()
    }

    /// The folder with etcd, etcdctl and etcdutl.
    pub(crate) fn folder(&self, version: &str) -> &Path {
        let found = self.etcd.iter().find(|(known, _)| known == version);
        found.unwrap().1.parent().unwrap()
    }
}

/// Ended when it goes out of sight.
pub(crate) struct Running(Child);

impl Running {
    fn start(command: &mut Command, log: &Path) -> Self {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(log)
            .unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder of the test's own, gone afterwards.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("etcd-operator-agent-{}-{number}", std::process::id());
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begun.elapsed() < LONGEST, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// One member of etcd.
pub(crate) struct Etcd {
    pub(crate) url: String,
    process: Option<Running>,
}

impl Etcd {
    /// Alone in its cluster.
    pub(crate) async fn start(programs: &Programs, version: &str, data: &Path) -> Self {
        Self::serve(programs, version, data, &peer_url()).await
    }

    /// Serves what a restore has left, as its member.
    pub(crate) async fn serve(
        programs: &Programs,
        version: &str,
        data: &Path,
        peer_url: &str,
    ) -> Self {
        let etcd = Self::spawn(
            programs,
            version,
            "a",
            data,
            peer_url,
            &format!("a={peer_url}"),
        );
        etcd.healthy().await;
        etcd
    }

    /// Two of one cluster, the second of which is then killed.
    pub(crate) async fn without_quorum(programs: &Programs, version: &str, data: &Path) -> Self {
        let (one, other) = (peer_url(), peer_url());
        let all = format!("a={one},b={other}");
        let left = Self::spawn(programs, version, "a", data, &one, &all);
        let lost = Self::spawn(
            programs,
            version,
            "b",
            &data.with_extension("lost"),
            &other,
            &all,
        );
        left.healthy().await;
        drop(lost);
        eventually("the one that is left to miss its leader", || async {
            let status = left.client().await?.status().await.ok()?;
            (status.leader() == 0).then_some(())
        })
        .await;
        left
    }

    fn spawn(
        programs: &Programs,
        version: &str,
        name: &str,
        data: &Path,
        peer_url: &str,
        all: &str,
    ) -> Self {
        let url = format!("http://127.0.0.1:{}", free_port());
        let process = Running::start(
            Command::new(programs.folder(version).join("etcd"))
                .args(["--name", name, "--data-dir"])
                .arg(data)
                .args(["--listen-client-urls", &url])
                .args(["--advertise-client-urls", &url])
                .args(["--listen-peer-urls", peer_url])
                .args(["--initial-advertise-peer-urls", peer_url])
                .args(["--initial-cluster", all]),
            &data.with_extension("log"),
        );
        Self {
            url,
            process: Some(process),
        }
    }

    /// Asked as a probe asks, which needs no user.
    async fn healthy(&self) {
        let address = self.url.trim_start_matches("http://");
        eventually("etcd to be healthy", || async {
            let mut stream = TcpStream::connect(address).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
            let question = format!("GET /health HTTP/1.0\r\nHost: {address}\r\n\r\n");
            stream.write_all(question.as_bytes()).ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.contains("\"health\":\"true\"").then_some(())
        })
        .await;
    }

    pub(crate) async fn client(&self) -> Option<Client> {
        let options = ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(2))
            .with_timeout(Duration::from_secs(10));
        Box::pin(Client::connect([&self.url], Some(options)))
            .await
            .ok()
    }

    pub(crate) async fn client_as(&self, name: &str, password: &str) -> Client {
        let options = ConnectOptions::new()
            .with_user(name, password)
            .with_timeout(Duration::from_secs(10));
        Box::pin(Client::connect([&self.url], Some(options)))
            .await
            .unwrap()
    }
}

pub(crate) fn peer_url() -> String {
    format!("http://127.0.0.1:{}", free_port())
}

/// The S3 server with one bucket.
pub(crate) struct S3 {
    pub(crate) port: u16,
    root: PathBuf,
    program: PathBuf,
    process: Option<Running>,
}

impl S3 {
    pub(crate) async fn start(programs: &Programs, folder: &Path) -> Self {
        let root = folder.join("buckets");
        fs::create_dir_all(root.join(BUCKET)).unwrap();
        let mut server = Self {
            port: free_port(),
            root,
            program: programs.versitygw.clone(),
            process: None,
        };
        server.up().await;
        server
    }

    pub(crate) async fn up(&mut self) {
        let process = Running::start(
            Command::new(&self.program)
                .args(["--access", ACCESS, "--secret", SECRET])
                .args(["--port", &format!("127.0.0.1:{}", self.port)])
                .arg("posix")
                .arg(&self.root),
            &self.root.with_extension("log"),
        );
        self.process = Some(process);
        let port = self.port;
        eventually("the store to listen", || async move {
            TcpStream::connect(("127.0.0.1", port)).ok().map(drop)
        })
        .await;
    }

    pub(crate) fn down(&mut self) {
        self.process = None;
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// An object as a file.
    pub(crate) fn object(&self, name: &str) -> PathBuf {
        self.root.join(BUCKET).join(name)
    }

    /// The names of the objects in a folder of the bucket.
    pub(crate) fn objects(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.object(folder)) else {
            return Vec::new();
        };
        let files = entries
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_type().unwrap().is_file());
        let mut names: Vec<String> = files
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// A wire to a port of loopback that can be cut after so many bytes, and mended.
pub(crate) struct Wire {
    pub(crate) port: u16,
    /// Bytes that still pass; what would be too many cuts it.
    left: Arc<AtomicU64>,
    mended: Arc<AtomicBool>,
}

impl Wire {
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let wire = Self {
            port: listener.local_addr().unwrap().port(),
            left: Arc::new(AtomicU64::new(u64::MAX)),
            mended: Arc::new(AtomicBool::new(true)),
        };
        let (left, mended) = (Arc::clone(&wire.left), Arc::clone(&wire.mended));
        thread::spawn(move || {
            for accepted in listener.incoming() {
                let Ok(near) = accepted else { return };
                if !mended.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (left, mended) = (Arc::clone(&left), Arc::clone(&mended));
                    thread::spawn(move || pass(&from, &to, &left, &mended));
                }
            }
        });
        wire
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn cut_after(&self, bytes: u64) {
        self.left.store(bytes, Ordering::SeqCst);
    }

    pub(crate) fn is_cut(&self) -> bool {
        !self.mended.load(Ordering::SeqCst)
    }

    pub(crate) fn mend(&self) {
        self.left.store(u64::MAX, Ordering::SeqCst);
        self.mended.store(true, Ordering::SeqCst);
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, left: &AtomicU64, mended: &AtomicBool) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read) = from.read(&mut buffer) {
        let allowed = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(read as u64)
        });
        if allowed.is_err() {
            mended.store(false, Ordering::SeqCst);
        }
        if read == 0 || !mended.load(Ordering::SeqCst) || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// A folder that stands for a pod's `/`, and the agent in it.
pub(crate) struct Pod {
    pub(crate) root: PathBuf,
}

impl Pod {
    pub(crate) fn new(programs: &Programs, version: &str, folder: &Path) -> Self {
        let root = folder.join("pod");
        for mount in [
            mounts::CREDENTIALS,
            mounts::SCRATCH,
            mounts::DATA,
            mounts::VOLUME,
            mounts::TOOLS,
            "/dev",
            "/usr/local/bin",
        ] {
            fs::create_dir_all(root.join(&mount[1..])).unwrap();
        }
        for tool in ["etcd", "etcdctl", "etcdutl"] {
            symlink(
                programs.folder(version).join(tool),
                root.join("usr/local/bin").join(tool),
            )
            .unwrap();
        }
        fs::write(root.join("dev/termination-log"), "").unwrap();
        let pod = Self { root };
        pod.credentials(ACCESS, SECRET);
        pod
    }

    pub(crate) fn credentials(&self, access: &str, secret: &str) {
        let text =
            format!("[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n");
        fs::write(
            self.root
                .join(&mounts::CREDENTIALS[1..])
                .join("credentials"),
            text,
        )
        .unwrap();
    }

    pub(crate) fn agent(&self) -> Agent {
        Agent {
            places: Places::below(&self.root),
            patience: Duration::from_secs(3),
            stop: Stop::by_hand().1,
        }
    }

    pub(crate) async fn obey(&self, order: Order) -> Report {
        let _ = rustls::crypto::ring::default_provider().install_default();
        self.agent().obey(order).await
    }

    /// Is anything left over?
    pub(crate) fn scratch_is_empty(&self) -> bool {
        fs::read_dir(self.root.join(&mounts::SCRATCH[1..]))
            .unwrap()
            .next()
            .is_none()
    }
}

pub(crate) fn s3(endpoint: &str, path: &str) -> Store {
    Store::S3(S3Store {
        path: Some(path.to_owned()),
        aws_secret: Some("credentials".to_owned()),
        endpoint: Some(endpoint.to_owned()),
        force_path_style: Some(true),
        ..S3Store::default()
    })
}

pub(crate) fn save(
    etcd: &str,
    store: Store,
    naming: Naming,
    uid: &str,
    retention: Retention,
) -> Order {
    Order::Save {
        etcd: EtcdAccess {
            endpoints: vec![etcd.to_owned()],
            ..EtcdAccess::default()
        },
        store,
        naming,
        owner: Owner {
            namespace: "default".to_owned(),
            name: "nightly".to_owned(),
            uid: uid.to_owned(),
            cluster: None,
        },
        run: "run".to_owned(),
        retention,
    }
}

pub(crate) fn named(name: &str) -> SnapshotRef {
    SnapshotRef {
        name: name.to_owned(),
        sha256: None,
    }
}

pub(crate) fn inspect(store: Store, name: &str) -> Order {
    Order::Inspect {
        store,
        snapshot: named(name),
    }
}

pub(crate) fn saved(report: Report) -> Facts {
    match report {
        Report::Saved { facts, .. } => facts,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn sound(report: Report) -> Facts {
    match report {
        Report::Sound { facts } => facts,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn failed(report: Report) -> (FailureReason, String) {
    match report {
        Report::Failed { reason, message } => (reason, message),
        other => panic!("{other:?}"),
    }
}
