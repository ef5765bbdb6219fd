//go:build chaos

package linear

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// replicas is how many servers there are.
const replicas = 3

// fleet is a control plane with several servers.
type fleet struct {
	testbed.Cluster
	servers []*replica
	clients []*client.Client // one of each server
	thought time.Duration    // the most that a client waits before a request
}

// replica is one server, which reaches the API server, and is reached by the others, through proxies.
type replica struct {
	*testbed.Server
	api   *controlplane.FaultProxy
	peers *line
}

func newFleet(t *testing.T, cp *controlplane.ControlPlane, thought time.Duration) *fleet {
	t.Helper()
	return &fleet{Cluster: testbed.NewCluster(t, cp), thought: thought}
}

// startReplicas starts the servers, without an election if there is to be none.
func (f *fleet) startReplicas(election bool) {
	f.T.Helper()
	for i := range replicas {
		proxy, err := f.StartFaultProxy()
		require.NoError(f.T, err)
		port, err := f.FreePort()
		require.NoError(f.T, err)
		r := &replica{api: proxy, peers: startLine(f.T, fmt.Sprintf("127.0.0.1:%d", port))}
		r.Server = testbed.StartServer(f.T, f.ControlPlane, clusterload.ServerOptions{
			Name: fmt.Sprint("server-", i), Proxy: proxy, StandBy: true, Args: []string{
				"--peer-address=" + r.peers.to, "--peer-advertise-url=https://" + r.peers.listener.Addr().String(),
				fmt.Sprintf("--leader-elect=%t", election), "--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s",
				"--leader-elect-retry-period=500ms", "--bind-timeout=2s", "--compare-interval=10s",
			},
		})
		f.servers = append(f.servers, r)
		f.clients = append(f.clients, f.client(r.URL))
	}
}

// client sends requests once.
func (f *fleet) client(url string) *client.Client {
	f.T.Helper()
	c, err := client.New(client.Options{URL: url, Timeout: 2500 * time.Millisecond, RetryFor: time.Nanosecond})
	require.NoError(f.T, err)
	f.T.Cleanup(c.Close)
	return c
}

// leader is the server that decides, nil where there is none.
func (f *fleet) leader() *replica {
	if all := f.leaders(); len(all) > 0 {
		return all[0]
	}
	return nil
}

// leaders are the servers that say that they decide.
func (f *fleet) leaders() (all []*replica) {
	for _, r := range f.servers {
		ctx, cancel := context.WithTimeout(f.T.Context(), time.Second)
		leads, err := r.Metric(ctx, "globalreserve_leader")
		cancel()
		if err == nil && leads == 1 {
			all = append(all, r)
		}
	}
	return all
}

func (f *fleet) awaitLeader() (leader *replica) {
	f.T.Helper()
	require.Eventually(f.T, func() bool {
		leader = f.leader()
		return leader != nil
	}, testbed.Soon, testbed.Poll)
	return leader
}

// line passes connections on, unless it is cut.
type line struct {
	listener net.Listener
	to       string

	mu    sync.Mutex // guards what follows
	isCut bool
	open  map[net.Conn]bool
}

func startLine(t testing.TB, to string) *line {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &line{listener: listener, to: to, open: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { l.pass(from) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.cut(true)
		running.Wait()
	})
	return l
}

func (l *line) pass(from net.Conn) {
	defer from.Close()
	to, err := new(net.Dialer).Dial("tcp", l.to)
	if err != nil || !l.enter(from, to) {
		return
	}
	defer l.leave(from, to)
	var copying sync.WaitGroup
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		copying.Go(func() {
			_, _ = io.Copy(pair[1], pair[0])
			from.Close()
			to.Close()
		})
	}
	copying.Wait()
}

// enter reports false where the line is cut.
func (l *line) enter(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		if l.isCut {
			c.Close()
		} else {
			l.open[c] = true
		}
	}
	return !l.isCut
}

func (l *line) leave(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(l.open, c)
	}
}

// cut ends all connections, and has no others made, or lets them be made again.
func (l *line) cut(isCut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = isCut
	if isCut {
		for c := range l.open {
			c.Close()
		}
	}
}

// awaitKnown waits until each server says that it knows nodes that were added, or the one that it passes that on to.
func (f *fleet) awaitKnown(nodes []string) {
	f.T.Helper()
	for _, server := range f.clients {
		f.Eventually(func(t *assert.CollectT) {
			answer, err := server.Nodes(f.T.Context())
			require.NoError(t, err)
			known := sets.New[string]()
			for i := range answer.Nodes {
				known.Insert(answer.Nodes[i].Name)
			}
			assert.Empty(t, sets.New(nodes...).Difference(known))
		})
	}
}
