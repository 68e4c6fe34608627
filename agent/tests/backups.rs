//! The agent beside real programs: etcd, its tools, a server that speaks S3.

#![allow(clippy::panic, clippy::unwrap_used)]

mod village;

use std::{fs, os::unix::fs::FileExt as _, path::Path, process::Command};

use etcd_client::{Permission, PermissionType, PutOptions};
use etcd_operator_api::{
    orders::{
        FailureReason, Naming, ORDER, Order, Report, RestoreTool, RestoredMember, Retention, Store,
        mounts,
    },
    v1beta2::PvcStore,
};
use village::{
    BUCKET, Etcd, Folder, Pod, Programs, S3, Wire, eventually, failed, inspect, named, peer_url,
    s3, save, saved, sound,
};

const VERSION: &str = "3.6.16";
const KEEP_ALL: Retention = Retention {
    count: None,
    age_seconds: None,
};

/// Text that stays large when it is compressed.
fn noise(seed: usize, length: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ (seed as u64 + 1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'#' + u8::try_from(state % 64).unwrap())
    };
    (0..length).map(|_| next()).collect()
}

/// Many keys, some deleted, some compacted away, some large, one on a lease.
async fn fill(etcd: &Etcd, keys: usize, value: usize) {
    let mut client = etcd.client().await.unwrap();
    for number in 0..keys {
        let text = noise(number, value);
        client
            .put(format!("key-{number}"), text, None)
            .await
            .unwrap();
    }
    client.delete("key-0", None).await.unwrap();
    let revision = client
        .put("key-1", "again", None)
        .await
        .unwrap()
        .header()
        .unwrap()
        .revision();
    client
        .compact(
            revision,
            Some(etcd_client::CompactionOptions::new().with_physical()),
        )
        .await
        .unwrap();
    client.put("key-1", "and again", None).await.unwrap();
    client.put("key-0", "back", None).await.unwrap();
    client.delete("key-2", None).await.unwrap();
    client
        .put("large", "x".repeat(600 * 1024), None)
        .await
        .unwrap();
    let lease = client.lease_grant(3600, None).await.unwrap().id();
    client
        .put(
            "leased",
            "for an hour",
            Some(PutOptions::new().with_lease(lease)),
        )
        .await
        .unwrap();
}

async fn with_auth(etcd: &Etcd) {
    let mut client = etcd.client().await.unwrap();
    client.user_add("root", "secret", None).await.unwrap();
    client.role_add("root").await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.role_add("reader").await.unwrap();
    let permission = Permission::new(PermissionType::Read, "key-");
    client
        .role_grant_permission("reader", permission)
        .await
        .unwrap();
    client.auth_enable().await.unwrap();
}

fn member(peer: &str, bump_revision: Option<u64>) -> RestoredMember {
    RestoredMember {
        name: "a".to_owned(),
        peer_url: peer.to_owned(),
        initial_cluster: format!("a={peer}"),
        token: "restored".to_owned(),
        data_dir: format!("{}/data", mounts::DATA),
        bump_revision,
    }
}

fn restore(store: Store, name: &str, peer: &str, bump: Option<u64>) -> Order {
    Order::Restore {
        store,
        snapshot: named(name),
        tool: RestoreTool::Etcdutl { bumps: true },
        member: member(peer, bump),
    }
}

fn data(pod: &Pod) -> std::path::PathBuf {
    pod.root.join(&mounts::DATA[1..]).join("data")
}

