package httpjson

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func BenchmarkDecode(b *testing.B) {
	body := filterBody(b, 500)
	w := discard{http.Header{}}
	reader := bytes.NewReader(body)
	r := httptest.NewRequest(http.MethodPost, "/filter", reader)
	r.Header.Set("Content-Type", "application/json")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		reader.Reset(body)
		require.NoError(b, decode(w, r, 1<<20, new(extenderv1.ExtenderArgs)))
	}
}

func BenchmarkWrite(b *testing.B) {
	var args extenderv1.ExtenderArgs
	require.NoError(b, json.Unmarshal(filterBody(b, 500), &args))
	refused := extenderv1.FailedNodesMap{}
	for _, name := range *args.NodeNames {
		refused[name] = "not enough capacity in the ledger"
	}
	for name, v := range map[string]*extenderv1.ExtenderFilterResult{
		"all fit":  {NodeNames: args.NodeNames},
		"none fit": {NodeNames: &[]string{}, FailedNodes: refused},
	} {
		b.Run(name, func(b *testing.B) {
			w := discard{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				Write(w, http.StatusOK, v)
			}
		})
	}
}
