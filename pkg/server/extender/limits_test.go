package extender

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

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

// All verbs share the budget. What fits in any memory does not wait for it.
func TestBodyBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node("a", 1000, 1000)
		small := `{"Pod":` + podText(t) + `,"NodeNames":["a"]}`
		large := small + strings.Repeat(" ", 64<<10)
		release, err := w.bodies.Take(t.Context(), math.MaxInt64)
		require.NoError(t, err)
		unknown := httptest.NewRequest(http.MethodPost, "/filter", strings.NewReader(small))
		unknown.ContentLength = -1
		for _, verb := range []string{"filter", "prioritize", "preempt"} {
			assert.Equal(t, http.StatusOK, w.post(verb, small).Code)
			busy := w.post(verb, large)
			assert.Equal(t, http.StatusServiceUnavailable, busy.Code)
			assert.Contains(t, busy.Body.String(), "try again in a few seconds")
		}
		recorder := httptest.NewRecorder()
		w.router.ServeHTTP(recorder, unknown)
		assert.Equal(t, http.StatusServiceUnavailable, recorder.Code, "its length is not known")

		release()
		assert.Equal(t, http.StatusOK, w.post("filter", large).Code)
		_, err = w.bodies.Take(t.Context(), math.MaxInt64)
		assert.NoError(t, err, "all of it was given back")
	})
}

func podText(t *testing.T) string {
	text, err := json.Marshal(newPod("p"))
	require.NoError(t, err)
	return string(text)
}
