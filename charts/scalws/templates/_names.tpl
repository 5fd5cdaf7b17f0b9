{{/* The name that all objects begin with: that of the release. */}}
{{- define "scalws.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of the proxies' workload, service account and Service. */}}
{{- define "scalws.proxies" -}}
{{- printf "%s-%s" (include "scalws.name" .) .Values.fleet.name -}}
{{- end -}}

{{- define "scalws.labels" -}}
app.kubernetes.io/name: scalws
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "scalws.controllerSelector" -}}
app.kubernetes.io/name: scalws
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}

{{- define "scalws.proxySelector" -}}
app.kubernetes.io/name: scalws
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: proxy
{{- end -}}

{{- define "scalws.image" -}}
{{- printf "%s/%s:%s" .root.Values.image.registry .name (.root.Values.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}

{{/* What Pod Security "restricted" asks of a container. */}}
{{- define "scalws.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
{{- end -}}
