//! The places that must trust the authority, what each holds now, and the smallest patch that puts it right.
//!
//! A JSON patch of the one key `caBundle`, guarded by a test of the entry's name and of the object's version, and not a server-side apply: an apply would make us
//! an owner of the list entry itself, so that a chart which later drops or renames an entry could not remove it any more (what stays
//! is an entry with a name and a bundle only, which the API server refuses, and with it the whole upgrade). An owner of the leaf
//! alone stands in nobody's way: Helm 3, Helm 4 and Argo CD render no `caBundle`, so they neither own nor compare it.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::{ClusterResourceScope, Resource};
use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{certificates_in, inspect};

/// An object that has to hold our bundle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    MutatingWebhookConfiguration(String),
    ValidatingWebhookConfiguration(String),
    CustomResourceDefinition(String),
}

impl Place {
    pub fn name(&self) -> &str {
        match self {
            Self::MutatingWebhookConfiguration(name)
            | Self::ValidatingWebhookConfiguration(name)
            | Self::CustomResourceDefinition(name) => name,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::MutatingWebhookConfiguration(_) => "MutatingWebhookConfiguration",
            Self::ValidatingWebhookConfiguration(_) => "ValidatingWebhookConfiguration",
            Self::CustomResourceDefinition(_) => "CustomResourceDefinition",
        }
    }

    pub(super) fn resource(&self) -> ApiResource {
        let (group, plural) = match self {
            Self::MutatingWebhookConfiguration(_) => (
                "admissionregistration.k8s.io",
                "mutatingwebhookconfigurations",
            ),
            Self::ValidatingWebhookConfiguration(_) => (
                "admissionregistration.k8s.io",
                "validatingwebhookconfigurations",
            ),
            Self::CustomResourceDefinition(_) => {
                ("apiextensions.k8s.io", "customresourcedefinitions")
            }
        };
        ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            api_version: format!("{group}/v1"),
            kind: self.kind().to_owned(),
            plural: plural.to_owned(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

/// What matters of any of the three kinds; the rest, a CRD's large schema above all, is never kept.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Trusting {
    metadata: ObjectMeta,
    #[serde(default)]
    webhooks: Vec<Entry>,
    #[serde(default)]
    spec: Option<DefinitionSpec>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    name: String,
    client_config: ClientConfig,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientConfig {
    ca_bundle: Option<ByteString>,
    service: Option<ServiceReference>,
}

#[derive(Clone, Debug, Deserialize)]
struct ServiceReference {
    name: Option<String>,
    namespace: Option<String>,
}

impl ClientConfig {
    /// Whether it calls the server of that name. One that says nothing of a Service is not known to call anyone else.
    fn calls(&self, server_name: &str) -> bool {
        let named = self.service.as_ref();
        let named = named.and_then(|service| service.name.as_ref().zip(service.namespace.as_ref()));
        named.is_none_or(|(name, namespace)| format!("{name}.{namespace}.svc") == server_name)
    }
}

#[derive(Clone, Debug, Deserialize)]
struct DefinitionSpec {
    conversion: Option<Conversion>,
}

#[derive(Clone, Debug, Deserialize)]
struct Conversion {
    strategy: String,
    webhook: Option<ConversionWebhook>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConversionWebhook {
    client_config: Option<ClientConfig>,
}

impl Resource for Trusting {
    type DynamicType = ApiResource;
    type Scope = ClusterResourceScope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }

    fn group(dt: &ApiResource) -> Cow<'_, str> {
        dt.group.as_str().into()
    }

    fn version(dt: &ApiResource) -> Cow<'_, str> {
        dt.version.as_str().into()
    }

    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What a place holds now: the bundle of each of its clients, with the JSON path to it and what must still be true when it is
/// written. A place that calls nobody (a CRD without a conversion webhook), or somebody else (a CRD of another release, which converts
/// there), holds none and wants none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Of the object when it was read.
    version: Option<String>,
    holders: Vec<Holder>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    guard: (String, String),
    path: String,
    bundle: Vec<u8>,
}

impl Trust {
    /// What `object` holds for the server of this name.
    pub(super) fn of(object: &Trusting, server_name: &str) -> Self {
        let mut holders: Vec<Holder> = object
            .webhooks
            .iter()
            .enumerate()
            .map(|(index, entry)| Holder {
                guard: (format!("/webhooks/{index}/name"), entry.name.clone()),
                path: format!("/webhooks/{index}/clientConfig/caBundle"),
                bundle: bytes(entry.client_config.ca_bundle.as_ref()),
            })
            .collect();
        let conversion = object.spec.as_ref().and_then(|s| s.conversion.as_ref());
        if let Some(conversion) = conversion.filter(|c| c.strategy == "Webhook")
            && let Some(client) = conversion
                .webhook
                .as_ref()
                .and_then(|w| w.client_config.as_ref())
                .filter(|client| client.calls(server_name))
        {
            holders.push(Holder {
                guard: (
                    "/spec/conversion/strategy".to_owned(),
                    conversion.strategy.clone(),
                ),
                path: "/spec/conversion/webhook/clientConfig/caBundle".to_owned(),
                bundle: bytes(client.ca_bundle.as_ref()),
            });
        }
        Self {
            version: object.metadata.resource_version.clone(),
            holders,
        }
    }

