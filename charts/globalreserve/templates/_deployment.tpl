{{/* Changes the Deployment of manifests/base as the values have it. */}}
{{- define "globalreserve.deployment" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $spec := .object.spec -}}
{{- $pod := $spec.template.spec -}}
{{- $container := first $pod.containers -}}
{{- if eq $values.mode "in-scheduler" -}}
{{- $other := (index (include "globalreserve.objects" (dict "root" $root "file" "files/scheduler/second-local/deployment.yaml") | fromYaml).items 0).spec.template.spec -}}
{{- $program := first $other.containers -}}
{{- $_ := set $container "volumeMounts" (concat $program.volumeMounts $container.volumeMounts) -}}
{{- $_ := set $container "image" $program.image -}}
{{- $_ := set $container "args" $program.args -}}
{{- $_ := set $pod "volumes" (concat $other.volumes $pod.volumes) -}}
{{- else -}}
{{- $_ := set $container "args" (concat $container.args (include "globalreserve.flags" $root | fromYamlArray)) -}}
{{- if $values.tracing.endpoint -}}
{{- $_ := set $spec.template.metadata "annotations" (dict "checksum/tracing" ($values.tracing | toYaml | sha256sum)) -}}
{{- end -}}
{{- if $values.ui.enabled }}{{ $_ := set $container "args" (append $container.args "--ui-address=:23460") }}{{ end -}}
{{- end -}}
{{- if $values.ui.enabled -}}
{{- $_ := set $container "ports" (append $container.ports (dict "name" "ui" "containerPort" 23460 "protocol" "TCP")) -}}
{{- end -}}
{{- $_ := set $container "args" (concat $container.args $values.extraArgs) -}}
{{- include "globalreserve.container" (dict "root" $root "container" $container) -}}
{{- range $pod.volumes -}}
{{- if .secret }}{{ $_ := set .secret "secretName" $values.tls.secretName }}{{ end -}}
{{- end -}}
{{- $replicas := $values.observe | ternary 1 (int $values.replicas) -}}
{{- $_ := set $spec "replicas" $replicas -}}
{{- if eq $replicas 1 }}{{ $_ := set $spec "strategy" (dict "type" "Recreate") }}{{ end -}}
{{- $_ := set $pod "nodeSelector" (merge dict $values.nodeSelector $pod.nodeSelector) -}}
{{- $_ := set $pod "tolerations" (concat $pod.tolerations $values.tolerations) -}}
{{- with $values.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end -}}
{{- end -}}
