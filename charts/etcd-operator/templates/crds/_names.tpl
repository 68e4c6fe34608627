{{- define "etcd-operator.crdNames" -}}
- etcdclusters.etcd.database.coreos.com
{{- end }}
