//! The CRD: bounded, described, and refusing by itself what the webhook refuses.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde_json::Value;

use super::*;
use crate::examples::{self, cluster};
use crate::policy::Policy;

fn schema(kind: &str, version: &str) -> JSONSchemaProps {
    let crds = all_crds();
    let crd = crds.into_iter().find(|crd| crd.spec.names.kind == kind);
    let version = crd
        .unwrap()
        .spec
        .versions
        .into_iter()
        .find(|v| v.name == version)
        .unwrap();
    version.schema.unwrap().open_api_v3_schema.unwrap()
}

/// Every schema there is, with its rules.
fn schemas() -> Vec<(&'static str, &'static str, Vec<CelRule>)> {
    vec![
        ("EtcdCluster", "v1beta2", cluster_cel_rules()),
        ("EtcdCluster", "v1alpha1", alpha_cel_rules()),
        ("EtcdBackup", "v1beta2", backup_cel_rules()),
        ("EtcdRestore", "v1beta2", restore_cel_rules()),
    ]
}

/// What the API server says of it by itself.
pub(crate) fn refusals(new: &Value, old: Option<&Value>) -> Vec<String> {
    static SCHEMAS: LazyLock<Vec<(&str, CompiledSchema)>> = LazyLock::new(|| {
        let compiled = |kind| {
            let schema = serde_json::to_value(schema(kind, "v1beta2")).unwrap();
            (kind, compile_schema(&schema))
        };
        ["EtcdCluster", "EtcdBackup", "EtcdRestore"]
            .map(compiled)
            .into()
    });
    let (_, schema) = SCHEMAS
        .iter()
        .find(|(kind, _)| new["kind"] == *kind)
        .unwrap();
    match Validator::new().validate_compiled(schema, new, old) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.to_string().lines().map(ToOwned::to_owned).collect(),
    }
}

#[test]
fn the_api_server_alone_refuses_what_cel_can_say_in_the_same_words() {
    let mut silent = Vec::new();
    for example in examples::breaking() {
        let refused = refusals(&example.new, example.old.as_ref());
        if !example.by_api_server {
            assert_eq!(refused, Vec::<String>::new(), "{}", example.what);
            continue;
        }
        for violation in example.judge(&Policy::default()).unwrap().violations {
            // Where a number is computed, CEL may write it differently; the words before it are the same.
            let words: String = violation.message.chars().take(40).collect();
            if !refused.iter().any(|line| line.contains(&words)) {
                silent.push(format!("{}: `{words}` is not in {refused:?}", example.what));
            }
        }
    }
    assert_eq!(silent, Vec::<String>::new());
}

#[test]
fn the_api_server_lets_in_what_is_sound() {
    assert_eq!(refusals(&cluster(json!({})), None), Vec::<String>::new());
    for example in examples::breaking() {
        if let Some(old) = &example.old {
            assert_eq!(
                refusals(old, None),
                Vec::<String>::new(),
                "{}",
                example.what
            );
            assert_eq!(
                refusals(old, Some(old)),
                Vec::<String>::new(),
                "{}",
                example.what
            );
        }
    }
}

#[test]
fn every_rule_finds_its_place_in_the_schema() {
    for (kind, version, rules) in schemas() {
        let mut count = 0;
        walk(
            &schema(kind, version),
            &mut String::new(),
            &mut |_, node| {
                count += node.x_kubernetes_validations.as_ref().map_or(0, Vec::len);
            },
        );
        assert_eq!(count, rules.len(), "{kind} {version}");
    }
}

#[test]
fn every_refusal_names_a_field_the_api_server_knows() {
    for (kind, version, rules) in schemas() {
        let mut root = schema(kind, version);
        for rule in rules {
            let path = format!("{}{}", rule.at, rule.field_path.unwrap_or_default());
            // The API server takes no path into the metadata.
            assert!(
                at(&mut root, &path).is_some() && !path.starts_with(".metadata"),
                "{path}"
            );
        }
    }
}

#[test]
fn every_text_list_and_map_is_bounded() {
    for (kind, version, _) in schemas() {
        walk(
            &schema(kind, version),
            &mut String::new(),
            &mut |path, node| {
                let bounded = match node.type_.as_deref() {
                    Some("string") => {
                        node.max_length.is_some() || node.enum_.is_some() || node.format.is_some()
                    }
                    Some("array") => node.max_items.is_some(),
                    Some("object") => {
                        node.additional_properties.is_none() || node.max_properties.is_some()
                    }
                    _ => true,
                };
                assert!(
                    bounded
                        || path.starts_with(".metadata")
                        || [".apiVersion", ".kind"].contains(&path),
                    "{path}"
                );
                assert_eq!(node.nullable, None, "{path}");
                assert!(node.any_of.is_none() && node.one_of.is_none(), "{path}");
            },
        );
    }
}

