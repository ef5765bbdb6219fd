package contract

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/decide/decidetest"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/http/rest"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// system is a ledger whose one node, node-1, has 4 CPU, and the API on it.
type system struct {
	*decidetest.World
	ledger  *ledger.Ledger
	router  *httprouter.Router
	handler http.Handler // of the router
}

func newSystem(t *testing.T) *system {
	l := ledger.New(ledger.Options{FirstRevision: 1000, JournalSize: 64})
	s := &system{World: decidetest.NewWorld(l), ledger: l, router: httprouter.New()}
	s.NoKind = true
	decider := s.New(t, nil)
	gangs := s.NewReserve(t, decider, nil)
	rest.New(rest.Options{
		Arbiter: decider, Reserve: gangs, Ledger: s.ledger.Reader, Clock: s.Clock, Metrics: s.Metrics, Serving: t.Context(),
		Intake:              httpjson.NewIntake(64<<20, func(*http.Request) string { return "" }),
		PendingReservations: func() []reservations.Pending { return nil },
		DrainReservations:   func() []reservations.Drained { return nil }, ResourceClaims: s.ResourceClaims,
	}).Register(s.router)
	s.handler = auth.Insecure(s.router)
	s.AddNode("node-1", "4", "8Gi")
	t.Cleanup(func() {
		defer gangs.Stop()
		require.NoError(t, decider.Stop(context.Background()))
	})
	return s
}

// allocations counts the pods that have an allocation, or a slot in memory.
func (s *system) allocations() int {
	views, _ := s.ledger.Allocations()
	return len(views) + s.ledger.Stats().InMemory
}

// names lists the Reservations there are.
func names(s *system) []string {
	list := []string{}
	for _, object := range s.Store.All() {
		list = append(list, object.Namespace+"/"+object.Name)
	}
	return list
}

// reserved is what is held or allocated of node-1, in milli-CPU.
func (s *system) reserved(t *testing.T) int64 {
	t.Helper()
	view, _, ok := s.ledger.Node("node-1")
	require.True(t, ok)
	return view.Amounts[0].Allocatable - view.Amounts[0].Free
}

func aPod(name, cpu string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}, // its request by default
		}}}},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
}

// ask is a request for the pods, all on node-1.
func ask(pods ...*v1.Pod) *reserver.Request {
	return &reserver.Request{
		SchedulerName: "s", Pods: pods, Nodes: strings.Split(strings.Repeat("node-1 ", len(pods)), " ")[:len(pods)],
	}
}

// onBoth runs a test in process and over REST.
func onBoth(t *testing.T, test func(t *testing.T, s *system, r reserver.Reserver)) {
	t.Run("in process", func(t *testing.T) {
		s := newSystem(t)
		test(t, s, inProcess(t, s))
	})
	t.Run("REST", func(t *testing.T) {
		s := newSystem(t)
		server := httptest.NewServer(s.handler)
		t.Cleanup(server.Close)
		test(t, s, newClient(t, client.Options{URL: server.URL}))
	})
}

// inProcess has a client without a network.
func inProcess(t *testing.T, s *system) *client.Client {
	return newClient(t, client.Options{URL: "http://localhost", Handler: s.handler})
}

