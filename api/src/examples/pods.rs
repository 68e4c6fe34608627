//! What breaks the rules of the members' Pods and of the Service.

use serde_json::{Value, json};

use super::{Example, made};
use crate::validation::Reason;

pub(super) fn of_pods() -> Vec<Example> {
    use Reason::{
        AnnotationInvalid, AnnotationReserved, GraceOutOfBounds, LabelInvalid, LabelReserved,
        NameInvalid, ResourceLimitBelowRequest,
    };
    let pod = |pod: Value| json!({"pod": pod});
    vec![
        made(
            LabelReserved,
            "a label of the operator's",
            pod(json!({"labels": {"etcd_cluster": "other"}})),
        ),
        made(
            LabelReserved,
            "a label of the operator's on the Service",
            json!({"service": {"client": {"labels": {"app": "mine"}}}}),
        ),
        made(
            LabelInvalid,
            "no label",
            pod(json!({"labels": {"team": "a b"}})),
        )
        .webhook_only(),
        made(
            AnnotationReserved,
            "an annotation of the operator's",
            pod(json!({"annotations": {"etcd.version": "3"}})),
        ),
        made(
            AnnotationInvalid,
            "no annotation",
            pod(json!({"annotations": {"a b": "c"}})),
        )
        .webhook_only(),
        made(
            ResourceLimitBelowRequest,
            "a limit below the request",
            pod(json!({"resources": {"limits": {"memory": "1Gi"}, "requests": {"memory": "2Gi"}}})),
        ),
        made(
            NameInvalid,
            "no name of a PriorityClass",
            pod(json!({"priorityClassName": "Very High"})),
        )
        .webhook_only(),
        made(
            GraceOutOfBounds,
            "no time to stop",
            pod(json!({"terminationGracePeriodSeconds": 0})),
        ),
    ]
}
