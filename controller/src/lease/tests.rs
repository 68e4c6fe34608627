//! Two controllers and one lease, on an API server of a single object, in virtual time.

use std::{
    convert::Infallible,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;

/// Keeps one lease, as the API server does: a write from an old version of it is a conflict.
#[derive(Clone, Default)]
struct ApiServer {
    lease: Arc<Mutex<Option<Value>>>,
}

impl ApiServer {
    /// A client of it that hears nothing any more once the line is cut.
    fn client(&self, cut: &Arc<AtomicBool>) -> Client {
        let (server, cut) = (self.clone(), Arc::clone(cut));
        let service = service_fn(move |request: Request<Body>| {
            let (server, cut) = (server.clone(), Arc::clone(&cut));
            async move {
                if cut.load(Ordering::Relaxed) {
                    pending::<()>().await;
                }
                Ok::<_, Infallible>(server.answer(request).await)
            }
        });
        Client::new(service, "ops")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let method = request.method().clone();
        let bytes = request.into_body().collect_bytes().await.unwrap();
        let mut lease = self.lease.lock().unwrap();
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        let (code, answer) = match (method, lease.as_ref()) {
            (Method::GET, Some(lease)) => (StatusCode::OK, lease.clone()),
            (Method::GET, None) => failure(StatusCode::NOT_FOUND, "NotFound"),
            (Method::POST, Some(_)) => failure(StatusCode::CONFLICT, "AlreadyExists"),
            (_, known) => {
                let mut written: Value = serde_json::from_slice(&bytes).unwrap();
                if known.is_some_and(|known| version(known) != version(&written)) {
                    failure(StatusCode::CONFLICT, "Conflict")
                } else {
                    let next = known.map_or(1, |known| {
                        version(known).as_str().unwrap().parse::<u64>().unwrap() + 1
                    });
                    written["metadata"]["resourceVersion"] = next.to_string().into();
                    *lease = Some(written.clone());
                    (StatusCode::OK, written)
                }
            }
        };
        Response::builder()
            .status(code)
            .body(Body::from(answer.to_string().into_bytes()))
            .unwrap()
    }
}

fn failure(code: StatusCode, reason: &str) -> (StatusCode, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code.as_u16(),
    });
    (code, status)
}

fn candidate(identity: &str) -> Candidate {
    Candidate {
        namespace: "ops".to_owned(),
        lease: "controller".to_owned(),
        identity: identity.to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn who_can_no_longer_renew_has_ended_before_another_can_act() {
    let server = ApiServer::default();
    let (cut, never) = (Arc::default(), Arc::default());
    let (first, second) = (server.client(&cut), server.client(&never));
    let leadership = acquire(&first, &candidate("first")).await.unwrap();
    let kept = leadership.clone();
    let first_ends = tokio::spawn(async move {
        let lost = keep(&first, &candidate("first"), &kept).await;
        (lost, Instant::now())
    });
    // It is renewed for as long as the line stands, and nobody else gets it.
    let waiting = tokio::spawn(async move {
        acquire(&second, &candidate("second")).await.unwrap();
        Instant::now()
    });
    tokio::time::sleep(LEASE_DURATION * 4).await;
    assert!(leadership.held() && !waiting.is_finished());

    cut.store(true, Ordering::Relaxed);
    let second_acts = waiting.await.unwrap();
    assert!(!leadership.held());
    assert!(first_ends.is_finished(), "the first is still there");
    let (lost, ended) = first_ends.await.unwrap();
    assert!(matches!(lost, LeaseError::Expired { .. }), "{lost}");
    // Room for a process to come to its end.
    assert!(second_acts >= ended + RETRY);
}

#[tokio::test(start_paused = true)]
async fn one_answer_that_never_comes_does_not_cost_the_lease() {
    let server = ApiServer::default();
    let cut = Arc::new(AtomicBool::new(false));
    let client = server.client(&cut);
    let leadership = acquire(&client, &candidate("first")).await.unwrap();
    let kept = leadership.clone();
    let keeping = tokio::spawn(async move { keep(&client, &candidate("first"), &kept).await });
    tokio::time::sleep(LEASE_DURATION).await;
    // What is asked while the line is cut is never answered, also not when it stands again.
    cut.store(true, Ordering::Relaxed);
    tokio::time::sleep(RETRY + Duration::from_millis(500)).await;
    cut.store(false, Ordering::Relaxed);
    tokio::time::sleep(LEASE_DURATION * 2).await;
    assert!(leadership.held() && !keeping.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_has_taken_is_lost_at_the_next_look() {
    let server = ApiServer::default();
    let client = server.client(&Arc::default());
    let leadership = acquire(&client, &candidate("first")).await.unwrap();
    server.lease.lock().unwrap().as_mut().unwrap()["spec"]["holderIdentity"] = "thief".into();
    let lost = keep(&client, &candidate("first"), &leadership).await;
    assert!(matches!(lost, LeaseError::Taken { holder, .. } if holder == "thief"));
    assert!(!leadership.held(), "no write may begin any more");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_up_is_free_at_once() {
    let server = ApiServer::default();
    let client = server.client(&Arc::default());
    acquire(&client, &candidate("first")).await.unwrap();
    release(&client, &candidate("first")).await;
    let started = Instant::now();
    acquire(&client, &candidate("second")).await.unwrap();
    assert!(started.elapsed() < RETRY);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_for_a_moment_ends_nobody_who_only_waits() {
    let server = ApiServer::default();
    let first = server.client(&Arc::default());
    let holder = acquire(&first, &candidate("first")).await.unwrap();
    drop(holder);
    let troubles = Arc::new(AtomicBool::new(true));
    let (other, away) = (server.clone(), Arc::clone(&troubles));
    let second = Client::new(
        service_fn(move |request: Request<Body>| {
            let (server, away) = (other.clone(), Arc::clone(&away));
            async move {
                if away.swap(false, Ordering::Relaxed) {
                    return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
                }
                Ok(server.answer(request).await)
            }
        }),
        "ops",
    );
    acquire(&second, &candidate("second")).await.unwrap();
    assert!(!troubles.load(Ordering::Relaxed));
}