    /// The bundles it holds, one per client.
    pub fn bundles(&self) -> impl Iterator<Item = &[u8]> {
        self.holders.iter().map(|holder| holder.bundle.as_slice())
    }

    pub fn holds(&self, bundle: &[u8]) -> bool {
        self.bundles().all(|held| held == bundle)
    }

    /// The patch that makes it hold `bundle`; none where it already does, so that at rest nothing is written.
    pub(super) fn patch(&self, bundle: &[u8]) -> Option<Value> {
        self.patch_each(|held| (held != bundle).then(|| bundle.to_vec()))
    }

    /// The patch that makes it trust every authority of `bundle` too; what it holds beside them stays until it has expired.
    pub(super) fn patch_adding(&self, bundle: &[u8], now: Timestamp) -> Option<Value> {
        let ours = certificates_in(bundle).unwrap_or_default();
        self.patch_each(|held| {
            let theirs = sections(held);
            if ours
                .iter()
                .all(|one| theirs.iter().any(|(_, their)| their == one))
            {
                return None;
            }
            let mut both = bundle.trim_ascii_end().to_vec();
            both.push(b'\n');
            for (text, certificate) in theirs {
                let counts = inspect(&certificate).is_ok_and(|c| c.validity.not_after > now);
                if counts && !ours.contains(&certificate) {
                    both.extend_from_slice(text.as_bytes());
                    both.push(b'\n');
                }
            }
            Some(both)
        })
    }

