{{- define "bearlake.labels" -}}
app.kubernetes.io/name: bearlake
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "bearlake.monitoring.labels" -}}
{{- with .Values.monitoring.labels }}{{ toYaml . }}{{ end }}
{{- end }}

{{- define "bearlake.operator.selector" -}}
app.kubernetes.io/name: bearlake
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "bearlake.operator.name" -}}
{{ printf "%s-operator" .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* (dict "context" $ "layer" "default" "admin" {...}): the Secret with the admin token of a data layer. */}}
{{- define "bearlake.admin.secret" -}}
{{ .admin.secret | default (printf "%s-%s-admin" .context.Release.Name .layer) }}
{{- end }}

{{/* (dict "context" $ "layer" "default" "admin" {...}): the Secret and the key of the token that reads only metrics, as YAML. */}}
{{- define "bearlake.admin.metrics" -}}
{{- $metrics := .admin.metrics | default dict -}}
secret: {{ $metrics.secret | default (printf "%s-%s-metrics" .context.Release.Name .layer) | quote }}
key: {{ $metrics.key | default "token" | quote }}
{{- end }}

{{/* (dict "context" $ "layer" {...}): not empty if the operator logs in to a data layer with a token of its ServiceAccount. */}}
{{- define "bearlake.admin.byAccount" -}}
{{- $issuer := .context.Values.operator.serviceAccountToken.issuer -}}
{{- if and $issuer (eq $issuer (dig "authentication" "token" "issuer" "" (.layer.settings | default dict))) -}}true{{- end -}}
{{- end }}

{{/* (dict "layer" {...}): the audience of tokens for a data layer. */}}
{{- define "bearlake.admin.audience" -}}
{{ dig "authentication" "token" "audience" "" (.layer.settings | default dict) | default "bearlake" }}
{{- end }}

{{/* (dict "context" $ "layer" {...}): TLS of a data layer's admin API (operator/bearlake_operator/settings.py), as YAML; empty without TLS. */}}
{{- define "bearlake.admin.tls" -}}
{{- $tls := dig "admin" "tls" dict .layer -}}
{{- if $tls.secret -}}
secret: {{ $tls.secret | quote }}
caSecret: {{ $tls.caSecret | default $tls.secret | quote }}
caKey: {{ $tls.caKey | default "ca.crt" | quote }}
serverName: {{ $tls.serverName | default (printf "bearlake-admin.%s.svc" .context.Release.Namespace) | quote }}
{{- end -}}
{{- end }}

{{/* The mounts of the authorities of all data layers whose admin API has TLS. */}}
{{- define "bearlake.admin.authorityMounts" -}}
{{- range $name, $layer := .Values.dataLayers -}}
{{- if include "bearlake.admin.tls" (dict "context" $ "layer" $layer) }}
- {name: authority-{{ $name }}, mountPath: /etc/bearlake/authorities/{{ $name }}, readOnly: true}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Their volumes, without the servers' keys. */}}
{{- define "bearlake.admin.authorityVolumes" -}}
{{- range $name, $layer := .Values.dataLayers -}}
{{- with include "bearlake.admin.tls" (dict "context" $ "layer" $layer) | fromYaml }}
- name: authority-{{ $name }}
  secret:
    secretName: {{ .caSecret }}
    items: [{key: {{ .caKey }}, path: ca.crt}]
{{- end -}}
{{- end -}}
{{- end }}

{{/* (dict "context" $ "layer" {...}): settings that let the operator's ServiceAccount in, as YAML. */}}
{{- define "bearlake.admin.accountSettings" -}}
{{- $account := printf "User:system:serviceaccount:%s:%s" .context.Release.Namespace (include "bearlake.operator.name" .context) -}}
{{- $users := dig "access" "super_users" list (.layer.settings | default dict) -}}
{{- if not (include "bearlake.admin.tls" .) }}
admin: {tokens_without_tls: true}
{{- end }}
authentication: {token: {audience: {{ include "bearlake.admin.audience" . | quote }}}}
access: {super_users: {{ append $users $account | uniq | toJson }}}
{{- end }}

{{/* The operator's setting networkPolicies, as YAML. */}}
{{- define "bearlake.operator.policies" -}}
{{- $own := list (dict "podSelector" (dict "matchLabels" (include "bearlake.operator.selector" . | fromYaml))) -}}
{{- if .Values.metricsApi.enabled -}}
{{- $own = append $own (dict "podSelector" (dict "matchLabels" (include "bearlake.metrics.selector" . | fromYaml))) -}}
{{- end -}}
enabled: {{ .Values.networkPolicies.enabled }}
adminFrom: {{ concat $own .Values.networkPolicies.monitoring | toJson }}
kedaFrom: {{ .Values.networkPolicies.keda | toJson }}
dnsPorts: {{ .Values.networkPolicies.dnsPorts | toJson }}
egress: {{ .Values.networkPolicies.egress | toJson }}
{{- end }}

