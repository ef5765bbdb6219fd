package rest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// gang has the watch bring the pods of a gang, all of which it needs.
func (f *fixture) gang(namespace, name string, size int, cpu string) (pods []*v1.Pod) {
	for k := range size {
		pod := aPod(fmt.Sprintf("%s-%d", name, k), cpu, "1Mi")
		pod.Namespace, pod.ResourceVersion = namespace, "1"
		pod.Annotations = map[string]string{v1alpha1.GangAnnotation: name, v1alpha1.GangMinAnnotation: fmt.Sprint(size)}
		f.Bring(pod)
		pods = append(pods, pod)
	}
	return pods
}

// tryBind has admission asked about a binding.
func (f *fixture) tryBind(pod *v1.Pod, node string) error {
	_, err := f.arbiter.AdmitBinding(f.t.Context(), &decide.BindingQuery{
		Pod: ledger.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, Node: node, User: "somebody",
	})
	return err
}

// threeGangs has a gang that starts, one that waits and one that lacks pods, in two namespaces.
func threeGangs(f *fixture) {
	require.NoError(f.t, f.tryBind(f.gang("team-a", "starts", 3, "1")[0], "node-1"))
	require.Error(f.t, f.tryBind(f.gang("team-a", "waits", 4, "3")[0], "node-3"))
	for _, few := range f.gang("team-b", "few", 2, "1") {
		few.Annotations[v1alpha1.GangMinAnnotation] = "5"
		f.Bring(few)
	}
}

// The needs of nodes have all pods of a gang that waits for capacity, also of those that nobody has asked about yet.
func TestNeedsOfGangs(t *testing.T) {
	f := newFixture(t, Limits{})
	threeGangs(f)
	answer := get[reserver.PendingAnswer](f, "/v1/pending")
	assert.Equal(t, []reserver.NodeNeed{
		{Namespace: "team-a", Gang: "waits", Count: 4, Requests: reserver.Amounts{"cpu": 3000, "memory": 1 << 20, "pods": 1}},
	}, answer.Needs)
}

// Those of a gang that ask for the same are one need, whatever the others ask for; so are gangs and pods of their own.
func TestNeedsAreCounted(t *testing.T) {
	f := newFixture(t, Limits{})
	list := newNeedList(f.api)
	request := func(cpu int64) *resources.Request {
		return &resources.Request{Amounts: []resources.Amount{{Column: resources.CPU, Value: cpu}}}
	}
	for _, cpu := range []int64{1000, 2000, 99_000, 1000, 2000, 1000} {
		list.add(&reserver.NodeNeed{Namespace: "ns", Gang: "g"}, request(cpu))
	}
	list.add(&reserver.NodeNeed{Namespace: "ns", Gang: "h"}, request(1000))
	list.add(&reserver.NodeNeed{Namespace: "other", Gang: "g"}, request(1000))
	for range 2 {
		list.add(&reserver.NodeNeed{Namespace: "ns", Pod: "p"}, request(1000))
	}
	cpus := func(cpu int64) reserver.Amounts { return reserver.Amounts{"cpu": cpu} }
	assert.Equal(t, []reserver.NodeNeed{
		{Namespace: "ns", Gang: "g", Count: 3, Requests: cpus(1000)},
		{Namespace: "ns", Gang: "g", Count: 2, Requests: cpus(2000)},
		{Namespace: "ns", Gang: "g", Count: 1, Requests: cpus(99_000), NewNode: true},
		{Namespace: "ns", Gang: "h", Count: 1, Requests: cpus(1000)},
		{Namespace: "other", Gang: "g", Count: 1, Requests: cpus(1000)},
		{Namespace: "ns", Pod: "p", Count: 1, Requests: cpus(1000)},
		{Namespace: "ns", Pod: "p", Count: 1, Requests: cpus(1000)},
	}, list.needs)
}

func names(answer reserver.GangsAnswer) (names []string) {
	for _, g := range answer.Gangs {
		names = append(names, g.Namespace+"/"+g.Name+" "+g.State)
	}
	return names
}

