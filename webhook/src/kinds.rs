//! The kinds that are judged, each by the rules of the API. Pure.

use etcd_operator_api::v1beta2::{
    EtcdBackup, EtcdBackupSpec, EtcdBackupStatus, EtcdCluster, EtcdClusterSpec, EtcdClusterStatus,
    EtcdRestore, EtcdRestoreSpec, EtcdRestoreStatus,
};
use etcd_operator_api::{
    Judgement, Policy, default_backup, default_cluster, default_restore, default_update, judge,
    judge_backup, judge_delete, judge_restore, same_requests,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::object::Judged;

impl Judged for EtcdCluster {
    const KIND: &'static str = "EtcdCluster";
    type Spec = EtcdClusterSpec;
    type Status = EtcdClusterStatus;

    fn from_parts(metadata: ObjectMeta, spec: Self::Spec, status: Option<Self::Status>) -> Self {
        Self {
            metadata,
            spec,
            status,
        }
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn same_spec(&self, other: &Self) -> bool {
        self.spec == other.spec
    }

    fn same_requests(&self, other: &Self) -> bool {
        same_requests(self, other)
    }

    fn fill_in(&mut self, old: Option<&Self>, policy: &Policy) {
        match old {
            Some(old) => default_update(self, old, policy),
            None => default_cluster(self, policy),
        }
    }

    fn judge(&self, old: Option<&Self>, policy: &Policy) -> Judgement {
        judge(self, old, policy)
    }

    fn judge_delete(&self) -> Judgement {
        judge_delete(self)
    }
}

impl Judged for EtcdBackup {
    const KIND: &'static str = "EtcdBackup";
    type Spec = EtcdBackupSpec;
    type Status = EtcdBackupStatus;

    fn from_parts(metadata: ObjectMeta, spec: Self::Spec, status: Option<Self::Status>) -> Self {
        Self {
            metadata,
            spec,
            status,
        }
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn same_spec(&self, other: &Self) -> bool {
        self.spec == other.spec
    }

    fn fill_in(&mut self, _old: Option<&Self>, policy: &Policy) {
        default_backup(self, policy);
    }

    fn judge(&self, old: Option<&Self>, policy: &Policy) -> Judgement {
        judge_backup(self, old, policy)
    }
}

impl Judged for EtcdRestore {
    const KIND: &'static str = "EtcdRestore";
    type Spec = EtcdRestoreSpec;
    type Status = EtcdRestoreStatus;

    fn from_parts(metadata: ObjectMeta, spec: Self::Spec, status: Option<Self::Status>) -> Self {
        Self {
            metadata,
            spec,
            status,
        }
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn same_spec(&self, other: &Self) -> bool {
        self.spec == other.spec
    }

    fn fill_in(&mut self, _old: Option<&Self>, policy: &Policy) {
        default_restore(self, policy);
    }

    fn judge(&self, old: Option<&Self>, policy: &Policy) -> Judgement {
        judge_restore(self, old, policy)
    }
}
