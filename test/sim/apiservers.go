package sim

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/test/sim/fakekube"
)

// apiServers are the two API servers of a cluster, on one etcd.
type apiServers struct {
	etcd     *fakekube.Etcd
	webhooks http.RoundTripper
	others   *others
	ending   sync.WaitGroup // those that others have taken the place of

	mu      sync.Mutex // guards running
	running [2]*fakekube.Server
}

// newAPIServers starts both.
func newAPIServers(etcd *fakekube.Etcd, webhooks http.RoundTripper, others *others) (*apiServers, error) {
	a := &apiServers{etcd: etcd, webhooks: webhooks, others: others}
	for i := range a.running {
		var err error
		if a.running[i], err = fakekube.New(etcd, webhooks, others); err != nil {
			a.close()
			return nil, err
		}
	}
	return a, nil
}

func (a *apiServers) at(i int) *fakekube.Server {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running[i]
}

// longestCall is longer than any request but a watch takes.
const longestCall = 15 * time.Second

// restart has a new API server take the place of one. What the old one still does it ends, but for watches.
func (a *apiServers) restart(i int) error {
	next, err := fakekube.New(a.etcd, a.webhooks, a.others)
	if err != nil {
		return err
	}
	a.ending.Go(func() {
		time.Sleep(settleTime)
		a.mu.Lock()
		next, a.running[i] = a.running[i], next
		a.mu.Unlock()
		time.Sleep(longestCall)
		next.Close()
	})
	return nil
}

func (a *apiServers) close() {
	a.ending.Wait()
	for _, s := range a.running {
		if s != nil {
			s.Close()
		}
	}
}

// config is that of a client to which nothing happens.
func (a *apiServers) config(user string) *rest.Config {
	return &rest.Config{Host: "http://kube-apiserver", Transport: &route{to: a, user: user}, QPS: -1}
}

// route is how a client reaches the API servers. It implements http.RoundTripper.
type route struct {
	to   *apiServers
	user string

	mu     sync.Mutex // guards what follows
	at     int        // the one that is asked
	random *rand.Rand // nil: it never asks the other one
}

// changes is of how many requests one goes to the other API server, and those after it.
const changes = 50

// RoundTrip implements http.RoundTripper.
func (r *route) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	if r.random != nil && r.random.IntN(changes) == 0 {
		r.at = 1 - r.at
	}
	at := r.at
	r.mu.Unlock()
	return r.to.at(at).Config(r.user).Transport.RoundTrip(request)
}

// restartAPIServer has another process take the place of one of the API servers, which remembers no earlier changes.
func (c *Cluster) restartAPIServer(context.Context) {
	i := c.random.IntN(2)
	c.note("API", "API server %d is restarted", i)
	if err := c.kube.restart(i); err != nil {
		c.fail("%v", err)
	}
}

// longestBehind is the longest that the second API server hears later of changes than the first, in milliseconds.
const longestBehind = 20000

// lagAPIServer has the second API server hear later of changes.
func (c *Cluster) lagAPIServer(context.Context) {
	by := milliseconds(c.random, longestBehind)
	if c.random.IntN(2) == 0 {
		by = 0
	}
	c.note("API", "API server 1 is behind by %s", by)
	c.kube.at(1).Lag(by)
}

// compact has etcd forget what was.
func (c *Cluster) compact(context.Context) {
	c.note("API", "etcd is compacted")
	c.etcd.Compact()
}