#[tokio::test]
async fn what_is_saved_is_what_etcdutl_says_and_what_is_restored() {
    let Some(programs) = Programs::given() else {
        return;
    };
    for version in programs.versions() {
        let folder = Folder::new();
        let server = S3::start(&programs, &folder.0).await;
        let etcd = Etcd::start(&programs, version, &folder.0.join("etcd")).await;
        fill(&etcd, 300, 3000).await;
        let pod = Pod::new(&programs, version, &folder.0);
        let store = s3(&server.endpoint(), "backups/here/etcd.backup");
        let facts = saved(
            pod.obey(save(&etcd.url, store.clone(), Naming::Exact, "1", KEEP_ALL))
                .await,
        );
        assert!(pod.scratch_is_empty());
        assert_eq!(facts.snapshot, "here/etcd.backup");
        assert_eq!(
            server.objects("here"),
            ["etcd.backup", "etcd.backup.manifest.json"]
        );
        assert!(facts.stored_size < facts.size, "{facts:?}");

        // The same without us: unpacked, and asked of etcd's own tool.
        let plain = folder.0.join("plain.db");
        let packed = fs::read(server.object("here/etcd.backup")).unwrap();
        fs::write(&plain, zstd::decode_all(packed.as_slice()).unwrap()).unwrap();
        let told = Command::new(programs.folder(version).join("etcdutl"))
            .args(["snapshot", "status", "-w", "json"])
            .arg(&plain)
            .output()
            .unwrap();
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        assert_eq!(
            told["hash"],
            u32::from_str_radix(&facts.hash, 16).unwrap(),
            "{version}"
        );
        assert_eq!(told["revision"], facts.revision, "{version}");
        let mut client = etcd.client().await.unwrap();
        let all = etcd_client::GetOptions::new()
            .with_all_keys()
            .with_count_only();
        assert_eq!(
            client.get("", Some(all.clone())).await.unwrap().count(),
            i64::try_from(facts.keys).unwrap()
        );
        if !version.starts_with("3.5") {
            // 3.5 counted revisions of everything, and called them keys.
            assert_eq!(told["totalKey"], facts.keys, "{version}");
        }
        assert_eq!(
            sound(pod.obey(inspect(store.clone(), &facts.snapshot)).await),
            facts
        );

        // Restored as it is, it hashes as the original does.
        let peer = peer_url();
        let order = restore(store.clone(), &facts.snapshot, &peer, None);
        assert_eq!(
            pod.obey(order.clone()).await,
            Report::Restored { already: false }
        );
        assert_eq!(pod.obey(order).await, Report::Restored { already: true });
        let hash = client.hash_kv(facts.revision).await.unwrap().hash();
        let restored = Etcd::serve(&programs, version, &data(&pod), &peer).await;
        let mut second = restored.client().await.unwrap();
        assert_eq!(
            second.hash_kv(facts.revision).await.unwrap().hash(),
            hash,
            "{version}"
        );
        assert_eq!(
            second.get("", Some(all)).await.unwrap().count(),
            i64::try_from(facts.keys).unwrap()
        );
        let lease = second.get("leased", None).await.unwrap().kvs()[0].lease();
        let left = second.lease_time_to_live(lease, None).await.unwrap();
        assert_eq!(left.granted_ttl(), 3600);
    }
}

#[tokio::test]
async fn a_raised_revision_is_beyond_any_that_was_served_and_what_is_older_is_compacted() {
    let Some(programs) = Programs::given() else {
        return;
    };
    let folder = Folder::new();
    let server = S3::start(&programs, &folder.0).await;
    let etcd = Etcd::start(&programs, VERSION, &folder.0.join("etcd")).await;
    fill(&etcd, 20, 100).await;
    with_auth(&etcd).await;
    let pod = Pod::new(&programs, VERSION, &folder.0);
    let store = s3(&server.endpoint(), "backups/etcd.backup");
    let mut order = save(&etcd.url, store.clone(), Naming::Exact, "1", KEEP_ALL);

    // Whoever is not root gets nothing.
    let (reason, message) = failed(pod.obey(order.clone()).await);
    assert_eq!(reason, FailureReason::EtcdAccessDenied, "{message}");
    let auth = pod.root.join(&mounts::ETCD_AUTH[1..]);
    fs::create_dir_all(&auth).unwrap();
    fs::write(auth.join("username"), "root").unwrap();
    fs::write(auth.join("password"), "secret\n").unwrap();
    if let Order::Save { etcd, .. } = &mut order {
        etcd.auth = true;
    }
    let facts = saved(pod.obey(order).await);

    let peer = peer_url();
    let report = pod
        .obey(restore(store.clone(), &facts.snapshot, &peer, Some(1000)))
        .await;
    assert_eq!(report, Report::Restored { already: false });
    let restored = Etcd::serve(&programs, VERSION, &data(&pod), &peer).await;
    let nobody = restored.client().await.unwrap().get("key-1", None).await;
    assert!(nobody.is_err(), "authentication is part of a backup");
    let mut root = restored.client_as("root", "secret").await;
    let read = root.get("key-1", None).await.unwrap();
    assert_eq!(read.kvs()[0].value(), b"and again");
    assert_eq!(read.header().unwrap().revision(), facts.revision + 1000);
    assert_eq!(root.role_list().await.unwrap().roles(), ["reader", "root"]);
    let old = etcd_client::GetOptions::new().with_revision(facts.revision);
    assert!(
        root.get("key-1", Some(old)).await.is_err(),
        "what is older is marked compacted"
    );

    // And it is proven by etcd itself, authentication or not.
    let prove = Order::Prove {
        store,
        snapshot: named(&facts.snapshot),
        tool: RestoreTool::Etcdutl { bumps: true },
    };
    assert_eq!(sound(pod.obey(prove).await), facts);
    assert!(pod.scratch_is_empty());
}

