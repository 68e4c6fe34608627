//! The watch caches: what they keep, whom they wake, and waiting for them by many at once.

use std::{convert::Infallible, future::pending, pin::pin, time::Duration};

use futures::StreamExt;
use http::{Request, Response};
use k8s_openapi::api::{
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, PodSpec, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::{Api, Client, client::Body, runtime::watcher::Event};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower::service_fn;

use super::{
    Stores,
    cache::{Cache, Filling, cache, watch_children},
    children::services,
    fixtures,
};

#[tokio::test]
async fn everyone_who_waits_for_the_caches_is_woken() {
    let (pods, mut filling_pods) = cache::<Pod>();
    let (claims, mut filling_claims) = cache::<PersistentVolumeClaim>();
    let (services, mut filling_services) = cache::<Service>();
    let (config_maps, mut filling_config_maps) = cache::<ConfigMap>();
    let (budgets, mut filling_budgets) = cache::<PodDisruptionBudget>();
    let stores = Stores {
        pods,
        claims,
        services,
        config_maps,
        budgets,
    };
    // Tasks, as the runtime makes of passes: each has a waker of its own.
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let stores = stores.clone();
            tokio::spawn(async move { stores.wait_until_ready().await })
        })
        .collect();
    // So that all of them wait before the first cache is filled.
    for _ in 0..waiting.len() {
        tokio::task::yield_now().await;
    }
    filling_pods.note(Event::InitDone);
    filling_claims.note(Event::InitDone);
    filling_services.note(Event::InitDone);
    filling_config_maps.note(Event::InitDone);
    filling_budgets.note(Event::InitDone);
    for one in waiting {
        tokio::time::timeout(Duration::from_secs(30), one)
            .await
            .expect("it is woken")
            .unwrap()
            .unwrap();
    }
}

const UID: &str = "11111111-2222-3333-4444-555555555555";

/// A child of this name that says it is of that cluster.
fn child<K: DeserializeOwned>(name: &str, cluster: &str, rest: &Value) -> K {
    let mut object = json!({"metadata": {
        "name": name,
        "namespace": "n",
        "labels": {"etcd_cluster": cluster},
        "ownerReferences": [{"apiVersion": "v1", "kind": "EtcdCluster", "name": cluster, "uid": UID}],
    }});
    for (key, value) in rest.as_object().unwrap() {
        object[key] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn ready(status: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": status}]}})
}

fn names<Facts>(cache: &Cache<Facts>) -> Vec<String> {
    let mut names: Vec<_> = cache
        .of(&fixtures::cluster(json!({})))
        .iter()
        .map(|child| child.name.clone())
        .collect();
    names.sort();
    names
}

/// The clusters that an event wakes.
fn woken<K: super::cache::Child>(filling: &mut Filling<K>, event: Event<K>) -> Vec<String> {
    let mut woken: Vec<_> = filling
        .note(event)
        .into_iter()
        .map(|cluster| cluster.name)
        .collect();
    woken.sort();
    woken
}

#[test]
fn a_readiness_that_flips_wakes_the_cluster_and_what_nobody_reads_does_not() {
    let (cache, mut filling) = cache::<Pod>();
    let pod = |status: &str| child::<Pod>("c-a", "c", &ready(status));
    assert_eq!(woken(&mut filling, Event::Apply(pod("True"))), ["c"]);
    assert_eq!(woken(&mut filling, Event::Apply(pod("False"))), ["c"]);
    let mut same = pod("False");
    same.metadata.resource_version = Some("2".to_owned());
    same.spec = Some(PodSpec::default());
    assert!(woken(&mut filling, Event::Apply(same)).is_empty());
    assert_eq!(woken(&mut filling, Event::Delete(pod("False"))), ["c"]);
    assert!(names(&cache).is_empty());
}

#[test]
fn a_new_list_takes_the_place_of_all_that_was_known_and_wakes_those_it_changes() {
    let (cache, mut filling) = cache::<Pod>();
    for (name, cluster) in [("c-a", "c"), ("c-b", "c"), ("d-a", "d"), ("e-a", "e")] {
        filling.note(Event::Apply(child(name, cluster, &ready("True"))));
    }
    filling.note(Event::Init);
    filling.note(Event::InitApply(child("c-b", "c", &ready("True"))));
    filling.note(Event::InitApply(child("d-a", "d", &ready("True"))));
    // Until the list is whole, it says nothing of what it lacks.
    assert_eq!(names(&cache), ["c-a", "c-b"]);
    assert_eq!(woken(&mut filling, Event::InitDone), ["c", "e"]);
    assert_eq!(names(&cache), ["c-b"]);
}

#[test]
fn a_child_whose_label_is_changed_leaves_the_cluster_it_was_in() {
    let (cache, mut filling) = cache::<Pod>();
    filling.note(Event::Apply(child("c-a", "c", &ready("True"))));
    let moved = child("c-a", "d", &ready("True"));
    assert_eq!(woken(&mut filling, Event::Apply(moved)), ["c", "d"]);
    assert!(names(&cache).is_empty());
}

#[test]
fn a_service_agrees_until_somebody_takes_a_port_away() {
    let cluster = fixtures::cluster(json!({}));
    let wanted = services::headless(&cluster);
    let mut live = wanted.clone();
    live.metadata.resource_version = Some("7".to_owned());
    live.spec.as_mut().unwrap().session_affinity = Some("None".to_owned());
    let (cache, mut filling) = cache::<Service>();
    filling.note(Event::Apply(live.clone()));
    let agrees = || {
        let known = cache.of(&cluster);
        known[0].belongs(&cluster) && known[0].facts.agrees(&wanted)
    };
    // The second time nothing is parsed any more.
    assert!(agrees() && agrees());
    live.spec.as_mut().unwrap().ports.as_mut().unwrap().pop();
    assert_eq!(woken(&mut filling, Event::Apply(live)), ["c"]);
    assert!(!agrees());
}

#[tokio::test]
async fn only_what_carries_our_label_is_asked_for() {
    let (asked, mut questions) = mpsc::unbounded_channel();
    let silent = service_fn(move |request: Request<Body>| {
        let _ = asked.send(request.uri().to_string());
        pending::<Result<Response<Body>, Infallible>>()
    });
    let (changes, _cache) = watch_children::<Pod>(Api::all(Client::new(silent, "n")));
    let mut changes = pin!(changes);
    let question = tokio::select! {
        question = questions.recv() => question.unwrap(),
        woken = changes.next() => panic!("{woken:?} was woken by nothing"),
    };
    let label = "labelSelector=app.kubernetes.io%2Fmanaged-by%3Detcd-operator";
    assert!(question.contains(label), "{question}");
}
