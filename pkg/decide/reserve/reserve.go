package reserve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Request asks for capacity for pods, or gives it back, in one step.
type Request struct {
	Scheduler string
	// Caller is whom the capacity belongs to, and whose limits it counts against.
	Caller string
	Pods   []Pod
	Mode   ledger.Mode
	// TTL is how long the capacity is to be kept; 0 leaves it to the policy.
	TTL    time.Duration
	DryRun bool
	// Durable writes a Reservation object before the answer, see Durable; Name is what it is to be called, empty where
	// that does not matter. OrInMemory: a gang that cannot be one object may be kept in memory instead.
	Durable, OrInMemory bool
	Name                string
	// RequestID names the request; Fingerprint distinguishes requests by what they ask for. Repeats have the same ones.
	RequestID, Fingerprint string
	// Reservation is what Unreserve gives back instead of Pods; may be empty.
	Reservation types.NamespacedName

	ttl        time.Duration // by the policy
	notDurable string        // why it is kept in memory, although it was to be durable if it could
}

// Pod is one pod of a gang.
type Pod struct {
	Ref  ledger.PodRef
	Node string
	// Request, Priority and Devices are what the caller says of the pod. They count as long as the API server has no
	// such pod. Request is nil where the pod was only named.
	Request  *resources.Request
	Priority int32
	Devices  *cluster.DeviceAnnotations
}

// RequestError says that a request makes no sense, however often it is sent.
type RequestError struct {
	// Conflict: it would make sense under another name.
	Conflict bool
	Message  string
}

// Error says what is wrong and what to do about it.
func (e *RequestError) Error() string { return e.Message }

// UnknownError says that it is not known whether the capacity is kept that was asked for: a repeat of the request finds
// out.
type UnknownError struct{ Message string }

// Error says what is not known.
func (e *UnknownError) Error() string { return e.Message }

func invalid(format string, args ...any) error {
	return &RequestError{Message: fmt.Sprintf(format, args...)}
}

// ErrRequestIDUsed refuses a RequestID that stands for another request.
func ErrRequestIDUsed(id string) *RequestError {
	return &RequestError{Conflict: true, Message: fmt.Sprintf(
		"RequestID %q was used before for another request: send a new RequestID with every new request", id)}
}

// Reasons of refusals that do not come from the ledger, beside gates.Reason and decide.ReasonPodInvalid.
const (
	// ReasonPodUnknown: the API server has no such pod, or could not be asked.
	ReasonPodUnknown = "PodUnknown"
	// ReasonWriteFailed: the Reservation object could not be changed.
	ReasonWriteFailed = "WriteFailed"
)

// Refusal says why one pod of a gang was refused.
type Refusal struct {
	Index int // of the pod
	// Reason is the ledger's kind of refusal, or one of the others. It is never empty.
	Reason  string
	Message string
	// Rejection has the pod, the node and what else the ledger said.
	Rejection ledger.Rejection
	// transient: the next try may end otherwise.
	transient bool
}

func refusedByLedger(i int, r *ledger.Rejection) Refusal {
	return Refusal{Index: i, Reason: r.Reason.String(), Message: r.Message(), Rejection: *r}
}

// Decision is what became of a gang.
type Decision struct {
	// Placements are the pods as they were decided on, in the order of the gang.
	Placements []ledger.Placement
	Refusals   []Refusal // in that order, too
	// Failed names the pods that were not granted: those refused, or all where the
	// reason does not lie with single pods.
	Failed []ledger.PodRef
	// Error says why nothing was done; empty where something was.
	Error string
	// Granted is how many pods have capacity now, or would have.
	Granted int
	// Kept is what was granted and is kept now.
	Kept []ledger.Placement
	// ExpiresAt is when the first of what was granted ends, by the wall clock. It is zero where nothing was granted, or
	// all pods are bound.
	ExpiresAt time.Time
	// Durable says that Reservation objects keep it. Reservation names the object
	// where there is one only. InMemory is why a gang is not durable that was to be, if it could.
	Durable     bool
	Reservation types.NamespacedName
	InMemory    string
	Revision    uint64
	// Transient: the next try may end otherwise, so this is no answer for repeats.
	Transient bool
}