#[tokio::test]
async fn every_kind_of_bad_backup_has_a_reason_of_its_own() {
    let Some(programs) = Programs::given() else {
        return;
    };
    let folder = Folder::new();
    let server = S3::start(&programs, &folder.0).await;
    let etcd = Etcd::start(&programs, VERSION, &folder.0.join("etcd")).await;
    fill(&etcd, 50, 500).await;
    let pod = Pod::new(&programs, VERSION, &folder.0);
    let store = s3(&server.endpoint(), "backups/etcd.backup");
    let facts = saved(
        pod.obey(save(&etcd.url, store.clone(), Naming::Exact, "1", KEEP_ALL))
            .await,
    );
    let packed = fs::read(server.object("etcd.backup")).unwrap();
    let plain = zstd::decode_all(packed.as_slice()).unwrap();
    let manifest = fs::read(server.object("etcd.backup.manifest.json")).unwrap();
    let (half, middle) = (plain.len() / 2, packed.len() / 2);
    let flipped = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 0x10;
        bytes
    };
    let put = |name: &str, bytes: &[u8], with_manifest: bool| {
        fs::write(server.object(name), bytes).unwrap();
        if with_manifest {
            fs::write(server.object(&format!("{name}.manifest.json")), &manifest).unwrap();
        }
    };
    let mut another = plain.clone();
    another.truncate(plain.len() - 32);
    for (name, bytes, with_manifest, reason) in [
        ("empty", Vec::new(), false, FailureReason::SnapshotEmpty),
        (
            "cut",
            plain[..half].to_vec(),
            false,
            FailureReason::SnapshotIncomplete,
        ),
        (
            "cut-short",
            plain[..plain.len() - 1].to_vec(),
            false,
            FailureReason::SnapshotIncomplete,
        ),
        (
            "cut-packed",
            packed[..middle].to_vec(),
            false,
            FailureReason::SnapshotIncomplete,
        ),
        (
            "cut-ours",
            packed[..middle].to_vec(),
            true,
            FailureReason::SnapshotIncomplete,
        ),
        (
            "flipped",
            flipped(&plain, half),
            false,
            FailureReason::SnapshotCorrupt,
        ),
        (
            "flipped-meta",
            flipped(&plain, 30),
            false,
            FailureReason::SnapshotCorrupt,
        ),
        (
            "flipped-packed",
            flipped(&packed, middle),
            false,
            FailureReason::SnapshotCorrupt,
        ),
        (
            "flipped-ours",
            flipped(&packed, middle),
            true,
            FailureReason::SnapshotCorrupt,
        ),
        (
            "foreign",
            b"this is a letter, and no snapshot".repeat(500),
            false,
            FailureReason::NotASnapshot,
        ),
        ("without-hash", another, false, FailureReason::NotASnapshot),
    ] {
        put(name, &bytes, with_manifest);
        let (found, message) = failed(pod.obey(inspect(store.clone(), name)).await);
        assert_eq!(found, reason, "{name}: {message}");
        assert!(message.contains(name), "{message}");
        let (found, _) = failed(
            pod.obey(restore(store.clone(), name, &peer_url(), None))
                .await,
        );
        assert_eq!(found, reason, "{name}");
        assert!(
            fs::read_dir(pod.root.join(&mounts::DATA[1..]))
                .unwrap()
                .next()
                .is_none(),
            "{name} leaves nothing behind"
        );
        assert!(pod.scratch_is_empty());
    }
    let (reason, _) = failed(pod.obey(inspect(store.clone(), "nowhere")).await);
    assert_eq!(reason, FailureReason::SnapshotNotFound);

    // Plain and packed without a manifest, as people and CoreOS's operator leave them, are as good as ours.
    put("plain", &plain, false);
    put("packed", &packed, false);
    for name in ["plain", "packed"] {
        let found = sound(pod.obey(inspect(store.clone(), name)).await);
        assert_eq!(
            (found.hash, found.revision, found.sha256),
            (facts.hash.clone(), facts.revision, facts.sha256.clone())
        );
        assert_eq!(
            found.etcd_version.as_deref(),
            Some("3.6.0"),
            "what the database says of its cluster"
        );
    }
    let mut other = named("plain");
    other.sha256 = Some("0".repeat(64));
    let (reason, _) = failed(
        pod.obey(Order::Inspect {
            store: store.clone(),
            snapshot: other,
        })
        .await,
    );
    assert_eq!(reason, FailureReason::SnapshotChanged);
}

