package rest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// onWrite is a client of which something is known the moment it is sent to.
type onWrite struct {
	http.ResponseWriter
	check  func()
	writes int
}

func (w *onWrite) Write(p []byte) (int, error) {
	w.writes++
	w.check()
	return w.ResponseWriter.Write(p)
}

func (w *onWrite) Flush() {}

// The server cannot know whether a client reads: nothing that others wait for may be held while it is sent to.
func TestNoTurnIsHeldWhileAnAnswerIsSent(t *testing.T) {
	const pod = `{"metadata":{"namespace":"default","name":"p","uid":"u"},"spec":{"containers":[{"name":"c"}]}}`
	for path, asked := range map[string]string{ // which is posted, if there is anything
		"/v1/nodes": "", "/v1/nodes/node-1": "", "/v1/nodes/node-9": "", "/v1/allocations": "", "/v1/reservations": "",
		"/v1/explain?pod=p": "", "/v1/watch": "", "/v1/whatif": `{"SchedulerName":"s","Pods":[` + pod + `]}`,
	} {
		t.Run(path, func(t *testing.T) {
			method := map[bool]string{true: http.MethodGet, false: http.MethodPost}[asked == ""]
			request := httptest.NewRequest(method, path, strings.NewReader(asked))
			f := newFixture(t, Limits{MinRevisionWait: time.Millisecond})
			recorder := httptest.NewRecorder()
			w := &onWrite{ResponseWriter: recorder}
			w.check = func() {
				if w.writes == 2 { // the snapshot and that this is all: a watch ends with the server
					f.endAll()
				}
				if path != "/v1/watch" { // whose snapshot can be taken from it
					assert.Zero(t, f.api.o.Intake.Used())
				}
				turns := make([]func(), max(1, runtime.GOMAXPROCS(0)/2)) // that is all there are
				for i := range turns {
					leave, err := f.api.o.Intake.Work(t.Context(), "another")
					require.NoError(t, err, "a turn is held")
					turns[i] = leave
				}
				for _, leave := range turns {
					leave()
				}
			}
			testRouter(f.api, f.log).ServeHTTP(w, request)
			assert.Positive(t, w.writes, recorder.Body)
		})
	}
}

// Whoever asks again and again does not have the API server list all pods for each request, and a server that ends does
// not wait for a comparison.
func TestOneRequestIsComparedForAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Limits{})
		f.diff = func(ctx context.Context) (*reserver.DiffAnswer, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		first := make(chan int, 1)
		go func() { first <- f.serve(http.MethodGet, "/debug/diff", "").Code }()
		synctest.Wait()
		second := f.serve(http.MethodGet, "/debug/diff", "")
		assert.Equal(t, http.StatusTooManyRequests, second.Code)
		assert.Contains(t, second.Body.String(), "ask again in a moment")
		began := time.Now()
		f.endAll()
		assert.Equal(t, http.StatusServiceUnavailable, <-first)
		assert.Zero(t, time.Since(began), "it ended with the server, and not with its time")
	})
}

func TestWhyNothingWasCompared(t *testing.T) {
	const unread = "not all pods have been read yet"
	for want, err := range map[string]error{
		"the ledger could not be compared with the API server: no route": errors.New("no route"),
		unread: httpjson.Errorf(http.StatusServiceUnavailable, unread),
	} {
		f := newFixture(t, Limits{})
		f.diff = func(context.Context) (*reserver.DiffAnswer, error) { return nil, err }
		answer := f.serve(http.MethodGet, "/debug/diff", "")
		assert.Equal(t, http.StatusServiceUnavailable, answer.Code)
		assert.Contains(t, answer.Body.String(), want)
	}
}
