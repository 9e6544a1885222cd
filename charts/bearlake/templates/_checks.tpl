{{/* Checks that a schema cannot express. They fail before anything is installed; otherwise the operator or pods would fail to start. */}}
{{- define "bearlake.checks" -}}
{{- range $found := (lookup "apps/v1" "Deployment" .Release.Namespace "").items -}}
{{- $marks := $found.metadata.labels | default dict -}}
{{- $isOperator := and (eq (get $marks "app.kubernetes.io/name") "bearlake") (eq (get $marks "app.kubernetes.io/component") "operator") -}}
{{- if and $isOperator (ne (get $marks "app.kubernetes.io/instance") $.Release.Name) -}}
{{- fail (printf "the namespace %s already has the release %s of this chart, and the servers of both would have the same names. Install this release in another namespace, and set different operator.watchNamespaces for each" $.Release.Namespace (get $marks "app.kubernetes.io/instance")) -}}
{{- end -}}
{{- end -}}
{{- include "bearlake.checks.token" . -}}
{{- range $layer, $values := .Values.dataLayers -}}
{{- include "bearlake.checks.metricsToken" (dict "context" $ "layer" $layer "admin" ($values.admin | default dict)) -}}
{{- include "bearlake.checks.adminTls" (dict "of" $values "where" (printf "dataLayers.%s" $layer)) -}}
{{- include "bearlake.checks.console" (dict "of" $values "where" (printf "dataLayers.%s" $layer)) -}}
{{- range $tier, $of := $values.tiers | default dict -}}
{{- $where := printf "dataLayers.%s.tiers.%s" $layer $tier -}}
{{- include "bearlake.checks.autoscaling" (dict "api" $.Values.metricsApi "tier" $tier "of" $of "where" (printf "%s.autoscaling" $where)) -}}
{{- include "bearlake.checks.listeners" (dict "tier" $tier "of" $of "where" (printf "%s.listeners" $where)) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "bearlake.checks.console" -}}
{{- $console := dig "tiers" "console" dict .of -}}
{{- $url := dig "console" "admin_url" "" ($console.settings | default dict) -}}
{{- if and $console.enabled (dig "admin" "tls" "secret" "" .of) (not (hasPrefix "https://" $url)) -}}
{{- fail (printf "%s.tiers.console: the admin API has TLS: set settings.console.admin_url to https:// and a name in its certificate, and settings.console.tls_ca_file (a Secret in %s.files)" .where .where) -}}
{{- end -}}
{{- end }}

