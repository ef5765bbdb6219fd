//go:build chaos

package reservations

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// load is what users and schedulers do, all at once, to a server that may be killed at any moment.
type load struct {
	*cluster
	testbed.Load
	nodes []string

	mu     sync.Mutex // guards what follows
	count  int
	gangs  map[string]*promise // acknowledged and not given back, by namespace/name of the object
	bound  []*corev1.Pod
	broken []string // promises that were not kept
}

// promise is a gang that /reserve answered for.
type promise struct {
	pods    []*corev1.Pod
	nodes   []string
	expires time.Time
}

const (
	workers = 6
	// mostBound is how many bound pods there are before each deed deletes one instead.
	mostBound = 40
	// mostObjects is how many objects there are before no more are created.
	mostObjects = 20
)

// byPeople selects the objects that the server did not make.
var byPeople = metav1.ListOptions{LabelSelector: "!" + convert.MadeByLabel}

func newLoad(c *cluster, nodes []string) *load {
	l := &load{cluster: c, nodes: nodes, gangs: map[string]*promise{}}
	deeds := []testbed.Deed{
		l.reserveGang, l.reserveGang, l.bindGang, l.bindGang, l.unreserveGang, l.createObject, l.deleteObject,
		l.bindConsumer, l.bindConsumer, l.deletePod,
	}
	l.Next = func() testbed.Deed {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.bound) > mostBound {
			return l.deletePod
		}
		return deeds[rand.IntN(len(deeds))]
	}
	return l
}

func (l *load) name(prefix string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	return fmt.Sprintf("%s-%d", prefix, l.count)
}

func (l *load) node() string { return l.nodes[rand.IntN(len(l.nodes))] }

// pod creates a pod of a quarter of a CPU to one and a quarter.
func (l *load) pod(ctx context.Context, prefix, index string) (*corev1.Pod, error) {
	pod := testbed.NewPod(l.name(prefix), testbed.Nobody, fmt.Sprintf("%dm", 250+rand.IntN(1000)), withIndex(index))
	return l.Client().CoreV1().Pods(l.Namespace).Create(ctx, pod, metav1.CreateOptions{})
}

func (l *load) reserveGang(ctx context.Context) error {
	request := &reserver.Request{
		SchedulerName: testbed.Nobody, RequestID: l.name("request"), TTLSeconds: []int64{2, 4, 60}[rand.IntN(3)],
	}
	for range 1 + rand.IntN(3) {
		pod, err := l.pod(ctx, "group", "")
		if err != nil {
			return err
		}
		request.Pods, request.Nodes = append(request.Pods, pod), append(request.Nodes, l.node())
	}
	var answer reserver.Answer
	err := l.Ledger.Post(ctx, testbed.ReservePath, request, &answer)
	if err != nil || !answer.Granted() {
		for _, pod := range request.Pods {
			_ = l.Client().CoreV1().Pods(l.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
		}
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gangs[answer.Reservation] = &promise{pods: request.Pods, nodes: request.Nodes, expires: answer.ExpiresAt}
	return l.Did("gangs acknowledged", nil)
}

// takeGang removes one of the promises that are still good, and returns it.
func (l *load) takeGang() (name string, p *promise) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, p := range l.gangs {
		delete(l.gangs, name)
		if time.Until(p.expires) > time.Second {
			return name, p
		}
	}
	return "", nil
}

// bindGang redeems a promise: every pod must be bound where it has its capacity.
func (l *load) bindGang(ctx context.Context) error {
	name, p := l.takeGang()
	if p == nil {
		return nil
	}
	for i, pod := range p.pods {
		refusal, err := l.Ledger.TryBind(ctx, pod, p.nodes[i])
		if err != nil {
			l.mu.Lock()
			l.gangs[name] = &promise{pods: p.pods[i:], nodes: p.nodes[i:], expires: p.expires}
			l.mu.Unlock()
			return err
		}
		l.mu.Lock()
		switch {
		case refusal == "":
			l.bound = append(l.bound, pod)
			_ = l.Did("pods of gangs bound", nil)
		case strings.Contains(refusal, "too little") && time.Now().Before(p.expires):
			l.broken = append(l.broken, fmt.Sprintf("%s, promised until %s: %s", name, p.expires, refusal))
		}
		l.mu.Unlock()
	}
	return nil
}

func (l *load) unreserveGang(ctx context.Context) error {
	name, p := l.takeGang()
	if p == nil {
		return nil
	}
	var answer reserver.Answer
	return l.Did("gangs given back", l.Ledger.Post(ctx, testbed.UnreservePath, &reserver.Request{SchedulerName: testbed.Nobody, Reservation: name}, &answer))
}

// createObject makes an object as people do, for pods of an index.
func (l *load) createObject(ctx context.Context) error {
	if list, err := l.Reservations().List(ctx, byPeople); err != nil || len(list.Items) > mostObjects {
		return err
	}
	policy := []string{"Once", "Aligned", "Restricted"}[rand.IntN(3)]
	spec := fmt.Sprintf(`{ttl: %ds, allocatePolicy: %s, consumers: {index: i%d}, slots: [{name: a, requests: {cpu: %dm}}, {name: b, nodeName: %s, requests: {cpu: %dm}}]}`,
		[]int{1, 2, 20}[rand.IntN(3)], policy, rand.IntN(3), 250+rand.IntN(1000), l.node(), 250+rand.IntN(1000))
	return l.Did("objects created", l.TryReservation(l.name("object"), spec))
}

// deleteObject deletes one of the objects that people made.
func (l *load) deleteObject(ctx context.Context) error {
	list, err := l.Reservations().List(ctx, byPeople)
	if err != nil || len(list.Items) < mostObjects/2 {
		return err
	}
	return l.Did("objects deleted", l.Reservations().Delete(ctx, list.Items[rand.IntN(len(list.Items))].Name, metav1.DeleteOptions{}))
}

// bindConsumer binds a pod that may use the capacity of objects, wherever there is capacity.
func (l *load) bindConsumer(ctx context.Context) error {
	pod, err := l.pod(ctx, "consumer", fmt.Sprintf("i%d", rand.IntN(3)))
	if err != nil {
		return err
	}
	for range 3 {
		refusal, err := l.Ledger.TryBind(ctx, pod, l.node())
		if err != nil {
			return err // it may be bound or not; nobody needs to know
		}
		if refusal == "" {
			l.mu.Lock()
			l.bound = append(l.bound, pod)
			l.mu.Unlock()
			return l.Did("consumers bound", nil)
		}
	}
	return l.Client().CoreV1().Pods(l.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
}

func (l *load) deletePod(ctx context.Context) error {
	l.mu.Lock()
	if len(l.bound) == 0 {
		l.mu.Unlock()
		return nil
	}
	i := rand.IntN(len(l.bound))
	pod := l.bound[i]
	l.bound = append(l.bound[:i], l.bound[i+1:]...)
	l.mu.Unlock()
	return l.Did("pods deleted", l.Client().CoreV1().Pods(l.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
}

// promised lists the pods that must have their capacity now, and where: they are acknowledged, and
// neither bound nor given back nor about to expire.
func (l *load) promised(unbound map[string]bool) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	capacities := map[string]string{}
	for _, p := range l.gangs {
		if time.Until(p.expires) < time.Second {
			continue
		}
		for i, pod := range p.pods {
			if unbound[pod.Name] {
				capacities[pod.Name] = p.nodes[i]
			}
		}
	}
	return capacities
}

func (l *load) requireKept() {
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(l.T, l.broken, "acknowledged capacity was lost")
}