// Durable reports whether a gang that does not say is durable: the cluster knows the kind Reservation.
func (a *Arbiter) Durable() bool { return a.o.Serving() }

// Has reports whether a pod has capacity on a node: an allocation, or a slot.
func (a *Arbiter) Has(pod ledger.PodRef, node string) bool {
	place, ok := a.o.Ledger.PlaceOf(pod)
	return ok && place == node
}

// Reserve keeps capacity for the pods of a gang on their nodes. Its errors are a *gates.Error with the outcome
// NotReady, a *RequestError, an *UnknownError, those of the rights that are asked for, and that of ctx.
func (a *Arbiter) Reserve(ctx context.Context, g *Request) (*Decision, error) {
	ctx, span := tracing.Start(ctx, tracing.Decide)
	defer span.End()
	if err := a.o.Ledger.Ready(); err != nil {
		return nil, err
	}
	if err := a.mayReserve(ctx, g); err != nil {
		return nil, err
	}
	ttl, err := a.o.Policy.ReservationTTL(g.Scheduler, g.TTL)
	if err != nil {
		return nil, invalid("TTLSeconds: %s", err)
	}
	g.ttl = ttl
	if g.Durable && !a.Durable() {
		return a.failed("reserve", g,
			"nothing was reserved: the cluster does not know the kind Reservation, without which nothing is durable: "+
				"install manifests/crd"+inMemoryInstead), nil
	}
	pods := a.findAll(ctx, g)
	if err := a.mayReserveFor(ctx, g, pods); err != nil {
		return nil, err
	}
	placements, screened, err := a.resolve(ctx, g, pods)
	if err != nil {
		return nil, err
	}
	defer a.o.Arbiter.ObservePodsToCome(placements)
	if !g.Durable {
		return a.reserveInMemory(g, placements, screened)
	}
	t, why := a.newAttempt(g, placements, screened)
	if why == "" && g.OrInMemory && g.Mode == ledger.AllOrNothing && len(screened) == 0 {
		why = a.needsSlots(pods, placements)
	}
	switch {
	case why == "":
		return a.reserveDurable(ctx, t)
	case !g.OrInMemory:
		return nil, invalid("the gang cannot be durable: %s: send several requests%s", why, inMemoryInstead)
	}
	g.Durable, g.notDurable = false, why
	if placements, screened, err = a.resolve(ctx, g, pods); err != nil { // which may use slots then
		return nil, err
	}
	d, err := a.reserveInMemory(g, placements, screened)
	if err == nil {
		d.InMemory = why
	}
	return d, err
}

// needsSlots returns why a durable gang can only be kept in memory: it fits with slots that Reservations keep for its
// pods on the nodes that it names, and not beside them. It is empty where that is not so.
func (a *Arbiter) needsSlots(pods []found, placements []ledger.Placement) string {
	with, first := slices.Clone(placements), ledger.SlotRef{}
	for i := range with {
		if pods[i].podToCome {
			continue
		}
		with[i].Slots = a.o.Question.For(pods[i].info, with[i].Node).Slots
		for _, slot := range a.o.Ledger.UsableSlots(&with[i]) {
			if first.Name == "" && slot.Node == with[i].Node {
				first = slot.Ref
			}
		}
	}
	if first.Name == "" || a.fits(placements) || !a.fits(with) {
		return ""
	}
	return fmt.Sprintf("reservation %s/%s keeps capacity for its pods, which it is given", first.Namespace, first.Name)
}

// fits reports whether a gang would be granted, all of it.
func (a *Arbiter) fits(placements []ledger.Placement) bool {
	tried, err := a.o.Ledger.Reserve(ledger.NewPlan(placements, ledger.AllOrNothing, time.Time{}), true)
	return err == nil && len(tried.Rejections) == 0
}

