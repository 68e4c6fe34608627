//! Metrics under the names that dashboards already know. Touches nothing but memory.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// Buckets of `controller_runtime_reconcile_time_seconds`, as controller-runtime has them.
pub const RECONCILE_SECONDS: [f64; 42] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0, 120.0, 300.0,
];

/// Buckets of `controller_runtime_webhook_latency_seconds`: controller-runtime's, and below them the range where we live.
pub const WEBHOOK_SECONDS: [f64; 15] = [
    0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    10.0,
];

/// Buckets of `workqueue_queue_duration_seconds` and `workqueue_work_duration_seconds`, as client-go has them.
pub const WORKQUEUE_SECONDS: [f64; 10] =
    [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

/// A registry that already says which build this is.
pub fn registry(version: &'static str) -> Registry {
    let mut registry = Registry::default();
    registry.register(
        "etcd_operator_build",
        "Which build of the operator this is",
        Info::new([("version", version)]),
    );
    registry
}

/// `rest_client_requests_total`: what this process asks of the API server.
#[derive(Clone, Debug, Default)]
pub struct RestRequests(Family<RestRequest, Counter>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RestRequest {
    code: String,
    host: String,
    method: String,
}

impl RestRequests {
    pub fn register(registry: &mut Registry) -> Self {
        let requests = Self::default();
        registry.register(
            "rest_client_requests",
            "Number of HTTP requests to the API server, by status code, method, and host",
            requests.0.clone(),
        );
        requests
    }

    /// `code` is none where no answer came.
    pub fn count(&self, method: &str, code: Option<u16>, host: &str) {
        let label = RestRequest {
            code: code.map_or_else(|| "<error>".to_owned(), |code| code.to_string()),
            host: host.to_owned(),
            method: method.to_owned(),
        };
        self.0.get_or_create(&label).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[test]
    fn requests_are_counted_under_the_name_client_go_uses() {
        let mut registry = registry("1.2.3");
        let requests = RestRequests::register(&mut registry);
        requests.count("GET", Some(200), "10.0.0.1:443");
        requests.count("GET", None, "10.0.0.1:443");
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "rest_client_requests_total{code=\"200\",host=\"10.0.0.1:443\",method=\"GET\"} 1",
            "rest_client_requests_total{code=\"<error>\",host=\"10.0.0.1:443\",method=\"GET\"} 1",
            "etcd_operator_build_info{version=\"1.2.3\"} 1",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn buckets_rise() {
        for buckets in [
            &RECONCILE_SECONDS[..],
            &WEBHOOK_SECONDS[..],
            &WORKQUEUE_SECONDS[..],
        ] {
            assert!(buckets.is_sorted());
        }
    }
}
