package admission

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
)

// Who only observes allows everything as it is, and notes who binds.
func TestObserving(t *testing.T) {
	var asked []string
	router := httpjson.NewRouter()
	NewObserving(ObserveOptions{
		Asked: func(caller string, pod ledger.PodRef, node string) {
			asked = append(asked, caller+" "+pod.String()+" "+node)
		},
		Intake: httpjson.NewIntake(1<<20, func(*http.Request) string { return "" }), Metrics: metrics.New(),
		Log: logrus.New(),
	}).Register(router)
	for _, path := range []string{Path, PodsPath, ResourceClaimsPath} {
		for _, dry := range []string{"false", "true"} {
			r := httptest.NewRequest(http.MethodPost, path,
				strings.NewReader(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{
				"uid":"1","kind":{"version":"v1","kind":"Binding"},"resource":{"version":"v1","resource":"pods"},
				"subResource":"binding","operation":"CREATE",
				"namespace":"n","name":"p","userInfo":{"username":"alice"},"object":{"target":{"name":"a"}},"dryRun":`+dry+`}}`))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			router.ServeHTTP(w, r)
			assert.Equal(t, http.StatusOK, w.Code)
			assert.JSONEq(t,
				`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"1","allowed":true}}`,
				w.Body.String())
		}
	}
	assert.Equal(t, []string{"alice n/p a", "alice n/p a", "alice n/p a"}, asked)
}