{{/* "default": the labels that select the console's pods of a data layer. Its servers let in pods with the last one. */}}
{{- define "bearlake.console.selector" -}}
app.kubernetes.io/name: bearlake
app.kubernetes.io/component: console
bearlake.dev/data-layer: {{ . }}
{{- end }}

{{/* (dict "context" $ "layer" "default"): the labels of the console's objects. */}}
{{- define "bearlake.console.labels" -}}
{{ include "bearlake.labels" .context }}
app.kubernetes.io/component: console
bearlake.dev/data-layer: {{ .layer }}
{{- end }}

{{/* (dict "layer" "default" "of" {…} "console" {…}): the settings document of the console, as YAML. Its URLs are those of the tiers' Services. */}}
{{- define "bearlake.console.settings" -}}
{{- $tiers := .of.tiers | default dict -}}
{{- $host := dict -}}
{{- range $tier := list "rest" "pulsar" "catalog" -}}
{{- $_ := set $host $tier (include "bearlake.bounded" (printf "bearlake-%s-%s" $.layer $tier) | trim) -}}
{{- end -}}
{{- $own := dict "host" "0.0.0.0" "port" (include "bearlake.port" (dict "tier" "console" "of" .console) | int) -}}
{{- $own = set $own "admin_url" (printf "http://%s:9644" $host.rest) -}}
{{- $own = set $own "rest_url" (printf "http://%s:%s" $host.rest (include "bearlake.port" (dict "tier" "rest" "of" (dig "rest" dict $tiers)) | trim)) -}}
{{- $own = set $own "registry_url" (printf "http://%s:8081" $host.rest) -}}
{{- $own = set $own "pulsar_url" (printf "http://%s:8080" $host.pulsar) -}}
{{- $catalog := dig "catalog" dict $tiers -}}
{{- if $catalog.enabled -}}
{{- $own = set $own "catalog_url" (printf "http://%s:%s" $host.catalog (include "bearlake.port" (dict "tier" "catalog" "of" $catalog) | trim)) -}}
{{- end -}}
{{- if .console.tlsSecret -}}
{{- $own = set (set $own "tls_certificate_file" "/etc/bearlake/tls/tls.crt") "tls_key_file" "/etc/bearlake/tls/tls.key" -}}
{{- end -}}
{{ mergeOverwrite (dict "console" $own) (deepCopy (.console.settings | default dict)) | toYaml }}
{{- end }}