func TestGangs(t *testing.T) {
	f := newFixture(t, Limits{})
	threeGangs(f)
	all := get[reserver.GangsAnswer](f, "/v1/gangs")
	assert.Equal(t, []string{"team-a/starts Starting", "team-a/waits Waiting", "team-b/few Incomplete"}, names(all))
	assert.NotZero(t, all.Revision)
	starts, waits := all.Gangs[0], all.Gangs[1]
	assert.NotZero(t, starts.HalfSince)
	assert.NotZero(t, starts.KeptUntil)
	starts.HalfSince, starts.KeptUntil = waits.HalfSince, waits.KeptUntil
	assert.Equal(t, reserver.Gang{
		Namespace: "team-a", Name: "starts", Kind: "globalreserve", Scheduler: testScheduler, Minimum: 3, Pending: 2, Kept: 2,
		Bound: 1, State: "Starting",
	}, starts)
	assert.NotZero(t, waits.WaitingSince)
	assert.Contains(t, waits.Why, "3 more pods of its gang need capacity at once")
	assert.Equal(t, 5, all.Gangs[2].Minimum)
	assert.Contains(t, all.Gangs[2].Why, "needs at least 5 pods, and there are 2 that may be bound")

	for query, want := range map[string][]string{
		"namespace=team-b":                {"team-b/few Incomplete"},
		"namespace=nobody":                nil,
		"state=Waiting":                   {"team-a/waits Waiting"},
		"state=Waiting&namespace=team-b":  nil,
		"continue=team-a/globalreserve/s": {"team-a/starts Starting", "team-a/waits Waiting", "team-b/few Incomplete"},
	} {
		some := get[reserver.GangsAnswer](f, "/v1/gangs?"+query)
		assert.Equal(t, want, names(some), query)
		assert.NotNil(t, some.Gangs)
	}
	assert.Equal(t, names(all), allPages(t, f.gangPage))
}

// gangPage lists gangs one by one.
func (f *fixture) gangPage(next string) (some []string, more string) {
	page := get[reserver.GangsAnswer](f, "/v1/gangs?limit=1&continue="+next)
	return names(page), page.Continue
}

// A caller sees the gangs of the namespaces whose pods it may list.
func TestGangsOfOthersAreNotTold(t *testing.T) {
	f := newFixture(t, Limits{})
	threeGangs(f)
	f.reads = map[string]bool{"team-b": true}
	for path, want := range map[string][]string{
		"/v1/gangs": {"team-b/few Incomplete"}, "/v1/gangs?namespace=team-a": nil,
	} {
		var some reserver.GangsAnswer
		text := f.getAs(path, &some)
		assert.Equal(t, want, names(some))
		assert.NotContains(t, text, "starts")
	}
}

// Explain reports the gang of a pod, and what it waits for.
func TestExplainTellsTheGang(t *testing.T) {
	f := newFixture(t, Limits{})
	threeGangs(f)
	answer := get[reserver.ExplainAnswer](f, "/v1/explain?namespace=team-a&pod=waits-1")
	require.NotNil(t, answer.Gang)
	assert.Equal(t, "waits", answer.Gang.Name)
	assert.Equal(t, answer.Gang.Why, answer.Message)
	answer = get[reserver.ExplainAnswer](f, "/v1/explain?namespace=team-a&pod=starts-1")
	assert.Equal(t, "Starting", answer.Gang.State)
	assert.Contains(t, answer.Message, "as a member of globalreserve gang team-a/starts")
	f.Bring(aPod("alone", "1", "1Mi"))
	answer = get[reserver.ExplainAnswer](f, "/v1/explain?namespace=team-a&pod=alone")
	assert.Nil(t, answer.Gang)
}

// The slots of a gang are shown as what is reserved for its pods, on the node and in the list.
func TestSlotsOfGangsAreShown(t *testing.T) {
	f := newFixture(t, Limits{})
	require.NoError(t, f.tryBind(f.gang("team-a", "starts", 3, "4")[0], "node-1"))
	reservations := get[reserver.ReservationsAnswer](f, "/v1/reservations")
	require.Len(t, reservations.Reservations, 2)
	for _, r := range reservations.Reservations {
		assert.False(t, r.Durable)
		assert.NotZero(t, r.ExpiresAt)
		slot := r.Slots[0]
		assert.True(t, slot.Movable)
		node := get[reserver.NodeAnswer](f, "/v1/nodes/"+slot.Node)
		assert.Equal(t, reserver.NodeAmount{Allocatable: 4000, Reserved: 4000}, node.Node.Resources["cpu"])
		require.Len(t, node.Slots, 1)
		assert.Equal(t, slot.Pod, node.Slots[0].Slot.Pod)
	}
}

// Whatever a pod's author calls a gang, all gangs are listed, page by page.
func TestGangsOfAnyNameAreListed(t *testing.T) {
	for what, name := range map[string]string{
		"a line end": "bad\nname", "an escape": "bad\x1b]0;name\x07",
		"cut within a character": "b" + strings.Repeat("é", 200),
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t, Limits{})
			f.gang("team-a", "good", 2, "1")
			for _, pod := range f.gang("team-a", "bad", 2, "1") {
				pod.Annotations[v1alpha1.GangAnnotation] = name
				f.Bring(pod)
			}
			f.gang("team-b", "good", 2, "1")
			assert.Len(t, allPages(t, f.gangPage), 3)
		})
	}
}
