//! A store as the rules read it, as the agent is told of it.

use etcd_operator_api::{
    orders,
    v1beta2::{AbsStore, GcsStore, PvcStore, S3Store},
    validated::{Provider, Store},
};

pub fn store(store: &Store) -> orders::Store {
    let bucket = match store {
        Store::Volume { claim, path } => {
            return orders::Store::PVC(PvcStore {
                claim_name: Some(claim.clone()),
                path: Some(path.clone()),
            });
        }
        Store::Bucket(bucket) => bucket,
    };
    let path = Some(format!("{}/{}", bucket.bucket, bucket.key));
    let (secret, endpoint) = (bucket.secret.clone(), bucket.endpoint.clone());
    let ca_secret = bucket.ca_secret.clone();
    match &bucket.provider {
        Provider::S3 { region, path_style } => orders::Store::S3(S3Store {
            path,
            aws_secret: secret,
            endpoint,
            force_path_style: Some(*path_style),
            region: region.clone(),
            ca_secret,
        }),
        Provider::Gcs => orders::Store::GCS(GcsStore {
            path,
            gcp_secret: secret,
            endpoint,
            ca_secret,
        }),
        Provider::Abs { account } => orders::Store::ABS(AbsStore {
            path,
            abs_secret: secret,
            storage_account: account.clone(),
            endpoint,
            ca_secret,
        }),
    }
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::{
        Policy, ValidatedBackup,
        v1beta2::{EtcdBackup, EtcdBackupSpec},
    };
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_agent_is_told_of_the_very_store_that_was_written() {
        for (field, described) in [
            (
                "s3",
                json!({"path": "b/a/k", "awsSecret": "s", "endpoint": "https://s3.example.com",
                       "forcePathStyle": true, "region": "eu-central-1", "caSecret": "ca"}),
            ),
            (
                "gcs",
                json!({"path": "b/k", "gcpSecret": "s", "endpoint": "https://g.example.com", "caSecret": "ca"}),
            ),
            (
                "abs",
                json!({"path": "b/k", "storageAccount": "myaccount", "endpoint": "https://a.example.com"}),
            ),
            ("pvc", json!({"claimName": "p", "path": "a/k"})),
        ] {
            let spec: Value = json!({"clusterName": "c", (field): described});
            let spec: EtcdBackupSpec = serde_json::from_value(spec).unwrap();
            let mut backup = EtcdBackup::new("b", spec.clone());
            backup.metadata.namespace = Some("n".to_owned());
            backup.metadata.uid = Some("u".to_owned());
            let valid = ValidatedBackup::new(&backup, &Policy::default()).unwrap();
            let told = store(&valid.store);
            let expected = match field {
                "s3" => orders::Store::S3(spec.s3.unwrap()),
                "gcs" => orders::Store::GCS(spec.gcs.unwrap()),
                "abs" => orders::Store::ABS(spec.abs.unwrap()),
                _ => orders::Store::PVC(spec.pvc.unwrap()),
            };
            assert_eq!(told, expected, "{field}");
        }
    }
}
