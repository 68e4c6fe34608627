//! Certificates that someone else keeps in files: read when they change, refused when bad, published where asked, without a gap.

#![allow(clippy::unwrap_used)]

mod village;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use etcd_operator_certs::kubernetes::{MountSettings, MountedKeeper, Place, Publish, Standing};
use etcd_operator_certs::{
    CertError, CertificateAuthority, HotResolver, LeafRequest, Pair, Usage, certificates_in,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use village::Village;

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const NAME: &str = "w.ns.svc";

fn now() -> Timestamp {
    "2026-12-01T12:00:00Z".parse().unwrap()
}

/// A mount as the kubelet makes one: files are links through `..data`, which is swapped.
struct Mount {
    folder: PathBuf,
    version: usize,
}

impl Mount {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("mounted-{}-{count}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self { folder, version: 0 }
    }

    fn put(&mut self, files: &[(&str, &str)]) {
        self.version += 1;
        let version = format!("..{}", self.version);
        let folder = self.folder.join(&version);
        fs::create_dir(&folder).unwrap();
        for (name, content) in files {
            fs::write(folder.join(name), content).unwrap();
            let link = self.folder.join(name);
            if !link.is_symlink() {
                symlink(Path::new("..data").join(name), link).unwrap();
            }
        }
        symlink(&version, self.folder.join("..next")).unwrap();
        fs::rename(self.folder.join("..next"), self.folder.join("..data")).unwrap();
    }

    fn put_pair(&mut self, authority: &CertificateAuthority, name: &str, hours: u64) {
        let (certificate, key) = issue(authority, name, hours);
        let ca = authority.certificate_pem();
        self.put(&[("tls.crt", &certificate), ("tls.key", &key), ("ca.crt", ca)]);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _left_behind = fs::remove_dir_all(&self.folder);
    }
}

fn authority(name: &str) -> CertificateAuthority {
    CertificateAuthority::generate(name, now(), Duration::from_hours(9999)).unwrap()
}

fn issue(authority: &CertificateAuthority, name: &str, hours: u64) -> (String, String) {
    let request = LeafRequest {
        common_name: name.to_owned(),
        names: vec![name.parse().unwrap()],
        usage: Usage::Server,
        lifetime: Duration::from_hours(hours),
    };
    let leaf = authority.issue(&request, now()).unwrap();
    (leaf.certificate_pem().to_owned(), leaf.key_pem().to_owned())
}

fn configuration(bundle: &str) -> Value {
    let bundle = STANDARD.encode(bundle);
    json!({"metadata": {"name": "m", "uid": "u"}, "webhooks": [{"name": "a", "clientConfig": {"caBundle": bundle}}]})
}

fn published(village: &Village) -> String {
    let object = village.get(MUTATING, "m").unwrap();
    let bundle = object["webhooks"][0]["clientConfig"]["caBundle"]
        .as_str()
        .unwrap();
    String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap()
}

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Option<Standing>>>);

impl Told {
    fn problem(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap()
            .as_ref()
            .map_or(Some("silent".to_owned()), |s| s.problem.clone())
    }

    fn is_ready(&self) -> bool {
        self.problem().is_none()
    }

    /// Leaves are told apart by how long they live.
    fn serves_for_hours(&self) -> Option<i64> {
        let told = self.0.lock().unwrap();
        let expires = told.as_ref()?.leaf_expires?;
        Some((expires.as_second() - now().as_second()) / 3600)
    }
}

fn keep(mount: &Mount, village: &Village, places: &[Place], publish: Publish) -> Told {
    let settings = MountSettings {
        directory: mount.folder.clone(),
        server_name: NAME.to_owned(),
        places: places.to_vec(),
        publish,
    };
    let keeper = MountedKeeper::start(village.client(), settings, HotResolver::new(), now).unwrap();
    let told = Told::default();
    let report = told.clone();
    tokio::spawn(keeper.run(move |standing: &Standing| {
        *report.0.lock().unwrap() = Some(standing.clone());
    }));
    told
}

fn place() -> Vec<Place> {
    vec![Place::MutatingWebhookConfiguration("m".to_owned())]
}

/// In virtual time.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(holds(), "never: {what}");
}