#[tokio::test]
async fn a_store_that_refuses_says_why() {
    let Some(programs) = Programs::given() else {
        return;
    };
    let folder = Folder::new();
    let mut server = S3::start(&programs, &folder.0).await;
    let etcd = Etcd::start(&programs, VERSION, &folder.0.join("etcd")).await;
    let pod = Pod::new(&programs, VERSION, &folder.0);
    let endpoint = server.endpoint();
    let here = s3(&endpoint, "backups/etcd.backup");
    let order = |store: &Store| save(&etcd.url, store.clone(), Naming::Exact, "1", KEEP_ALL);
    let nowhere = s3(&endpoint, "nowhere/etcd.backup");
    for order in [order(&nowhere), inspect(nowhere, "etcd.backup")] {
        let (reason, message) = failed(pod.obey(order).await);
        assert_eq!(reason, FailureReason::BucketNotFound, "{message}");
        assert!(message.contains("\"nowhere\""), "{message}");
    }
    for (access, secret) in [("tester", "wrong"), ("stranger", "wrong")] {
        pod.credentials(access, secret);
        for order in [order(&here), inspect(here.clone(), "etcd.backup")] {
            let (reason, message) = failed(pod.obey(order).await);
            assert_eq!(reason, FailureReason::CredentialsInvalid, "{message}");
        }
    }
    fs::remove_file(pod.root.join(&mounts::CREDENTIALS[1..]).join("credentials")).unwrap();
    let (reason, message) = failed(pod.obey(order(&here)).await);
    assert_eq!(reason, FailureReason::CredentialsMissing, "{message}");
    pod.credentials(village::ACCESS, village::SECRET);

    server.down();
    for order in [order(&here), inspect(here.clone(), "etcd.backup")] {
        let (reason, message) = failed(pod.obey(order).await);
        assert_eq!(reason, FailureReason::StoreUnreachable, "{message}");
    }
    server.up().await;
    let facts = saved(pod.obey(order(&here)).await);
    assert_eq!(
        server.objects(""),
        ["etcd.backup", "etcd.backup.manifest.json"]
    );
    assert_eq!(sound(pod.obey(inspect(here, "etcd.backup")).await), facts);
}

