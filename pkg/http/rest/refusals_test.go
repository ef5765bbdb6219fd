package rest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// anotherPod has the watch bring a pod of two CPUs.
func (f *fixture) anotherPod(namespace, name string) *v1.Pod {
	pod := aPod(name, "2", "1Gi")
	pod.Namespace, pod.ResourceVersion = namespace, "1"
	f.Bring(pod)
	return pod
}

// refuseSome has five pods refused: of team-a by /reserve, and of team-b by admission.
func refuseSome(f *fixture) {
	f.bind(aPod("neighbor", "3", "1Gi"), "node-1")
	for k := range 3 {
		answer := f.reserve(gangOf("node-1", f.anotherPod("team-a", fmt.Sprint("a-", k))))
		require.NotEmpty(f.t, answer.Error)
	}
	for k := range 2 {
		require.Error(f.t, f.tryBind(f.anotherPod("team-b", fmt.Sprint("b-", k)), "node-1"))
	}
}

func refusedPods(answer reserver.RefusalsAnswer) (pods []string) {
	for _, r := range answer.Refusals {
		pods = append(pods, r.Rejection.Pod)
	}
	return pods
}

func TestRefusals(t *testing.T) {
	f := newFixture(t, Limits{})
	none := get[reserver.RefusalsAnswer](f, "/v1/refusals")
	assert.Empty(t, none.Refusals)
	assert.NotNil(t, none.Refusals)
	refuseSome(f)
	for query, want := range map[string][]string{
		"":                                    {"a-0", "a-1", "a-2", "b-0", "b-1"},
		"limit=2":                             {"b-0", "b-1"},
		"limit=2&after=0":                     {"a-0", "a-1"},
		"limit=2&after=2":                     {"a-2", "b-0"},
		"after=4":                             {"b-1"},
		"after=5":                             nil,
		"namespace=team-b":                    {"b-0", "b-1"},
		"pod=a-1":                             {"a-1"},
		"path=admission&limit=1":              {"b-1"},
		"path=filter":                         nil,
		"reason=InsufficientResource&pod=b-0": {"b-0"},
		"reason=Refused":                      nil,
		"scheduler=" + testScheduler:          {"a-0", "a-1", "a-2", "b-0", "b-1"},
		"scheduler=x":                         nil,
	} {
		answer := get[reserver.RefusalsAnswer](f, "/v1/refusals?"+query)
		assert.Equal(t, want, refusedPods(answer), query)
		assert.Equal(t, f.api.instance, answer.Instance)
		after := uint64(5)
		if query == "limit=2&after=0" || query == "limit=2&after=2" {
			after = answer.Refusals[1].Number
		}
		assert.Equal(t, after, answer.After, query)
	}
	answer := get[reserver.RefusalsAnswer](f, "/v1/refusals?pod=b-1")
	got := answer.Refusals[0]
	assert.WithinDuration(t, time.Now(), got.Time, time.Minute)
	assert.Equal(t, "somebody", got.Caller)
	assert.Equal(t, "admission", got.Path)
	assert.Equal(t, reserver.Rejection{
		Namespace: "team-b", Pod: "b-1", UID: "uid-b-1", Node: "node-1", Reason: "InsufficientResource", Resource: "cpu",
		Requested: 2000, Free: 1000,
		Holders: []reserver.Holder{{
			Namespace: "team-a", Pod: "neighbor", UID: "uid-neighbor", Scheduler: testScheduler,
			State: "Bound", Amount: 3000,
		}},
		Message: got.Rejection.Message,
	}, got.Rejection)
	assert.Contains(t, got.Rejection.Message, `node "node-1" has too little cpu for pod team-b/b-1`)
}

// What nobody was refused for says so, to whoever may read.
func TestRefusalsThatWereNone(t *testing.T) {
	for _, names := range []bool{true, false} {
		r := &reader{known: map[string]bool{"": names}}
		warned, observed := r.newRefusal(&requeue.Refusal{Warned: true}), r.newRefusal(&requeue.Refusal{Observed: true})
		assert.Equal(t, []bool{true, false, false, true},
			[]bool{warned.Warned, warned.Observed, observed.Warned, observed.Observed})
	}
}

// A caller that may not see a namespace gets amounts of its refusals, and finds none by a name.
func TestRefusalsOfOthersHaveNoNames(t *testing.T) {
	f := newFixture(t, Limits{})
	refuseSome(f)
	f.reads = map[string]bool{"team-b": true}
	ask := func(path string) (answer reserver.RefusalsAnswer) {
		text := f.getAs(path, &answer)
		for _, secret := range []string{"team-a", "a-0", "neighbor"} {
			assert.NotContains(t, text, secret)
		}
		return answer
	}
	all := ask("/v1/refusals")
	assert.Equal(t, []string{"", "", "", "b-0", "b-1"}, refusedPods(all))
	assert.Equal(t, reserver.Rejection{
		Node: "node-1", Reason: "InsufficientResource", Resource: "cpu", Requested: 2000, Free: 1000,
		Holders: []reserver.Holder{{State: "Bound", Amount: 3000}},
	}, all.Refusals[0].Rejection)
	assert.Empty(t, all.Refusals[0].Caller+all.Refusals[0].Scheduler)
	for _, query := range []string{"?namespace=team-a", "?pod=a-0", "?scheduler=" + testScheduler + "&pod=a-0"} {
		text := f.getAs("/v1/refusals"+query, &reserver.RefusalsAnswer{})
		assert.Contains(t, text, `"Refusals":[]`, query)
	}
	assert.Equal(t, []string{"b-0", "b-1"}, refusedPods(ask("/v1/refusals?scheduler="+testScheduler)))
}
