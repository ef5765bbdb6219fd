// Package drain drains nodes without a pod that has nowhere to go: it has the server plan a place for each pod that has
// to go, keeps the places by Reservations, and only then cordons the nodes and evicts the pods, one after another of
// each owner, as their PodDisruptionBudgets allow. It is the engine of kubectl reserve drain, and for controllers.
//
//   - drain.go  what a Drain is, and its steps
//   - plan.go   which pods go where, by the server's plan and kubectl drain's own rules
//   - keep.go   the Reservations that keep the places
//   - evict.go  evicts a pod, and waits for the one that is made for it
//   - owner.go  how many pods an owner is to have, and has
//
// All that a Drain knows is in the cluster: the Reservations have its label, and the nodes are cordoned. So the same
// Drain, run again after it was killed at any step, goes on, and Undo takes it back.
package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	kubectldrain "k8s.io/kubectl/pkg/drain"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
)

// DefaultTTL is how long places are kept that no pod comes for, once nobody goes on with a drain.
const DefaultTTL = 10 * time.Minute

// Options say what is drained, and how. Kube, Reservations, Server, Nodes, Out and ErrOut are required.
type Options struct {
	Kube         kubernetes.Interface
	Reservations versioned.Interface
	Server       *client.Client
	// Nodes are drained together: no pod of one goes to another. The same nodes are the same drain.
	Nodes []string
	// Pods are the UIDs of the only ones that go, and the nodes are not cordoned; empty: all of the nodes.
	Pods []string
	// SkipNamespaces are namespaces whose pods stay.
	SkipNamespaces []string
	// Force, IgnoreDaemonSets and DeleteEmptyDirData are as for kubectl drain. Force is also for the pods of kinds that
	// are not known to make others.
	Force, IgnoreDaemonSets, DeleteEmptyDirData bool
	// GracePeriod is how long an evicted pod has to end, in seconds; nil: as long as the pod says.
	GracePeriod *int64
	// AllowUnplaced is how many pods may be evicted that have no place.
	AllowUnplaced int
	// Parallel is of how many owners pods are evicted at once; 0 is 1.
	Parallel int
	// UntilReady waits until the pods that are made are ready, and not only bound.
	UntilReady bool
	// TTL is how long places are kept once nobody goes on; 0 is DefaultTTL.
	TTL time.Duration
	// Out has a line for each pod, and ErrOut what delays it.
	Out, ErrOut io.Writer
}

// Drain drains some nodes. Make one with New. Its methods are not for several goroutines at once.
type Drain struct {
	Options
	name string

	mu sync.Mutex // guards Out, ErrOut, and what follows
	// moved is how many pods went, and unplaced how many of them without a place that they needed.
	moved, unplaced int
	summary         string // that was said last
	// relied are the Reservations that pods have their places in, and when they were made or last extended.
	relied map[types.NamespacedName]time.Time
}

// New returns a Drain. It changes nothing.
func New(o Options) *Drain {
	o.Nodes = slices.Compact(slices.Sorted(slices.Values(o.Nodes)))
	o.Pods = slices.Sorted(slices.Values(o.Pods))
	o.Parallel, o.TTL = max(o.Parallel, 1), cmp.Or(o.TTL, DefaultTTL)
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(strings.Join(o.Nodes, ",")))
	for _, uid := range o.Pods {
		_, _ = hash.Write([]byte(uid))
	}
	return &Drain{
		Options: o, name: fmt.Sprintf("drain-%08x", hash.Sum32()), relied: map[types.NamespacedName]time.Time{},
	}
}

// Name is the value of the label on all Reservations of the drain, and what their names begin with.
func (d *Drain) Name() string { return d.name }

// Run drains the nodes. Before all places are kept nothing is changed: then the error is an *UnplacedError, or says
// what stood in the way. After that the nodes stay cordoned and the places kept, whatever the error: Run again goes on.
func (d *Drain) Run(ctx context.Context) error {
	plan, err := d.secure(ctx)
	if err != nil {
		return err
	}
	if err := d.cordon(ctx, true); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { d.putOff(ctx) })
	err = d.empty(ctx, plan)
	cancel()
	keeping.Wait()
	if errors.Is(err, errTakenBack) { // what was kept since
		err = errors.Join(err, d.giveBack(ctx))
	}
	return err
}

// errTakenBack is that somebody has made a node schedulable again while it was drained.
var errTakenBack = errors.New("is schedulable again: the drain was taken back, and evicts no more pods")

// takenBack returns an error with errTakenBack where one of the nodes is seen not to be cordoned any more.
func (d *Drain) takenBack(ctx context.Context, nodes ...string) error {
	if len(d.Pods) > 0 {
		return nil // without a cordon
	}
	for _, name := range nodes {
		node, err := d.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && !node.Spec.Unschedulable {
			return fmt.Errorf("node/%s %w", name, errTakenBack)
		}
	}
	return nil
}

// maxRounds bounds how often pods are evicted that have come to the nodes meanwhile.
const maxRounds = 20

// empty evicts pods until none is left that has to go, and then gives back what was not used.
func (d *Drain) empty(ctx context.Context, plan *Plan) (err error) {
	for range maxRounds {
		before := d.moved
		if err := d.evictAll(ctx, plan); err != nil {
			return err
		}
		// Pods may have come before the nodes were cordoned, and places may be gone.
		plan, err = d.secure(ctx)
		if back := d.takenBack(ctx, d.Nodes...); back != nil {
			return back
		}
		if unplaced := (*UnplacedError)(nil); errors.As(err, &unplaced) && d.moved > before {
			if plan = unplaced.Plan.keptOnly(); len(plan.Go) > 0 { // first what can go
				continue
			}
		}
		switch {
		case err != nil:
			return err
		case len(plan.Go) == 0:
			return d.finish(ctx)
		case d.moved == before:
			return fmt.Errorf("%d pods are left, and none of them could be evicted: run it again", len(plan.Go))
		}
	}
	return fmt.Errorf("pods come to the nodes all the time, %d rounds long: which scheduler sends them there?", maxRounds)
}

