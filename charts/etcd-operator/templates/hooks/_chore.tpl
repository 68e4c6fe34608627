{{/*
What Helm's hooks share: the operator's own image on an errand (webhook/src/chores), because it is the one image that is sure to be there.
*/}}

{{/* Takes (list . "component"). */}}
{{- define "etcd-operator.chore.name" -}}
{{ include "etcd-operator.fullname" (index . 0) }}-{{ index . 1 }}
{{- end }}

{{/* Metadata below name and namespace. Takes (list . "component" annotations-of-the-hook). */}}
{{- define "etcd-operator.chore.metadata" -}}
{{- $ := index . 0 -}}
labels:
  {{- include "etcd-operator.labels" . | nindent 2 }}
{{ include "etcd-operator.annotations" (list $ (index . 2)) }}
{{- end }}

{{/* A pod that does one errand. Takes (list . "component" (list "argument" …)). */}}
{{- define "etcd-operator.chore.pod" -}}
{{- $ := index . 0 -}}
serviceAccountName: {{ include "etcd-operator.chore.name" . }}
automountServiceAccountToken: true
enableServiceLinks: false
restartPolicy: Never
{{- with $.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.webhook.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ index . 1 }}
    image: {{ include "etcd-operator.image" $ | quote }}
    imagePullPolicy: {{ $.Values.image.pullPolicy }}
    command:
      - /etcd-operator-webhook
    args:
      {{- toYaml (index . 2) | nindent 6 }}
      - --log-level={{ $.Values.log.level }}
      - --log-format={{ $.Values.log.format }}
    resources:
      requests:
        cpu: 10m
        memory: 24Mi
      limits:
        memory: 64Mi
    {{- with $.Values.webhook.securityContext }}
    securityContext:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- with $.Values.webhook.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.webhook.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
