package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// askAs sends a request as a caller.
func (d *durable) askAs(caller, path string, request body) (int, reserver.Answer) {
	d.t.Helper()
	router := httpjson.NewRouter()
	d.api.Register(router)
	data, err := json.Marshal(request)
	require.NoError(d.t, err)
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(data))
	w := httptest.NewRecorder()
	router.ServeHTTP(w, r.WithContext(identity.As(r.Context(), &user.DefaultInfo{Name: caller})))
	var answer reserver.Answer
	require.NoError(d.t, json.Unmarshal(w.Body.Bytes(), &answer), w.Body.String())
	return w.Code, answer
}

// What a caller has reserved nobody else gives back, by whatever name of a scheduler, and after a change of leaders
// neither. Who comes by plain HTTP may do everything.
func TestOnlyTheCallerGivesBack(t *testing.T) {
	for name, inMemory := range map[string]bool{"an object": false, "in memory": true} {
		t.Run(name, func(t *testing.T) {
			d := newDurable(t)
			a, b := aPod("a", "1", "1Gi"), aPod("b", "1", "1Gi")
			request := gangOf("node-1 node-2", a, b)
			if inMemory {
				request.Durable = ptr.To(false)
			} else {
				request.Name = "job"
			}
			code, answer := d.askAs("alice", "/reserve", request)
			require.Equal(t, http.StatusOK, code, answer.Error)
			require.Empty(t, answer.Error)

			refused := func() {
				t.Helper()
				before := d.ledger.Revision()
				backs := []body{back(a, b), back(nameOnly(a)), gangOf("node-2", b)}
				if !inMemory {
					backs = append(backs, body{SchedulerName: testScheduler, Reservation: "team-a/job"})
				}
				for _, request := range backs {
					code, answer := d.askAs("bob", "/unreserve", request)
					assert.Equal(t, http.StatusForbidden, code)
					assert.Contains(t, answer.Error, "reserved by another caller")
				}
				assert.Equal(t, before, d.ledger.Revision())
			}
			refused()
			if !inMemory {
				d.restart()
				d.forget()
				refused()
			} else {
				larger := gangOf("node-1", aPod("a", "2", "1Gi"))
				larger.Durable = ptr.To(false)
				before := d.ledger.Revision()
				code, answer := d.askAs("bob", "/reserve", larger)
				assert.Equal(t, http.StatusOK, code)
				assert.Contains(t, answer.Error, "belongs to another scheduler or caller")
				assert.Equal(t, before, d.ledger.Revision())
			}
			code, answer = d.askAs("alice", "/unreserve", back(a))
			require.Equal(t, http.StatusOK, code, answer.Error)
			require.Empty(t, answer.Error)
			require.Empty(t, d.unreserve(back(b)).Error, "by plain HTTP")
		})
	}
}

// What is kept by those who may do everything is nobody else's.
func TestNobodyElseGivesBackWhatCameByPlainHTTP(t *testing.T) {
	d := newDurable(t)
	a, _, _ := aGang(d)
	code, _ := d.askAs("bob", "/unreserve", back(a))
	assert.Equal(t, http.StatusForbidden, code)
}

// An answer is repeated for the caller that got it.
func TestRepeatsAreTheCallers(t *testing.T) {
	for name, restart := range map[string]bool{"the same server": false, "another one": true} {
		t.Run(name, func(t *testing.T) {
			d := newDurable(t)
			request := gangOf("node-1", aPod("a", "1", "1Gi"))
			request.RequestID = "one"
			code, first := d.askAs("alice", "/reserve", request)
			require.Equal(t, http.StatusOK, code, first.Error)
			if restart {
				d.restart()
				d.forget()
			}
			code, other := d.askAs("bob", "/reserve", request)
			assert.Equal(t, http.StatusConflict, code, other)
			code, again := d.askAs("alice", "/reserve", request)
			assert.Equal(t, http.StatusOK, code)
			assert.Equal(t, first.Reservation, again.Reservation)
			assert.Empty(t, again.Error)
		})
	}
}
