package election

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/election/forward"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// The server that decides is cut off from the API server, and from nobody else: those who ask it still reach it. It
// stops deciding before another one starts. Both are asked all the time, and say who decided.
func TestCutOffFromTheAPIServer(t *testing.T) {
	c := newCluster(t, shared.StartT(t), 1)
	proxy, err := c.StartFaultProxy()
	require.NoError(t, err)
	first := c.start("first", proxy, clusterload.SlowLease...)
	c.awaitLeader(first)
	second := c.start("second", nil, clusterload.SlowLease...)
	c.CreatePod("pod", nobody, "1")
	asking := &decisions{}
	stop := asking.follow(c, first, second)
	require.Eventually(t, func() bool { return len(asking.all()) == 1 }, testbed.Soon, testbed.Poll)
	cut := time.Now()
	require.NoError(t, proxy.Stop())
	require.Eventually(t, func() bool { return len(asking.all()) == 2 }, testbed.Soon, testbed.Poll)
	<-time.After(testbed.Never) // if the first one went on, it would be asked again
	stop()
	assert.True(t, first.Running(), "it cannot know yet that another one decides")
	assert.False(t, decides(t.Context(), first))
	all := asking.all()
	require.Len(t, all, 2)
	last, next := all[0].last, all[1].first
	assert.True(t, last.Before(next), "the last decision of one was asked for at %s, the first of the other known at %s", last, next)
	assert.Greater(t, last.Sub(cut), 5*time.Second, "it need not stop at once, nor when it cannot renew its Lease for the first time")
	t.Logf("cut off: decides for %s more, and the next one %s later", last.Sub(cut).Round(time.Millisecond), next.Sub(last).Round(time.Millisecond))
	c.RequireNeverOvercommitted()
}

// decisions are when servers decided that are asked all the time.
type decisions struct {
	mu sync.Mutex
	by map[string]*span
}

// span is when the first decision of a server was answered, and when its last one was asked for: it lies between these.
type span struct{ first, last time.Time }

// all returns the spans in the order of their beginnings.
func (d *decisions) all() []span {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []span
	for _, s := range d.by {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b span) int { return a.first.Compare(b.first) })
	return all
}

// follow asks each of the servers where a pod could go until it is stopped.
func (d *decisions) follow(c *cluster, servers ...*testbed.Server) (stop func()) {
	c.T.Helper()
	d.by = map[string]*span{}
	question := extenderv1.ExtenderArgs{Pod: c.Pod("pod"), NodeNames: &c.nodes}
	ctx, cancel := context.WithCancel(c.T.Context())
	var asking sync.WaitGroup
	for _, server := range servers {
		asking.Go(func() {
			for ; ctx.Err() == nil; <-time.After(testbed.Poll / 4) {
				asked := time.Now()
				reply, err := server.Send(ctx, http.MethodPost, testbed.FilterPath, question)
				var answer extenderv1.ExtenderFilterResult
				if err == nil && json.Unmarshal(reply.Body, &answer) == nil && answer.Error == "" {
					d.note(reply.Header.Get(forward.ServerHeader), asked, time.Now())
				}
			}
		})
	}
	stop = func() { cancel(); asking.Wait() }
	c.T.Cleanup(stop)
	return stop
}

func (d *decisions) note(server string, asked, answered time.Time) {
	if server == "" {
		return // it waited for one that decides, and was answered in the moment that there was one: others tell of that, too
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.by[server]
	if s == nil {
		s = &span{first: answered}
		d.by[server] = s
	}
	if asked.After(s.last) {
		s.last = asked
	}
}
