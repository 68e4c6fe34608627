//! Waiting for the watch caches: by many at once, as when a new leader finds many clusters.

use std::{sync::Arc, time::Duration};

use kube::runtime::{
    reflector::{Store, store, store::Writer},
    watcher::Event,
};

use super::Stores;

fn cache<K>() -> (Store<K>, Writer<K>)
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    store()
}

#[tokio::test]
async fn everyone_who_waits_for_the_caches_is_woken() {
    let (pods, mut filling_pods) = cache();
    let (claims, mut filling_claims) = cache();
    let (services, mut filling_services) = cache();
    let (config_maps, mut filling_config_maps) = cache();
    let (budgets, mut filling_budgets) = cache();
    let stores = Stores {
        pods,
        claims,
        services,
        config_maps,
        budgets,
        filled: Arc::default(),
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
    filling_pods.apply_watcher_event(&Event::InitDone);
    filling_claims.apply_watcher_event(&Event::InitDone);
    filling_services.apply_watcher_event(&Event::InitDone);
    filling_config_maps.apply_watcher_event(&Event::InitDone);
    filling_budgets.apply_watcher_event(&Event::InitDone);
    for one in waiting {
        tokio::time::timeout(Duration::from_secs(30), one)
            .await
            .expect("it is woken")
            .unwrap()
            .unwrap();
    }
}