    /// `wanted` says what to put in the place of what is held; none where it is right.
    fn patch_each(&self, wanted: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Option<Value> {
        let mut operations = Vec::new();
        for holder in &self.holders {
            let Some(bundle) = wanted(&holder.bundle) else {
                continue;
            };
            let encoded = serde_json::to_value(ByteString(bundle)).ok()?;
            let (path, value) = &holder.guard;
            operations.push(json!({"op": "test", "path": path, "value": value}));
            // `add` on an object's key also replaces what is there.
            operations.push(json!({"op": "add", "path": holder.path, "value": encoded}));
        }
        if operations.is_empty() {
            return None;
        }
        // What was decided upon is what is written to: a slow replica must not put an older bundle over a newer one.
        if let Some(version) = &self.version {
            let unchanged =
                json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
            operations.insert(0, unchanged);
        }
        Some(Value::Array(operations))
    }
}

/// Each certificate of a bundle, with its text; what is none is left out.
fn sections(bundle: &[u8]) -> Vec<(String, CertificateDer<'static>)> {
    const END: &str = "-----END CERTIFICATE-----";
    let text = String::from_utf8_lossy(bundle);
    text.split_inclusive(END)
        .filter_map(|section| {
            let start = section.find("-----BEGIN CERTIFICATE-----")?;
            let section = &section[start..];
            let certificate = certificates_in(section.as_bytes()).ok()?.pop()?;
            Some((section.to_owned(), certificate))
        })
        .collect()
}

fn bytes(bundle: Option<&ByteString>) -> Vec<u8> {
    bundle.map(|b| b.0.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trust(object: Value) -> Trust {
        Trust::of(&serde_json::from_value(object).unwrap(), "w.ns.svc")
    }

    #[test]
    fn only_the_entries_that_differ_are_patched_each_guarded_by_its_name() {
        let trust = trust(json!({
            "metadata": {"name": "x"},
            "webhooks": [
                {"name": "a", "clientConfig": {"caBundle": "b2xk", "service": {}}, "sideEffects": "None"},
                {"name": "b", "clientConfig": {"caBundle": "bmV3"}},
                {"name": "c", "clientConfig": {}},
            ],
        }));
        assert!(!trust.holds(b"new"));
        assert_eq!(
            trust.patch(b"new"),
            Some(json!([
                {"op": "test", "path": "/webhooks/0/name", "value": "a"},
                {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "bmV3"},
                {"op": "test", "path": "/webhooks/2/name", "value": "c"},
                {"op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": "bmV3"},
            ]))
        );
    }

    #[test]
    fn a_patch_meets_only_the_very_object_it_was_made_for() {
        let trust = trust(json!({
            "metadata": {"name": "x", "resourceVersion": "7"},
            "webhooks": [{"name": "a", "clientConfig": {}}],
        }));
        let patch = trust.patch(b"new").unwrap();
        assert_eq!(
            patch[0],
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"})
        );
    }

    #[test]
    fn a_place_that_holds_the_bundle_is_not_written() {
        let trust = trust(json!({
            "metadata": {"name": "x"},
            "webhooks": [{"name": "b", "clientConfig": {"caBundle": "bmV3"}}],
        }));
        assert!(trust.holds(b"new"));
        assert_eq!(trust.patch(b"new"), None);
    }

    #[test]
    fn a_crd_that_converts_in_another_release_is_left_to_that_one() {
        let converting = |namespace: &str| {
            trust(json!({
                "metadata": {"name": "x"},
                "spec": {"conversion": {"strategy": "Webhook", "webhook": {
                    "clientConfig": {"caBundle": "b2xk", "service": {"name": "w", "namespace": namespace}},
                    "conversionReviewVersions": ["v1"],
                }}},
            }))
        };
        assert!(converting("ns").patch(b"new").is_some());
        assert_eq!(converting("elsewhere").patch(b"new"), None);
        assert!(converting("elsewhere").holds(b"new"));
    }

    #[test]
    fn a_crd_wants_a_bundle_only_where_it_converts_by_webhook() {
        let by_webhook = trust(json!({
            "metadata": {"name": "x"},
            "spec": {"conversion": {"strategy": "Webhook",
                "webhook": {"clientConfig": {"service": {}}, "conversionReviewVersions": ["v1"]}}},
        }));
        assert_eq!(
            by_webhook.patch(b"new"),
            Some(json!([
                {"op": "test", "path": "/spec/conversion/strategy", "value": "Webhook"},
                {"op": "add", "path": "/spec/conversion/webhook/clientConfig/caBundle", "value": "bmV3"},
            ]))
        );
        for quiet in [
            json!({"metadata": {}, "spec": {"conversion": {"strategy": "None"}}}),
            json!({"metadata": {}, "spec": {"names": {}}}),
        ] {
            let quiet = trust(quiet);
            assert!(quiet.holds(b"new"));
            assert_eq!(quiet.patch(b"new"), None);
        }
    }
}
