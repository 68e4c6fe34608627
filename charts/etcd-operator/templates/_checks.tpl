{{/* Combinations of values the schema cannot refuse. Rendered once, from the webhook's Deployment. */}}
{{- define "etcd-operator.checks" -}}
{{- with .Values.webhook }}
{{- if and .hostNetwork (eq (int .port) 10250) }}
{{- fail "webhook.port: 10250 is the kubelet's port on every node; choose another (for example 10260) when webhook.hostNetwork is true" }}
{{- end }}
{{- if eq (int .port) (int .healthPort) }}
{{- fail (printf "webhook.port and webhook.healthPort must differ; both are %d" (int .port)) }}
{{- end }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service.enabled) }}
{{- fail "metrics.serviceMonitor.enabled needs metrics.service.enabled" }}
{{- end }}
{{- with .Values.certificates }}
{{- if and (eq .mode "secret") (not .secret.name) }}
{{- fail "certificates.secret.name: must name a TLS Secret when certificates.mode is secret" }}
{{- end }}
{{- if and (ne .mode "secret") .secret.name }}
{{- fail (printf "certificates.secret.name has no effect when certificates.mode is %s; set the mode to secret" .mode) }}
{{- end }}
{{- if and (ne .mode "cert-manager") .certManager.issuerRef }}
{{- fail (printf "certificates.certManager.issuerRef has no effect when certificates.mode is %s; set the mode to cert-manager" .mode) }}
{{- end }}
{{- if and .certManager.issuerRef (not .certManager.issuerRef.name) }}
{{- fail "certificates.certManager.issuerRef.name: must not be empty" }}
{{- end }}
{{- end }}
{{- if eq (include "etcd-operator.webhook.serviceAccount" .) (include "etcd-operator.controller.serviceAccount" .) }}
{{- fail "webhook.serviceAccount.name and controller.serviceAccount.name must differ: the controller's writes pass the webhook by its account's name" }}
{{- end }}
{{- end }}
