//go:build chaos

package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	clients = 8 // of a history
	asks    = 4 // requests of each client
	// patience is how long a request is repeated that is said not to have been carried out.
	patience = 15 * time.Second
	// longestThought is the most that a client waits before a request, so that faults happen in the midst of histories.
	longestThought = 300 * time.Millisecond
)

// history is what some clients ask about some nodes and pods, and what they are answered.
type history struct {
	layout
	*fleet
	number int
	nodes  []string
	pods   []*corev1.Pod
	began  time.Time

	mu     sync.Mutex // guards events
	events []event
}

// plan is what one client does.
type plan []intent

// intent is one request, and how its client behaves.
type intent struct {
	request
	thought time.Duration // before it is sent
	// server is the first that is asked.
	server int
	// hasty has the client not ask again what became of it, and not wait for longer than limit, if there is one.
	hasty bool
	limit time.Duration
}

// newHistory chooses what a history is about, and what is done in it, by a seed.
func newHistory(f *fleet, seed uint64, number int, nodes []string) (*history, []plan) {
	dice := rand.New(rand.NewPCG(seed, uint64(number)))
	h := &history{fleet: f, number: number, nodes: nodes, layout: layout{homes: make([]int, podsOf-3)}}
	for pod := range h.cpus {
		h.cpus[pod] = 1 + dice.IntN(3)
	}
	for pod := range h.homes {
		h.homes[pod] = dice.IntN(nodesOf)
	}
	plans := make([]plan, clients)
	for c := range plans {
		for range asks {
			n := intent{
				request: h.choose(dice), thought: time.Duration(dice.Int64N(int64(f.thought))),
				server: dice.IntN(replicas), hasty: dice.IntN(10) == 0,
			}
			if n.hasty && dice.IntN(2) == 0 {
				n.limit = time.Duration(1+dice.IntN(20)) * time.Millisecond
			}
			n.number = 1 + c*asks + len(plans[c])
			plans[c] = append(plans[c], n)
		}
	}
	return h, plans
}

func (h *history) choose(dice *rand.Rand) request {
	reserved := dice.IntN(len(h.homes))
	switch n := dice.IntN(100); {
	case n < 25:
		return request{verb: reserve, pods: []int{reserved}}
	case n < 40:
		return request{verb: reserve, pods: dice.Perm(len(h.homes))[:2]}
	case n < 60:
		return request{verb: unreserve, pods: []int{reserved}}
	case n < 75:
		pod := dice.IntN(podsOf)
		node := dice.IntN(nodesOf)
		if h.hasHome(pod) {
			node = h.homes[pod]
		}
		return request{verb: bind, pods: []int{pod}, node: node}
	default:
		return request{verb: read, node: dice.IntN(nodesOf)}
	}
}

// run has all clients carry out their plans, and has a last look.
func (h *history) run(ctx context.Context, plans []plan) error {
	if err := h.createPods(ctx); err != nil {
		return err
	}
	h.began = time.Now()
	var running sync.WaitGroup
	errs := make([]error, clients)
	for c := range plans {
		running.Go(func() {
			for i := range plans[c] {
				<-time.After(plans[c][i].thought)
				errs[c] = errors.Join(errs[c], h.do(ctx, c, &plans[c][i]))
			}
		})
	}
	running.Wait()
	err, last := errors.Join(errs...), clients*asks
	for node := range nodesOf {
		last++
		n := &intent{request: request{verb: read, number: last, node: node}, server: node}
		err = errors.Join(err, h.do(ctx, 0, n))
	}
	return errors.Join(err, h.look(ctx, last+1), h.deletePods(ctx))
}

func (h *history) podName(pod int) string { return fmt.Sprintf("h%d-%d", h.number, pod) }