func (a *Arbiter) reserveInMemory(g *Request, placements []ledger.Placement, screened []Refusal) (*Decision, error) {
	clock := a.o.Ledger.Clock
	deadline := clock.Now().Add(g.ttl)
	plan := ledger.NewPlan(keep(placements, screened), g.Mode, deadline)
	nothing := len(screened) > 0 && g.Mode == ledger.AllOrNothing
	// If nothing is true, the plan is only tried, to learn what else is wrong.
	result, err := a.o.Ledger.Reserve(plan, nothing || g.DryRun)
	if err != nil {
		return nil, err
	}
	if nothing {
		result.Granted = 0
	}
	d := newDecision(placements, merge(placements, screened, result.Rejections), result.Revision)
	if d.Granted = result.Granted; d.Granted > 0 {
		d.ExpiresAt = clock.WallAt(deadline).UTC().Truncate(time.Second)
		if !g.DryRun {
			d.Kept = kept(placements, d.Refusals)
		}
	} else {
		d.Error = d.errorText("nothing was reserved")
	}
	a.report("reserve", g, d)
	return d, nil
}

// resolve makes the placements that the ledger is asked for, and refuses pods that may have nothing.
func (a *Arbiter) resolve(ctx context.Context, g *Request, pods []found) ([]ledger.Placement, []Refusal, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	placements := make([]ledger.Placement, len(g.Pods))
	var refusals []Refusal
	for i := range g.Pods {
		p, pod, err := &placements[i], pods[i].info, pods[i].err
		*p = ledger.Placement{Pod: g.Pods[i].Ref, Node: g.Pods[i].Node}
		if err == nil {
			*p = a.o.Question.For(pod, g.Pods[i].Node)
			p.Scheduler, p.Caller = g.Scheduler, g.Caller
			p.ToCome()
			p.PodToCome = pods[i].podToCome && !ledger.MayAll(g.Caller)
			if pods[i].podToCome || g.Durable {
				p.Slots = nil // a durable gang has slots of its own
			}
			err = a.mayHave(pod, p)
		}
		if gates.IsNotReady(err) {
			return nil, nil, err
		}
		if err != nil {
			refusals = append(refusals, refusePod(i, p, err))
		}
	}
	return placements, refusals, nil
}

// mayHave says why a pod must not get capacity on a node; nil if it may.
func (a *Arbiter) mayHave(pod *cluster.Pod, p *ledger.Placement) error {
	if pod.Finished || pod.Deleting {
		return &gates.Error{Outcome: gates.PodGone, Pod: pod.Ref, Node: p.Node}
	}
	if err := a.o.Ledger.Pass(p); err != nil || p.Scheduler == pod.Scheduler {
		return err
	}
	own := *p
	own.Scheduler = pod.Scheduler // the caller acts for that scheduler, too, whatever the request says
	return a.o.Ledger.Refuse(&own)
}

// refusePod returns the refusal of a pod that was not even tried.
func refusePod(i int, p *ledger.Placement, err error) Refusal {
	r := Refusal{
		Index: i, Reason: ReasonPodUnknown, Message: err.Error(),
		Rejection: ledger.Rejection{Pod: p.Pod, Node: p.Node},
	}
	var e *gates.Error
	var u *decide.UncountableError
	switch {
	case errors.As(err, &u):
		r.Reason = decide.ReasonPodInvalid
	case errors.Is(err, errNoSuchPod):
		r.transient = true
	case errors.As(err, &e) && (e.Outcome == gates.PodGone || e.Outcome == gates.UIDMismatch):
		r.Reason, r.Rejection.Reason = ledger.PodGone.String(), ledger.PodGone
	case errors.As(err, &e) && e.Outcome == gates.Failed:
		r.Message, r.transient = fmt.Sprintf("pod %s could not be read: try again: %s", p.Pod, e.Cause), true
	default: // a gate's refusal
		r.Reason = gates.Reason
	}
	return r
}

// maxPodReads is how many pods of one gang are read live at once.
const maxPodReads = 16

var errNoSuchPod = errors.New("the API server has no such pod: create it first, or send the whole pod")