async fn rest() {
    tokio::time::sleep(Duration::from_mins(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_pair_is_served_and_a_bad_one_is_refused_while_the_old_stays() {
    let (ca, mut mount) = (authority("ca"), Mount::new());
    mount.put_pair(&ca, NAME, 10);
    let told = keep(&mount, &Village::default(), &[], Publish::Theirs);
    until("ready", || told.is_ready()).await;
    assert_eq!(told.serves_for_hours(), Some(10));

    let (certificate, key) = issue(&ca, NAME, 20);
    let (_, other_key) = issue(&ca, NAME, 20);
    for bad in [
        [
            ("tls.crt", certificate.as_str()),
            ("tls.key", other_key.as_str()),
        ],
        [("tls.crt", "garbage"), ("tls.key", key.as_str())],
        [("tls.crt", certificate.as_str()), ("tls.key", "garbage")],
        [
            ("tls.crt", certificate.as_str()),
            ("ca.crt", "no key at all"),
        ],
    ] {
        mount.put(&bad);
        rest().await;
        assert_eq!(
            (told.problem(), told.serves_for_hours()),
            (None, Some(10)),
            "{bad:?}"
        );
    }
    mount.put_pair(&ca, "other.ns.svc", 20);
    rest().await;
    assert_eq!((told.problem(), told.serves_for_hours()), (None, Some(10)));

    mount.put_pair(&ca, NAME, 30);
    until("the new pair", || told.serves_for_hours() == Some(30)).await;
    assert!(told.is_ready());
}

#[tokio::test(start_paused = true)]
async fn nothing_usable_at_the_start_is_told_and_mended_without_a_restart() {
    let (ca, mut mount) = (authority("ca"), Mount::new());
    mount.put(&[("tls.crt", "garbage"), ("tls.key", "garbage")]);
    let told = keep(&mount, &Village::default(), &[], Publish::Theirs);
    rest().await;
    let problem = told.problem().unwrap();
    assert!(problem.contains("no usable certificate in"), "{problem}");
    mount.put_pair(&ca, NAME, 10);
    until("ready", || told.is_ready()).await;

    let settings = MountSettings {
        directory: mount.folder.join("missing"),
        server_name: NAME.to_owned(),
        places: Vec::new(),
        publish: Publish::Theirs,
    };
    let village = Village::default();
    let error = MountedKeeper::start(village.client(), settings, HotResolver::new(), now);
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("is not a directory")
    );
}

#[tokio::test(start_paused = true)]
async fn the_authority_is_published_beside_what_is_there_and_replicas_that_differ_do_not_fight() {
    let (old, new, village) = (authority("old"), authority("new"), Village::default());
    village.set(MUTATING, "m", configuration(""));
    let (mut early, mut late) = (Mount::new(), Mount::new());
    early.put_pair(&old, NAME, 10);
    late.put_pair(&old, NAME, 10);
    let [early_told, late_told] =
        [&early, &late].map(|mount| keep(mount, &village, &place(), Publish::Ours));
    until("both ready", || {
        early_told.is_ready() && late_told.is_ready()
    })
    .await;
    assert_eq!(
        certificates_in(published(&village).as_bytes())
            .unwrap()
            .len(),
        1
    );

    // One kubelet is ahead of the other.
    early.put_pair(&new, NAME, 20);
    until("the new pair", || early_told.serves_for_hours() == Some(20)).await;
    assert_eq!(
        certificates_in(published(&village).as_bytes())
            .unwrap()
            .len(),
        2
    );
    let writes = village.writes();
    rest().await;
    assert!(early_told.is_ready() && late_told.is_ready());
    assert_eq!(late_told.serves_for_hours(), Some(10));
    late.put_pair(&new, NAME, 20);
    until("the new pair", || late_told.serves_for_hours() == Some(20)).await;
    rest().await;
    assert_eq!(village.writes(), writes);

    // Removed by someone: put back, and only what is in use.
    village.set(MUTATING, "m", configuration(""));
    until("restored", || {
        published(&village) == new.certificate_pem().trim_end().to_owned() + "\n"
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_another_publishes_is_only_read_and_a_new_authority_waits_for_it() {
    let (old, new, village) = (authority("old"), authority("new"), Village::default());
    village.set(MUTATING, "m", configuration(""));
    let mut mount = Mount::new();
    mount.put_pair(&old, NAME, 10);
    let told = keep(&mount, &village, &place(), Publish::Theirs);
    rest().await;
    assert!(told.problem().unwrap().contains("does not trust"));
    village.set(MUTATING, "m", configuration(old.certificate_pem()));
    until("ready", || told.is_ready()).await;

    mount.put_pair(&new, NAME, 20);
    rest().await;
    assert_eq!((told.problem(), told.serves_for_hours()), (None, Some(10)));
    village.set(MUTATING, "m", configuration(new.certificate_pem()));
    until("the new pair", || told.serves_for_hours() == Some(20)).await;
    assert!(told.is_ready());
    assert_eq!(village.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_authority_that_did_not_sign_the_pair_is_never_published() {
    let (ca, other, village) = (authority("ca"), authority("other"), Village::default());
    village.set(MUTATING, "m", configuration(ca.certificate_pem()));
    let mut mount = Mount::new();
    let (certificate, key) = issue(&ca, NAME, 10);
    let told = {
        let foreign = other.certificate_pem();
        mount.put(&[
            ("tls.crt", &certificate),
            ("tls.key", &key),
            ("ca.crt", foreign),
        ]);
        keep(&mount, &village, &place(), Publish::Ours)
    };
    rest().await;
    let problem = told.problem().unwrap();
    assert!(
        problem.contains("must be the authority that signed"),
        "{problem}"
    );
    assert_eq!(village.writes(), 0);
}

#[test]
fn keys_of_every_form_that_tools_write_are_read() {
    for (certificate, key) in [
        (
            include_str!("fixtures/rsa.crt"),
            include_str!("fixtures/rsa-pkcs1.key"),
        ),
        (
            include_str!("fixtures/ec.crt"),
            include_str!("fixtures/ec-sec1.key"),
        ),
    ] {
        let pair = Pair::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        pair.is_for(NAME, now()).unwrap();
        assert!(matches!(
            pair.is_for("x.ns.svc", now()),
            Err(CertError::NotForName(_))
        ));
        let late = "2226-01-01T00:00:00Z".parse().unwrap();
        assert!(matches!(
            pair.is_for(NAME, late),
            Err(CertError::NotValidNow { .. })
        ));
    }
    let mixed = Pair::from_pem(
        include_bytes!("fixtures/rsa.crt"),
        include_bytes!("fixtures/ec-sec1.key"),
    );
    assert!(mixed.is_err());
}
