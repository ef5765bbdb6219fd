//go:build soak

package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/decide/decidetest"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/http/rest"
	"github.com/globalreserve/globalreserve/pkg/http/ui"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	largeNodes = 5000
	largePods  = 150_000
	loadWithin = 3 * time.Second
	mostMemory = 300 << 20
	leastRate  = 30 // pictures in a second
	loads      = 5  // at most
	lateAtMost = time.Second
)

// serveLarge serves the page of a ledger with many nodes and pods, whose names are as long as in a real cluster.
func serveLarge(t *testing.T) (l *ledger.Ledger, url string) {
	t.Helper()
	l = ledger.New(ledger.Options{FirstRevision: 1000, JournalSize: 65536})
	for i := range largeNodes {
		l.ObserveNode(ledger.NodeObservation{
			Name: fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i/250, i%250),
			UID:  types.UID(fmt.Sprintf("node-%032d", i)),
			Allocatable: []resources.Amount{
				{Column: resources.CPU, Value: 32_000},
				{Column: resources.Memory, Value: 128 << 30},
				{Column: resources.Pods, Value: 110},
			},
		})
	}
	for i := range largePods {
		l.ObservePod(largePod(i, i%largeNodes))
	}
	world := decidetest.NewWorld(l)
	asked := world.New(t, nil)
	serving, stop := context.WithCancel(t.Context())
	api := rest.New(rest.Options{
		Arbiter: asked, Waiting: world.Waiting, Ledger: l.Reader, Clock: world.Clock, Metrics: world.Metrics,
		Serving: serving, ResourceClaims: world.ResourceClaims,
		Intake: httpjson.NewIntake(96<<20, func(*http.Request) string { return "" }),
	})
	router := httpjson.NewRouter()
	api.Register(router)
	server := httptest.NewServer(ui.New(auth.Insecure(router)))
	t.Cleanup(func() {
		stop()
		server.CloseClientConnections()
		server.Close()
		assert.NoError(t, asked.Stop(t.Context()))
	})
	return l, server.URL
}

func largePod(i, node int) ledger.PodObservation {
	shapes := int64(1 + (i+i/largeNodes)%5)
	return ledger.PodObservation{
		Pod: ledger.PodRef{
			Namespace: fmt.Sprintf("team-%d", i%50),
			Name:      fmt.Sprintf("deployment-%d-7c9f8d6b5-%05d", i%300, i),
			UID:       types.UID(fmt.Sprintf("0f6c1a52-3a1f-4c56-9f3b-%012d", i)),
		},
		Node: fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", node/250, node%250),
		Request: &resources.Request{Amounts: []resources.Amount{
			{Column: resources.CPU, Value: 250 * shapes},
			{Column: resources.Memory, Value: shapes << 30},
			{Column: resources.Pods, Value: 1},
		}},
		Scheduler: []string{"default-scheduler", "batch-scheduler", "volcano"}[i%3],
	}
}

// A large cluster is there soon, takes little memory, and is drawn smoothly while much of it changes.
func TestLargeCluster(t *testing.T) {
	l, url := serveLarge(t)
	b := startBrowser(t)
	testbed.Measure(t, loads, func(try assert.TestingT) {
		b.open("about:blank")
		b.open(url)
		took := b.wait(soon, "globalreserve.account.value?.allocationCount === %d && globalreserve.drawn.cells >= %d",
			largePods, largeNodes)
		t.Logf("%d nodes and %d pods are shown after %s", largeNodes, largePods, took)
		assert.Less(try, took, loadWithin)
	})

	b.small("at first")
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := largePods; ; i += 50 {
			for k := range 50 { // 5,000 changes a second
				l.ObservePod(largePod(i+k, (i+k)%largeNodes))
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	testbed.Measure(t, loads, func(try assert.TestingT) {
		var rate struct{ Frames, Cells float64 }
		b.do(command{
			Do:     "eval",
			Script: `new Promise(done => { const d = globalreserve.drawn, was = {...d}, began = performance.now(); setTimeout(() => { const s = (performance.now() - began) / 1000; done({Frames: (d.frames - was.frames) / s, Cells: (d.cells - was.cells) / s}) }, 3000) })`,
		}, &rate)
		t.Logf("%.0f pictures and %.0f cells are drawn in a second", rate.Frames, rate.Cells)
		assert.Greater(try, rate.Frames, float64(leastRate))
		assert.Greater(try, rate.Cells, 1000.0, "too little changed to prove anything")
	})
	testbed.Measure(t, loads, func(try assert.TestingT) {
		revision, began := l.Revision(), time.Now()
		b.wait(soon, "globalreserve.account.value.revision >= %d", revision)
		t.Logf("the map is late by %s", time.Since(began))
		assert.Less(try, time.Since(began), lateAtMost)
	})
	close(stop)
	<-stopped
	b.wait(soon, "globalreserve.account.value.revision === %d", l.Revision())
	b.small("after all changes")
	b.fine("map of a large cluster")
}

// small fails where the page takes too much memory.
func (b *browser) small(when string) {
	b.t.Helper()
	var memory struct{ Total, Embedder, Backing int64 }
	b.do(command{Do: "memory"}, &memory)
	all := memory.Total + memory.Embedder + memory.Backing
	b.t.Logf("the page takes %d MiB %s", all>>20, when)
	assert.Less(b.t, all, int64(mostMemory), when)
}
