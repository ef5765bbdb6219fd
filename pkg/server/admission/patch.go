package admission

import (
	"maps"
	"slices"
	"strings"
)

// patch is a JSON patch (RFC 6902). All operations are "add", which also replaces.
type patch []operation

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func (p *patch) set(path string, value any) {
	*p = append(*p, operation{Op: "add", Path: path, Value: value})
}

// annotate sets annotations of an object that has these.
func (p *patch) annotate(present, annotations map[string]string) {
	if len(annotations) == 0 {
		return
	}
	if present == nil {
		p.set("/metadata/annotations", annotations)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if value, ok := present[name]; !ok || value != annotations[name] {
			p.set("/metadata/annotations/"+pointerEscapes.Replace(name), annotations[name])
		}
	}
}

// pointerEscapes are those of a JSON pointer (RFC 6901).
var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")