func (h *history) createPods(ctx context.Context) error {
	for pod, cpus := range h.cpus {
		spec := testbed.NewPod(h.podName(pod), testbed.Nobody, fmt.Sprint(cpus))
		created, err := h.Client().CoreV1().Pods(spec.Namespace).Create(ctx, spec, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		h.pods = append(h.pods, created)
	}
	return nil
}

// deletePods gives all capacity back.
func (h *history) deletePods(ctx context.Context) error {
	var errs []error
	for _, pod := range h.pods {
		errs = append(errs, h.Client().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	}
	return errors.Join(errs...)
}

// look asks the API server where the pods are.
func (h *history) look(ctx context.Context, number int) error {
	bound, asked := [podsOf]int{}, time.Since(h.began)
	for i, pod := range h.pods {
		now, err := h.Client().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		bound[i] = slices.Index(h.nodes, now.Spec.NodeName)
	}
	h.add(0, &request{number: number, verb: truth}, &answer{bound: &bound}, asked)
	return nil
}

func (h *history) add(client int, r *request, a *answer, asked time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event{client, r, a, int64(asked), int64(time.Since(h.began))})
}

// do sends a request, again and again as long as it is said not to have been carried out, or, by one who has
// patience, as long as it is not known. An error is an answer that nobody may get.
func (h *history) do(ctx context.Context, client int, n *intent) error {
	asked, lost := time.Since(h.began), 0
	id := fmt.Sprintf("%d-%d", h.number, n.number)
	var a *answer
	for end := time.Now().Add(patience); ; {
		ctx, cancel := ctx, context.CancelFunc(func() {})
		if n.limit > 0 {
			ctx, cancel = context.WithTimeout(ctx, n.limit)
		}
		a = &answer{}
		err := h.send(ctx, n, id, a)
		cancel()
		if err = a.judge(err); err != nil {
			return fmt.Errorf("%s: %w", &n.request, err)
		}
		if a.result == open {
			lost++
		}
		again := a.result == nothing || (a.result == open && !n.hasty)
		if !again || n.limit > 0 || time.Now().After(end) {
			break
		}
		n.server++ // another one may know better
		<-time.After(50 * time.Millisecond)
	}
	if lost > 0 && a.result == nothing {
		a.result = open
	}
	a.lost = lost
	h.add(client, &n.request, a, asked)
	return nil
}

// send sends a request once.
func (h *history) send(ctx context.Context, n *intent, id string, a *answer) error {
	c := h.clients[n.server%replicas]
	gang := &reserver.Request{SchedulerName: testbed.Nobody, RequestID: id}
	for _, pod := range n.pods {
		gang.Pods = append(gang.Pods, h.pods[pod])
		if h.hasHome(pod) {
			gang.Nodes = append(gang.Nodes, h.nodes[h.homes[pod]])
		}
	}
	var err error
	switch n.verb {
	case reserve:
		gang.TTLSeconds = 3600
		_, err = c.Reserve(ctx, gang)
	case unreserve:
		_, err = c.Unreserve(ctx, gang)
	case bind:
		pod := h.pods[n.pods[0]]
		err = c.Bind(ctx, &extenderv1.ExtenderBindingArgs{
			PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID, Node: h.nodes[n.node],
		})
	default:
		var node *reserver.NodeAnswer
		if node, err = c.Node(ctx, h.nodes[n.node]); err == nil {
			cpu := node.Node.Resources["cpu"]
			a.milli = cpu.Allocatable - cpu.Free
			return nil
		}
	}
	if err == nil {
		a.result = granted
	}
	return err
}

// byTheLedger are the reasons for which the ledger refuses here.
var byTheLedger = []string{"InsufficientResource", "AllocatedElsewhere", "BindInFlight"}

// judge takes down what an error says of a request.
func (a *answer) judge(err error) error {
	var no *reserver.RefusedError
	var unbound *reserver.BindError
	var away *reserver.UnavailableError
	var unknown *reserver.UnknownOutcomeError
	if err != nil {
		a.text = err.Error()
	}
	switch {
	case err == nil:
	case errors.As(err, &unknown):
		a.result = open
	case errors.As(err, &away):
		a.result = nothing
	case errors.As(err, &no) && len(no.Answer.Rejections) == 0:
		a.result = withoutReason(no.Error())
	case errors.As(err, &no):
		a.result = refused
		for _, r := range no.Answer.Rejections {
			if r.Reason == "WriteFailed" {
				a.result = open
			} else if !slices.Contains(byTheLedger, r.Reason) {
				return fmt.Errorf("refused for the reason %s: %w", r.Reason, err)
			}
		}
	case errors.As(err, &unbound) && slices.Contains([]string{"refused", "bound_elsewhere"}, unbound.Outcome):
		a.result = refused
	case errors.As(err, &unbound) && unbound.Outcome == "in_flight":
		a.result = nothing
	case errors.As(err, &unbound) && unbound.Outcome == "failed":
		a.result = failed
	default:
		return err
	}
	return nil
}

// withoutReason is what is known of a request that the ledger did not refuse.
func withoutReason(text string) result {
	switch {
	case strings.HasPrefix(text, "this repeats RequestID"):
		return granted // by a try before, and some of it was given back since
	case strings.HasPrefix(text, "nothing was reserved") && !strings.Contains(text, "not known whether"):
		return failed
	default:
		return open
	}
}

// longestCheck is how long porcupine may look for an order.
const longestCheck = 10 * time.Second

// check looks for an order of the requests, and writes down the history of which there is none. Mostly there is one in
// which each request is carried out once at most, and that is found soonest.
func (h *history) check() (porcupine.CheckResult, string) {
	model := h.model()
	verdict := porcupine.CheckOperationsTimeout(model, operations(h.events, 1), longestCheck)
	if verdict != porcupine.Illegal {
		return verdict, ""
	}
	verdict, info := porcupine.CheckOperationsVerbose(model, operations(h.events, maxTries), longestCheck)
	if verdict != porcupine.Illegal {
		return verdict, ""
	}
	return verdict, h.text() + h.draw(&model, &info)
}

// draw has porcupine draw what it tried, into a file that stays.
func (h *history) draw(model *porcupine.Model, info *porcupine.LinearizationInfo) string {
	file, err := os.CreateTemp("", fmt.Sprintf("globalreserve-history-%d-*.html", h.number))
	if err == nil {
		err = errors.Join(porcupine.Visualize(*model, *info, file), file.Close())
	}
	if err != nil {
		return fmt.Sprintf("it could not be drawn: %v\n", err)
	}
	return fmt.Sprintf("drawn in %s\n", file.Name())
}

// text is the history in the order in which the answers came.
func (h *history) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "history %d, CPUs of the pods %v, homes of the first of them %v, nodes %v of %d CPUs\n",
		h.number, h.cpus, h.homes, h.nodes, nodeCPUs)
	for _, e := range h.events {
		fmt.Fprintf(&b, "  client %d %9.3f to %9.3f ms  %s -> %s\n", e.client, float64(e.asked)/1e6, float64(e.ended)/1e6,
			e.request, e.answer)
	}
	return b.String()
}
