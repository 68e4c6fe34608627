//! A resource that is held: nothing is touched, but whether a quorum serves is asked of etcd all the same.

use etcd_operator_api::{
    Policy, ValidatedCluster,
    v1beta2::{ClientTlsSpec, EtcdCluster, EtcdClusterSpec, SecuritySpec},
};

use super::{Context, observe};

/// Whether a quorum serves now; nothing where nobody can be asked.
pub(super) async fn available(context: &Context, object: &EtcdCluster) -> Option<bool> {
    let status = object.status.as_ref();
    if status.is_some_and(|status| status.is_of_coreos() && status.bootstrap.is_none()) {
        // Its pods are not among those that are watched.
        return None;
    }
    let cluster = reachable(object, &context.policy)?;
    observe::is_served(context, object, &cluster).await.ok()
}

/// What it takes to reach the members: their names, and how clients are let in. What is wrong may be anything else. Where that is how
/// clients are let in, members still let them in as they did.
fn reachable(object: &EtcdCluster, policy: &Policy) -> Option<ValidatedCluster> {
    let mut plain = EtcdCluster {
        spec: EtcdClusterSpec {
            security: object.spec.security.clone(),
            tls: object.spec.tls.clone(),
            ..EtcdClusterSpec::default()
        },
        ..object.clone()
    };
    // Storage and the members' own TLS need not be as they were to ask.
    let accepted = plain
        .status
        .as_mut()
        .and_then(|status| status.accepted.take());
    let read = ValidatedCluster::new(&plain, policy).ok();
    let mode = accepted.and_then(|accepted| accepted.client_tls);
    if mode.is_none()
        || read
            .as_ref()
            .is_some_and(|read| read.accepted.client_tls == mode)
    {
        return read;
    }
    // The name of a Secret is not remembered: then nobody can be asked.
    plain.spec.tls = None;
    plain.spec.security = Some(SecuritySpec {
        client_tls: Some(ClientTlsSpec {
            mode,
            ..ClientTlsSpec::default()
        }),
        ..SecuritySpec::default()
    });
    ValidatedCluster::new(&plain, policy).ok()
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::{v1beta2::TlsMode, validated::ClientTls};
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
    #[test]
    fn members_are_reached_as_they_were_when_their_tls_was_changed_behind_everybodys_back() {
        let mut changed = object(json!({"security": {"clientTLS": {"mode": "Off"}}}));
        changed.status = serde_json::from_value(json!({
            "bootstrap": {"token": "t"},
            "accepted": {"size": "8Gi", "peerTLS": "Auto", "clientTLS": "Auto"},
        }))
        .unwrap();
        assert!(ValidatedCluster::new(&changed, &Policy::default()).is_err());
        let found = reachable(&changed, &Policy::default()).unwrap();
        assert_eq!(found.client_tls, ClientTls::Auto { client_auth: true });
        let status = changed.status.as_mut().unwrap();
        status.accepted.as_mut().unwrap().client_tls = Some(TlsMode::Secret);
        assert!(reachable(&changed, &Policy::default()).is_none());
    }
}