// newClient has a client that gives up nothing because the machine is slow, unless the options say when.
func newClient(t *testing.T, o client.Options) *client.Client {
	o.Timeout, o.RetryFor = cmp.Or(o.Timeout, time.Hour), cmp.Or(o.RetryFor, time.Hour)
	c, err := client.New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestReserveAndUnreserve(t *testing.T) {
	onBoth(t, func(t *testing.T, s *system, r reserver.Reserver) {
		pods := []*v1.Pod{aPod("a", "1500m"), aPod("b", "1")}
		before := pods[0].DeepCopy()
		answer, err := r.Reserve(t.Context(), ask(pods...))
		require.NoError(t, err)
		assert.Empty(t, answer.FailedPods)
		assert.NotZero(t, answer.Revision)
		assert.False(t, answer.ExpiresAt.IsZero())
		assert.Equal(t, before, pods[0], "the caller's pods stay as they are")
		view, _, _ := s.ledger.Node("node-1")
		assert.EqualValues(t, 2500, view.Amounts[0].Reserved, "limits are requests where there are none")

		revision, err := r.Revision(t.Context())
		require.NoError(t, err)
		assert.Equal(t, answer.Revision, revision)

		_, err = r.Unreserve(t.Context(), ask(pods...))
		require.NoError(t, err)
		assert.Zero(t, s.allocations())
		_, err = r.Unreserve(t.Context(), ask(pods...))
		require.NoError(t, err, "what is not held is given back already")
	})
}

func TestRefusals(t *testing.T) {
	onBoth(t, func(t *testing.T, s *system, r reserver.Reserver) {
		answer, err := r.Reserve(t.Context(), ask(aPod("a", "3"), aPod("b", "2")))
		var refused *reserver.RefusedError
		require.ErrorAs(t, err, &refused)
		assert.Same(t, answer, refused.Answer)
		assert.Equal(t, []string{"b"}, answer.FailedPods)
		require.Len(t, answer.Rejections, 1)
		assert.EqualValues(t, 2000, answer.Rejections[0].Requested)
		assert.Zero(t, s.allocations())

		partial := ask(aPod("a", "3"), aPod("b", "2"))
		partial.Mode = reserver.Partial
		answer, err = r.Reserve(t.Context(), partial)
		require.NoError(t, err)
		assert.Equal(t, []string{"b"}, answer.FailedPods)

		theirs := ask(aPod("a", "3"))
		theirs.SchedulerName = "another"
		_, err = r.Unreserve(t.Context(), theirs)
		require.ErrorAs(t, err, &refused, "somebody else's capacity")
	})
}

func TestDurableReserveAndUnreserve(t *testing.T) {
	onBoth(t, func(t *testing.T, s *system, r reserver.Reserver) {
		s.NoKind = false
		request := ask(aPod("a", "1"), aPod("b", "1500m"))
		request.Name, request.Namespace, request.RequestID = "job", "default", "one"
		before := time.Now()
		answer, err := r.Reserve(t.Context(), request)
		require.NoError(t, err)
		assert.Equal(t, "default/job", answer.Reservation)
		assert.Equal(t, []string{"default/job"}, names(s), "it is written before the answer")
		const ttl = time.Minute + time.Second // objects have whole seconds
		assert.WithinRange(t, answer.ExpiresAt, before.Add(ttl-2*time.Second), time.Now().Add(ttl))
		assert.EqualValues(t, 2500, s.reserved(t))
		assert.Zero(t, s.allocations(), "the capacity is the object's")
		again, err := r.Reserve(t.Context(), request)
		require.NoError(t, err)
		assert.Equal(t, answer, again)
		other := ask(aPod("c", "1"))
		other.RequestID = "one"
		_, err = r.Reserve(t.Context(), other)
		var bad *reserver.BadRequestError
		require.ErrorAs(t, err, &bad)
		assert.Equal(t, 409, bad.Status)

		_, err = r.Unreserve(t.Context(), ask(request.Pods[0]))
		require.NoError(t, err)
		assert.EqualValues(t, 1500, s.reserved(t), "the capacity of one pod is given back")
		whole := &reserver.Request{SchedulerName: "s", Reservation: answer.Reservation}
		_, err = r.Unreserve(t.Context(), whole)
		require.NoError(t, err)
		assert.Empty(t, names(s))
		assert.Zero(t, s.reserved(t))
		_, err = r.Unreserve(t.Context(), whole)
		require.NoError(t, err, "what is gone is given back already")
	})
}

func TestDryRunAndEndedContext(t *testing.T) {
	onBoth(t, func(t *testing.T, s *system, r reserver.Reserver) {
		request := ask(aPod("a", "1"))
		request.DryRun = true
		_, err := r.Reserve(t.Context(), request)
		require.NoError(t, err)
		assert.Zero(t, s.allocations())

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = r.Reserve(ctx, ask(aPod("a", "1")))
		var away *reserver.UnavailableError
		require.ErrorAs(t, err, &away, "nothing was sent")
		require.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, s.allocations())
	})
}
