package election

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// The schedulers of a crowd, by how they come to the servers.
const (
	byExtender = "default-scheduler"
	byPlugin   = "globalreserve-scheduler"
	byWebhook  = "naive-scheduler"
)

// roomy is a node that nobody of the crowd uses.
const roomy = "roomy-0"

const (
	crowdNodes  = 16
	crowdSize   = 8
	mostPods    = 8 // of each scheduler
	mostGangs   = 5
	mostKept    = 4
	mostObjects = 4
)

// crowd uses three servers in all ways at once, each of them by one address for all servers.
type crowd struct {
	*cluster
	load         testbed.Load
	plain, hooks *testbed.Service
	client       *client.Client
	numbers      atomic.Int64
	forgiving    atomic.Bool // what must not happen, may

	mu     sync.Mutex        // guards what follows
	on     map[string]string // the node of each pod that was ever seen bound
	told   map[string]string // the node that each pod was said to be bound to
	pods   map[string][]string
	gangs  map[string]*gang // acknowledged, and nobody has tried to bind or give back one, by namespace/name
	kept   map[string]*gang // acknowledged, and nobody ever does
	failed []string         // what must not have happened
	ways   map[string]int   // pods that were seen bound, by their scheduler's name
}

// gang is a reservation for pods, each on its node.
type gang struct {
	pods  []*corev1.Pod
	nodes []string
}

// newCrowd starts three servers with more arguments, a kube-scheduler and a globalreserve-scheduler, and installs the
// webhook. Nobody has asked for anything yet.
func newCrowd(t *testing.T, cp *controlplane.ControlPlane, args ...string) *crowd {
	t.Helper()
	c := &crowd{
		on: map[string]string{}, told: map[string]string{}, pods: map[string][]string{}, gangs: map[string]*gang{}, kept: map[string]*gang{}, ways: map[string]int{},
	}
	c.cluster = &cluster{Cluster: testbed.NewCluster(t, cp, c.look)}
	c.nodes = c.AddNodes(crowdNodes, controlplane.NodeTemplate{})
	c.AddNodes(1, controlplane.NodeTemplate{Prefix: strings.TrimSuffix(roomy, "0")})
	c.ChangeNode(roomy, func(node *corev1.Node) { node.Spec.Unschedulable = true })
	var plain, hooks []testbed.Backend
	var webhook *clusterload.Webhook
	for i := range 3 {
		var err error
		webhook, err = clusterload.NewWebhook(cp)
		require.NoError(t, err)
		server := testbed.StartServer(t, cp, clusterload.ServerOptions{
			Name: fmt.Sprint("server-", i), StandBy: true, Args: slices.Concat(webhook.Args, []string{"--finished-reservation-ttl=1s"}, args),
		})
		c.servers = append(c.servers, server)
		plain = append(plain, testbed.Backend{Address: testbed.Host(server.URL), URL: server.URL})
		hooks = append(hooks, testbed.Backend{Address: testbed.Host(webhook.URL), URL: server.URL})
	}
	c.awaitAllReady()
	c.plain, c.hooks = testbed.NewService(t, plain), testbed.NewService(t, hooks)
	c.Ledger.URL = "http://" + c.plain.Address()
	var err error
	c.client, err = client.New(client.Options{URL: c.Ledger.URL, RetryFor: 2 * testbed.Soon})
	require.NoError(t, err)
	t.Cleanup(c.client.Close)
	webhook.URL = "https://" + c.hooks.Address() + "/admission"
	require.NoError(t, webhook.Install(t.Context(), cp, nil))
	c.StartKubeScheduler(byExtender, "default-scheduler.yaml")
	_, err = clusterload.StartPluginScheduler(t.Context(), cp, clusterload.PluginSchedulerOptions{Name: byPlugin, RemoteURL: c.Ledger.URL})
	require.NoError(t, err)
	return c
}

// awaitAllReady waits until every server says that it can be asked.
func (c *crowd) awaitAllReady() {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		c.revive()
		for _, s := range c.servers {
			assert.NoError(t, controlplane.HTTPReady(s.URL+"/readyz", nil)(c.T.Context()), s.Name())
		}
	})
}

// run has everybody go on until stop is called.
func (c *crowd) run() (stop func()) {
	naive := &clusterload.NaiveScheduler{Client: c.Client(), Name: byWebhook, Namespace: testbed.Namespace, Nodes: c.nodes}
	ctx, cancel := context.WithCancel(c.T.Context())
	var running sync.WaitGroup
	running.Go(func() { naive.Run(ctx) })
	c.load.Next = c.next
	stopLoad := c.load.Run(c.T, crowdSize)
	stop = func() { cancel(); stopLoad(); running.Wait() }
	c.T.Cleanup(stop)
	return stop
}