{{- define "bearlake.checks.token" -}}
{{- $issuer := .Values.operator.serviceAccountToken.issuer -}}
{{- if $issuer -}}
{{- $trusting := list -}}
{{- range $layer, $values := .Values.dataLayers -}}
{{- if include "bearlake.admin.byAccount" (dict "context" $ "layer" $values) -}}
{{- $trusting = append $trusting $layer -}}
{{- range $tier, $of := $values.tiers | default dict -}}
{{- $own := $of.settings | default dict -}}
{{- range $path := list "access.super_users" "admin.tokens_without_tls" "authentication.token.issuer" "authentication.token.audience" -}}
{{- $found := $own -}}
{{- range $key := splitList "." $path -}}
{{- if kindIs "map" $found -}}{{- $found = get $found $key -}}{{- else -}}{{- $found = "" -}}{{- end -}}
{{- end -}}
{{- if ne (toJson $found) "\"\"" -}}
{{- fail (printf "dataLayers.%s.tiers.%s.settings.%s replaces what lets the operator in by its ServiceAccount. Set dataLayers.%s.settings.%s instead" $layer $tier $path $layer $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $claim := dig "authentication" "token" "user_claim" "sub" ($values.settings | default dict) -}}
{{- if ne $claim "sub" -}}
{{- fail (printf "dataLayers.%s.settings.authentication.token.user_claim is %s, but tokens of ServiceAccounts have their name in sub. Set operator.serviceAccountToken.issuer to an empty text" $layer $claim) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $trusting -}}
{{- fail (printf "operator.serviceAccountToken.issuer is %s, but no data layer trusts it: set dataLayers.<name>.settings.authentication.token.issuer to the same issuer" $issuer) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "bearlake.checks.metricsToken" -}}
{{- $metrics := include "bearlake.admin.metrics" . | fromYaml -}}
{{- if and (eq $metrics.secret (include "bearlake.admin.secret" .)) (eq $metrics.key (.admin.key | default "token")) -}}
{{- fail (printf "dataLayers.%s.admin.metrics has the secret and the key of the admin token, which may do everything: name another token" .layer) -}}
{{- end -}}
{{- end }}

{{- define "bearlake.checks.adminTls" -}}
{{- $tls := dig "admin" "tls" dict .of -}}
{{- if not $tls.secret -}}
{{- range $key := list "caSecret" "serverName" -}}
{{- if get $tls $key -}}
{{- fail (printf "%s.admin.tls.%s is set, but the admin API has no TLS: set %s.admin.tls.secret" $.where $key $.where) -}}
{{- end -}}
{{- end -}}
{{- else if hasPrefix "http://" (dig "admin" "url" "" .of) -}}
{{- fail (printf "%s.admin.url begins with http://, but the admin API has TLS (%s.admin.tls.secret): use https://" .where .where) -}}
{{- end -}}
{{- $settings := dict "settings" (.of.settings | default dict) -}}
{{- range $tier, $of := .of.tiers | default dict -}}
{{- $_ := set $settings (printf "tiers.%s.settings" $tier) ($of.settings | default dict) -}}
{{- end -}}
{{- range $path, $of := $settings -}}
{{- range $key := list "tls_certificate_file" "tls_key_file" "tls_ca_file" "tls_server_name" -}}
{{- if dig "admin" $key "" $of -}}
{{- fail (printf "%s.%s.admin.%s: probes, Services and the operator would not know of it. Set %s.admin.tls instead" $.where $path $key $.where) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "bearlake.checks.autoscaling" -}}
{{- $scaling := .of.autoscaling | default dict -}}
{{- $least := $scaling.minReplicas | default 2 | int -}}
{{- $most := $scaling.maxReplicas | default 10 | int -}}
{{- $isBuiltin := eq ($scaling.mode | default "cpu") "builtin" -}}
{{- $hasRates := or $scaling.targetRequestsPerSecond $scaling.targetBytesPerSecond -}}
{{- if gt $least $most -}}
{{- fail (printf "%s: minReplicas (%d) is greater than maxReplicas (%d)" .where $least $most) -}}
{{- end -}}
{{- if and (eq .tier "catalog") $scaling.targetBytesPerSecond -}}
{{- fail (printf "%s: targetBytesPerSecond: the catalog counts requests only; set targetRequestsPerSecond" .where) -}}
{{- end -}}
{{- if and $hasRates (not $isBuiltin) -}}
{{- fail (printf "%s: targetRequestsPerSecond and targetBytesPerSecond need mode builtin" .where) -}}
{{- end -}}
{{- if $isBuiltin -}}
{{- /* Without the metrics API, the autoscaler would do nothing, and only its status would say so. */ -}}
{{- $wanted := ternary "external" "custom" (eq .tier "compactor") -}}
{{- if not (and .api.enabled (get .api $wanted)) -}}
{{- fail (printf "%s: mode builtin needs metricsApi.enabled=true and metricsApi.%s=true" .where $wanted) -}}
{{- end -}}
{{- if not (or (eq .tier "compactor") $hasRates $scaling.targetCpuPercent) -}}
{{- fail (printf "%s: mode builtin needs targetRequestsPerSecond or targetBytesPerSecond" .where) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "bearlake.checks.listeners" -}}
{{- $isOpened := has .tier (list "kafka" "pulsar") -}}
{{- $own := include "bearlake.port" . | int -}}
{{- $names := list "kafka" "pulsar" "pulsar-http" "rest" "registry" "grpc" "catalog" "admin" "pods" -}}
{{- $ports := list 9644 -}}
{{- range $listener := .of.listeners | default list -}}
{{- $port := int $listener.port -}}
{{- if has (lower $listener.name) $names -}}
{{- fail (printf "%s: the name %s is already used: each listener has its own Service, named after it in lower case" $.where $listener.name) -}}
{{- end -}}
{{- $names = append $names (lower $listener.name) -}}
{{- if ne (eq $listener.type "nodeport") (gt (int $listener.nodePort) 0) -}}
{{- fail (printf "%s: nodePort of %s: required with type nodeport, and allowed with no other type" $.where $listener.name) -}}
{{- end -}}
{{- if and (ne $listener.type "loadbalancer") (or $listener.loadBalancerClass $listener.loadBalancerSourceRanges) -}}
{{- fail (printf "%s: loadBalancerClass and loadBalancerSourceRanges of %s: allowed with type loadbalancer only" $.where $listener.name) -}}
{{- end -}}
{{- $isHttp := and (eq $.tier "pulsar") (eq $port 8080) -}}
{{- if and $listener.tlsSecret (or $isHttp (not $isOpened)) -}}
{{- fail (printf "%s: tlsSecret of %s: this listener shares a port with the internal listener. Set tls_certificate_file and tls_key_file in the tier's settings.listeners.<listener>, or terminate TLS before the Service" $.where $listener.name) -}}
{{- end -}}
{{- if and $isOpened (not $isHttp) -}}
{{- if or (eq $port $own) (has $port $ports) -}}
{{- fail (printf "%s: the port %d of %s is already used by another listener of these servers" $.where $port $listener.name) -}}
{{- end -}}
{{- $ports = append $ports $port -}}
{{- end -}}
{{- end -}}
{{- end }}
