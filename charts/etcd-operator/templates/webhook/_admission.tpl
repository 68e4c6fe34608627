{{/*
What both webhook configurations share. Every field the API server would fill in is
written out, or GitOps tools would see drift for ever; `caBundle` is left to the webhook or cert-manager.
*/}}

{{/* Takes (list . "/path"). */}}
{{- define "etcd-operator.admission.client" -}}
{{- $ := index . 0 -}}
admissionReviewVersions:
  - v1
clientConfig:
  service:
    name: {{ include "etcd-operator.webhook.fullname" $ }}
    namespace: {{ $.Release.Namespace }}
    path: {{ index . 1 }}
    port: 443
failurePolicy: {{ $.Values.webhook.failurePolicy }}
matchPolicy: Equivalent
namespaceSelector:
  {{- with $.Values.watchNamespaces }}
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: In
      values:
        {{- toYaml . | nindent 8 }}
  {{- else }} {}
  {{- end }}
objectSelector: {}
sideEffects: None
timeoutSeconds: {{ $.Values.webhook.timeoutSeconds }}
{{- end }}

{{/*
What never reaches the webhook, so that nothing gets stuck while it is down:
- an object that is being deleted: its finalizer can always be removed. On DELETE there
  is no `object`, only an `oldObject`;
- the controller's own writes: it must not wait for its sibling, and never writes a spec.
Takes the root context.
*/}}
{{- define "etcd-operator.admission.conditions" -}}
- name: not-being-deleted
  expression: >-
    request.operation == 'DELETE'
    ? !has(oldObject.metadata.deletionTimestamp)
    : !has(object.metadata.deletionTimestamp)
- name: not-by-the-controller
  expression: >-
    request.userInfo.username != 'system:serviceaccount:{{ .Release.Namespace }}:{{ include "etcd-operator.controller.serviceAccount" . }}'
{{- end }}
