package client_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// A scheduler binds each pod in a goroutine of its own. The connections of as many binds as are under way at one time
// are kept for the next ones: 25 of 5 ms each are 5,000 pods a second.
func TestConnectionsOfBindsAreKept(t *testing.T) {
	const parallel, most = 25, 100
	var turn atomic.Pointer[sync.WaitGroup] // until all of a round are under way
	var opened atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		turn.Load().Done()
		turn.Load().Wait()
		assert.NoError(t, json.NewEncoder(w).Encode(&reserver.BindAnswer{}))
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	c := newClient(t, client.Options{URL: server.URL})
	round := func() int64 {
		before := opened.Load()
		all := &sync.WaitGroup{}
		all.Add(parallel)
		turn.Store(all)
		var binds sync.WaitGroup
		for i := range parallel {
			binds.Add(1)
			go func() {
				defer binds.Done()
				assert.NoError(t, c.Bind(t.Context(), &extenderv1.ExtenderBindingArgs{PodNamespace: "ns", PodName: "p" +
					strconv.Itoa(i), PodUID: "u", Node: "n"}))
			}()
		}
		binds.Wait()
		return opened.Load() - before
	}
	round()
	// Not all are kept each time: the transport gives up a connection of which it does not learn in time that the request
	// is written. With as few as http.Transport keeps, 23 would be opened in each round.
	rounds := 1
	for round() >= parallel/2 && rounds < most {
		rounds++
	}
	assert.Less(t, rounds, most)
}