func (c *crowd) next() testbed.Deed {
	deeds := []testbed.Deed{
		c.schedule(byExtender), c.schedule(byPlugin), c.schedule(byWebhook), c.reserve, c.reserve, c.reserve, c.reserve, c.bindGang, c.giveBack, c.consume, c.ask,
	}
	deed := deeds[rand.IntN(len(deeds))]
	return func(ctx context.Context) error {
		<-time.After(20 * time.Millisecond) // others need the processors as well
		return deed(ctx)
	}
}

// look takes down where pods are. It is shown every event.
func (c *crowd) look(pod *corev1.Pod, _ bool) {
	if pod.Spec.NodeName == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.on[pod.Name] == "" {
		c.on[pod.Name] = pod.Spec.NodeName
		c.ways[pod.Spec.SchedulerName]++
	}
}

// fail takes down what must not happen.
func (c *crowd) fail(format string, args ...any) {
	if c.forgiving.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = append(c.failed, fmt.Sprintf(format, args...))
}

// add creates a pod; while there are many of its kind the oldest one is deleted.
func (c *crowd) add(ctx context.Context, kind, scheduler string, changes ...func(*corev1.Pod)) (*corev1.Pod, error) {
	pod := testbed.NewPod(fmt.Sprint(kind, "-", c.numbers.Add(1)), scheduler, fmt.Sprint(1+rand.IntN(2)), changes...)
	created, err := c.Client().CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	oldest := ""
	c.mu.Lock()
	c.pods[kind] = append(c.pods[kind], pod.Name)
	if all := c.pods[kind]; len(all) > mostPods {
		oldest, c.pods[kind] = all[0], all[1:]
	}
	c.mu.Unlock()
	if oldest != "" {
		err = c.remove(ctx, oldest)
	}
	return created, err
}

func (c *crowd) remove(ctx context.Context, pod string) error {
	err := c.Client().CoreV1().Pods(testbed.Namespace).Delete(ctx, pod, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// schedule leaves a pod to a scheduler. The capacity of some is kept when they are deleted.
func (c *crowd) schedule(scheduler string) testbed.Deed {
	return func(ctx context.Context) error {
		kept := testbed.Annotated(v1alpha1.ReservationAnnotation, "true", v1alpha1.ReservationIndexAnnotation, "kept", v1alpha1.ReservationTTLAnnotation, "5s")
		if rand.IntN(3) > 0 {
			kept = func(*corev1.Pod) {}
		}
		_, err := c.add(ctx, scheduler, scheduler, kept)
		return err
	}
}

// reserve keeps capacity for a gang of two pods.
func (c *crowd) reserve(ctx context.Context) error {
	c.mu.Lock()
	many := len(c.gangs) >= mostGangs
	c.mu.Unlock()
	if many {
		return nil
	}
	request := &reserver.Request{SchedulerName: nobody, TTLSeconds: 600}
	for range 2 {
		pod, err := c.add(ctx, fmt.Sprint("gang-", c.numbers.Add(1)), nobody)
		if err != nil {
			return err
		}
		request.Pods, request.Nodes = append(request.Pods, pod), append(request.Nodes, c.nodes[rand.IntN(len(c.nodes))])
	}
	answer, err := c.client.Reserve(context.WithoutCancel(ctx), request)
	var refused *reserver.RefusedError
	switch {
	case errors.As(err, &refused):
		return errors.Join(c.remove(ctx, request.Pods[0].Name), c.remove(ctx, request.Pods[1].Name))
	case err != nil:
		c.fail("reserve: %v", err)
		return nil
	case !answer.Durable: // it may be lost with the server
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g := &gang{request.Pods, request.Nodes}
	if len(c.kept) < mostKept {
		c.kept[answer.Reservation] = g
	} else {
		c.gangs[answer.Reservation] = g
	}
	return c.load.Did("reserve", nil)
}

// takeGang takes one that was acknowledged.
func (c *crowd) takeGang() (name string, g *gang) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, g = range c.gangs {
		delete(c.gangs, name)
		return name, g
	}
	return "", nil
}

// bindGang binds the pods of a gang, each of which has its capacity, and deletes them.
func (c *crowd) bindGang(ctx context.Context) error {
	name, g := c.takeGang()
	if g == nil {
		return nil
	}
	for i, pod := range g.pods {
		if err := c.bind(ctx, pod, g.nodes[i]); err != nil {
			c.fail("bind %s of %s, which was acknowledged: %v", pod.Name, name, err)
		}
	}
	_ = c.load.Did("bind a gang", nil)
	return errors.Join(c.remove(ctx, g.pods[0].Name), c.remove(ctx, g.pods[1].Name))
}

func (c *crowd) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	err := c.client.Bind(context.WithoutCancel(ctx), &extenderv1.ExtenderBindingArgs{
		PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID, Node: node,
	})
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.told[pod.Name] = node
	}
	return err
}

