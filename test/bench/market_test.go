package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/globalreserve/globalreserve/examples/gangscheduler/gangsched"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

const (
	// gangSize are of gangMilli each, and must all run.
	gangSize  = 4
	gangMilli = 2000
	// gangPatience is how long a gang may run in part before it counts as half, and its users make it anew.
	gangPatience = 5 * time.Second
	// meanLife is how long a job runs from when all of its pods do.
	meanLife = 8 * time.Second
	// favor is how long half of all that is wanted is one scheduler's: what each wants changes, as it does in life.
	favor = 10 * time.Second
	// turn is how often jobs end and come.
	turn = 20 * time.Millisecond
)

// podMillis are the requests of the pods that are in no gang.
var podMillis = []int64{500, 1000, 2000, 4000}

// job is a pod, or a gang of them, that one scheduler is to place.
type job struct {
	scheduler string
	pool      int
	milli     int64 // of each pod
	size      int
	asked     time.Time
	running   map[string]bool // its pods
	first     time.Time       // when its first pod ran
	ends      time.Time       // zero before all of its pods run
}

// market has pods come to several schedulers and go again, so that what pods want together stays a share of what the
// nodes have. It plays the users, who make what has failed anew, and the kubelets, which fail a pod that does not fit
// where it was bound. Only CPU counts.
type market struct {
	c     *controlplane.ControlPlane
	way   way
	n     int // schedulers
	began time.Time
	want  int64 // milli-CPU
	dice  *rand.Rand
	write errgroup.Group // creates and deletes
	binds watch.Interface

	free  map[string]int64  // of each node
	pods  map[string]*job   // by the names of their pods
	held  map[string]heldOn // what each running pod has
	jobs  map[*job]bool
	asked []int64 // what the jobs of each scheduler want
	names int     // how many pods were made

	figures
}

type heldOn struct {
	node  string
	milli int64
}

// figures are what a market has seen since reset.
type figures struct {
	since          time.Time
	waits          []time.Duration // of jobs that were asked for since, until all of their pods ran
	looking, naive bindings        // of the schedulers that look at the cluster, and of the one that does not
	gangs, half    int             // that ran, or had to be made anew
	idle           []float64       // shares of the CPU that no pod used while some waited
}

// bindings are pods that were bound, and how many of them found no capacity at their node.
type bindings struct{ bound, killed int }

func (b bindings) share() float64 { return share(float64(b.killed), float64(b.bound)) }

func newMarket(c *controlplane.ControlPlane, how way, n, fill int) *market {
	m := &market{
		c: c, way: how, n: n, began: time.Now(), want: marketNodes * nodeMilli * int64(fill) / 100,
		dice:  rand.New(rand.NewPCG(uint64(n), uint64(fill))),
		asked: make([]int64, n), free: map[string]int64{}, pods: map[string]*job{}, held: map[string]heldOn{},
		jobs: map[*job]bool{},
	}
	m.write.SetLimit(writers)
	return m
}

// run lets pods come and go for a time.
func (m *market) run(ctx context.Context, b *testing.B, length time.Duration) {
	b.Helper()
	if m.binds == nil {
		pods, err := m.c.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		require.NoError(b, err)
		m.binds = watchPods(ctx, b, m.c, namespace, pods.ResourceVersion, "spec.nodeName!=")
	}
	end := time.After(length)
	ticker := time.NewTicker(turn)
	defer ticker.Stop()
	for {
		select {
		case <-end:
			require.NoError(b, m.write.Wait())
			return
		case now := <-ticker.C:
			m.turn(ctx, now)
		case event, open := <-m.binds.ResultChan():
			require.True(b, open, "the watch has ended")
			if pod, ok := event.Object.(*corev1.Pod); ok {
				m.see(ctx, pod, event.Type == watch.Deleted)
			}
		}
	}
}

// see takes in that a pod has a node, or is gone.
func (m *market) see(ctx context.Context, pod *corev1.Pod, gone bool) {
	if gone {
		if held, ok := m.held[pod.Name]; ok {
			m.free[held.node] += held.milli
			delete(m.held, pod.Name)
		}
		return
	}
	j := m.pods[pod.Name]
	if j == nil || j.running[pod.Name] {
		return
	}
	m.of(j).bound++
	node := pod.Spec.NodeName
	if _, known := m.free[node]; !known {
		m.free[node] = nodeMilli
	}
	if m.free[node] < j.milli {
		m.fail(ctx, j, pod.Name)
		return
	}
	m.free[node] -= j.milli
	m.held[pod.Name] = heldOn{node, j.milli}
	j.running[pod.Name] = true
	now := time.Now()
	if j.first.IsZero() {
		j.first = now
	}
	if len(j.running) < j.size {
		return
	}
	j.ends = now.Add(time.Duration(m.dice.ExpFloat64() * float64(meanLife)))
	if j.asked.After(m.since) {
		m.waits = append(m.waits, now.Sub(j.asked))
	}
	if j.size > 1 {
		m.gangs++
	}
}

// of is where the pods of a job are counted.
func (m *market) of(j *job) *bindings {
	if j.scheduler == naiveScheduler {
		return &m.naive
	}
	return &m.looking
}

