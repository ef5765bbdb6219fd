package admission_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/globalreserve/globalreserve/pkg/http/admission"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/http/observe"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

// Who only observes allows everything as it is, and notes who binds.
func TestObserving(t *testing.T) {
	w := newWorld(t)
	observer := observe.New(observe.Options{Arbiter: w.arbiter, Log: w.Log})
	router := httpjson.NewRouter()
	admission.New(admission.Options{
		Arbiter: w.arbiter, Intake: httpjson.NewIntake(1<<20, func(*http.Request) string { return "" }),
		Metrics: w.Metrics, Log: w.Log, Observer: observer,
	}).Register(router)
	number := uint64(0)
	for i, path := range []string{admission.Path, admission.PodsPath, admission.ResourceClaimsPath} {
		for _, dry := range []bool{false, true} {
			name := fmt.Sprintf("%d-%t", i, dry)
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(
				`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{
				"uid":"1","kind":{"version":"v1","kind":"Binding"},"resource":{"version":"v1","resource":"pods"},
				"subResource":"binding","operation":"CREATE","namespace":"ns","name":"`+name+`",
				"userInfo":{"username":"alice"},"object":{"target":{"name":"a"}},"dryRun":`+fmt.Sprint(dry)+`}}`))
			r.Header.Set("Content-Type", "application/json")
			recorder := httptest.NewRecorder()
			router.ServeHTTP(recorder, r)
			assert.Equal(t, http.StatusOK, recorder.Code)
			assert.JSONEq(t,
				`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"1","allowed":true}}`,
				recorder.Body.String())

			tooLarge := pod(name, "5")
			tooLarge.Spec.NodeName = "a"
			w.add(tooLarge)
			observer.Bound(w.info(name))
			said, last := w.Waiting.RefusalsAfter(number)
			number = last
			if assert.Len(t, said, 1) {
				assert.Equal(t, name, said[0].Rejection.Pod.Name)
				want := map[bool][2]string{false: {requeue.Admission, "alice"}, true: {requeue.Watch, ""}}[dry]
				assert.Equal(t, want, [2]string{said[0].Path, said[0].Caller})
			}
		}
	}
	assert.Zero(t, w.Counted(t, "decisions_total"), "nothing is decided")
}
