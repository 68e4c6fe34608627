{{/* Generated from the api crate by `cargo xtask generate`. Do not edit. */}}
{{- define "etcd-operator.crdNames" -}}
- etcdclusters.etcd.database.coreos.com
{{- end }}
