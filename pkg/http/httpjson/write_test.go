package httpjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// TestWriteReadsBack: encoding/json, which kube-scheduler uses, reads what it would have written.
func TestWriteReadsBack(t *testing.T) {
	names := []string{"node-1", "node-<2>"}
	tests := map[string]any{
		"filter result": &extenderv1.ExtenderFilterResult{
			NodeNames:   &names,
			FailedNodes: extenderv1.FailedNodesMap{"a": "x", "b": "y"},
		},
		"priorities":     extenderv1.HostPriorityList{{Host: "node-1", Score: 10}},
		"empty result":   extenderv1.ExtenderBindingResult{},
		"nil slice":      extenderv1.HostPriorityList(nil),
		"filter request": &extenderv1.ExtenderArgs{Pod: typicalPod(), NodeNames: &names},
	}
	for name, v := range tests {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			Write(w, http.StatusOK, v)
			want, err := json.Marshal(v)
			require.NoError(t, err)
			assert.JSONEq(t, string(want), w.Body.String())
			assert.Equal(t, http.StatusOK, w.Code)
			assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
			assert.Equal(t, strconv.Itoa(w.Body.Len()), w.Header().Get("Content-Length"))
		})
	}
}

func TestWriteWhatCannotBeEncoded(t *testing.T) {
	w := httptest.NewRecorder()
	Write(w, http.StatusOK, map[string]any{"first": "part", "score": math.NaN()})
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	assert.Equal(t, strconv.Itoa(w.Body.Len()), w.Header().Get("Content-Length"))
	var answer ErrorBody
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer), "nothing of the first try is left: %s", w.Body)
	assert.Equal(t, http.StatusInternalServerError, answer.Status)
	assert.Contains(t, answer.Error, "cannot be written as JSON")
}

func TestWriteError(t *testing.T) {
	tests := map[string]struct {
		err    error
		status int
		text   string
	}{
		"plain":               {errors.New("broken"), 500, "broken"},
		"typed":               {Errorf(404, "no node %q", "a"), 404, `no node "a"`},
		"wrapped":             {fmt.Errorf("reserve: %w", Errorf(409, "taken")), 409, "reserve: taken"},
		"status not set":      {&Error{Message: "x"}, 500, "x"},
		"status of a success": {Errorf(200, "x"), 500, "x"},
		"status too high":     {Errorf(1000, "x"), 500, "x"},
		"invalid UTF-8":       {errors.New("a\xff"), 500, "a\ufffd"},
		"too much under way":  {Errorf(429, "x"), 429, "x"},
		"has to wait":         {Errorf(503, "x"), 503, "x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			WriteError(w, tt.err)
			assert.Equal(t, tt.status, w.Code)
			var answer map[string]any
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
			assert.Equal(t, map[string]any{"Error": tt.text, "Status": float64(tt.status)}, answer)
			retry := map[int]string{429: "1", 503: "1"}[tt.status]
			assert.Equal(t, retry, w.Header().Get("Retry-After"), "when to come back")
		})
	}
	w := httptest.NewRecorder()
	w.Header().Set("Retry-After", "7")
	WriteError(w, Errorf(503, "no"))
	assert.Equal(t, "7", w.Header().Get("Retry-After"))
}
