package rest

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/user"
)

// A caller that may see one namespace of very many is told the same of it each time.
func TestPendingOfManyNamespaces(t *testing.T) {
	f := newFixture(t, Limits{})
	for k := range 2 * maxAsked {
		require.Error(t, f.tryBind(f.gang(fmt.Sprintf("team-%03d", k), fmt.Sprint("g", k), 2, "99")[0], "node-1"))
	}
	f.reads = map[string]bool{"team-007": true}
	for range 10 {
		status, answer := f.askAs(&user.DefaultInfo{Name: "bob"}, http.MethodGet, "/v1/pending", nil)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, answer, "team-007")
	}
}
