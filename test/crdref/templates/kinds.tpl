{{- define "gvList" -}}
{{- range . }}{{ template "group" . }}{{ end -}}
{{- end -}}

{{- define "group" -}}
`apiVersion: {{ .GroupVersionString }}`
{{ range .SortedKinds }}
- {{ $.TypeForKind . | markdownRenderTypeLink }}
{{- end }}
{{ range .SortedTypes }}{{ template "type" . }}{{ end }}
{{- end -}}

{{- define "type" -}}
{{- if or (markdownShouldRenderType .) .Members }}
## {{ .Name }}

{{ .Doc }}
{{ if .IsAlias }}
It is a {{ markdownRenderTypeLink .UnderlyingType }}.
{{ end -}}
{{ if .References }}
In: {{ range $i, $in := .SortedReferences }}{{ if $i }}, {{ end }}{{ markdownRenderTypeLink $in }}{{ end }}
{{ end -}}
{{ if .Members }}
| field | type | is | default | has to be |
|---|---|---|---|---|
{{ range .Members -}}
| `{{ .Name }}` | {{ markdownRenderType .Type }} | {{ if eq .Name "metadata" }}as of every object{{ else }}{{ markdownRenderFieldDoc .Doc }}{{ end }} | {{ markdownRenderDefault .Default }} | {{ range .Validation }}{{ markdownRenderFieldDoc . }}<br />{{ end }} |
{{ end -}}
{{ end -}}
{{ if .EnumValues }}
| value | is |
|---|---|
{{ range .EnumValues -}}
| `{{ .Name }}` | {{ markdownRenderFieldDoc .Doc }} |
{{ end -}}
{{ end -}}
{{ end -}}
{{- end -}}