{{- define "bearlake.server.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}

{{/* The ServiceAccount of servers and workers. */}}
{{- define "bearlake.servers.account" -}}
{{ .Values.serviceAccount.name | default (printf "%s-servers" .Release.Name) }}
{{- end }}

{{/* (dict "tier" "kafka" "of" {…}): the port of a tier's first internal listener (operator/bearlake_operator/manifests/server_settings.py). */}}
{{- define "bearlake.port" -}}
{{ .of.port | default (get (dict "kafka" 9092 "pulsar" 6650 "rest" 8082 "grpc" 50051 "catalog" 8181 "console" 9645) .tier) | default 0 }}
{{- end }}

{{/* The name of an object of the operator: at most 47 characters, shortened in the same way as in operator/bearlake_operator/manifests/labels.py. */}}
{{- define "bearlake.bounded" -}}
{{ gt (len .) 47 | ternary (printf "%s-%s" (trunc 38 .) (sha256sum . | trunc 8)) . }}
{{- end }}

{{- define "bearlake.restricted.pod" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "bearlake.restricted.container" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/*
Not empty if a data layer says how clients log in, or that they need not, or if it could: by settings of its listeners, a tier's settings, or
variables.
*/}}
{{- define "bearlake.logins.areSet" -}}
{{- $settings := .settings | default dict -}}
{{- $found := or (dig "authentication" "mechanisms" "" $settings) (dig "authentication" "anonymous" "" $settings) $settings.listeners -}}
{{- range $variable := .environment -}}
  {{- $found = or $found (regexMatch "^BEARLAKE_(AUTHENTICATION|LISTENERS)__" $variable.name) -}}
{{- end -}}
{{- range $tier := .tiers -}}
  {{- $own := ($tier | default dict).settings | default dict -}}
  {{- $found = or $found $own.authentication $own.listeners -}}
{{- end -}}
{{- if $found -}}true{{- end -}}
{{- end }}

{{/* The operator's settings document (operator/bearlake_operator/settings.py). */}}
{{- define "bearlake.operator.settings" -}}
{{- $layers := dict -}}
{{- range $name, $layer := .Values.dataLayers -}}
  {{- $settings := $layer.settings | default dict -}}
  {{- $environment := $layer.environment | default list -}}
  {{- if $.Values.quickstart.enabled -}}
    {{- $store := dict "url" (printf "s3://%s/%s" $.Values.quickstart.bucket $name) "cloud" (dict "endpoint" (printf "http://%s-objects.%s.svc:7070" $.Release.Name $.Release.Namespace) "region" "us-east-1") -}}
    {{- $settings = mergeOverwrite (dict "object_store" $store) $settings -}}
    {{- if not (include "bearlake.logins.areSet" $layer) -}}
      {{- $settings = mergeOverwrite (dict "authentication" (dict "anonymous" true)) $settings -}}
    {{- end -}}
    {{- $secret := printf "%s-quickstart" $.Release.Name -}}
    {{- range $variable, $key := dict "BEARLAKE_METADATA__URL" "metadata-url" "BEARLAKE_TABLES__CATALOG_URL" "catalog-url" "AWS_ACCESS_KEY_ID" "access-key-id" "AWS_SECRET_ACCESS_KEY" "secret-access-key" -}}
      {{- $environment = append $environment (dict "name" $variable "secret" $secret "key" $key) -}}
    {{- end -}}
  {{- else if not (and $settings.object_store ($settings.object_store).url) -}}
    {{- fail (printf "dataLayers.%s.settings.object_store.url is not set. Set the URL of a bucket, or quickstart.enabled=true" $name) -}}
  {{- else if not (include "bearlake.logins.areSet" $layer) -}}
    {{- fail (printf "dataLayers.%s.settings.authentication does not say how clients log in, so its servers would not start: set mechanisms, or anonymous: true to serve everybody who reaches their ports" $name) -}}
  {{- end -}}
  {{- if include "bearlake.admin.byAccount" (dict "context" $ "layer" $layer) -}}
    {{- $settings = mergeOverwrite (deepCopy $settings) (include "bearlake.admin.accountSettings" (dict "context" $ "layer" $layer) | fromYaml) -}}
  {{- end -}}
  {{- $admin := dict "secret" (include "bearlake.admin.secret" (dict "context" $ "layer" $name "admin" ($layer.admin | default dict))) "key" (($layer.admin | default dict).key | default "token") "url" (($layer.admin | default dict).url | default "") "metrics" (include "bearlake.admin.metrics" (dict "context" $ "layer" $name "admin" ($layer.admin | default dict)) | fromYaml) -}}
  {{- with include "bearlake.admin.tls" (dict "context" $ "layer" $layer) -}}
    {{- $admin = set $admin "tls" (fromYaml .) -}}
  {{- end -}}
  {{- $_ := set $layers $name (dict "settings" $settings "environment" $environment "files" ($layer.files | default list) "admin" $admin "tiers" (omit ($layer.tiers | default dict) "console")) -}}
  {{- with $layer.sources }}{{- $_ := set (get $layers $name) "sources" . -}}{{- end -}}
{{- end -}}
{{- $secrets := list -}}
{{- range .Values.imagePullSecrets -}}{{- $secrets = append $secrets .name -}}{{- end -}}
{{- $document := dict
  "image" (include "bearlake.server.image" .)
  "compactorImage" (printf "%s:%s" .Values.compactorImage.repository (.Values.compactorImage.tag | default .Chart.AppVersion))
  "imagePullPolicy" .Values.image.pullPolicy
  "imagePullSecrets" $secrets
  "serviceAccount" (include "bearlake.servers.account" .)
  "sparkServiceAccount" (.Values.sparkOnKubernetes.enabled | ternary (printf "%s-spark" .Release.Name) "")
  "watchNamespaces" .Values.operator.watchNamespaces
  "streamNames" .Values.operator.streamNames
  "accessRuleCountMax" (int .Values.operator.accessRuleCountMax)
  "accessRuleTotalCountMax" (int .Values.operator.accessRuleTotalCountMax)
  "networkPolicies" (include "bearlake.operator.policies" . | fromYaml)
  "resyncSeconds" (int .Values.operator.resyncSeconds)
  "dataLayers" $layers
-}}
{{ toYaml $document }}
{{- end }}
