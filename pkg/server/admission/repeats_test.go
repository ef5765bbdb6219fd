package admission_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/server/admission"
)

// A Binding that is refused again and again is in the log the first time, and the tenth; the answer says each time why.
func TestRepeatsInTheLog(t *testing.T) {
	w := newWorld(t)
	w.add(pod("p", "5"))
	for range 12 {
		_, refusal := w.bind(binding("p", "a"))
		require.NotNil(t, refusal)
		assert.Contains(t, refusal.Message, `node "a" has too little cpu for pod ns/p: requested 5 CPU, 4 free`)
	}
	var times []any
	for _, entry := range w.Logs.AllEntries() {
		if entry.Level == logrus.InfoLevel && entry.Message == "admission" {
			times = append(times, entry.Data["times"])
		}
	}
	assert.Equal(t, []any{nil, 10}, times)
	assert.Equal(t, 12, w.count("refused"), "each is a decision")
	assert.Equal(t, 11, w.Counted(t, "repeated_bindings_total", "InsufficientResource", "naive"))
}

// BenchmarkRefusedBinding asks again and again for a Binding that is refused: the webhook from the body on, the
// decision, and of it the ledger's part.
func BenchmarkRefusedBinding(b *testing.B) {
	w := newWorld(b)
	w.Log.SetLevel(logrus.InfoLevel)
	w.Log.SetOutput(io.Discard)
	w.Log.ReplaceHooks(logrus.LevelHooks{})
	w.add(pod("p", "5"))
	ref := ledger.PodRef{Namespace: "ns", Name: "p", UID: "uid-p"}
	body := encode(b, review(b, "p", "pods", "binding", binding("p", "a")))
	b.Run("webhook", func(b *testing.B) {
		for b.Loop() {
			request := httptest.NewRequest(http.MethodPost, admission.Path, strings.NewReader(body))
			request.Header.Set("Content-Type", "application/json")
			w.router.ServeHTTP(httptest.NewRecorder(), request)
		}
	})
	b.Run("decision", func(b *testing.B) {
		for b.Loop() {
			_, err := w.arbiter.AdmitBinding(b.Context(), &arbiter.BindingQuery{Pod: ref, Node: "a", User: "naive"})
			require.Error(b, err)
		}
	})
	placement := w.info("p").Placement("a")
	b.Run("ledger", func(b *testing.B) {
		for b.Loop() {
			_, rejection := w.Ledger.StartBind(&placement, time0)
			require.NotNil(b, rejection)
		}
	})
	reads, _ := w.API.Reads()
	require.Zero(b, reads, "the watch has the pod")
}
