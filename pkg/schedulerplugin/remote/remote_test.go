package remote

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter/matcher"
	"github.com/globalreserve/globalreserve/pkg/arbiter/question"
	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/mirror"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
	"github.com/globalreserve/globalreserve/test/background"
)

// given is a watch that tells what it is given.
type given chan reserver.Event

func (g given) feed(ctx context.Context, send func(*reserver.Event) bool) {
	for {
		select {
		case e := <-g:
			send(&e)
		case <-ctx.Done():
			return
		}
	}
}

// newBackend returns a backend whose server answers with handle, and whose mirror has a snapshot. It asks once, and has
// patience. The time of its health stands still.
func newBackend(t *testing.T, handle http.HandlerFunc) *testBackend {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	log, _ := logtest.NewNullLogger()
	asking, err := newClient(&schedulerplugin.Args{RemoteURL: server.URL}, time.Minute, time.Nanosecond)
	require.NoError(t, err)
	b := &backend{mirror: mirror.New(mirror.Options{Log: log}), question: &question.Maker{Matcher: &matcher.Matcher{}}, reserving: asking, binding: asking, ttl: 1500 * time.Millisecond, log: log}
	clock := clocktesting.NewFakeClock(time.Now())
	b.health = &health{mirror: b.mirror, clock: clock, started: clock.Now()}
	events := make(given)
	background.Run(t, func(ctx context.Context) error { return b.mirror.Run(ctx, reserver.NewWatcher(ctx, events.feed)) })
	assert.Equal(t, schedulerplugin.Starting, kindOf(b.Ready()))
	events <- reserver.Event{Type: reserver.SnapshotEvent, First: true, Revision: 5, Snapshot: &reserver.WatchSnapshot{Revision: 5}}
	require.NoError(t, b.mirror.WaitFor(t.Context(), 5))
	require.NoError(t, b.Ready())
	return &testBackend{b, server.URL, events, clock}
}

// testBackend is a backend, where its server is, what its watch tells, and the time of its health.
type testBackend struct {
	*backend
	url    string
	events given
	clock  *clocktesting.FakeClock
}

// available stands for no unavailability.
const available = schedulerplugin.Unavailability(255)

func kindOf(err error) schedulerplugin.Unavailability {
	if u := (*schedulerplugin.UnavailableError)(nil); errors.As(err, &u) {
		return u.Kind
	}
	return available
}

// answering answers every request alike and keeps the last one.
func answering(t *testing.T, status int, answer any, last *reserver.Request) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if last != nil {
			assert.NoError(t, json.NewDecoder(r.Body).Decode(last))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		assert.NoError(t, json.NewEncoder(w).Encode(answer))
	}
}

func pod() (*v1.Pod, *ledger.Placement) {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = "ns", "p", "u"
	p.Spec.NodeName = "n" // the scheduler's assumption
	p.Spec.SchedulerName = "s"
	p.Spec.Volumes = []v1.Volume{{Name: "v"}}
	p.Spec.Containers = []v1.Container{{
		Name: "c", Image: "i", Env: []v1.EnvVar{{Name: "e"}},
		Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
	}}
	return p, &ledger.Placement{Pod: ledger.PodRef{Namespace: "ns", Name: "p", UID: "u"}, Node: "n", Scheduler: "s", Request: &resources.Request{}}
}

func TestReserve(t *testing.T) {
	var asked reserver.Request
	b := newBackend(t, answering(t, http.StatusOK, &reserver.Answer{FailedPods: []string{}, Revision: 7}, &asked))
	p, placement := pod()
	made, err := b.Reserve(t.Context(), p, placement)
	require.NoError(t, err)
	assert.True(t, made)
	assert.Equal(t, []string{"n"}, asked.Nodes)
	assert.EqualValues(t, 2, asked.TTLSeconds, "rounded up")
	assert.False(t, *asked.Durable)
	assert.Zero(t, asked.MinRevision, "it waits for nothing")
	require.Len(t, asked.Pods, 1)
	assert.Empty(t, asked.Pods[0].Spec.NodeName, "the pod is not bound")
	assert.Empty(t, asked.Pods[0].Spec.Volumes)
	assert.Empty(t, asked.Pods[0].Spec.Containers[0].Env)
	assert.Equal(t, "1", asked.Pods[0].Spec.Containers[0].Resources.Requests.Cpu().String())
	assert.Equal(t, "n", p.Spec.NodeName, "the scheduler's own pod stays as it is")
	_, behind := b.mirror.Lag()
	assert.EqualValues(t, 2, behind, "the answer's revision is awaited")
}

