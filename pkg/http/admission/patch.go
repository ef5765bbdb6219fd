package admission

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/decide"
)

// patch is a JSON patch (RFC 6902). Its operations are "add", which also replaces, and "remove".
type patch []operation

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func (p *patch) set(path string, value any) {
	*p = append(*p, operation{Op: "add", Path: path, Value: value})
}

// disown takes the records out of an object under review that has these annotations. The sender has made them up, or
// copied them from another object. It returns what is left.
func (p *patch) disown(present map[string]string) map[string]string {
	left := maps.Clone(present)
	for _, name := range decide.Records {
		if _, ok := left[name]; ok {
			*p = append(*p, operation{Op: "remove", Path: annotationPath(name)})
			delete(left, name)
		}
	}
	return left
}

// disownUnread is disown for an object of which nothing else counts, as it is refused. Where refusals are only warnings
// the API server goes on with it.
func (p *patch) disownUnread(object []byte) {
	var read struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(object, &read) // the API server itself refuses annotations that are no texts
	p.disown(read.Metadata.Annotations)
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
			p.set(annotationPath(name), annotations[name])
		}
	}
}

func annotationPath(name string) string {
	return "/metadata/annotations/" + pointerEscapes.Replace(name)
}

// pointerEscapes are those of a JSON pointer (RFC 6901).
var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")