#[test]
fn every_field_of_ours_is_described() {
    for (kind, version, _) in schemas() {
        walk(
            &schema(kind, version),
            &mut String::new(),
            &mut |path, node| {
                let foreign = FOREIGN.iter().any(|foreign| path.contains(foreign));
                let ours = path.starts_with(".spec") || path.starts_with(".status");
                if ours && !foreign && !path.ends_with("[]") {
                    assert!(node.description.is_some(), "{kind} {version} {path}");
                }
            },
        );
    }
}

#[test]
fn every_crd_is_small_enough_for_client_side_apply() {
    for crd in all_crds() {
        let size = serde_json::to_string(&crd).unwrap().len();
        assert!(size < 200_000, "{} {size}", crd.spec.names.kind);
    }
}

#[test]
fn backups_and_restores_have_short_names_columns_and_a_bounded_history() {
    for (crd, short, first) in [
        (etcdbackup_crd(), "etcdbak", "Cluster"),
        (etcdrestore_crd(), "etcdres", "Cluster"),
    ] {
        let [version] = crd.spec.versions.as_slice() else {
            panic!("{short}");
        };
        assert_eq!(
            crd.spec.names.short_names.as_deref(),
            Some(&[short.to_owned()][..])
        );
        let columns = version.additional_printer_columns.as_ref().unwrap();
        assert_eq!(columns[0].name, first);
        let subresources = version.subresources.as_ref().unwrap();
        assert!(subresources.status.is_some() && subresources.scale.is_none());
    }
    let mut backup = schema("EtcdBackup", "v1beta2");
    let history = at(&mut backup, "status.history").unwrap();
    assert_eq!(history.max_items, Some(20));
    assert_eq!(history.x_kubernetes_list_type.as_deref(), Some("map"));
}

#[test]
fn names_columns_and_subresources_are_as_promised() {
    let crd = etcdcluster_crd();
    assert_eq!(
        crd.metadata.name.as_deref(),
        Some("etcdclusters.etcd.database.coreos.com")
    );
    let names = &crd.spec.names;
    assert_eq!(
        names.short_names.as_deref(),
        Some(&["etcd".to_owned(), "etcdclus".to_owned()][..])
    );
    assert_eq!(names.categories.as_deref(), Some(&["etcd".to_owned()][..]));
    let versions: Vec<_> = crd
        .spec
        .versions
        .iter()
        .map(|v| (v.name.as_str(), v.served, v.storage))
        .collect();
    assert_eq!(
        versions,
        [("v1beta2", true, true), ("v1alpha1", true, false)]
    );
    let columns: Vec<_> = crd.spec.versions[0]
        .additional_printer_columns
        .iter()
        .flatten()
        .map(|column| (column.name.as_str(), column.priority.unwrap_or(0)))
        .collect();
    let expected = [
        ("Ready", 0),
        ("Status", 0),
        ("Version", 0),
        ("Leader", 1),
        ("Client", 1),
        ("DB Size", 1),
        ("Age", 0),
    ];
    assert_eq!(columns, expected);
    let scale = crd.spec.versions[0]
        .subresources
        .as_ref()
        .unwrap()
        .scale
        .as_ref()
        .unwrap();
    assert_eq!(scale.spec_replicas_path, ".spec.size");
}

fn walk(node: &JSONSchemaProps, path: &mut String, visit: &mut dyn FnMut(&str, &JSONSchemaProps)) {
    visit(path, node);
    let length = path.len();
    for (name, child) in node.properties.iter().flatten() {
        path.push('.');
        path.push_str(name);
        walk(child, path, visit);
        path.truncate(length);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &node.items {
        path.push_str("[]");
        walk(items, path, visit);
        path.truncate(length);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &node.additional_properties {
        path.push_str("[]");
        walk(values, path, visit);
        path.truncate(length);
    }
}

/// `etcd` is an EtcdCluster's short name too, and kubectl takes a category first: with two kinds in it, `kubectl patch etcd
/// NAME` would have two resources to choose from and refuse.
#[test]
fn the_category_that_is_also_a_short_name_holds_clusters_alone() {
    let named: Vec<String> = super::all_crds()
        .into_iter()
        .filter(|crd| {
            let mut categories = crd.spec.names.categories.iter().flatten();
            categories.any(|category| category == "etcd")
        })
        .map(|crd| crd.spec.names.kind)
        .collect();
    assert_eq!(named, ["EtcdCluster"]);
}
