//! The agent as it runs in a pod, below a folder that stands for the pod's `/`, and the store it is given.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use etcd_operator_api::{
    orders::{
        EtcdAccess, Naming, ORDER, Order, Owner, Report, RestoreTool, RestoredMember, Retention,
        SnapshotRef, Store, mounts,
    },
    v1beta2::S3Store,
};

use super::{Server, free_port, start};
use crate::{command, operator};

pub(super) const BUCKET: &str = "backups";
const BACKUP: &str = "etcd.backup";
const ACCESS: &str = "bench";
const SECRET: &str = "only-for-the-benchmark";
/// How often the kernel is asked for the peak so far.
const LOOK: Duration = Duration::from_millis(10);

/// How a run of the agent went.
pub(super) struct Ran {
    pub(super) seconds: f64,
    pub(super) megabytes: f64,
    pub(super) report: Report,
}

pub(super) struct Pod {
    root: PathBuf,
    store: Store,
}

impl Pod {
    pub(super) fn new(root: &Path, etcdutl: &Path) -> Result<Self> {
        let below = |path: &str| root.join(path.trim_start_matches('/'));
        for folder in [
            mounts::CREDENTIALS,
            mounts::STORE_CA,
            mounts::SCRATCH,
            mounts::DATA,
            "/dev",
            "/usr/local/bin",
        ] {
            fs::create_dir_all(below(folder))?;
        }
        symlink(etcdutl, below("/usr/local/bin/etcdutl"))?;
        fs::write(below("/dev/termination-log"), "")?;
        fs::write(
            below(mounts::CREDENTIALS).join("credentials"),
            format!("[default]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n"),
        )?;
        Ok(Self {
            root: root.to_owned(),
            store: Store::S3(S3Store::default()),
        })
    }

    pub(super) fn with_store(self, port: u16) -> Self {
        let store = Store::S3(S3Store {
            path: Some(format!("{BUCKET}/{BACKUP}")),
            aws_secret: Some("credentials".to_owned()),
            ca_secret: Some("ca".to_owned()),
            endpoint: Some(format!("https://localhost:{port}")),
            force_path_style: Some(true),
            ..S3Store::default()
        });
        Self { store, ..self }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(super) fn data(&self) -> PathBuf {
        self.at(mounts::DATA).join("data")
    }

    pub(super) fn save(&self, endpoint: &str) -> Result<Ran> {
        self.obey(&Order::Save {
            etcd: EtcdAccess {
                endpoints: vec![endpoint.to_owned()],
                ..EtcdAccess::default()
            },
            store: self.store.clone(),
            naming: Naming::Exact,
            owner: Owner {
                namespace: "default".to_owned(),
                name: "bench".to_owned(),
                uid: "1".to_owned(),
                cluster: None,
            },
            run: "bench".to_owned(),
            retention: Retention::default(),
        })
    }

    pub(super) fn restore(&self, sha256: &str) -> Result<Ran> {
        let peer = "http://localhost:2380";
        self.obey(&Order::Restore {
            store: self.store.clone(),
            snapshot: SnapshotRef {
                name: BACKUP.to_owned(),
                sha256: Some(sha256.to_owned()),
            },
            tool: RestoreTool::Etcdutl { bumps: true },
            member: RestoredMember {
                name: "default".to_owned(),
                peer_url: peer.to_owned(),
                initial_cluster: format!("default={peer}"),
                token: "bench".to_owned(),
                data_dir: format!("{}/data", mounts::DATA),
                bump_revision: None,
            },
        })
    }

    /// Runs the program of the operator's image, and watches how much memory it takes.
    fn obey(&self, order: &Order) -> Result<Ran> {
        nix::unistd::sync();
        let log = self.root.join("agent.log");
        let output = fs::File::create(&log)?;
        let begun = Instant::now();
        let mut agent = Command::new(operator::binaries().join("etcd-operator-agent"))
            .env_clear()
            .env("ETCD_OPERATOR_AGENT_ROOT", &self.root)
            .env(ORDER, serde_json::to_string(order)?)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("starting the agent")?;
        let status = PathBuf::from(format!("/proc/{}/status", agent.id()));
        let mut megabytes = 0.0;
        let ended = loop {
            // A process that has ended has no memory any more, and what was read last counts: a peak never falls.
            let told = fs::read_to_string(&status).ok();
            megabytes = told.as_deref().and_then(peak).unwrap_or(megabytes);
            if let Some(ended) = agent.try_wait()? {
                break ended;
            }
            thread::sleep(LOOK);
        };
        let seconds = begun.elapsed().as_secs_f64();
        if !ended.success() {
            bail!("the agent failed:\n{}", command::tail(&log, 15));
        }
        let said = fs::read_to_string(self.at("/dev/termination-log"))?;
        Ok(Ran {
            seconds,
            megabytes,
            report: serde_json::from_str(&said).context("the agent's report")?,
        })
    }
}

/// `VmHWM:      8124 kB`, where a kB of the kernel is 1024 bytes.
fn peak(status: &str) -> Option<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024.0 / 1e6)
}

/// versitygw over TLS, with a certificate that the agent is told to trust.
pub(super) fn start_store(program: &Path, store: &Path, logs: &Path, pod: &Pod) -> Result<Server> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let (certificate, key) = (logs.join("store.crt"), logs.join("store.key"));
    fs::write(&certificate, made.cert.pem())?;
    fs::write(&key, made.signing_key.serialize_pem())?;
    fs::copy(&certificate, pod.at(mounts::STORE_CA).join("ca.crt"))?;
    let port = free_port()?;
    let mut command = Command::new(program);
    command
        .args(["--access", ACCESS, "--secret", SECRET])
        .args(["--port", &format!("127.0.0.1:{port}")])
        .arg("--cert")
        .arg(&certificate)
        .arg("--key")
        .arg(&key)
        .arg("posix")
        .arg(store.join("buckets"));
    start(&mut command, port, &logs.join("store.log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_told_in_megabytes() {
        let megabytes = peak("Name:\tx\nVmHWM:\t  10000 kB\nVmRSS:\t  99 kB\n").unwrap();
        assert!((megabytes - 10.24).abs() < 1e-9, "{megabytes}");
        assert_eq!(peak("Name:\tx\n"), None);
    }
}