// found is a pod of a gang: as the API server has it, or, where there is no such pod yet
// (podToCome), as the caller says it will be.
type found struct {
	info      *cluster.Pod
	podToCome bool
	err       error
}

// findAll finds the pods of a gang. Those that are only named, and that the watch
// has not brought, are read live: they may have been made a moment ago.
func (a *Arbiter) findAll(ctx context.Context, g *Request) []found {
	ctx, cancel := context.WithTimeout(ctx, a.o.ReadTimeout)
	defer cancel()
	pods := make([]found, len(g.Pods))
	var reads errgroup.Group
	reads.SetLimit(maxPodReads)
	for i := range g.Pods {
		pod := &g.Pods[i]
		pods[i].info, pods[i].err = a.o.Arbiter.Watched(pod.Ref)
		switch {
		case pods[i].info != nil || pods[i].err != nil:
		case pod.Request != nil:
			pods[i] = found{podToCome: true, info: &cluster.Pod{
				Ref: pod.Ref, Scheduler: g.Scheduler, Priority: pod.Priority, Request: pod.Request, Devices: pod.Devices,
			}}
		default:
			reads.Go(func() error {
				pods[i] = a.readNamed(ctx, pod.Ref)
				return nil
			})
		}
	}
	_ = reads.Wait() // none fails
	return pods
}

func (a *Arbiter) readNamed(ctx context.Context, ref ledger.PodRef) found {
	info, err := a.o.Arbiter.ReadPod(ctx, ref)
	if gates.IsPodGone(err) {
		return found{err: fmt.Errorf("pod %s: %w", ref, errNoSuchPod)}
	}
	return found{info: info, err: err}
}

// notRefused returns the pods of a gang of n that were not refused, by their index.
// refused is in the order of the gang.
func notRefused(n int, refused []Refusal) []int {
	kept := make([]int, 0, n-len(refused))
	for i := range n {
		if len(refused) > 0 && refused[0].Index == i {
			refused = refused[1:]
		} else {
			kept = append(kept, i)
		}
	}
	return kept
}

// keep returns the placements that were not refused.
func keep(placements []ledger.Placement, refused []Refusal) []ledger.Placement {
	if len(refused) == 0 {
		return placements
	}
	kept := make([]ledger.Placement, 0, len(placements)-len(refused))
	for _, i := range notRefused(len(placements), refused) {
		kept = append(kept, placements[i])
	}
	return kept
}

// merge puts refusals of both kinds, each ordered, into the order of the placements.
func merge(placements []ledger.Placement, screened []Refusal, rejections []ledger.Rejection) []Refusal {
	all := make([]Refusal, 0, len(screened)+len(rejections))
	for i := range placements {
		switch {
		case len(screened) > 0 && screened[0].Index == i:
			all = append(all, screened[0])
			screened = screened[1:]
		case len(rejections) > 0 && rejections[0].Pod == placements[i].Pod:
			all = append(all, refusedByLedger(i, &rejections[0]))
			rejections = rejections[1:]
		}
	}
	return all
}

// kept returns the placements that were not refused, with the pod and the node alone.
func kept(placements []ledger.Placement, refusals []Refusal) []ledger.Placement {
	kept := keep(placements, refusals)
	list := make([]ledger.Placement, len(kept))
	for i := range kept {
		list[i] = ledger.Placement{Pod: kept[i].Pod, Node: kept[i].Node}
	}
	return list
}

func newDecision(placements []ledger.Placement, refusals []Refusal, revision uint64) *Decision {
	d := &Decision{
		Placements: placements, Refusals: refusals, Revision: revision,
		Failed: make([]ledger.PodRef, 0, len(refusals)),
	}
	for i := range refusals {
		d.Failed = append(d.Failed, refusals[i].Rejection.Pod)
		d.Transient = d.Transient || refusals[i].transient
	}
	return d
}

// errorText says what became of a gang that was refused, and why.
func (d *Decision) errorText(what string) string {
	return fmt.Sprintf("%s, %d of %d pods were refused: %s", what, len(d.Refusals), len(d.Placements),
		d.Refusals[0].Message)
}
