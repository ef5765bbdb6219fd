//go:build costs && unix

package extender

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/costs"
)

// A filter call with 500 names, half of which have no capacity, is decoded, decided and answered.
func TestCosts(t *testing.T) {
	for name, known := range map[string]bool{"filter 500 nodes, pod known": true, "filter 500 nodes, pod decoded": false} {
		t.Run(name, func(t *testing.T) {
			w, body := benchWorld(t, 2, known)
			answer, reader := discard{http.Header{}}, bytes.NewReader(body)
			request := httptest.NewRequest(http.MethodPost, "/", reader)
			request.Header.Set("Content-Type", "application/json")
			costs.Check(t, name, func() {
				reader.Reset(body)
				request.Body = io.NopCloser(reader)
				require.NoError(t, w.filter(answer, request))
			})
		})
	}
}
