package firstscheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	namespace = corev1.NamespaceDefault
	name      = "first-scheduler"
	poll      = 20 * time.Millisecond
	soon      = 30 * time.Second
)

// cluster is a control plane with nodes of 4 CPUs and a GlobalReserve server.
type cluster struct {
	*controlplane.ControlPlane
	t       *testing.T
	watcher *clusterload.Watcher
	server  *testbed.Server
	client  *client.Client
}

func newCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	c := &cluster{ControlPlane: shared.StartT(t), t: t}
	_, err := c.CreateNodes(t.Context(), nodes, controlplane.NodeTemplate{})
	require.NoError(t, err)
	c.watcher = testbed.Watch(t, c.ControlPlane)
	c.server = testbed.StartServer(t, c.ControlPlane, clusterload.ServerOptions{})
	c.client, err = client.New(client.Options{URL: c.server.URL})
	require.NoError(t, err)
	t.Cleanup(c.client.Close)
	return c
}

// start runs the scheduler against a server at url.
func (c *cluster) start(part, url string, args ...string) *controlplane.Process {
	c.t.Helper()
	kubeconfig, err := c.Kubeconfig("system:kube-scheduler")
	require.NoError(c.t, err)
	log := filepath.Join(c.LogDir(), part+".log")
	process, err := c.StartProcess(c.t.Context(), controlplane.ProcessOptions{
		Name: part, Path: testbed.Program(c.t, "firstscheduler"), LogFile: log,
		Args: append([]string{"--kubeconfig=" + kubeconfig, "--globalreserve-url=" + url}, args...),
		Ready: func(context.Context) error {
			if content, err := os.ReadFile(log); err != nil || !bytes.Contains(content, []byte("placing pods")) {
				return errors.New("it does not place pods yet")
			}
			return nil
		},
	})
	require.NoError(c.t, err)
	return process
}

func (c *cluster) create(pods ...*corev1.Pod) {
	c.t.Helper()
	require.NoError(c.t, clusterload.CreatePods(c.t.Context(), c.Client(), pods))
}

// awaitBound waits until so many pods have a node.
func (c *cluster) awaitBound(pods int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return c.watcher.Snapshot().Bound == pods }, soon, poll,
		"%d pods are to be bound", pods)
}

// bound returns the names of the pods that have a node.
func (c *cluster) bound() map[string]bool {
	c.t.Helper()
	list, err := c.Client().CoreV1().Pods(namespace).List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	names := map[string]bool{}
	for i := range list.Items {
		if list.Items[i].Spec.NodeName != "" {
			names[list.Items[i].Name] = true
		}
	}
	return names
}

func pods(prefix string, count int, cpu string) []*corev1.Pod {
	return clusterload.Batch{
		Namespace: namespace, Prefix: prefix, Scheduler: name, Count: count,
		Sizes: []corev1.ResourceList{{corev1.ResourceCPU: resource.MustParse(cpu)}},
	}.Pods()
}

// The pods of examples/nginx.yaml are placed, those of others are left alone, and pods without room
// wait for it.
func TestPlacesItsPods(t *testing.T) {
	c := newCluster(t, 2)
	c.start(name, c.server.URL)
	root, err := controlplane.RepositoryRoot()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(root, "examples", "nginx.yaml"))
	require.NoError(t, err)
	for document := range strings.SplitSeq(string(content), "---\n") {
		var pod corev1.Pod
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), &pod))
		pod.Namespace = namespace
		c.create(&pod)
	}
	foreign := pods("foreign", 1, "100m")
	foreign[0].Spec.SchedulerName = "somebody-else"
	c.create(foreign...)
	c.awaitBound(3)

	c.create(pods("large", 5, "3")...) // 5 x 3 CPU where 2 x 4 are, of which 1.5 are taken
	c.awaitBound(5)
	before := c.bound()
	assert.NotContains(t, before, "foreign-0")

	// Room that comes free is used by a pod that waits.
	var gone string
	for name := range before {
		if strings.HasPrefix(name, "large") {
			gone = name
		}
	}
	err = c.Client().CoreV1().Pods(namespace).Delete(t.Context(), gone, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		after := c.bound()
		return len(after) == 5 && !after[gone]
	}, soon, poll, "a pod that waited takes the room of %s", gone)
	assert.NotContains(t, c.bound(), "foreign-0")
	require.NoError(t, c.watcher.CatchUp(t.Context()))
	assert.Empty(t, c.watcher.Violations())
}

// A scheduler that is killed between its reserve and its bind leaves a reservation behind, and that is
// gone when its time is over: not before, and without anybody cleaning up.
func TestDiesBetweenReserveAndBind(t *testing.T) {
	c := newCluster(t, 1)
	target, err := url.Parse(c.server.URL)
	require.NoError(t, err)
	forward := httputil.NewSingleHostReverseProxy(target)
	binds, release := make(chan struct{}, 1), make(chan struct{})
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bind" { // goes no further
			select {
			case binds <- struct{}{}:
			default:
			}
			<-release
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)
	t.Cleanup(func() { close(release) })
	const ttl = 5 * time.Second
	process := c.start("doomed", between.URL, fmt.Sprint("--reservation-ttl=", ttl))
	began := time.Now()
	c.create(pods("pod", 1, "3")...)
	select {
	case <-binds:
	case <-time.After(soon):
		require.Fail(t, "it never came to bind")
	}
	require.NoError(t, process.Kill())
	explained, err := c.client.Explain(t.Context(), namespace, "pod-0")
	require.NoError(t, err)
	require.Equal(t, "Reserved", explained.State)
	require.Equal(t, "node-0", explained.Node)
	require.WithinRange(t, explained.ExpiresAt, began.Add(ttl-2*time.Second), time.Now().Add(ttl))

	require.Eventually(t, func() bool {
		nodes, err := c.client.Nodes(t.Context())
		return err == nil && nodes.Nodes[0].ClaimCount == 0 && nodes.Nodes[0].Resources["cpu"].Reserved == 0
	}, ttl+5*time.Second, poll, "the room is given back")
	assert.GreaterOrEqual(t, time.Since(began), ttl-time.Second, "and not before its time")
	assert.Zero(t, c.watcher.Snapshot().Bound)

	// The pod and its room are there for whoever comes next.
	c.start("next", c.server.URL)
	c.awaitBound(1)
	assert.Empty(t, c.watcher.Violations())
}
