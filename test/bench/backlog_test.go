package bench

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	// backlogPods wait and cannot be placed, in a namespace of their own.
	backlogPods      = 5000
	backlogNamespace = "backlog"
	// comingRate is how many pods that fit come in each second, for comingTime. A plain kube-scheduler binds 30 a second
	// on two cores where 5,000 wait: it looks at all of these after each bind.
	comingRate = 20
	comingTime = 40 * time.Second
)

// backlogRun is what one run of BenchmarkBacklog came to.
type backlogRun struct {
	p50, p99          time.Duration // from the create of a pod that fits to the news of its bind
	scheduler, server float64       // processors that were in use
	wakeups, vain     float64       // of the server; 0 where there is none
}

// reason is why the pods of the backlog cannot be placed.
type reason struct {
	text  string
	cpu   string // what each asks for
	quota bool   // their namespace may use less than that, which nobody but GlobalReserve holds against pods that exist
}

var (
	tooLarge  = reason{text: "larger nodes", cpu: "33"}
	overQuota = reason{text: "a quota", cpu: "2", quota: true}
)

// BenchmarkBacklog has 20 pods a second come that fit, beside 5,000 that wait and do not.
func BenchmarkBacklog(b *testing.B) {
	c := startCluster(b)
	require.NoError(b, c.CreateNamespace(b.Context(), backlogNamespace))
	server := globalReserve()
	setups := []setup{
		{name: "plain, 2%", scheduler: plainScheduler(shippedSample)},
		{name: "default-scheduler.yaml", start: server, scheduler: shipped("default-scheduler.yaml")},
		{name: "plugin/local.yaml", scheduler: pluginScheduler},
	}
	for b.Loop() {
		say("SUMMARY | scheduler | %d pods wait for | bind p50 | p99 | processors: scheduler | server | wake-ups | in vain |",
			backlogPods)
		for _, why := range []reason{overQuota, tooLarge} {
			for _, s := range setups {
				if why.quota && s.name == setups[0].name {
					continue
				}
				r := measureBacklog(b, c, s, why)
				say("SUMMARY | %s | %s | %d ms | %d ms | %.2f | %.2f | %.0f | %.0f |", s.name, why.text,
					r.p50.Milliseconds(), r.p99.Milliseconds(), r.scheduler, r.server, r.wakeups, r.vain)
			}
		}
	}
}

// measureBacklog runs one setup.
func measureBacklog(b *testing.B, c *controlplane.ControlPlane, s setup, why reason) backlogRun {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 2*runTimeout)
	defer cancel()
	var server *controlplane.Process
	var url string
	if s.start != nil {
		server, url = s.start(b, c)
	}
	waiting, err := createPods(ctx, c.Client(), backlogPods, func(_ int, pod *corev1.Pod) {
		pod.Namespace = backlogNamespace
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(why.cpu)
	})
	require.NoError(b, err)
	if why.quota {
		defer limitBacklog(b, c)()
	}
	refused := watchPods(ctx, b, c, backlogNamespace, latest(waiting), "")
	defer refused.Stop()
	scheduler := startScheduler(b, c, s, url)
	awaitRefusals(ctx, b, refused)

	before := time.Now()
	result := backlogRun{scheduler: -usedBy(b, scheduler).Seconds(), server: -usedBy(b, server).Seconds()}
	times := comeAndBind(ctx, b, c, latest(waiting))
	seconds := time.Since(before).Seconds()
	result.scheduler = (result.scheduler + usedBy(b, scheduler).Seconds()) / seconds
	result.server = (result.server + usedBy(b, server).Seconds()) / seconds
	result.p50, result.p99 = times[len(times)/2], times[len(times)*99/100]
	if url != "" {
		metrics, err := testbed.Caller{URL: url}.Metrics(ctx)
		require.NoError(b, err)
		result.wakeups = metrics.Sum("globalreserve_wakeups_total")
		result.vain = metrics.Sum("globalreserve_wakeups_in_vain_total")
	}
	for _, process := range []*controlplane.Process{scheduler, server} {
		if process != nil {
			_, err = process.Stop()
			require.NoError(b, err)
		}
	}
	for _, ns := range []string{namespace, backlogNamespace} {
		require.NoError(b, clusterload.DeletePods(ctx, c.Client(), ns))
	}
	return result
}

// limitBacklog sets a quota for the backlog until it is taken back. The API server holds quotas against pods when they
// are made, so it comes after them.
func limitBacklog(b *testing.B, c *controlplane.ControlPlane) (takeBack func()) {
	b.Helper()
	quotas := c.Client().CoreV1().ResourceQuotas(backlogNamespace)
	quota, err := quotas.Create(b.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("1")}},
	}, metav1.CreateOptions{})
	require.NoError(b, err)
	return func() { require.NoError(b, quotas.Delete(b.Context(), quota.Name, metav1.DeleteOptions{})) }
}

// awaitRefusals returns when every pod of the backlog was refused once.
func awaitRefusals(ctx context.Context, b *testing.B, pods watch.Interface) {
	b.Helper()
	refused := sets.Set[string]{}
	for refused.Len() < backlogPods {
		select {
		case <-ctx.Done():
			b.Fatalf("%d of %d pods were refused: %v", refused.Len(), backlogPods, ctx.Err())
		case event := <-pods.ResultChan():
			if pod, ok := event.Object.(*corev1.Pod); ok && len(pod.Status.Conditions) > 0 {
				refused.Insert(pod.Name)
			}
		}
	}
}

// comeAndBind has pods that fit come one by one, and returns how long each took to be bound, in order.
func comeAndBind(ctx context.Context, b *testing.B, c *controlplane.ControlPlane, since string) []time.Duration {
	b.Helper()
	const pods = comingRate * int(comingTime/time.Second)
	binds := watchPods(ctx, b, c, namespace, since, "spec.nodeName!=")
	defer binds.Stop()
	came := make(map[string]time.Time, pods)
	times := make([]time.Duration, 0, pods)
	ticker := time.NewTicker(time.Second / comingRate)
	defer ticker.Stop()
	var creating errgroup.Group
	for len(times) < pods {
		select {
		case <-ctx.Done():
			b.Fatalf("%d of %d pods were bound: %v", len(times), pods, ctx.Err())
		case <-ticker.C:
			if len(came) == pods {
				continue
			}
			pod := typicalPod("coming-"+strconv.Itoa(len(came)), "100m", "128Mi")
			came[pod.Name] = time.Now()
			creating.Go(func() error {
				_, err := c.Client().CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
				return err
			})
		case event := <-binds.ResultChan():
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Added {
				times = append(times, time.Since(came[pod.Name]))
			}
		}
	}
	require.NoError(b, creating.Wait())
	slices.Sort(times)
	return times
}