#[tokio::test]
async fn a_wire_cut_in_the_middle_leaves_nothing_and_a_mended_one_goes_on() {
    let Some(programs) = Programs::given() else {
        return;
    };
    let folder = Folder::new();
    let server = S3::start(&programs, &folder.0).await;
    let etcd = Etcd::start(&programs, VERSION, &folder.0.join("etcd")).await;
    // More than three parts, compressed.
    fill(&etcd, 80, 900_000).await;
    let pod = Pod::new(&programs, VERSION, &folder.0);
    let wire = Wire::to(server.port);
    let store = s3(&wire.endpoint(), "backups/etcd.backup");
    let order = save(&etcd.url, store.clone(), Naming::Exact, "1", KEEP_ALL);

    wire.cut_after(7_000_000);
    let (reason, message) = failed(pod.obey(order.clone()).await);
    assert_eq!(reason, FailureReason::StoreUnreachable, "{message}");
    assert!(server.objects("").is_empty(), "half a backup is none");
    assert!(pod.scratch_is_empty());

    // Cut while it goes up, and mended before patience is at its end.
    wire.mend();
    wire.cut_after(9_000_000);
    let (report, ()) = tokio::join!(pod.obey(order), mend_once_cut(&wire));
    let facts = saved(report);
    assert!(facts.stored_size > 20_000_000, "{facts:?}");

    // The same on the way back.
    wire.cut_after(8_000_000);
    let (reason, message) = failed(pod.obey(inspect(store.clone(), "etcd.backup")).await);
    assert_eq!(reason, FailureReason::StoreUnreachable, "{message}");
    wire.mend();
    wire.cut_after(8_000_000);
    let (report, ()) = tokio::join!(
        pod.obey(inspect(store.clone(), "etcd.backup")),
        mend_once_cut(&wire)
    );
    assert_eq!(sound(report), facts);
}

