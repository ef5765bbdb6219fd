package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/background"
)

func refusedPod(i int) ledger.PodRef {
	name := fmt.Sprint("p", i)
	return ledger.PodRef{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}
}

// told is what a server was told: how many pods by each request, and which was the first of them.
type told struct {
	counts []int
	firsts []string
	at     []time.Duration
	err    error
	takes  time.Duration
}

// newTold returns a teller that runs until the test ends. It is for a synctest bubble.
func newTold(t *testing.T) (*told, *teller, *logtest.Hook) {
	log, hook := logtest.NewNullLogger()
	var server told
	started := time.Now()
	teller := newTeller(func(ctx context.Context, pods []ledger.PodRef) error {
		server.counts, server.firsts = append(server.counts, len(pods)), append(server.firsts, pods[0].Name)
		server.at = append(server.at, time.Since(started))
		select {
		case <-time.After(server.takes):
			return server.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}, log)
	background.Run(t, teller.run)
	return &server, teller, hook
}

// Pods are told of in batches, one request at a time and few in a second, and one that is refused again meanwhile once.
func TestRefusedPodsAreToldInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, teller, _ := newTold(t)
		server.takes = time.Second
		teller.add(refusedPod(0))
		synctest.Wait() // it is told of
		for range 3 {
			for i := range 250 {
				teller.add(refusedPod(i))
			}
		}
		<-time.After(time.Minute)
		synctest.Wait()
		assert.Equal(t, []int{1, 100, 100, 50}, server.counts)
		assert.Equal(t, []string{"p0", "p0", "p100", "p200"}, server.firsts)
		step := server.takes + tellPause
		assert.Equal(t, []time.Duration{0, step, 2 * step, 3 * step}, server.at)
	})
}

// While the server is away no more than so many pods are kept, the oldest go first, nobody waits, and the log says it once.
func TestRefusedPodsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, teller, hook := newTold(t)
		server.takes, server.err = time.Second, errors.New("away")
		teller.add(refusedPod(-1))
		synctest.Wait()
		began := time.Now()
		for i := range maxUntold + 10 {
			teller.add(refusedPod(i))
		}
		assert.Equal(t, began, time.Now())
		teller.mu.Lock()
		assert.Len(t, teller.untold, maxUntold)
		assert.Len(t, teller.known, maxUntold)
		teller.mu.Unlock()
		<-time.After(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"p-1", "p10", "p110"}, server.firsts[:3])
		assert.Len(t, server.counts, 1+maxUntold/maxTold, "what is not taken is dropped")
		assert.Empty(t, teller.known)
		warnings := func() (count int) {
			for _, e := range hook.AllEntries() {
				if e.Level == logrus.WarnLevel {
					count++
				}
			}
			return count
		}
		assert.Equal(t, 1, warnings())

		for i, err := range []error{nil, errors.New("away again")} {
			server.err = err
			teller.add(refusedPod(i))
			<-time.After(time.Minute)
			synctest.Wait()
		}
		assert.Equal(t, 2, warnings())
	})
}

func TestRefusedTellsTheServer(t *testing.T) {
	var asked reserver.RefusedRequest
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/v1/refused", r.URL.Path)
		answering(t, http.StatusOK, &reserver.ToldAnswer{Remembered: 1}, &asked)(w, r)
	})
	require.NoError(t, b.tell(t.Context(), []ledger.PodRef{refusedPod(1)}))
	assert.Equal(t, []reserver.PodName{{Namespace: "ns", Pod: "p1", UID: "uid-p1"}}, asked.Pods)

	b.teller = newTeller(b.tell, b.log)
	b.Refused(&cluster.Pod{Ref: refusedPod(2)}, []string{"n"})
	assert.Equal(t, []ledger.PodRef{refusedPod(2)}, b.teller.next())
}
