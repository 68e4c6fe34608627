//! Snapshots of the days of CoreOS's operator: plain objects without a manifest of ours, made by an etcd that nobody runs any more.

#![allow(clippy::panic, clippy::unwrap_used)]

mod village;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use etcd_client::GetOptions;
use etcd_operator_api::orders::{Order, Report, RestoreTool, RestoredMember, mounts};
use village::{Etcd, Folder, Pod, Programs, S3, eventually, inspect, named, peer_url, s3, sound};

const KEYS: usize = 120;

/// Ended when it goes out of sight.
struct Old {
    process: Child,
    etcdctl: PathBuf,
    url: String,
}

impl Drop for Old {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Old {
    async fn start(etcd: &Path, data: &Path) -> Self {
        let (url, peer) = (peer_url(), peer_url());
        let process = Command::new(etcd)
            .args(["--name", "old", "--data-dir"])
            .arg(data)
            .args(["--listen-client-urls", &url])
            .args(["--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("old={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let old = Self {
            process,
            etcdctl: etcd.with_file_name("etcdctl"),
            url,
        };
        eventually("the old etcd to take a key", || async {
            old.etcdctl(&["put", "key-0", "value-0"]).then_some(())
        })
        .await;
        old
    }

    fn etcdctl(&self, arguments: &[&str]) -> bool {
        Command::new(&self.etcdctl)
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.url])
            .args(arguments)
            .output()
            .unwrap()
            .status
            .success()
    }
}

#[tokio::test]
async fn a_backup_of_coreos_operator_is_restored_for_every_version_that_is_supported() {
    let Some(programs) = Programs::given() else {
        return;
    };
    let Some(old) = env::var("OLD_ETCD_PROGRAMS")
        .ok()
        .filter(|old| !old.is_empty())
    else {
        println!("skipped: OLD_ETCD_PROGRAMS names no programs; `cargo xtask test` does");
        return;
    };
    let folder = Folder::new();
    let server = S3::start(&programs, &folder.0).await;
    for pair in old.split(',') {
        let (version, etcd) = pair.split_once('=').unwrap();
        let name = format!("etcd.backup_v{}_2018-06-01-12:00:00", KEYS + 1);
        let object = server.object(&name);
        {
            let old = Old::start(Path::new(etcd), &folder.0.join(version)).await;
            for number in 1..KEYS {
                let (key, value) = (format!("key-{number}"), format!("value-{number}"));
                assert!(old.etcdctl(&["put", &key, &value]), "{version}");
            }
            assert!(
                old.etcdctl(&["snapshot", "save", &object.to_string_lossy()]),
                "{version}"
            );
        }
        for supported in programs.versions() {
            let home = folder.0.join(format!("{version}-{supported}"));
            fs::create_dir_all(&home).unwrap();
            let pod = Pod::new(&programs, supported, &home);
            let store = s3(&server.endpoint(), "backups/etcd.backup");
            let facts = sound(pod.obey(inspect(store.clone(), &name)).await);
            assert_eq!(facts.keys, KEYS as u64, "{version}");
            let peer = peer_url();
            let order = Order::Restore {
                store,
                snapshot: named(&name),
                tool: RestoreTool::Etcdutl {
                    bumps: !supported.starts_with("3.5"),
                },
                member: RestoredMember {
                    name: "a".to_owned(),
                    peer_url: peer.clone(),
                    initial_cluster: format!("a={peer}"),
                    token: "restored".to_owned(),
                    data_dir: format!("{}/data", mounts::DATA),
                    bump_revision: None,
                },
            };
            let restored = pod.obey(order).await;
            assert_eq!(
                restored,
                Report::Restored { already: false },
                "{version} for {supported}"
            );
            let data = pod.root.join(&mounts::DATA[1..]).join("data");
            let served = Etcd::serve(&programs, supported, &data, &peer).await;
            let mut client = served.client().await.unwrap();
            let all = GetOptions::new().with_prefix();
            let found = client.get("key-", Some(all)).await.unwrap();
            assert_eq!(found.count(), i64::try_from(KEYS).unwrap());
            for one in found.kvs() {
                let (key, value) = (one.key_str().unwrap(), one.value_str().unwrap());
                assert_eq!(
                    key.strip_prefix("key-"),
                    value.strip_prefix("value-"),
                    "{version} for {supported}"
                );
            }
        }
        fs::remove_file(object).unwrap();
    }
}
