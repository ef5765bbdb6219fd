package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	client "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/typed/globalreserve/v1alpha1"
)

const (
	// raceLabel is on the namespaces of races, and racePrefix before their names.
	raceLabel  = "globalreserve.io/check"
	racePrefix = "globalreserve-check-"
	// racePatience is how long one step may take, and racePoll how often it is looked at.
	racePatience = 10 * time.Second
	racePoll     = 100 * time.Millisecond
	// leftBehind is the age from which a namespace of a race is one of a check that was killed.
	leftBehind = 5 * time.Minute
)

// race is one try. It keeps next to nothing: 1m of CPU for each of three Reservations, and a host port that no pod is
// likely to want, for which two of them compete.
type race struct {
	objects client.ReservationInterface
	port    int32
	node    string
}

// Race has the server keep capacity in a namespace of its own, has two Reservations compete for one host port of a
// node, and gives it back. It removes what it made, also when ctx ends. It tries nothing where one of the lines of Run
// fails.
func (c *Check) Race(ctx context.Context, lines []Line) []Line {
	if Worst(lines) == Fails {
		return []Line{bad("race", Warning, "mend what fails first", "not tried")}
	}
	name := racePrefix + utilrand.String(5)
	r := &race{
		objects: c.Objects.GlobalreserveV1alpha1().Reservations(name),
		port:    61000 + rand.Int32N(4000), //nolint:gosec // it is no secret
	}
	_, err := c.Kube.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{raceLabel: "race"},
	}}, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsAlreadyExists(err) {
		return []Line{unseen("race", err)}
	}
	var line Line
	if line = unseen("race", err); err == nil {
		line = r.run(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), racePatience)
	defer cancel()
	_ = r.objects.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}) // goes with the namespace
	if err := c.clearUp(ctx, name); err != nil {
		return []Line{line, bad("race", Warning, "kubectl delete namespace -l "+raceLabel+"=race", "left behind: %v", err)}
	}
	return []Line{line}
}

// clearUp removes a race's namespace, and those of checks that were killed.
func (c *Check) clearUp(ctx context.Context, own string) error {
	namespaces := c.Kube.CoreV1().Namespaces()
	made, err := namespaces.Get(ctx, own, metav1.GetOptions{})
	if err == nil {
		err = namespaces.Delete(ctx, own, metav1.DeleteOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	all, err := namespaces.List(ctx, metav1.ListOptions{LabelSelector: raceLabel + "=race"})
	if err != nil {
		return nil //nolint:nilerr // its own is removed
	}
	for i := range all.Items {
		n := &all.Items[i]
		if n.DeletionTimestamp != nil || !strings.HasPrefix(n.Name, racePrefix) ||
			made.CreationTimestamp.Sub(n.CreationTimestamp.Time) < leftBehind {
			continue
		}
		if err := namespaces.Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// run is the try itself.
func (r *race) run(ctx context.Context) Line {
	const do = "kubectl describe rsv, and the server's log, say more"
	began := time.Now()
	if err := r.create(ctx, "first"); err != nil {
		return unseen("race", err)
	}
	first, err := r.await(ctx, "first")
	if err != nil && first != nil && len(first.Status.Conditions) > 0 { // the server has decided
		return bad("race", Warning, "free some capacity, or raise the limit that the text names",
			"could not be tried, as a Reservation of 1m of CPU has no place: %v", err)
	}
	if err != nil {
		return bad("race", Fails, do, "a Reservation of 1m of CPU is not kept: %v", err)
	}
	took := time.Since(began)
	r.node = first.Status.NodeName
	var errs [2]error
	names := [2]string{"left", "right"}
	together(len(names), func(i int) { errs[i] = r.create(ctx, names[i]) })
	for _, err := range errs {
		if err != nil {
			return unseen("race", err)
		}
	}
	won, lost, err := r.winner(ctx, names)
	if err != nil {
		return bad("race", Fails, do, "two Reservations for one host port: %v", err)
	}
	if err := r.objects.Delete(ctx, won, metav1.DeleteOptions{}); err != nil {
		return unseen("race", err)
	}
	if _, err := r.await(ctx, lost); err != nil {
		return bad("race", Fails, do, "what was given back is not given to who waits for it: %v", err)
	}
	return ok("race", "kept in %s; of two for one host port one got it, and the other once it was given back",
		took.Round(time.Millisecond))
}

// create makes a Reservation: before a node is known one wherever it fits, then one with the port on that node.
func (r *race) create(ctx context.Context, name string) error {
	slot := v1alpha1.Slot{
		Name: "slot", NodeName: r.node,
		Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(1, resource.DecimalSI)},
	}
	if r.node != "" {
		slot.HostPorts = []v1alpha1.HostPort{{Protocol: v1.ProtocolTCP, Port: r.port}}
	}
	_, err := r.objects.Create(ctx, &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ReservationSpec{
			TTL: &metav1.Duration{Duration: time.Minute}, Slots: []v1alpha1.Slot{slot},
		},
	}, metav1.CreateOptions{})
	return err
}

// await waits until a Reservation is Available. The error says what it waits for.
func (r *race) await(ctx context.Context, name string) (last *v1alpha1.Reservation, err error) {
	err = wait.PollUntilContextTimeout(ctx, racePoll, racePatience, true, func(ctx context.Context) (bool, error) {
		got, err := r.objects.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			last = got
		}
		return err == nil && got.Status.Phase == v1alpha1.ReservationAvailable, nil // asked again
	})
	if err != nil && last != nil {
		err = fmt.Errorf("after %s: %s", racePatience, situation(last))
	}
	return last, err
}

// winner waits until one of two Reservations is kept and the other refused.
func (r *race) winner(ctx context.Context, names [2]string) (won, lost string, err error) {
	seen := "no answer"
	err = wait.PollUntilContextTimeout(ctx, racePoll, racePatience, true, func(ctx context.Context) (bool, error) {
		var of [2]*v1alpha1.Reservation
		for i, name := range names {
			if of[i], err = r.objects.Get(ctx, name, metav1.GetOptions{}); err != nil {
				return false, nil //nolint:nilerr // asked again
			}
		}
		a, b := of[0].Status.Phase, of[1].Status.Phase
		seen = situation(of[0]) + " and " + situation(of[1])
		if both := v1alpha1.ReservationAvailable; a == both && b == both {
			return false, errors.New("both have it")
		}
		won, lost = names[0], names[1]
		if b == v1alpha1.ReservationAvailable {
			won, lost = lost, won
		}
		return a == v1alpha1.ReservationAvailable && b == v1alpha1.ReservationPending ||
			b == v1alpha1.ReservationAvailable && a == v1alpha1.ReservationPending, nil
	})
	if wait.Interrupted(err) {
		err = fmt.Errorf("after %s: %s", racePatience, seen)
	}
	return won, lost, err
}

// situation says where a Reservation stands.
func situation(r *v1alpha1.Reservation) string {
	text := cmp.Or(string(r.Status.Phase), "no server has looked at it")
	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionAvailable); c != nil && c.Message != "" {
		text += " (" + c.Message + ")"
	}
	return text
}