func (c *crowd) giveBack(ctx context.Context) error {
	name, g := c.takeGang()
	if g == nil {
		return nil
	}
	if _, err := c.client.Unreserve(context.WithoutCancel(ctx), &reserver.Request{SchedulerName: nobody, Reservation: name}); err != nil {
		c.fail("give back %s: %v", name, err)
	}
	_ = c.load.Did("give back", nil)
	return errors.Join(c.remove(ctx, g.pods[0].Name), c.remove(ctx, g.pods[1].Name))
}

// consume makes Reservations as people do, and binds pods that may use them, and what deleted pods had.
func (c *crowd) consume(ctx context.Context) error {
	list, err := c.Objects.GlobalreserveV1alpha1().Reservations(testbed.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	made := slices.DeleteFunc(list.Items, func(r v1alpha1.Reservation) bool { return !strings.HasPrefix(r.Name, "object-") })
	if len(made) < mostObjects {
		err = c.TryReservation(fmt.Sprint("object-", c.numbers.Add(1)), fmt.Sprintf(
			`{ttl: 4s, consumers: {index: kept}, slots: [{name: a, requests: {cpu: 1}}, {name: b, nodeName: %s, requests: {cpu: 2}}]}`,
			c.nodes[rand.IntN(len(c.nodes))]))
		return c.load.Did("object", err)
	}
	pod, err := c.add(ctx, "consumer", nobody, testbed.Annotated(v1alpha1.ReservationIndexAnnotation, "kept"))
	if err != nil {
		return err
	}
	err = c.bind(ctx, pod, c.nodes[rand.IntN(len(c.nodes))])
	var refused *reserver.BindError
	switch {
	case errors.As(err, &refused) && refused.Outcome != "unknown":
		return c.remove(ctx, pod.Name)
	case err != nil:
		c.fail("bind %s: %v", pod.Name, err)
		return nil
	}
	return c.load.Did("consume", nil)
}

// ask asks what any server answers, and does not ask again. It waits for as long as that takes: a slow answer is no broken
// connection.
func (c *crowd) ask(ctx context.Context) error {
	pod := testbed.NewPod("asked", byExtender, "1")
	pod.UID = "asked"
	reply, err := c.Ledger.Send(context.WithoutCancel(ctx), http.MethodPost, testbed.FilterPath, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &c.nodes})
	if err == nil && reply.Status == http.StatusOK {
		return c.load.Did("ask", nil)
	}
	_ = c.load.Did("ask in vain", nil)
	if err != nil {
		_ = c.load.Did("no answer", nil)
	}
	return fmt.Errorf("status %d: %w", reply.Status, err)
}

// requireBound fails unless pods were bound in each way.
func (c *crowd) requireBound() {
	c.T.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, way := range []string{byExtender, byPlugin, byWebhook, nobody} {
		assert.Greater(c.T, c.ways[way], 10, "%s: too few to prove anything", way)
	}
}

// requireGood fails unless what was promised was kept.
func (c *crowd) requireGood() {
	c.T.Helper()
	c.RequireNeverOvercommitted()
	require.Zero(c.T, c.Watcher.Gaps(), "events were lost: the verdict is not complete")
	c.awaitAllReady()
	c.Ledger = c.leader().Caller
	c.Eventually(func(t *assert.CollectT) {
		drift, err := c.Ledger.Metric(c.T.Context(), "globalreserve_ledger_drift")
		require.NoError(t, err)
		assert.Zero(t, drift, "the ledger differs from the cluster")
	})
	held := map[string]int{}
	for _, slot := range c.Held() {
		name, _, _ := strings.Cut(slot, "@")
		held[name[:strings.LastIndex(name, "/")]]++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.kept, c.gangs)
	for name, g := range c.kept {
		assert.Equal(c.T, len(g.pods), held[name], "%s was acknowledged", name)
	}
	for pod, node := range c.told {
		assert.Equal(c.T, node, c.on[pod], "%s was said to be bound", pod)
	}
	assert.Empty(c.T, c.failed)
	c.T.Logf("%d pods were said to be bound, %d gangs are kept; bound by scheduler: %v", len(c.told), len(c.kept), c.ways)
}
