package extender

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A short entry of a body must not become a long one of an answer any number of
// times.
func TestNumberOfNodesIsBounded(t *testing.T) {
	tests := map[string]struct{ verb, open, entry, end string }{
		"filter":             {"filter", `"NodeNames":[`, `"a"`, `]`},
		"filter whole":       {"filter", `"Nodes":{"items":[`, `{"metadata":{"name":"a"}}`, `]}`},
		"prioritize":         {"prioritize", `"NodeNames":[`, `"a"`, `]`},
		"prioritize whole":   {"prioritize", `"Nodes":{"items":[`, `{"metadata":{"name":"a"}}`, `]}`},
		"preempt":            {"preempt", `"NodeNameToMetaVictims":{`, `"#":{}`, `}`},
		"preempt whole pods": {"preempt", `"NodeNameToVictims":{`, `"#":null`, `}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("a", 1000, 1000)
			body := func(n int) string {
				entries := make([]string, n)
				for i := range entries {
					entries[i] = strings.ReplaceAll(tt.entry, "#", strconv.Itoa(i))
				}
				return `{"Pod":` + podText(t) + `,` + tt.open + strings.Join(entries, ",") + tt.end + `}`
			}
			assert.Equal(t, http.StatusOK, w.post(tt.verb, body(maxNodes)).Code)
			refused := w.post(tt.verb, body(maxNodes+1))
			assert.Equal(t, http.StatusBadRequest, refused.Code)
			assert.Contains(t, refused.Body.String(), "has more than the limit of 100000 elements")
		})
	}
}

// What a request takes is given back with its answer, also where that is an error.
func TestIntakeIsGivenBack(t *testing.T) {
	w := newWorld(t)
	w.node("a", 1000, 1000)
	for _, verb := range []string{"filter", "prioritize", "preempt", "bind"} {
		for _, body := range []string{`{"Pod":` + podText(t) + `,"NodeNames":["a"]}`, `{}`, `{`} {
			w.post(verb, body+strings.Repeat(" ", 10<<10))
			assert.Zero(t, w.o.Intake.Used(), "%s %s", verb, body)
		}
	}
}

func podText(t *testing.T) string {
	text, err := json.Marshal(newPod("p"))
	require.NoError(t, err)
	return string(text)
}