// finish waits until the pods that were made have their places, and gives back the others. One may not have come yet
// where Run was ended after its eviction.
func (d *Drain) finish(ctx context.Context) error {
	list, err := d.list(ctx, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	// Owners of which it is not known what they make come last: they take all of the time.
	slices.SortStableFunc(list, func(a, b v1alpha1.Reservation) int {
		return -cmp.Compare(a.Annotations[v1alpha1.DrainedOwnerAnnotation], b.Annotations[v1alpha1.DrainedOwnerAnnotation])
	})
	limited, cancel := context.WithTimeout(ctx, lastPods)
	defer cancel()
	for i := range list {
		if err := d.awaitOwner(limited, &list[i]); err != nil {
			return err
		}
	}
	if err := d.takenBack(ctx, d.Nodes...); err != nil {
		return err
	}
	without := "none"
	if d.unplaced > 0 {
		without = strconv.Itoa(d.unplaced)
	}
	summary := fmt.Sprintf("%s drained: %d pods went, %s of them without a place\n", d.describe(), d.moved, without)
	if summary != d.summary && len(d.Pods) == 0 { // Run may be called again and again, so that the nodes stay as they are
		d.say("%s", summary)
	}
	d.summary = summary
	return d.giveBack(ctx)
}

// secure plans, and has a place kept for each pod that has to go. The error is an *UnplacedError where that is not
// possible, and nothing is kept then that was not before.
func (d *Drain) secure(ctx context.Context) (*Plan, error) {
	const attempts = 5 // others may take what is only planned
	for attempt := 1; ; attempt++ {
		if err := d.removeUndecided(ctx); err != nil {
			return nil, err
		}
		plan, err := d.Plan(ctx)
		if err != nil {
			return nil, err
		}
		if err := plan.Check(d.AllowUnplaced - d.unplaced); err != nil {
			return nil, err
		}
		why, err := d.keep(ctx, plan)
		if err != nil || why == "" {
			return plan, err
		}
		if attempt == attempts {
			return nil, fmt.Errorf("places could not be kept, %d times: the last time %s", attempts, why)
		}
	}
}

// evictAll evicts the pods of a plan: one owner's one after another, and Parallel owners' at once.
func (d *Drain) evictAll(ctx context.Context, plan *Plan) error {
	byOwner := map[owner][]*Pod{}
	var owners []owner
	for _, pod := range plan.Go {
		of := pod.owner()
		if byOwner[of] == nil {
			owners = append(owners, of)
		}
		byOwner[of] = append(byOwner[of], pod)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(d.Parallel)
	for _, of := range owners {
		group.Go(func() error {
			for _, pod := range byOwner[of] {
				if err := d.move(ctx, pod); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// Undo makes the nodes schedulable again, and gives back the places that no pod has used. A Run that goes on ends.
func (d *Drain) Undo(ctx context.Context) error {
	uncordoned := d.cordon(ctx, false)
	list, err := d.list(ctx, metav1.NamespaceAll)
	err = errors.Join(uncordoned, err, d.giveBack(ctx))
	if err == nil {
		d.say("%d reservations given back\n", len(list))
	}
	return err
}

// cordon cordons the nodes, or makes them schedulable again.
func (d *Drain) cordon(ctx context.Context, cordoned bool) error {
	done := map[bool]string{true: "cordoned", false: "uncordoned"}[cordoned]
	if len(d.Pods) > 0 {
		return nil
	}
	for _, name := range d.Nodes {
		node, err := d.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && !cordoned {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading node %q: %w", name, err)
		}
		if node.Spec.Unschedulable == cordoned {
			continue
		}
		if err := kubectldrain.RunCordonOrUncordon(d.helper(ctx), node, cordoned); err != nil {
			return fmt.Errorf("node %q could not be %s: %w", name, done, err)
		}
		d.say("node/%s %s\n", name, done)
	}
	return nil
}

// helper is what kubectl drain works with.
func (d *Drain) helper(ctx context.Context) *kubectldrain.Helper {
	skip := func(pod v1.Pod) kubectldrain.PodDeleteStatus {
		if slices.Contains(d.SkipNamespaces, pod.Namespace) || len(d.Pods) > 0 && !slices.Contains(d.Pods, string(pod.UID)) {
			return kubectldrain.MakePodDeleteStatusSkip()
		}
		return kubectldrain.MakePodDeleteStatusOkay()
	}
	return &kubectldrain.Helper{
		Ctx: ctx, Client: d.Kube, IgnoreAllDaemonSets: d.IgnoreDaemonSets,
		Force: true, DeleteEmptyDirData: true, // refuse says what is not evicted without these
		AdditionalFilters: []kubectldrain.PodFilter{skip}, Out: io.Discard, ErrOut: d.ErrOut,
	}
}

func (d *Drain) describe() string {
	if len(d.Nodes) == 1 {
		return "node/" + d.Nodes[0]
	}
	return fmt.Sprintf("%d nodes", len(d.Nodes))
}

func (d *Drain) say(format string, args ...any) { d.write(d.Out, format, args...) }

func (d *Drain) complain(format string, args ...any) { d.write(d.ErrOut, format, args...) }

func (d *Drain) write(to io.Writer, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(to, format, args...)
}
