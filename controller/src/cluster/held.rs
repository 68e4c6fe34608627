//! A resource that is held: nothing is touched, but whether a quorum serves is asked of etcd all the same.

use etcd_operator_api::{
    Policy, ValidatedCluster,
    v1beta2::{EtcdCluster, EtcdClusterSpec},
};

use super::{Context, observe};

/// Whether a quorum serves now; nothing where nobody can be asked.
pub(super) async fn available(context: &Context, object: &EtcdCluster) -> Option<bool> {
    let cluster = reachable(object, &context.policy)?;
    observe::is_served(context, object, &cluster).await.ok()
}

/// What it takes to reach the members: their names, and how clients are let in. What is wrong may be anything else.
fn reachable(object: &EtcdCluster, policy: &Policy) -> Option<ValidatedCluster> {
    let spec = EtcdClusterSpec {
        security: object.spec.security.clone(),
        tls: object.spec.tls.clone(),
        ..EtcdClusterSpec::default()
    };
    let plain = EtcdCluster {
        spec,
        ..object.clone()
    };
    ValidatedCluster::new(&plain, policy).ok()
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::validated::ClientTls;
    use serde_json::json;

    use super::*;
    use crate::cluster::fixtures::object;

    #[test]
    fn a_spec_that_is_not_sound_still_says_how_its_members_are_reached() {
        let wrong = object(json!({
            "size": 4,
            "options": {"electionTimeout": "1ms"},
            "security": {"clientTLS": {"mode": "Auto"}},
        }));
        assert!(ValidatedCluster::new(&wrong, &Policy::default()).is_err());
        let found = reachable(&wrong, &Policy::default()).unwrap();
        assert_eq!(found.client_tls, ClientTls::Auto { client_auth: true });
        let unreadable = object(json!({"security": {"clientTLS": {"mode": "Secret"}}}));
        assert!(reachable(&unreadable, &Policy::default()).is_none());
    }
}