// fail has a kubelet fail a pod. One that is in no gang is made anew at once.
func (m *market) fail(ctx context.Context, j *job, pod string) {
	m.of(j).killed++
	if j.size == 1 {
		m.drop(ctx, j)
		m.create(ctx, j)
		return
	}
	delete(m.pods, pod)
	m.delete(ctx, pod)
	if j.first.IsZero() {
		j.first = time.Now()
	}
}

// turn ends jobs, makes half gangs anew, and has as many jobs come as are wanted.
func (m *market) turn(ctx context.Context, now time.Time) {
	waiting := false
	for j := range m.jobs {
		switch {
		case !j.ends.IsZero() && now.After(j.ends):
			m.drop(ctx, j)
			delete(m.jobs, j)
			m.asked[j.pool] -= j.milli * int64(j.size)
		case j.ends.IsZero() && !j.first.IsZero() && now.Sub(j.first) > gangPatience:
			m.half++
			m.drop(ctx, j)
			m.create(ctx, j)
		}
		waiting = waiting || j.ends.IsZero() && now.Sub(j.asked) > time.Second
	}
	if waiting {
		used := int64(0)
		for _, held := range m.held {
			used += held.milli
		}
		m.idle = append(m.idle, 1-float64(used)/(marketNodes*nodeMilli))
	}
	for m.total() < m.want {
		j := m.next(now)
		m.jobs[j] = true
		m.asked[j.pool] += j.milli * int64(j.size)
		m.create(ctx, j)
	}
}

func (m *market) total() (sum int64) {
	for _, asked := range m.asked {
		sum += asked
	}
	return sum
}

// next is a new job of the scheduler that lacks most of its share of what is wanted.
func (m *market) next(now time.Time) *job {
	favored := int(now.Sub(m.began)/favor) % m.n
	i, most := 0, int64(math.MinInt64)
	for k, asked := range m.asked {
		share := m.want / int64(m.n)
		if m.way != steadyPools {
			if share /= 2; k == favored {
				share += m.want / 2
			}
		}
		if lacks := share - asked; lacks > most {
			i, most = k, lacks
		}
	}
	j := &job{
		scheduler: schedulerNames[i], pool: i, size: 1, asked: now, milli: podMillis[m.dice.IntN(len(podMillis))],
	}
	if j.scheduler == gangScheduler {
		j.size, j.milli = gangSize, gangMilli
	}
	return j
}

func (m *market) inPools() bool { return m.way == pools || m.way == steadyPools }

// create makes the pods of a job, which are new ones each time.
func (m *market) create(ctx context.Context, j *job) {
	j.running, j.first = map[string]bool{}, time.Time{}
	m.names++
	gang := "job-" + strconv.Itoa(m.names)
	for i := range j.size {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: gang + "-" + strconv.Itoa(i)},
			Spec: corev1.PodSpec{
				SchedulerName: j.scheduler, Containers: []corev1.Container{{Name: "main", Image: "example.invalid/not-pulled"}},
			},
		}
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewMilliQuantity(j.milli, resource.DecimalSI),
		}
		if j.size > 1 {
			gangsched.Mark(pod, gang, j.size)
		}
		if m.inPools() {
			pod.Spec.NodeSelector = map[string]string{poolLabel(m.n): strconv.Itoa(j.pool)}
		}
		m.pods[pod.Name] = j
		m.write.Go(func() error {
			_, err := m.c.Client().CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
}

// drop deletes the pods of a job.
func (m *market) drop(ctx context.Context, j *job) {
	for name, of := range m.pods {
		if of == j {
			delete(m.pods, name)
			m.delete(ctx, name)
		}
	}
}

func (m *market) delete(ctx context.Context, pod string) {
	m.write.Go(func() error {
		now := int64(0)
		err := m.c.Client().CoreV1().Pods(namespace).Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

func (m *market) reset() { m.figures = figures{since: time.Now()} }

// report says in one line what was seen since reset; c is what the server has counted meanwhile. The shares are of what
// was tried: refused of binds by extender, gangs-refused of gangs asked for, naive-refused of bindings that admission
// saw from who looks at nothing; killed and naive-killed of the pods bound; half-gangs of the gangs.
func (m *market) report(c counts) string {
	now := time.Now()
	seconds := now.Sub(m.since).Seconds()
	waits := slices.Clone(m.waits)
	for j := range m.jobs {
		if j.ends.IsZero() && j.asked.After(m.since) {
			waits = append(waits, now.Sub(j.asked)) // so long at least
		}
	}
	slices.Sort(waits)
	idle := 0.0
	for _, one := range m.idle {
		idle += one / float64(len(m.idle))
	}
	looking, naive := m.looking, m.naive
	return fmt.Sprintf("pods/s=%.1f p50-ms=%d p99-ms=%d refused=%.4f gangs-refused=%.4f naive-refused=%.4f killed=%.4f "+
		"naive-killed=%.4f half-gangs=%.4f idle=%.4f wakeups=%.0f vain=%.0f",
		float64(looking.bound-looking.killed+naive.bound-naive.killed)/seconds,
		waits[len(waits)/2].Milliseconds(), waits[len(waits)*99/100].Milliseconds(),
		share(c.refusedBinds, c.binds), share(c.refusedGangs, c.gangs),
		share(c.refusedNaive, c.refusedNaive+float64(naive.bound)), looking.share(), naive.share(),
		share(float64(m.half), float64(m.half+m.gangs)), idle, c.wakeups, c.vain)
}

func share(part, of float64) float64 { return part / max(of, 1) }
