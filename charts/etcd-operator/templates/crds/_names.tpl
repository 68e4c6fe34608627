{{/* Generated from the api crate by `cargo xtask generate`. Do not edit. */}}
{{- define "etcd-operator.crdNames" -}}
{{- end }}
