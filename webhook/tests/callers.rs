//! With an authority of callers, only who shows a certificate of it is answered.

#![allow(clippy::unwrap_used)]

#[path = "rig/reviews.rs"]
mod reviews;
mod rig;

use std::sync::Arc;
use std::time::Duration;

use etcd_operator_certs::{CertificateAuthority, HotClientCheck, Leaf, LeafRequest, Usage};
use jiff::Timestamp;
use reviews::{cluster, create};
use rig::{Webhook, quick, start_checking};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn authority(name: &str) -> CertificateAuthority {
    CertificateAuthority::generate(name, Timestamp::now(), Duration::from_hours(1)).unwrap()
}

fn identity(authority: &CertificateAuthority, usage: Usage) -> Leaf {
    let request = LeafRequest {
        common_name: "kube-apiserver".to_owned(),
        names: vec!["kube-apiserver".parse().unwrap()],
        usage,
        lifetime: Duration::from_mins(30),
    };
    authority.issue(&request, Timestamp::now()).unwrap()
}

/// Whether a review of this caller is answered. In TLS 1.3 a client learns only when it reads that its certificate was refused.
async fn is_answered(webhook: &Webhook, identity: Option<&Leaf>) -> bool {
    let Ok(mut stream) = webhook.try_tls_as(&["http/1.1"], identity).await else {
        return false;
    };
    let body = create(cluster(json!({"size": 3}))).to_string();
    let request = format!(
        "POST /validate-etcdcluster HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let _refused = stream.write_all(request.as_bytes()).await;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.is_ok() && &answer == b"HTTP/1.1 200"
}

#[tokio::test]
async fn only_a_certificate_of_the_right_authority_gets_in() {
    let callers = authority("callers");
    let check = HotClientCheck::from_pem(callers.certificate_pem().as_bytes()).unwrap();
    let webhook = start_checking(quick(), None, Some(Arc::new(check))).await;
    assert!(is_answered(&webhook, Some(&identity(&callers, Usage::Client))).await);
    assert!(!is_answered(&webhook, None).await);
    assert!(
        !is_answered(
            &webhook,
            Some(&identity(&authority("others"), Usage::Client))
        )
        .await
    );
    assert!(!is_answered(&webhook, Some(&identity(&callers, Usage::Server))).await);
}

#[tokio::test]
async fn authorities_of_callers_are_swapped_in_place_and_a_bad_bundle_changes_nothing() {
    let (old, new) = (authority("old"), authority("new"));
    let check = HotClientCheck::from_pem(old.certificate_pem().as_bytes()).unwrap();
    let webhook = start_checking(quick(), None, Some(Arc::new(check.clone()))).await;
    for bad in ["", "garbage"] {
        assert!(check.swap(bad.as_bytes()).is_err());
        assert!(is_answered(&webhook, Some(&identity(&old, Usage::Client))).await);
    }
    check.swap(new.certificate_pem().as_bytes()).unwrap();
    assert!(is_answered(&webhook, Some(&identity(&new, Usage::Client))).await);
    assert!(!is_answered(&webhook, Some(&identity(&old, Usage::Client))).await);
}