// A cycle gives back what the cycles before it, or a process before this one, have left of its
// scheduler's claims, also where the mirror still shows one that has ended; those of others stay.
func TestClaimsOfThisScheduler(t *testing.T) {
	for name, tc := range map[string]struct {
		scheduler, state string
		made             bool
	}{
		"its own":         {"s", "Reserved", true},
		"somebody else's": {"another", "Reserved", false},
		"being bound":     {"s", "Binding", false},
		"of a bound pod":  {"s", "Bound", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, answering(t, http.StatusOK, &reserver.Answer{FailedPods: []string{}, Revision: 7}, nil))
			amounts := reserver.Amounts{"cpu": 1000}
			event := reserver.Event{Type: reserver.AllocationEvent, Revision: 6, Allocation: &reserver.WatchAllocation{Revision: 6, Allocation: reserver.Allocation{
				Namespace: "ns", Pod: "p", UID: "u", Node: "n", State: tc.state, Scheduler: tc.scheduler, Requests: amounts,
			}}}
			if tc.state == "Reserved" {
				event = reserver.Event{Type: reserver.SlotEvent, Revision: 6, Slot: &reserver.WatchSlot{Revision: 6, Type: "SlotPlaced", Slot: reserver.NodeSlot{
					Namespace: "ns", Scheduler: tc.scheduler, Slot: reserver.Slot{Pod: "p", UID: "u", Node: "n", Requests: amounts},
				}}}
			}
			b.events <- event
			require.NoError(t, b.mirror.WaitFor(t.Context(), 6))
			p, placement := pod()
			made, err := b.Reserve(t.Context(), p, placement)
			require.NoError(t, err)
			assert.Equal(t, tc.made, made)
		})
	}
}

// A refusal without rejections, or with a reason that only newer servers have, is one all the same.
func TestReserveIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		rejections []reserver.Rejection
		want       schedulerplugin.RefusedError
	}{
		"with a reason": {
			[]reserver.Rejection{{Reason: "HostPortConflict", Message: "taken"}},
			schedulerplugin.RefusedError{Reason: ledger.HostPortConflict, Message: "taken", Revision: 9},
		},
		"without one":        {nil, schedulerplugin.RefusedError{Message: "no", Revision: 9}},
		"with one not known": {[]reserver.Rejection{{Reason: "TooManyMoons", Message: "moons"}}, schedulerplugin.RefusedError{Message: "moons", Revision: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, answering(t, http.StatusOK, &reserver.Answer{FailedPods: []string{"p"}, Error: "no", Revision: 9, Rejections: tc.rejections}, nil))
			p, placement := pod()
			made, err := b.Reserve(t.Context(), p, placement)
			assert.False(t, made)
			assert.Equal(t, &tc.want, err)
			b.events <- reserver.Event{
				Type: reserver.BookmarkEvent, Revision: 9, Bookmark: &reserver.WatchBookmark{Revision: 9},
			}
			require.NoError(t, b.mirror.WaitFor(t.Context(), 9))
			assert.NoError(t, b.Ready(), "a refusal is an answer")
		})
	}
}

func TestServerIsAway(t *testing.T) {
	b := newBackend(t, answering(t, http.StatusServiceUnavailable, map[string]string{"error": "stopping"}, nil))
	p, placement := pod()
	_, err := b.Reserve(t.Context(), p, placement)
	assert.Equal(t, schedulerplugin.Away, kindOf(err))
	assert.Equal(t, schedulerplugin.Away, kindOf(b.Ready()), "nobody else tries for a while")
	b.clock.Step(failedPause + 1)
	require.NoError(t, b.Ready(), "the pause after the failure is over")
	b.events <- reserver.Event{Type: reserver.DisconnectedEvent, Err: errors.New("connection lost")}
	away := func() bool { return kindOf(b.Ready()) == schedulerplugin.Away }
	require.Eventually(t, away, time.Minute, time.Millisecond)
	b.events <- reserver.Event{Type: reserver.HeartbeatEvent}
	require.Eventually(t, func() bool { return b.Ready() == nil }, time.Minute, time.Millisecond)
}

// A scheduler without the right to watch is told which one it lacks, and not that the server cannot be reached.
func TestServerDeniesTheWatch(t *testing.T) {
	b := newBackend(t, answering(t, http.StatusOK, &reserver.Answer{}, nil))
	b.events <- reserver.Event{Type: reserver.DisconnectedEvent, Err: &reserver.UnauthorizedError{Status: http.StatusForbidden, Message: `"s" may not GET /v1/watch`}}
	denied := func() bool { return kindOf(b.Ready()) == schedulerplugin.Denied }
	require.Eventually(t, denied, time.Minute, time.Millisecond)
	require.ErrorContains(t, b.Ready(), `"s" may not GET /v1/watch`)
}

