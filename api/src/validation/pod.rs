//! `spec.pod`: what Kubernetes would refuse later is refused now; what no longer has a meaning is said.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason};
use super::text::Text;
use super::{labels, names};
use crate::quantity::{Amount, display_bytes};
use crate::v1beta2::PodPolicy;
use crate::validated::PodSettings;

const RESOURCES: &str = "spec.pod.resources";
const GRACE: &str = "spec.pod.terminationGracePeriodSeconds";
const GRACE_DEFAULT: u64 = 30;
const GRACE_MOST: u64 = 3600;

const LIMIT_BELOW_REQUEST: Text = Text("must have every limit at least as large as its request");
const GRACE_BOUNDS: Text =
    Text("must be between 1 and 3600 seconds; use 30 unless members need longer to stop");
const QUANTITY: Text = Text("must be a quantity that is not negative, such as 500m or 2Gi");

pub(super) fn read(
    pod: Option<&PodPolicy>,
    quota: Option<u64>,
    judgement: &mut Judgement,
) -> PodSettings {
    let unset = PodPolicy::default();
    let pod = pod.unwrap_or(&unset);
    labels::check_labels(pod.labels.as_ref(), "spec.pod.labels", judgement);
    labels::check_annotations(pod.annotations.as_ref(), "spec.pod.annotations", judgement);
    labels::check_selector(
        pod.node_selector.as_ref(),
        "spec.pod.nodeSelector",
        judgement,
    );
    if let Some(resources) = &pod.resources {
        check_resources(resources, quota, judgement);
    }
    check_names(pod, judgement);
    warn_of_the_past(pod, judgement);
    PodSettings {
        labels: pod.labels.clone().unwrap_or_default(),
        annotations: pod.annotations.clone().unwrap_or_default(),
        node_selector: pod.node_selector.clone().unwrap_or_default(),
        affinity: pod.affinity.clone(),
        // CoreOS's operator looked at it only where there was no affinity.
        anti_affinity: pod.anti_affinity == Some(true) && pod.affinity.is_none(),
        resources: pod.resources.clone(),
        tolerations: pod.tolerations.clone().unwrap_or_default(),
        topology_spread_constraints: pod.topology_spread_constraints.clone().unwrap_or_default(),
        environment: Vec::new(),
        security_context: pod.security_context.clone(),
        priority_class_name: pod.priority_class_name.clone(),
        service_account_name: pod.service_account_name.clone(),
        image_pull_secrets: pod.image_pull_secrets.clone().unwrap_or_default(),
        termination_grace_period: read_grace(pod.termination_grace_period_seconds, judgement),
    }
}

fn check_resources(
    resources: &ResourceRequirements,
    quota: Option<u64>,
    judgement: &mut Judgement,
) {
    let empty = BTreeMap::new();
    let limits = resources.limits.as_ref().unwrap_or(&empty);
    let requests = resources.requests.as_ref().unwrap_or(&empty);
    for (kind, amounts) in [("limits", limits), ("requests", requests)] {
        for (name, quantity) in amounts {
            if amount(quantity).is_none() {
                judgement.refuse(
                    format!("{RESOURCES}.{kind}[{name}]"),
                    Reason::QuantityInvalid,
                    QUANTITY.0,
                );
            }
        }
    }
    for (name, request) in requests {
        let limit = limits.get(name).and_then(amount);
        if let (Some(limit), Some(request)) = (limit, amount(request))
            && limit < request
        {
            let field = format!("{RESOURCES}.limits[{name}]");
            judgement.refuse(
                field,
                Reason::ResourceLimitBelowRequest,
                LIMIT_BELOW_REQUEST.0,
            );
        }
    }
    if let (Some(limit), Some(quota)) = (limits.get("memory"), quota)
        && let Some(bytes) = amount(limit).and_then(Amount::bytes)
        && bytes < quota
    {
        judgement.warn(
            "spec.pod.resources.limits[memory]",
            format!(
                "{} is less than the quota of {}: a full database may not fit",
                limit.0,
                display_bytes(quota)
            ),
        );
    }
}

fn amount(quantity: &Quantity) -> Option<Amount> {
    Amount::parse(quantity)
        .ok()
        .filter(|amount| *amount >= Amount::ZERO)
}

fn check_names(pod: &PodPolicy, judgement: &mut Judgement) {
    for (name, field) in [
        (&pod.priority_class_name, "spec.pod.priorityClassName"),
        (&pod.service_account_name, "spec.pod.serviceAccountName"),
        (&pod.cluster_domain, "spec.pod.ClusterDomain"),
    ] {
        // CoreOS wrote an empty string where it meant "not set".
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
            names::check_object_name(name, field, judgement);
        }
    }
    for (index, secret) in pod.image_pull_secrets.iter().flatten().enumerate() {
        names::check_object_name(
            &secret.name,
            &format!("spec.pod.imagePullSecrets[{index}]"),
            judgement,
        );
    }
}

fn warn_of_the_past(pod: &PodPolicy, judgement: &mut Judgement) {
    if pod.busybox_image.is_some() {
        judgement.warn(
            "spec.pod.busyboxImage",
            "no longer used: no Pod has a busybox container",
        );
    }
    if pod.dns_timeout_in_second.is_some() {
        judgement.warn(
            "spec.pod.DNSTimeoutInSecond",
            "no longer used: members wait for DNS by themselves",
        );
    }
    if pod.anti_affinity == Some(true) && pod.affinity.is_some() {
        judgement.warn("spec.pod.antiAffinity", "not used where `affinity` is set");
    }
}

fn read_grace(seconds: Option<i64>, judgement: &mut Judgement) -> Duration {
    let seconds = match seconds.map(u64::try_from) {
        None => GRACE_DEFAULT,
        Some(Ok(seconds)) if (1..=GRACE_MOST).contains(&seconds) => seconds,
        Some(_) => {
            judgement.refuse(GRACE, Reason::GraceOutOfBounds, GRACE_BOUNDS.0);
            GRACE_DEFAULT
        }
    };
    if seconds < GRACE_DEFAULT {
        judgement.warn(
            GRACE,
            "less than 30: a leader may be stopped before it has handed over",
        );
    }
    Duration::from_secs(seconds)
}

pub(super) fn cel() -> Vec<CelRule> {
    let fits = "!has(self.limits) || !has(self.requests) || self.requests.all(k, !(k in self.limits) || \
        !isQuantity(string(self.requests[k])) || !isQuantity(string(self.limits[k])) || \
        quantity(string(self.limits[k])).compareTo(quantity(string(self.requests[k]))) >= 0)";
    vec![
        rule(
            Reason::ResourceLimitBelowRequest,
            RESOURCES,
            fits,
            LIMIT_BELOW_REQUEST,
        ),
        rule(
            Reason::GraceOutOfBounds,
            GRACE,
            "self >= 1 && self <= 3600",
            GRACE_BOUNDS,
        ),
    ]
}
