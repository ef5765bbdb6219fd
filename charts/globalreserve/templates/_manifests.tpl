{{/*
The objects of a file of manifests/, which `make generate` copies into files/, in the namespace of the release, as
{items: [...]}. It takes root, file, and the labels that kustomize adds there.
*/}}
{{- define "globalreserve.objects" -}}
{{- $labels := .labels | default dict -}}
{{- $items := list -}}
{{- range splitList "\n---\n" (.root.Files.Get .file | replace "globalreserve-system" .root.Release.Namespace) -}}
{{- with fromYaml . -}}
{{- if not .kind }}{{ fail (printf "a file of the chart cannot be read: %v" .) }}{{ end -}}
{{- $_ := set .metadata "labels" (merge dict $labels (.metadata.labels | default dict)) -}}
{{- if not .metadata.labels }}{{ $_ := unset .metadata "labels" }}{{ end -}}
{{- $items = append $items . -}}
{{- end -}}
{{- end -}}
{{- dict "items" $items | toYaml -}}
{{- end -}}

{{/* Labels of what manifests/base has. */}}
{{- define "globalreserve.labels" -}}
app.kubernetes.io/name: globalreserve
app.kubernetes.io/part-of: globalreserve
{{- end -}}

{{/* The API server asks webhooks. admission: off in a file of values is false. */}}
{{- define "globalreserve.asked" -}}
{{- if and .Values.admission (ne (toString .Values.admission) "off") }}true{{ end -}}
{{- end -}}

{{/* What the values have the server do besides, as flags. */}}
{{- define "globalreserve.flags" -}}
{{- $flags := list -}}
{{- if eq (include "globalreserve.asked" .) "true" -}}
{{- $flags = append $flags (printf "--admission-client-names=%s" (join "," .Values.webhooks.clientNames)) -}}
{{- if eq .Values.admission "Warn" }}{{ $flags = append $flags "--admission-warn" }}{{ end -}}
{{- end -}}
{{- if .Values.observe }}{{ $flags = append $flags "--observe" }}{{ end -}}
{{- if .Values.tracing.endpoint }}{{ $flags = append $flags "--tracing-config-file=/etc/globalreserve/tracing.yaml" }}{{ end -}}
{{- toYaml $flags -}}
{{- end -}}

{{/* Sets in a container what the values say of it: its image, in the place of the one that manifests/ names, and its resources. */}}
{{- define "globalreserve.container" -}}
{{- $image := .root.Values.image -}}
{{- $name := first (splitList ":" .container.image) -}}
{{- if $image.registry }}{{ $name = printf "%s/%s" (trimSuffix "/" $image.registry) $name }}{{ end -}}
{{- $_ := set .container "image" (printf "%s:%s" $name ($image.tag | default .root.Chart.AppVersion)) -}}
{{- $_ := set .container "imagePullPolicy" $image.pullPolicy -}}
{{- with .root.Values.resources }}{{ $_ := set $.container "resources" . }}{{ end -}}
{{- end -}}

{{/* Values that do not go together. */}}
{{- define "globalreserve.check" -}}
{{- $asked := eq (include "globalreserve.asked" .) "true" -}}
{{- if eq .Values.mode "static-pod" -}}
{{- if eq .Values.tls.source "cert-manager" }}{{ fail "tls.source: cert-manager makes a Secret, which a static pod cannot mount: with mode static-pod put the certificate on each control-plane node, and leave tls.source at secret" }}{{ end -}}
{{- if .Values.monitoring.enabled }}{{ fail "monitoring.enabled: with mode static-pod the metrics are on loopback of each node, where no ServiceMonitor reaches them: apply manifests/monitoring/rules.yaml yourself, and scrape 127.0.0.1:23459 from the node" }}{{ end -}}
{{- end -}}
{{- if eq .Values.mode "in-scheduler" -}}
{{- if .Values.observe }}{{ fail "observe: the plugin of mode in-scheduler decides in its own process, and observes nothing: use mode standalone to observe first" }}{{ end -}}
{{- if .Values.tracing.endpoint }}{{ fail "tracing.endpoint: the scheduler of mode in-scheduler sends no spans" }}{{ end -}}
{{- end -}}
{{- if and (eq .Values.tls.source "cert-manager") (eq .Values.tls.secretName "globalreserve-ca") }}{{ fail "tls.secretName: globalreserve-ca is the Secret of the authority that cert-manager makes: give another name" }}{{ end -}}
{{- if and $asked (eq .Values.tls.source "secret") (not .Values.tls.caCert) }}{{ fail "tls.caCert: with admission the API server has to know whose certificate the server has: give its authority, --set-file tls.caCert=ca.crt, or tls.source=cert-manager" }}{{ end -}}
{{- end -}}

{{/* The policy file. */}}
{{- define "globalreserve.policy" -}}
{{- if .Values.policy -}}
{{- merge (dict "apiVersion" "config.globalreserve.io/v1alpha1" "kind" "GlobalReservePolicy") .Values.policy | toYaml -}}
{{- else -}}
{{- (index (include "globalreserve.objects" (dict "root" . "file" "files/base/policy.yaml") | fromYaml).items 0).data | values | first -}}
{{- end -}}
{{- end -}}

{{/* The files of the server: the policy, and where spans are sent. */}}
{{- define "globalreserve.files" -}}
{{- $files := dict "policy.yaml" (include "globalreserve.policy" .) -}}
{{- with .Values.tracing -}}
{{- if .endpoint -}}
{{- $_ := set $files "tracing.yaml" (printf "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: %q\nsamplingRatePerMillion: %d" .endpoint (int .samplingRatePerMillion)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $files -}}
{{- end -}}

{{/* Changes the NetworkPolicy of manifests/base: API servers are on their hosts' network, for which no namespace stands. */}}
{{- define "globalreserve.networkpolicy" -}}
{{- $rules := .object.spec.ingress -}}
{{- $schedulers := first $rules -}}
{{- $_ := set $schedulers "from" (concat $schedulers.from .root.Values.networkPolicy.from) -}}
{{- if eq (include "globalreserve.asked" .root) "true" -}}
{{- $_ := set .object.spec "ingress" (append $rules (dict "ports" $schedulers.ports)) -}}
{{- end -}}
{{- if .root.Values.ui.enabled -}}
{{- $_ := set $schedulers "ports" (append $schedulers.ports (dict "protocol" "TCP" "port" 23460)) -}}
{{- end -}}
{{- end -}}

{{/* Puts the user of a static pod's kubeconfig in the place of the service account of the server. */}}
{{- define "globalreserve.subjects" -}}
{{- $user := .root.Values.staticPod.user -}}
{{- range $i, $subject := .object.subjects -}}
{{- if eq $subject.kind "ServiceAccount" -}}
{{- $_ := set $subject "kind" "User" -}}
{{- $_ := set $subject "apiGroup" "rbac.authorization.k8s.io" -}}
{{- $_ := set $subject "name" $user -}}
{{- $_ := unset $subject "namespace" -}}
{{- end -}}
{{- end -}}
{{- range dig "spec" "rules" list .object -}}
{{- if and (kindIs "map" .) (hasKey . "subjects") }}{{ $_ := set . "subjects" (list (dict "kind" "User" "user" (dict "name" $user))) }}{{ end -}}
{{- end -}}
{{- end -}}