// A request of which no answer comes may have been carried out, so Unreserve has to give the capacity back.
// And its server, which may still seem to be there, is away for those who come next.
func TestReserveWithoutAnAnswer(t *testing.T) {
	for name, handle := range map[string]func(r *http.Request, timeout context.CancelFunc){
		"lost": func(*http.Request, context.CancelFunc) { hangUp() },
		"owing": func(r *http.Request, timeout context.CancelFunc) {
			timeout()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, timeout := context.WithCancel(t.Context())
			defer timeout()
			b := newBackend(t, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				handle(r, timeout)
			})
			p, placement := pod()
			made, err := b.Reserve(ctx, p, placement)
			assert.True(t, made)
			assert.Equal(t, schedulerplugin.Away, kindOf(err), "%v", err)
			assert.Equal(t, schedulerplugin.Away, kindOf(b.Ready()))
		})
	}
}

// hangUp ends the connection without an answer.
func hangUp() { panic(http.ErrAbortHandler) }

// A bind that may have been carried out is not to be done again past the ledger, also where nobody is
// found to ask about it.
func TestBindWithoutAnAnswer(t *testing.T) {
	tries, clock := 0, clocktesting.NewFakeClock(time.Now())
	b := newBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		if tries++; tries == 1 {
			hangUp()
		}
		clock.Step(2 * time.Minute) // no time is left for another try
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	binding, err := client.New(client.Options{URL: b.url, RetryFor: time.Minute, Clock: clock})
	require.NoError(t, err)
	t.Cleanup(binding.Close)
	b.binding = binding
	answered := make(chan error)
	go func() {
		answered <- b.Bind(t.Context(), &cluster.Pod{Ref: ledger.PodRef{Namespace: "ns", Name: "p", UID: "u"}}, "n")
	}()
	require.Eventually(t, clock.HasWaiters, time.Minute, time.Millisecond)
	clock.Step(10 * time.Second) // the pause is over
	err = <-answered
	require.ErrorAs(t, err, new(*reserver.UnknownOutcomeError))
	assert.Equal(t, 2, tries)
	assert.Equal(t, available, kindOf(err))
}

func TestBind(t *testing.T) {
	info := &cluster.Pod{Ref: ledger.PodRef{Namespace: "ns", Name: "p", UID: "u"}}
	cases := map[string]struct {
		answer reserver.BindAnswer
		want   string
		away   bool
	}{
		"bound":       {reserver.BindAnswer{}, "", false},
		"refused":     {reserver.BindAnswer{Error: "no capacity", Outcome: "refused"}, "no capacity", false},
		"not known":   {reserver.BindAnswer{Error: "timeout", Outcome: "unknown"}, "timeout", false},
		"not ready":   {reserver.BindAnswer{Error: "starting", Outcome: "not_ready"}, "starting", true},
		"many binds":  {reserver.BindAnswer{Error: "busy", Outcome: "busy"}, "busy", true},
		"no such pod": {reserver.BindAnswer{Error: "gone", Outcome: "pod_gone"}, "gone", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, answering(t, http.StatusOK, &tc.answer, nil))
			err := b.Bind(t.Context(), info, "n")
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			assert.Equal(t, tc.away, kindOf(err) == schedulerplugin.Away)
		})
	}
}

// A reservation that is new is told of after it can be found.
func TestReservationsAreToldOf(t *testing.T) {
	rsv := &v1alpha1.Reservation{Spec: v1alpha1.ReservationSpec{
		Consumers: &v1alpha1.ConsumerSpec{Index: "team"}, Slots: []v1alpha1.Slot{{Name: "s"}},
	}}
	rsv.Namespace, rsv.Name, rsv.UID = "ns", "r", "uid"
	log, _ := logtest.NewNullLogger()
	m := &matcher.Matcher{}
	member := newInfo(t, map[string]string{v1alpha1.ReservationIndexAnnotation: "team"})
	var told []string
	r := &reservations{matcher: m, log: log, matched: func(namespace string) {
		told = append(told, namespace)
		assert.Len(t, m.Candidates(member), 1)
	}}
	r.set(rsv, true)
	assert.Equal(t, []string{"ns"}, told)
	r.set(rsv, false)
	assert.Len(t, told, 1, "a change is no news: who may use it stays")
	r.remove(rsv)
	assert.Empty(t, m.Candidates(member))
}

func newInfo(t *testing.T, annotations map[string]string) *cluster.Pod {
	p, _ := pod()
	p.Annotations = annotations
	info, err := cluster.Reader{Table: ledger.New(ledger.Options{}).Table()}.NewPod(p)
	require.NoError(t, err)
	return info
}