async fn mend_once_cut(wire: &Wire) {
    eventually("the wire to be cut", || async {
        wire.is_cut().then_some(())
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    wire.mend();
}

#[tokio::test]
async fn retention_removes_what_is_ours_and_old_and_nothing_else() {
    let Some(programs) = Programs::given() else {
        return;
    };
    let folder = Folder::new();
    let server = S3::start(&programs, &folder.0).await;
    let etcd = Etcd::start(&programs, VERSION, &folder.0.join("etcd")).await;
    let pod = Pod::new(&programs, VERSION, &folder.0);
    let volume = pod.root.join(&mounts::VOLUME[1..]).join("dir");
    let pvc = Store::PVC(PvcStore {
        claim_name: Some("c".to_owned()),
        path: Some("dir/etcd.backup".to_owned()),
    });
    let bucket = s3(&server.endpoint(), &format!("{BUCKET}/dir/etcd.backup"));
    for (store, place) in [(bucket, server.object("dir")), (pvc, volume)] {
        fs::create_dir_all(&place).unwrap();
        let strangers = [
            "etcd.backup_v1_by-hand",
            "another",
            "etcd.backup_v9.manifest.json",
        ];
        for name in strangers {
            fs::write(place.join(name), "somebody's").unwrap();
        }
        let mut names = Vec::new();
        for (uid, revision) in [("other", 0), ("1", 1), ("1", 2), ("1", 3), ("1", 4)] {
            // Each at a revision of its own: within a second, that is what tells them apart.
            etcd.client()
                .await
                .unwrap()
                .put("key", revision.to_string(), None)
                .await
                .unwrap();
            let retention = Retention {
                count: Some(2),
                age_seconds: None,
            };
            let report = pod
                .obey(save(
                    &etcd.url,
                    store.clone(),
                    Naming::Repeated,
                    uid,
                    retention,
                ))
                .await;
            let Report::Saved {
                facts,
                kept,
                removed,
                prune_failure,
            } = report
            else {
                panic!("{report:?}")
            };
            assert_eq!(prune_failure, None);
            assert_eq!(
                (kept, removed),
                [(1, 0), (1, 0), (2, 0), (2, 1), (2, 1)][names.len()]
            );
            names.push(facts.snapshot);
        }
        let there = |name: &str| {
            Path::new(&place)
                .join(name.trim_start_matches("dir/"))
                .is_file()
        };
        let with_manifest = |name: &str| (there(name), there(&format!("{name}.manifest.json")));
        let left: Vec<_> = names.iter().map(|name| with_manifest(name)).collect();
        assert_eq!(
            left,
            [
                (true, true),
                (false, false),
                (false, false),
                (true, true),
                (true, true)
            ]
        );
        assert!(strangers.iter().all(|name| there(name)));

        // However old, the newest stays.
        let retention = Retention {
            count: Some(0),
            age_seconds: Some(0),
        };
        let report = pod
            .obey(save(
                &etcd.url,
                store.clone(),
                Naming::Repeated,
                "1",
                retention,
            ))
            .await;
        let Report::Saved { facts, kept, .. } = report else {
            panic!("{report:?}")
        };
        assert_eq!((kept, with_manifest(&facts.snapshot)), (1, (true, true)));
        assert_eq!(with_manifest(&names[0]), (true, true));
        assert_eq!(
            sound(pod.obey(inspect(store.clone(), &facts.snapshot)).await).revision,
            facts.revision
        );
    }
}

#[tokio::test]
async fn a_restore_that_is_killed_is_done_by_the_next_one() {
    let Some(programs) = Programs::given() else {
        return;
    };
    let folder = Folder::new();
    let server = S3::start(&programs, &folder.0).await;
    let etcd = Etcd::start(&programs, VERSION, &folder.0.join("etcd")).await;
    fill(&etcd, 60, 900_000).await;
    let pod = Pod::new(&programs, VERSION, &folder.0);
    let wire = Wire::to(server.port);
    let store = s3(&wire.endpoint(), "backups/etcd.backup");
    let facts = saved(
        pod.obey(save(&etcd.url, store.clone(), Naming::Exact, "1", KEEP_ALL))
            .await,
    );
    let peer = peer_url();
    let order = restore(store, &facts.snapshot, &peer, None);
    let volume = pod.root.join(&mounts::DATA[1..]);

    // Killed while it fetches: the wire is cut, so that it cannot be done before it is killed.
    wire.cut_after(24_000_000);
    let mut child = Command::new(env!("CARGO_BIN_EXE_etcd-operator-agent"))
        .env(etcd_operator_agent::ROOT, &pod.root)
        .env(ORDER, serde_json::to_string(&order).unwrap())
        .spawn()
        .unwrap();
    eventually("the wire to be cut", || async {
        wire.is_cut().then_some(())
    })
    .await;
    eventually("a part of it to be there", || async {
        volume.join("data.download").exists().then_some(())
    })
    .await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!volume.join("data").exists());

    // What a kill during the tool's work leaves.
    fs::create_dir_all(volume.join("data.restoring/member/snap")).unwrap();
    wire.mend();
    assert_eq!(
        pod.obey(order.clone()).await,
        Report::Restored { already: false }
    );
    let left: Vec<_> = fs::read_dir(&volume)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["data"]);

    // Killed after it was put in place: the next one only clears up.
    fs::write(volume.join("data.download"), "left").unwrap();
    assert_eq!(
        pod.obey(order.clone()).await,
        Report::Restored { already: true }
    );
    assert!(!volume.join("data.download").exists());
    let restored = Etcd::serve(&programs, VERSION, &data(&pod), &peer).await;
    let read = restored
        .client()
        .await
        .unwrap()
        .get("key-1", None)
        .await
        .unwrap();
    assert_eq!(read.kvs()[0].value(), b"and again");
}

#[tokio::test]
async fn what_is_there_and_no_member_is_not_touched() {
    let Some(programs) = Programs::given() else {
        return;
    };
    let folder = Folder::new();
    let server = S3::start(&programs, &folder.0).await;
    let pod = Pod::new(&programs, VERSION, &folder.0);
    fs::create_dir_all(data(&pod)).unwrap();
    fs::write(data(&pod).join("letter"), "mine").unwrap();
    let order = restore(s3(&server.endpoint(), "backups/x"), "x", &peer_url(), None);
    assert_eq!(failed(pod.obey(order).await).0, FailureReason::InvalidOrder);
    assert_eq!(
        fs::read_to_string(data(&pod).join("letter")).unwrap(),
        "mine"
    );
}

