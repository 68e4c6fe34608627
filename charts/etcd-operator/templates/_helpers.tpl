{{/*
Names. Everything in the release's namespace starts with the full name; what is
cluster-scoped also carries the namespace, because two releases may share a name.
*/}}
{{- define "etcd-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "etcd-operator.fullname" -}}
{{- $name := include "etcd-operator.name" . }}
{{- $full := .Values.fullnameOverride }}
{{- if not $full }}
{{- $full = ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- end }}
{{- /* A release's name may hold dots, a Service's may not. 40 leaves room for the longest suffix. */}}
{{- $full | replace "." "-" | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "etcd-operator.webhook.fullname" -}}
{{ include "etcd-operator.fullname" . }}-webhook
{{- end }}

{{- define "etcd-operator.controller.fullname" -}}
{{ include "etcd-operator.fullname" . }}-controller
{{- end }}

{{- define "etcd-operator.clusterName" -}}
{{ include "etcd-operator.fullname" . }}.{{ .Release.Namespace }}
{{- end }}

{{- define "etcd-operator.webhook.clusterName" -}}
{{ include "etcd-operator.webhook.fullname" . }}.{{ .Release.Namespace }}
{{- end }}

{{- define "etcd-operator.controller.clusterName" -}}
{{ include "etcd-operator.controller.fullname" . }}.{{ .Release.Namespace }}
{{- end }}

{{- define "etcd-operator.webhook.caSecret" -}}
{{ include "etcd-operator.webhook.fullname" . }}-ca
{{- end }}

{{/* The Secret that is mounted where someone else keeps the certificate; empty where the webhook does. */}}
{{- define "etcd-operator.webhook.mountedSecret" -}}
{{- with .Values.certificates }}
{{- if eq .mode "cert-manager" }}{{ include "etcd-operator.webhook.fullname" $ }}-tls{{ end }}
{{- if eq .mode "secret" }}{{ .secret.name }}{{ end }}
{{- end }}
{{- end }}

{{/*
Who writes `caBundle`: "webhook", "injector" (cert-manager's), or "nobody".
*/}}
{{- define "etcd-operator.bundleWriter" -}}
{{- with .Values.certificates }}
{{- if eq .mode "cert-manager" }}injector
{{- else if and (eq .mode "secret") (not .secret.publishCA) }}nobody
{{- else }}webhook
{{- end }}
{{- end }}
{{- end }}

{{/* Annotations, without their key, that make cert-manager write `caBundle`; as a dict in YAML. */}}
{{- define "etcd-operator.injection" -}}
{{- if eq (include "etcd-operator.bundleWriter" .) "injector" -}}
cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/{{ include "etcd-operator.webhook.fullname" . }}
{{- end }}
{{- end }}

{{- define "etcd-operator.webhook.serviceAccount" -}}
{{- with .Values.webhook.serviceAccount }}
{{- .name | default (ternary (include "etcd-operator.webhook.fullname" $) "default" .create) }}
{{- end }}
{{- end }}

{{- define "etcd-operator.controller.serviceAccount" -}}
{{- with .Values.controller.serviceAccount }}
{{- .name | default (ternary (include "etcd-operator.controller.fullname" $) "default" .create) }}
{{- end }}
{{- end }}

{{- define "etcd-operator.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/*
Labels and annotations. The chart's version is a label of objects, not of pods: a new
chart with the same programs must not restart them.
Takes (list . "component").
*/}}
{{- define "etcd-operator.selectorLabels" -}}
{{- $ := index . 0 -}}
app.kubernetes.io/name: {{ include "etcd-operator.name" $ }}
app.kubernetes.io/instance: {{ $.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "etcd-operator.labels" -}}
{{- $ := index . 0 -}}
{{- $own := include "etcd-operator.selectorLabels" . | fromYaml }}
{{- $_ := set $own "app.kubernetes.io/managed-by" $.Release.Service }}
{{- $_ := set $own "app.kubernetes.io/part-of" "etcd-operator" }}
{{- $_ := set $own "app.kubernetes.io/version" $.Chart.AppVersion }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_") }}
{{- toYaml (merge $own $.Values.commonLabels) }}
{{- end }}

{{/* Annotations of an object, its key included; nothing when there are none. Takes (list . annotations). */}}
{{- define "etcd-operator.annotations" -}}
{{- $ := index . 0 -}}
{{- with merge (deepCopy (index . 1)) $.Values.commonAnnotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Metadata of a pod. Takes (list . "component" values-of-the-component). */}}
{{- define "etcd-operator.podMetadata" -}}
{{- $ := index . 0 -}}
{{- $values := index . 2 -}}
{{- $own := include "etcd-operator.selectorLabels" . | fromYaml -}}
labels:
  {{- toYaml (merge $own (deepCopy $values.podLabels) $.Values.commonLabels) | nindent 2 }}
{{- with include "etcd-operator.annotations" (list $ $values.podAnnotations) }}
{{ . }}
{{- end }}
{{- end }}

{{/* Where a component's pods run. Takes (list . "component" values-of-the-component). */}}
{{- define "etcd-operator.scheduling" -}}
{{- $arguments := . -}}
{{- $values := index . 2 -}}
{{- $default := list
  (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" "matchLabelKeys" (list "pod-template-hash"))
  (dict "maxSkew" 1 "topologyKey" "topology.kubernetes.io/zone" "whenUnsatisfiable" "ScheduleAnyway" "matchLabelKeys" (list "pod-template-hash")) -}}
topologySpreadConstraints:
{{- range $values.topologySpreadConstraints | default $default }}
  - {{ toYaml . | indent 4 | trim }}
    {{- if not .labelSelector }}
    labelSelector:
      matchLabels:
        {{- include "etcd-operator.selectorLabels" $arguments | nindent 8 }}
    {{- end }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* Arguments both programs take. Takes (list . values-of-the-component). */}}
{{- define "etcd-operator.commonArgs" -}}
{{- $ := index . 0 -}}
- --health-listen=0.0.0.0:{{ (index . 1).healthPort }}
- --log-level={{ $.Values.log.level }}
- --log-format={{ $.Values.log.format }}
- --end-of-life-versions={{ $.Values.versions.endOfLife }}
{{- with $.Values.defaultEtcdVersion }}
- --default-etcd-version={{ . }}
{{- end }}
{{- end }}

{{/* Environment that names proxies; nothing when there is none. */}}
{{- define "etcd-operator.proxyEnv" -}}
{{- with .Values.proxy }}
{{- if or .http .https }}
{{- $env := list }}
{{- with .http }}{{ $env = append $env (dict "name" "HTTP_PROXY" "value" .) }}{{ end }}
{{- with .https }}{{ $env = append $env (dict "name" "HTTPS_PROXY" "value" .) }}{{ end }}
{{- with .exceptions }}{{ $env = append $env (dict "name" "NO_PROXY" "value" .) }}{{ end }}
{{- toYaml $env }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Probes. Readiness is asked every second so that `helm install --wait` returns as soon as
the operator serves; liveness is patient, because a restart never makes it faster.
*/}}
{{- define "etcd-operator.probes" -}}
livenessProbe:
  httpGet:
    path: /healthz
    port: health
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /readyz
    port: health
  periodSeconds: 1
  timeoutSeconds: 1
  failureThreshold: 3
{{- end }}

{{/*
The conversion stanza of a CRD. No `caBundle`: the webhook (or cert-manager) writes it, and a key with two
owners would fail the next server-side `helm upgrade`.
*/}}
{{- define "etcd-operator.conversion" -}}
strategy: Webhook
webhook:
  clientConfig:
    service:
      name: {{ include "etcd-operator.webhook.fullname" . }}
      namespace: {{ .Release.Namespace }}
      path: /convert
      port: 443
  conversionReviewVersions:
    - v1
{{- end }}

{{/* Metadata of a CRD below its name. */}}
{{- define "etcd-operator.crdMetadata" -}}
{{- $keep := ternary (dict "helm.sh/resource-policy" "keep") dict .Values.crds.keep -}}
{{- $own := merge $keep (include "etcd-operator.injection" . | fromYaml) -}}
labels:
  {{- include "etcd-operator.labels" (list . "crd") | nindent 2 }}
{{- with include "etcd-operator.annotations" (list . $own) }}
{{ . }}
{{- end }}
{{- end }}