#[tokio::test]
async fn a_member_without_a_quorum_and_another_cluster_are_not_backed_up() {
    let Some(programs) = Programs::given() else {
        return;
    };
    let folder = Folder::new();
    let server = S3::start(&programs, &folder.0).await;
    let pod = Pod::new(&programs, VERSION, &folder.0);
    let alone = Etcd::without_quorum(&programs, VERSION, &folder.0.join("alone")).await;
    let store = s3(&server.endpoint(), "backups/etcd.backup");
    let (reason, message) = failed(
        pod.obey(save(
            &alone.url,
            store.clone(),
            Naming::Exact,
            "1",
            KEEP_ALL,
        ))
        .await,
    );
    assert_eq!(reason, FailureReason::NoQuorum, "{message}");

    let whole = Etcd::start(&programs, VERSION, &folder.0.join("whole")).await;
    let mut order = save(&whole.url, store.clone(), Naming::Exact, "1", KEEP_ALL);
    if let Order::Save { etcd, .. } = &mut order {
        etcd.cluster_id = Some("abc".to_owned());
    }
    assert_eq!(
        failed(pod.obey(order).await).0,
        FailureReason::DifferentCluster
    );
    let nobody = save("http://127.0.0.1:1", store, Naming::Exact, "1", KEEP_ALL);
    assert_eq!(
        failed(pod.obey(nobody).await).0,
        FailureReason::EtcdUnreachable
    );
    assert!(server.objects("").is_empty());
}

#[tokio::test]
async fn a_snapshot_with_any_byte_changed_is_refused_and_never_crashes_the_reader() {
    let Some(programs) = Programs::given() else {
        return;
    };
    let folder = Folder::new();
    let etcd = Etcd::start(&programs, VERSION, &folder.0.join("etcd")).await;
    fill(&etcd, 30, 300).await;
    let mut stream = etcd.client().await.unwrap().snapshot().await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = stream.message().await.unwrap() {
        bytes.extend_from_slice(piece.blob());
    }
    let path = folder.0.join("snapshot.db");
    fs::write(&path, &bytes).unwrap();
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let length = bytes.len() as u64;
    // The walk alone, without the hash that would catch everything before: it ends, whatever it meets.
    for at in (0..bytes.len() - 32).step_by(499) {
        file.write_at(&[bytes[at] ^ 0xff], at as u64).unwrap();
        if let Ok(mut bolt) = etcd_operator_agent::bolt::Bolt::open(&file, length) {
            let _ = etcd_operator_agent::status::Status::of(&mut bolt);
        }
        file.write_at(&bytes[at..=at], at as u64).unwrap();
    }
}

#[test]
fn the_program_copies_itself_and_says_how_it_ended() {
    let folder = Folder::new();
    let run = |order: &str| {
        fs::create_dir_all(folder.0.join("dev")).unwrap();
        fs::write(folder.0.join("dev/termination-log"), "").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_etcd-operator-agent"))
            .env(etcd_operator_agent::ROOT, &folder.0)
            .env(ORDER, order)
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let last = printed.lines().last().unwrap().to_owned();
        assert_eq!(
            fs::read_to_string(folder.0.join("dev/termination-log")).unwrap(),
            last
        );
        (
            output.status.code().unwrap(),
            serde_json::from_str::<Report>(&last).unwrap(),
        )
    };
    fs::create_dir_all(folder.0.join("var/tools")).unwrap();
    let install = serde_json::to_string(&Order::Install {
        to: format!("{}/agent", mounts::TOOLS),
    })
    .unwrap();
    assert_eq!(run(&install), (0, Report::Installed));
    let copy = folder.0.join("var/tools/agent");
    assert_eq!(
        fs::metadata(&copy).unwrap().len(),
        fs::metadata(env!("CARGO_BIN_EXE_etcd-operator-agent"))
            .unwrap()
            .len()
    );
    assert_eq!(run(&install).0, 0, "again");
    let (code, report) = run("{}");
    assert_eq!((code, failed(report).0), (1, FailureReason::InvalidOrder));
}
